"""Label energies of the gates of a network, on as many examples as take seconds."""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralpath.data import Split, balanced_subset
from neuralpath.gating import GatedNetwork
from neuralpath.graph import Gates, PathGraph, UnsupportedOperation, nodes as n, trace
from neuralpath.kernels import image_chain, label_energy, path_kernel
from neuralpath.training.seeds import derive_seed

ENERGY_EXAMPLES = 300  # at most, equally many of each class
ENERGY_JITTER = 1e-6  # near-duplicates make the kernel singular; relative to its mean eigenvalue

ENERGY_WORK = 10**8
"""Pairs of positions, over all convolutions and pairs of examples: some 3 seconds on one core."""

MOST_WORK = 20 * ENERGY_WORK
"""What one example of each class may take; beyond it the energy is left out."""

COMPILED_GAIN = 25
"""How many times as fast a chain of convolutions with hard gates is, which is done in one compiled pass."""


@dataclass(frozen=True)
class LabelEnergies:
    """Of the path kernel with the gates of a model and with random ones, or why there are none."""

    learnt: float | None = None
    random: float | None = None
    n_examples: int = 0
    reason: str | None = None


def label_energies(
    learnt: GatedNetwork, random: GatedNetwork, data: Split, seed: int, progress: bool | None = None
) -> LabelEnergies:
    """Both energies on the same examples, equally many of each class, drawn from the seed."""
    try:
        n_per_class = energy_examples_per_class(learnt, data)
        some = balanced_subset(data, n_per_class, torch.Generator().manual_seed(derive_seed(seed, "label energy")))
        own, others = (gates_energy(network, some, progress=progress) for network in (learnt, random))
        return LabelEnergies(own, others, n_examples=len(some.labels))
    except (UnsupportedOperation, TypeError, ValueError, MemoryError) as error:
        return LabelEnergies(reason=str(error))


def energy_examples_per_class(network: GatedNetwork, data: Split) -> int:
    """How many examples of each class the label energy is measured on: 300 in all, or fewer for large images.

    It depends on the network's graph and the data alone, not on the machine, so that the same is measured anywhere.

    Raises: ValueError if one of each class is already long work; and as ``trace``.
    """
    n_classes, fewest = len(data.labels.unique()), int(data.labels.unique(return_counts=True)[1].min())
    network = copy.deepcopy(network).eval()
    example = data.images[:1].to(next(network.parameters()))
    work = pair_work(trace(network.value, example), network.gates(example))
    if n_classes * (n_classes + 1) / 2 * work > MOST_WORK:
        raise ValueError(
            f"a pair of examples takes about {work:.1e} pairs of positions, so that even one example of each of the "
            f"{n_classes} classes would take long."
        )
    affordable = (math.isqrt(1 + 8 * int(ENERGY_WORK / work)) - 1) // 2
    return max(1, min(fewest, min(ENERGY_EXAMPLES, affordable) // n_classes))


def pair_work(graph: PathGraph, gates: Gates) -> float:
    """Pairs of positions that the path kernel of one pair of examples goes through, over all layers; 1 at least."""
    linear_nodes = [node for node in graph.nodes if isinstance(node, n.LinearNode) and node.windows]
    work = sum(node.groups * node.n_positions**2 + math.prod(node.in_space) ** 2 for node in linear_nodes)
    hard = all(layer.dtype == torch.bool for layer in gates.layers.values())
    return max(1.0, work / COMPILED_GAIN if hard and image_chain(graph) is not None else float(work))


def gates_energy(network: GatedNetwork, examples: Split, *, progress: bool | None = None) -> float:
    """Label energy of the normalized path kernel with the gates that a value network gets, in double precision.

    The mean over classes, each against the others. Raises: as ``trace``, ``path_kernel`` and ``label_energy`` do.
    """
    network = copy.deepcopy(network).double().cpu().eval()
    images, labels = examples.images.double().cpu(), examples.labels.cpu()
    graph = trace(network.value, images[:1])
    kernel = path_kernel(
        graph, network.value_input(images), gates1=network.gates(images), normalize=True, progress=progress
    )
    return float(label_energy(kernel, _one_against_others(labels), jitter=ENERGY_JITTER).mean())


def _one_against_others(labels: Tensor) -> Tensor:
    return torch.where(labels[:, None] == labels.unique()[None, :], 1.0, -1.0).double()
