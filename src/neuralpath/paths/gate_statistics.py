"""Statistics of gates, layer by layer: overlap, dead gates, distance between checkpoints.

A max pool has, for each output unit, the position that it was read from; two inputs share that gate where both picked
the same position.
"""

from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from neuralpath._checks import describe
from neuralpath._loops import overlaps
from neuralpath._resources import without_autocast
from neuralpath.graph import GATES_CHUNK, Gates, PathGraph, checked_graph, nodes as n
from neuralpath.paths.inputs import Batch, Batch1, Batch2, Network

COMPARED_BYTES = 2**24
"""Positions of max pools that are compared at once, a byte each; of the gates summed at once, eight bytes each."""

Layer = Shaped[Tensor, "batch ..."]


@torch.no_grad()
def base_kernels(
    network: Network, x1: Batch1, x2: Batch2 | None = None, *, memory: int = COMPARED_BYTES
) -> dict[str, Float[Tensor, "batch1 batch2"]]:
    r"""The base kernel of each gate layer: the fraction of its gates that both inputs open.

    .. math:: \langle G_l(x), G_l(x') \rangle / w_l

    Symbols: :math:`G_l` are the gates of a layer and :math:`w_l` their number, channels times positions. For a max
    pool: the fraction of its output units for which both inputs picked the same position.

    Args:
        network: A module or its path graph.
        x1: The examples of the rows.
        x2: The examples of the columns; ``None`` means ``x1``.
        memory: About how many bytes are used to compare positions of max pools.

    Returns:
        A kernel for each gate layer, by its name, in the order of the network.

    Raises:
        ValueError: ``x1`` or ``x2`` does not fit the network or is not finite.

    Reference: P2 definition 4.3 and section 7, item 1. For a bias-free fully connected network, the product of the base
    kernels times the widths and the Gram matrix of the inputs is the path kernel.
    Cost: O(batch1 * batch2 * gates); population counts of packed words for hard gates.

    >>> import neuralpath as npath
    >>> graph = npath.trace(npath.nets.FC(2, width=8, depth=3), torch.ones(1, 2))
    >>> x = torch.randn(3, 2)
    >>> kernels = base_kernels(graph, x)
    >>> first = graph.gates(x)[0].float()
    >>> tuple(kernels) == graph.gate_names, bool(torch.equal(kernels[graph.gate_names[0]], first @ first.T / 8))
    (True, True)
    """
    graph, gates1, gates2 = _gates_of_both(network, x1, x2)
    kernels = {}
    for node in graph.gate_nodes:
        layer1, layer2 = (gates[node.name].flatten(1) for gates in (gates1, gates2))
        kernel = _overlap(layer1, layer2, x1.dtype, memory) / node.n_units
        # A product of matrices is symmetric only up to rounding.
        kernels[node.name] = kernel if x2 is not None else kernel.triu() + kernel.triu(1).T
    return kernels


@dataclass(frozen=True, slots=True, eq=False)
class OverlapProfile:
    """How many gates inputs share, by depth: means of the base kernels.

    Args:
        pairs: For each gate layer the mean over pairs of distinct examples.
        diagonal: For each gate layer the mean over the examples, each with itself.
    """

    pairs: dict[str, Float[Tensor, ""]]
    diagonal: dict[str, Float[Tensor, ""]]


