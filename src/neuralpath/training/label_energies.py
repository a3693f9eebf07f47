"""Label energies of the gates of a network, on as many examples as take a few seconds."""

import copy
import math
from typing import NamedTuple

import torch

from neuralpath.data import Split, balanced_subset
from neuralpath.gating import GatedNetwork
from neuralpath.graph import Gates, PathGraph, UnsupportedOperation, nodes as n, trace
from neuralpath.kernels import image_chain, label_energy, path_kernel
from neuralpath.training.batches import derive_seed

ENERGY_EXAMPLES = 300  # largest number of examples, over all classes
ENERGY_JITTER = 1e-6  # relative to the mean eigenvalue; near-duplicate examples make the kernel singular
AFFORDABLE_COST = 10**8  # pairs of positions, over all convolutions and pairs of examples: 3 seconds on one core
LARGEST_COST = 20 * AFFORDABLE_COST  # for one example of each class; above it there is no energy
COMPILED_SPEEDUP = 25  # of a chain of convolutions with hard gates, relative to the general path kernel


class LabelEnergies(NamedTuple):
    """Label energies of the path kernel with the gates of a model and with random gates, or why there are none."""

    learned: float | None = None
    random: float | None = None
    reason: str | None = None
    n_examples: int = 0


def label_energies(
    learned: GatedNetwork,
    random: GatedNetwork,
    data: Split,
    seed: int,
    progress: bool | None = None,
    affordable_cost: int = AFFORDABLE_COST,
) -> LabelEnergies:
    """The label energies of two networks on the same random examples, equally many of each class."""
    try:
        n_per_class = energy_examples_per_class(learned, data, affordable_cost)
        generator = torch.Generator().manual_seed(derive_seed(seed, "label energy"))
        subset = balanced_subset(data, n_per_class, generator)
        of_learned, of_random = (gates_energy(network, subset, progress=progress) for network in (learned, random))
        return LabelEnergies(of_learned, of_random, n_examples=len(subset))
    except (UnsupportedOperation, TypeError, ValueError, MemoryError) as error:
        return LabelEnergies(reason=str(error))


def energy_examples_per_class(network: GatedNetwork, data: Split, affordable_cost: int = AFFORDABLE_COST) -> int:
    """Number of examples of each class for the label energy: 300 in all, or fewer for large images."""
    n_classes, fewest = len(data.labels.unique()), int(data.labels.unique(return_counts=True)[1].min())
    network = copy.deepcopy(network).eval()
    example = data.images[:1].to(next(network.parameters()))
    cost = pair_cost(trace(network.value, example), network.gates(example))
    if n_classes * (n_classes + 1) / 2 * cost > LARGEST_COST:
        problem = f"one pair of examples has about {cost:.1e} pairs of positions"
        raise ValueError(f"{problem}, so even one example of each of the {n_classes} classes would take too long.")
    affordable = (math.isqrt(1 + 8 * int(affordable_cost / cost)) - 1) // 2
    return max(1, min(fewest, min(ENERGY_EXAMPLES, affordable) // n_classes))


def pair_cost(graph: PathGraph, gates: Gates) -> float:
    """Pairs of positions that the path kernel of one pair of examples visits, over all layers; at least 1."""
    convolutions = [node for node in graph.nodes if isinstance(node, n.LinearNode) and node.windows]
    cost = sum(node.groups * node.n_positions**2 + math.prod(node.in_space) ** 2 for node in convolutions)
    hard = all(layer.dtype == torch.bool for layer in gates.layers.values())
    return max(1.0, cost / COMPILED_SPEEDUP if hard and image_chain(graph) is not None else float(cost))


def gates_energy(network: GatedNetwork, examples: Split, *, progress: bool | None = None) -> float:
    """Label energy of the path kernel with a network's gates: the mean over classes, each against the others."""
    network = copy.deepcopy(network).double().cpu().eval()
    images, labels = examples.images.double().cpu(), examples.labels.cpu()
    graph = trace(network.value, images[:1])
    seen, gates = network.value_input(images), network.gates(images)
    kernel = path_kernel(graph, seen, gates1=gates, normalize=True, progress=progress)
    one_against_others = torch.where(labels[:, None] == labels.unique()[None, :], 1.0, -1.0).double()
    return float(label_energy(kernel, one_against_others, jitter=ENERGY_JITTER).mean())
