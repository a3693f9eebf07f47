r"""Sensitive gates and sensitive paths: those that a small change of the weights would switch for an input.

The activity of a path changes with the weights where one of its gates is about to flip and all its others are open (P0
section 2.3). A gate is *sensitive* where its pre-activation is within a margin of 0, and *open* where its
pre-activation is above 0, also if it is soft or leaky. For a soft gate ``factor * sigmoid(beta * q)``, to be within
:math:`\tau` of half open is a margin of :math:`\log\frac{1/2 + \tau}{1/2 - \tau} / \beta`.

The paper has no max pools. Here a place of a window is open where it is the picked one. It is sensitive where a small
change could make it lose or gain that: where the largest other value, or else the picked one, is within the margin of
its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from neuralpath.gates import LinearGate
from neuralpath.graph import (
    CHUNK_BYTES,
    Forward,
    PathGraph,
    Values,
    checked_graph,
    chosen_output,
    no_paths_through,
    nodes as n,
    walk,
)
from neuralpath.paths.counts import PathSums, ScaledCounts
from neuralpath.paths.inputs import Batch, Network

Margin = float | Mapping[str, float]  # how close to 0 a pre-activation is sensitive; also for each gate node by name


@dataclass(frozen=True, slots=True, eq=False)
class GateSensitivity:
    """Which gates of a node are open and which are sensitive.

    For a max pool both have a last axis, the places of a window; ``positions`` are the input positions of the places.
    """

    opened: Bool[Tensor, "batch ..."]
    sensitive: Bool[Tensor, "batch ..."]
    positions: Int[Tensor, "out window"] | None = None


class _SensitivityForward(Forward):
    """The forward pass that records which gates are open and which are sensitive."""

    def __init__(self, x: Values, graph: PathGraph, margins: Mapping[str, float]) -> None:
        super().__init__(x, graph.state)
        self._margins = margins
        self.sensitivity: dict[str, GateSensitivity] = {}

    def gate(self, node: n.GateNode, q: Values) -> Values:
        never_closes = isinstance(node.gate, LinearGate)
        opened, close = q > 0, q.abs() <= self._margins[node.name]
        self.sensitivity[node.name] = GateSensitivity(opened | never_closes, close & (not never_closes))
        return super().gate(node, q)

    def max_pool(self, node: n.MaxPoolNode, z: Values) -> Values:
        positions = node.positions.to(z.device)
        seen = _windows(z, positions, -torch.inf)
        picked = node.largest(z).flatten(2).unsqueeze(-1) == positions
        best = seen.amax(-1, keepdim=True)
        second = seen.masked_fill(picked, -torch.inf).amax(-1, keepdim=True)
        gap = best - torch.where(picked, second, seen)
        self.sensitivity[node.name] = GateSensitivity(picked, gap <= self._margins[node.name], positions)
        return super().max_pool(node, z)


def _windows(values: Values, positions: Int[Tensor, "out window"], outside: float) -> Float[Tensor, "..."]:
    """Values at each place of each window, with axes (batch, channel, window, place)."""
    return values.flatten(2)[:, :, positions.clamp(min=0)].masked_fill(positions < 0, outside)


Counts = tuple[ScaledCounts, ...]
"""Numbers of paths into each unit, of three kinds: all gates open and none sensitive; all open and some sensitive; one
closed gate, which is sensitive, and all others open. The last two are sensitive. Counts are only added, never
subtracted, so that no digits are lost."""


class SensitivePaths:
    """The reading that counts sensitive paths, given the sensitivity of the gates."""

    def __init__(self, graph: PathGraph, ones: Values, sensitivity: Mapping[str, GateSensitivity]) -> None:
        self._sums = PathSums(graph, ones)
        self._sensitivity = sensitivity

    def input(self, node: n.InputNode) -> Counts:
        return _from_here(self._sums.input(node))

    def constant(self, node: n.ConstantNode) -> Counts:
        return _from_here(self._sums.constant(node))

    def linear(self, node: n.LinearNode, counts: Counts) -> Counts:
        return _each(self._sums.linear, node, counts)

    def bias(self, node: n.BiasNode, counts: Counts) -> Counts:
        return self._sums.bias(node, counts[0]), *counts[1:]  # a new path has met no gate yet

    def gate(self, node: n.GateNode, counts: Counts) -> Counts:
        return _through(self._sensitivity[node.name], counts)

    def activation(self, node: n.ActivationNode, counts: Counts) -> Counts:
        raise no_paths_through(node)

    def scale(self, node: n.ScaleNode, counts: Counts) -> Counts:
        return counts

    def add(self, node: n.AddNode, *branches: Counts) -> Counts:
        return _each(self._sums.add, node, *branches)

    def concat(self, node: n.ConcatNode, *branches: Counts) -> Counts:
        return _each(self._sums.concat, node, *branches)

    def select(self, node: n.SelectNode, counts: Counts) -> Counts:
        return _each(self._sums.select, node, counts)

    def average_pool(self, node: n.AveragePoolNode, counts: Counts) -> Counts:
        return _each(self._sums.average_pool, node, counts)

    def max_pool(self, node: n.MaxPoolNode, counts: Counts) -> Counts:
        gates = self._sensitivity[node.name]
        assert gates.positions is not None
        placed = tuple(ScaledCounts(_windows(c.mantissa, gates.positions, 0.0), c.exponent) for c in counts)
        passed = _through(gates, placed)
        return tuple(ScaledCounts(c.mantissa.sum(-1).reshape(-1, *node.shape), c.exponent) for c in passed)

    def reshape(self, node: n.ReshapeNode, counts: Counts) -> Counts:
        return _each(self._sums.reshape, node, counts)


def _from_here(paths: ScaledCounts) -> Counts:
    none = ScaledCounts(torch.zeros_like(paths.mantissa), paths.exponent)
    return paths, none, none


def _each(step: Callable[..., ScaledCounts], node: n.Node, *branches: Counts) -> Counts:
    return tuple(step(node, *kind) for kind in zip(*branches, strict=True))


def _through(gates: GateSensitivity, counts: Counts) -> Counts:
    """Open gates pass all kinds on; a closed gate, if it is sensitive, passes what had no closed gate before it."""
    untouched, touched, closed = counts
    opened, sensitive = gates.opened, gates.sensitive

    def where(mask: Bool[Tensor, "batch ..."], paths: ScaledCounts) -> ScaledCounts:
        return ScaledCounts(paths.mantissa * mask, paths.exponent)

    return (
        where(opened & ~sensitive, untouched),
        where(opened & sensitive, untouched).plus(where(opened, touched)),
        where(~opened & sensitive, untouched.plus(touched)).plus(where(opened, closed)),
    )


@torch.no_grad()
def sensitive_gates(
    network: Network, x: Batch, margin: Margin, *, memory: int = CHUNK_BYTES
) -> dict[str, Bool[Tensor, "batch ..."]]:
    r"""The gates that are about to flip, for each example: pre-activations within a margin of 0.

    .. math:: |q_{x}(l, i)| \le \epsilon

    Symbols: :math:`\epsilon` is ``margin``. A gate of a max pool is sensitive where the second largest value of its
    window is within the margin of the largest.

    Args:
        network: A module or its path graph.
        x: The examples.
        margin: A pre-activation is sensitive within this distance of 0: a number, or one for each gate layer by its
            name.
        memory: About how many bytes are held at once; examples are computed in chunks.

    Returns:
        For each gate layer, by its name, which gates are sensitive.

    Raises:
        ValueError: ``x`` does not fit, or margins are negative, not finite, or of other layers.

    Reference: P0 section 2.3, where they are the gates with a value near 1/2; this module's text has the margin of a
    soft gate. Cost: one forward pass, in chunks.

    >>> import neuralpath as npath
    >>> model = torch.nn.Sequential(torch.nn.Linear(1, 2, bias=False), torch.nn.ReLU())
    >>> model[0].weight.data = torch.tensor([[1.0], [-0.1]])
    >>> sensitive_gates(model, torch.ones(1, 1), 0.2)
    {'1': tensor([[False,  True]])}
    """
    graph = checked_graph(network, x=x)
    margins = _margins(graph, margin)
    parts: dict[str, list[Tensor]] = {name: [] for name in graph.gate_names}
    for chunk in x.split(_chunk_size(graph, memory)):
        sensitivity = _sensitivity_of(graph, chunk, margins)
        for node in graph.gate_nodes:
            gates = sensitivity[node.name]
            touched = gates.sensitive
            if isinstance(node, n.MaxPoolNode):
                touched = (gates.opened & touched).any(-1).reshape(-1, *node.shape)
            parts[node.name].append(touched)
    return {name: torch.cat(chunks) for name, chunks in parts.items()}


@torch.no_grad()
def log_sensitive_paths(
    network: Network, x: Batch, margin: Margin, *, outputs: int | None = None, memory: int = CHUNK_BYTES
) -> Float[Tensor, " batch"]:
    r"""Natural logarithm of the number of sensitive paths of each example.

    .. math:: \log |\{p : \exists l,\ |q_x(l, p)| \le \epsilon \text{ and } G_x(l', p) = 1 \ \forall l' \ne l\}|

    Symbols: :math:`q_x(l, p)` and :math:`G_x(l, p)` are the pre-activation and the gate that the path :math:`p` meets
    in layer :math:`l`; :math:`\epsilon` is ``margin``. A path may have more than one sensitive gate, as long as all but
    one of its gates are open. Paths from biases count.

    Args:
        network: A module or its path graph.
        x: The examples.
        margin: A pre-activation is sensitive within this distance of 0: a number, or one for each gate layer by its
            name.
        outputs: The index of the output unit whose paths count; ``None`` where all outputs share their paths.
        memory: About how many bytes are held at once; examples are computed in chunks.

    Returns:
        One logarithm for each example; minus infinity where no path is sensitive.

    Raises:
        ValueError: As ``sensitive_gates``; or the outputs do not share their paths and ``outputs`` is not given; or an
            activation is not a gate.

    Reference: P0 section 2.3 (the sensitive sub-network).
    Cost: a forward pass and three counts of paths, linear in the batch; no path is listed, and no count overflows.

    >>> import neuralpath as npath
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1, bias=False))
    >>> x = torch.randn(2, 3)
    >>> close = (model[0](x).abs() <= 0.3).sum(1)
    >>> bool(torch.allclose(log_sensitive_paths(model, x, 0.3).exp(), 4.0 * close))
    True
    """
    graph = checked_graph(network, x=x)
    margins, unit = _margins(graph, margin), chosen_output(graph, outputs)
    logs = []
    for chunk in x.split(_chunk_size(graph, memory)):
        ones = torch.ones(chunk.shape, dtype=torch.float64, device=x.device)
        counts = walk(graph, SensitivePaths(graph, ones, _sensitivity_of(graph, chunk, margins)))
        logs.append(counts[1].plus(counts[2]).log().reshape(len(chunk), -1)[:, unit])
    return torch.cat(logs).to(x.dtype)


def _sensitivity_of(graph: PathGraph, x: Values, margins: Mapping[str, float]) -> dict[str, GateSensitivity]:
    reading = _SensitivityForward(x, graph, margins)
    walk(graph, reading)
    return reading.sensitivity


def _margins(graph: PathGraph, margin: Margin) -> dict[str, float]:
    names = graph.gate_names
    if isinstance(margin, Mapping) and set(margin) != set(names):
        expected, actual = ", ".join(names), ", ".join(margin) or "none"
        raise ValueError(f"`margin` must have a number for each gate node ({expected}), got {actual}.")
    margins = {name: float(margin[name] if isinstance(margin, Mapping) else margin) for name in names}
    if wrong := sorted({value for value in margins.values() if not 0 <= value < float("inf")}):
        raise ValueError(f"`margin` must be 0 or a positive finite number, got {', '.join(map(str, wrong))}.")
    return margins


def _chunk_size(graph: PathGraph, memory: int) -> int:
    """Examples that are walked at once, with three counts of a node and the next, windows written out."""
    places = {node.name: node.positions.shape[1] for node in graph.gate_nodes if isinstance(node, n.MaxPoolNode)}
    gate_bytes = sum(2 * node.n_units * places.get(node.name, 1) for node in graph.gate_nodes)
    largest = max(node.n_units * places.get(node.name, 1) for node in graph.nodes)
    return max(1, memory // (gate_bytes + 2 * 3 * 8 * largest))