@torch.no_grad()
def overlap_profile(
    network: Network, x1: Batch1, x2: Batch2 | None = None, *, memory: int = COMPARED_BYTES
) -> OverlapProfile:
    r"""Mean of each base kernel over distinct pairs, and over the diagonal, by depth.

    .. math:: \mathrm{mean}_{s \ne s'} \langle G_l(x_s), G_l(x_{s'}) \rangle / w_l, \qquad
        \mathrm{mean}_s \langle G_l(x_s), G_l(x_s) \rangle / w_l

    Symbols: as in ``base_kernels``. For hard gates ``diagonal`` is the fraction of gates that an input opens, for max
    pools it is 1.

    Args:
        network: A module or its path graph.
        x1: The examples.
        x2: A second batch. Then ``pairs`` is the mean over all pairs of an ``x1`` with an ``x2``, and ``diagonal`` the
            mean over the examples of both.
        memory: About how many bytes are used for sums over examples.

    Raises:
        ValueError: As ``base_kernels``; or there is one example and no ``x2``, so that there is no pair.

    Reference: P2 definition 4.3; section 7 conjectures that ``pairs`` of random gates tends to 1/2 with depth.
    Cost: linear in the batches, O((batch1 + batch2) * gates): the sum over pairs is an inner product of two sums.

    >>> import neuralpath as npath
    >>> graph = npath.trace(npath.nets.FC(2, width=64, depth=4), torch.ones(1, 2))
    >>> profile = overlap_profile(graph, torch.randn(8, 2))
    >>> all(profile.pairs[name] <= profile.diagonal[name] for name in graph.gate_names)
    True
    """
    graph, gates1, gates2 = _gates_of_both(network, x1, x2)
    if x2 is None and len(x1) == 1:
        raise ValueError("`x1` has one example and `x2` is not given, so there is no pair: give two examples or more.")
    pairs, diagonal = {}, {}
    for node in graph.gate_nodes:
        sums1, squares1 = _sums(node, gates1[node.name], memory)
        if x2 is None:
            n_pairs, total = len(x1) * (len(x1) - 1), sums1 @ sums1 - squares1
            mean = squares1 / len(x1)
        else:
            sums2, squares2 = _sums(node, gates2[node.name], memory)
            n_pairs, total = len(x1) * len(x2), sums1 @ sums2
            mean = (squares1 + squares2) / (len(x1) + len(x2))
        pairs[node.name] = (total / (n_pairs * node.n_units)).to(x1.dtype)
        diagonal[node.name] = (mean / node.n_units).to(x1.dtype)
    return OverlapProfile(pairs, diagonal)


@torch.no_grad()
def open_counts(network: Network, x: Batch, *, threshold: float = 0.0) -> dict[str, Int[Tensor, "..."]]:
    r"""For every gate the number of examples that open it.

    .. math:: |\{s : |G_l(x_s)| > t\}|

    Symbols: :math:`t` is ``threshold``. The gates of a max pool are those of its input units: open where some window
    picks the unit, so a unit outside all windows is never open.

    Args:
        network: A module or its path graph.
        x: The examples.
        threshold: A gate is open above this size. At 0 a gate is open where it passes anything. A leaky or soft gate
            nearly always does: choose a threshold between its closed and its open value.

    Returns:
        The counts of each gate layer, by its name, with the shape of the layer.

    Raises:
        ValueError: ``x`` does not fit the network or is not finite, or ``threshold`` is negative or not finite.

    Cost: one forward pass, in chunks.

    >>> import neuralpath as npath
    >>> model = torch.nn.Sequential(torch.nn.Linear(1, 2, bias=False), torch.nn.ReLU())
    >>> model[0].weight.data = torch.tensor([[1.0], [-1.0]])
    >>> open_counts(model, torch.tensor([[1.0], [2.0], [-1.0]]))
    {'1': tensor([2, 1])}
    """
    graph = checked_graph(network, x=x)
    if not 0 <= threshold < float("inf"):
        raise ValueError(f"`threshold` must be 0 or a positive finite number, got {threshold}.")
    counts: dict[str, Tensor] = {}
    for chunk in x.split(GATES_CHUNK):
        gates = graph.gates(chunk)
        for node in graph.gate_nodes:
            opened = _opened(node, gates[node.name], threshold).sum(0)
            counts[node.name] = counts[node.name] + opened if node.name in counts else opened
    return counts


def dead_gates(network: Network, x: Batch, *, threshold: float = 0.0) -> dict[str, Bool[Tensor, "..."]]:
    """The gates that no example opens: no path through them is ever active on this batch.

    Args:
        network: A module or its path graph.
        x: The examples.
        threshold: A gate is open above this size, as in ``open_counts``.

    Returns:
        For each gate layer, by its name, which gates are dead; for a max pool, which input units no window picks.

    Raises:
        ValueError: As ``open_counts``.

    >>> import neuralpath as npath
    >>> model = torch.nn.Sequential(torch.nn.Linear(1, 2, bias=False), torch.nn.ReLU())
    >>> model[0].weight.data = torch.tensor([[1.0], [-1.0]])
    >>> dead_gates(model, torch.tensor([[1.0], [2.0]]))
    {'1': tensor([False,  True])}
    """
    return {name: count == 0 for name, count in open_counts(network, x, threshold=threshold).items()}


def always_open_gates(network: Network, x: Batch, *, threshold: float = 0.0) -> dict[str, Bool[Tensor, "..."]]:
    """The gates that every example opens: they do not distinguish examples of this batch.

    Args:
        network: A module or its path graph.
        x: The examples.
        threshold: A gate is open above this size, as in ``open_counts``.

    Returns:
        For each gate layer, by its name, which gates are always open; for a max pool, which input units are always
        picked by some window.

    Raises:
        ValueError: As ``open_counts``.

    >>> import neuralpath as npath
    >>> model = torch.nn.Sequential(torch.nn.Linear(1, 2, bias=False), torch.nn.ReLU())
    >>> model[0].weight.data = torch.tensor([[1.0], [-1.0]])
    >>> always_open_gates(model, torch.tensor([[1.0], [2.0]]))
    {'1': tensor([ True, False])}
    """
    return {name: count == len(x) for name, count in open_counts(network, x, threshold=threshold).items()}


@torch.no_grad()
def gate_distance(gates1: Gates, gates2: Gates) -> dict[str, Float[Tensor, " batch"]]:
    r"""Distance between the gates of two checkpoints of a network on the same inputs.

    .. math:: \|G_l(x; \Theta) - G_l(x; \Theta')\|_1 / w_l

    Symbols: :math:`w_l` is the number of gates of the layer. For hard gates the distance is the fraction that differs
    (Hamming distance); for other gates the mean absolute difference; for a max pool the fraction of output units that
    picked another position.

    Args:
        gates1: The gates of the first checkpoint.
        gates2: The gates of the second checkpoint, of the same inputs in the same order. A graph reads its model's own
            weights, so ``graph.gates(x)`` before and after a training step are the gates of two checkpoints.

    Returns:
        For each gate layer, by its name, the distance of each example, in float64.

    Raises:
        ValueError: The gates have other layers, shapes or numbers of examples.
        TypeError: One is not ``Gates``, or a layer is hard in one and soft in the other.

    Cost: linear in the gates.

    >>> import neuralpath as npath
    >>> model, x = npath.nets.FC(3, width=16, depth=3), torch.randn(5, 3)
    >>> graph = npath.trace(model, x[:1])
    >>> before = graph.gates(x)
    >>> for weight in model.parameters(): _ = weight.data.neg_()
    >>> gate_distance(before, graph.gates(x))["layers.relu1"].mean()  # every gate of the first layer has flipped
    tensor(1., dtype=torch.float64)
    """
    _check_pair(gates1, gates2)
    distances = {}
    for name, layer1 in gates1.layers.items():
        layer2 = gates2[name]
        is_hard = layer1.dtype in (torch.bool, torch.int64)
        apart = layer1 != layer2 if is_hard else (layer1.double() - layer2.double()).abs()
        distances[name] = apart.flatten(1).double().mean(1)
    return distances


def _gates_of_both(network: Network, x1: Tensor, x2: Tensor | None) -> tuple[PathGraph, Gates, Gates]:
    """The graph, and the gates of two batches, once for one."""
    graph = checked_graph(network, x1=x1, x2=x2)
    gates1 = graph.gates(x1)
    return graph, gates1, gates1 if x2 is None else graph.gates(x2)


@without_autocast()
def _overlap(
    layer1: Shaped[Tensor, "batch1 unit"], layer2: Shaped[Tensor, "batch2 unit"], dtype: torch.dtype, memory: int
) -> Float[Tensor, "batch1 batch2"]:
    """Inner products of gates; for a max pool, numbers of equal positions."""
    # Counts past 2048 are not exact in half precision.
    wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    if layer1.dtype == torch.bool:
        return overlaps(layer1, layer2, wide).to(dtype)
    if layer1.dtype == torch.int64:
        rows = max(1, memory // max(layer2.numel(), 1))
        return torch.cat([(part[:, None] == layer2).sum(2).to(dtype) for part in layer1.split(rows)])
    return (layer1.to(wide) @ layer2.to(wide).T).to(dtype)


def _sums(node: n.GateNode | n.MaxPoolNode, layer: Layer, memory: int) -> tuple[Tensor, Tensor]:
    """The sum of a layer's gates over examples, as a vector, and the sum of their squares, in float64.

    A max pool's vector has an entry for each output unit and input position: how many examples picked it.
    """
    if isinstance(node, n.MaxPoolNode):
        positions = layer.flatten(1)
        units, n_positions = positions.shape[1], prod(node.in_space)
        entry = positions + torch.arange(units, device=positions.device) * n_positions
        counts = torch.bincount(entry.flatten(), minlength=units * n_positions).double()
        return counts, counts.sum()
    sums = torch.zeros(node.n_units, dtype=torch.float64, device=layer.device)
    squares = sums.new_zeros(())
    for part in layer.flatten(1).split(max(1, memory // max(node.n_units, 1))):
        values = part.double()
        sums += values.sum(0)
        squares += values.square().sum()
    return sums, squares


def _opened(node: n.GateNode | n.MaxPoolNode, layer: Layer, threshold: float) -> Bool[Tensor, "batch ..."]:
    """Which gates are open; for a max pool, which input units some window picks."""
    if isinstance(node, n.MaxPoolNode):
        picked = torch.zeros(len(layer), node.shape[0], prod(node.in_space), dtype=torch.bool, device=layer.device)
        picked.scatter_(2, layer.flatten(2), torch.ones_like(layer.flatten(2), dtype=torch.bool))
        return picked.unflatten(2, node.in_space)
    # A hard gate is 0 or 1.
    return layer & (threshold < 1) if layer.dtype == torch.bool else layer.abs() > threshold


def _check_pair(gates1: Gates, gates2: Gates) -> None:
    for name, gates in (("gates1", gates1), ("gates2", gates2)):
        if not isinstance(gates, Gates):
            raise TypeError(f"`{name}` must be `Gates`, as `graph.gates(x)` returns them, got {describe(gates)}.")
    if gates1.names != gates2.names:
        names1, names2 = (", ".join(gates.names) for gates in (gates1, gates2))
        raise ValueError(f"`gates1` and `gates2` must be of one network, got the gate nodes {names1} and {names2}.")
    if gates1.n_examples != gates2.n_examples:
        counts = f"{gates1.n_examples} and {gates2.n_examples} examples"
        raise ValueError(f"`gates1` and `gates2` must be of the same inputs, got {counts}.")
    for name, layer1 in gates1.layers.items():
        layer2, place = gates2[name], f"`gates1` and `gates2` differ at {name!r}"
        if layer1.shape != layer2.shape:
            raise ValueError(f"{place}: {tuple(layer1.shape[1:])} and {tuple(layer2.shape[1:])} for each example.")
        if layer1.is_floating_point() != layer2.is_floating_point():
            raise TypeError(f"{place}: {describe(layer1)} and {describe(layer2)}.")
