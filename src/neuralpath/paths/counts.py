"""Sums over paths without cancellation: active paths, shared paths, overlap, path norms.

All of them are one walk in which weights and constants are replaced by powers of their absolute values; the power 0
counts paths. A number of paths soon exceeds any floating-point range, and so may the power of a weight. So values are
in double precision, and each example has an exponent of its own.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from neuralpath._checks import describe
from neuralpath.graph import (
    CHUNK_BYTES,
    Gates,
    Operand,
    PathGraph,
    check_graph,
    checked_graph,
    chosen_output,
    no_paths_through,
    nodes as n,
    walk,
)
from neuralpath.paths.inputs import Batch, Batch1, Batch2, Network

NOTHING = -(2**60)
"""Exponent of an example whose values are all 0: below every other, so that it never sets the scale of a sum."""

LARGEST_POWER = 2**20
"""Largest ``q`` of a path norm: exponents are multiplied by it, and must stay far above ``NOTHING``."""

Values = Float[Tensor, "batch ..."]


@dataclass(frozen=True, slots=True, eq=False)
class ScaledCounts:
    """Non-negative values ``mantissa * 2**exponent`` with one exponent for each example.

    Within an example, values more than 2**1022 below the largest one are lost.
    """

    mantissa: Float[Tensor, "batch *shape"]
    exponent: Int[Tensor, " batch"]

    def rescaled(self) -> "ScaledCounts":
        """The same values with the largest mantissa of each example between 1/2 and 1."""
        largest = self.mantissa.detach().reshape(len(self.exponent), -1).amax(1)
        # A larger power of two has no floating-point number; subnormal values stay a little small instead.
        shift = torch.frexp(largest).exponent.to(self.exponent.dtype).clamp(min=-1022)
        exponent = torch.where(largest == 0, NOTHING, self.exponent + shift)
        return ScaledCounts(_times_power(self.mantissa, -shift), exponent)

    def at(self, exponent: Int[Tensor, " batch"]) -> Float[Tensor, "batch *shape"]:
        """The values relative to another exponent, which is not below this one's."""
        return _times_power(self.mantissa, self.exponent - exponent)

    def plus(self, other: "ScaledCounts") -> "ScaledCounts":
        """The sum, at the larger of the two exponents."""
        left, right = self.rescaled(), other.rescaled()
        exponent = torch.maximum(left.exponent, right.exponent)
        return ScaledCounts(left.at(exponent) + right.at(exponent), exponent)

    def log(self) -> Float[Tensor, "batch *shape"]:
        """Natural logarithm of the values; minus infinity where there is nothing."""
        exponent = self.exponent.to(self.mantissa.dtype).reshape(-1, *(1,) * (self.mantissa.ndim - 1))
        return self.mantissa.log() + exponent * math.log(2)

    def values(self) -> Float[Tensor, "batch *shape"]:
        """The values themselves; infinity beyond the range."""
        half = self.exponent.clamp(-4096, 4096) // 2  # in two steps: a power may be out of range where a value is not
        rest = self.exponent.clamp(-4096, 4096) - half
        return torch.where(self.mantissa == 0, 0.0, _times_power(_times_power(self.mantissa, half), rest))


def _times_power(values: Values, power: Int[Tensor, " batch"]) -> Values:
    factor = torch.ldexp(torch.ones_like(power, dtype=values.dtype), power)
    return values * factor.reshape(-1, *(1,) * (values.ndim - 1))


def _power_of(values: Float[Tensor, "*shape"], power: float) -> tuple[Float[Tensor, "*shape"], int]:
    """``|values|**power`` as a mantissa of size at most 1 and an exponent of two, so that no power leaves the range."""
    size = values.abs()
    _, exponent = math.frexp(float(size.detach().max())) if values.numel() else (0.0, 0)
    exponent = max(exponent, -1022)
    whole = math.floor(power * exponent)
    return (size * 2.0**-exponent) ** power * 2.0 ** (power * exponent - whole), whole


class PathSums:
    """The reading that sums |weights|^power * |constants|^power * |activity| over the paths into each unit.

    Activity is the product of the gates; with two ``Gates`` it is that of paths that are active for both. Without any,
    all gates are open, and every path through the window of a max pool counts.
    """

    def __init__(
        self, graph: PathGraph, ones: Values, *, power: float = 0, gates: Sequence[Gates] = (), input_only: bool = False
    ) -> None:
        self._state = graph.state
        self._ones = ones
        self._power = power
        self._gates = gates
        self._input_only = input_only

    def _start(self, values: Tensor, shape: n.Shape, exponent: int = 0) -> ScaledCounts:
        """Paths that start here."""
        batch = self._ones.shape[0]
        exponents = torch.full((batch,), exponent, dtype=torch.int64, device=self._ones.device)
        return ScaledCounts(values.expand(batch, *shape), exponents)

    def _size(self, operand: Operand) -> tuple[Tensor, int]:
        value = operand.evaluate(self._state).to(self._ones)
        return (torch.ones_like(value), 0) if self._power == 0 else _power_of(value, self._power)

    def _from_here(self, operand: Operand, shape: n.Shape) -> ScaledCounts:
        size, exponent = self._size(operand)
        return self._start(torch.zeros_like(size) if self._input_only else size, shape, exponent)

    def input(self, node: n.InputNode) -> ScaledCounts:
        return self._start(self._ones, node.shape)

    def constant(self, node: n.ConstantNode) -> ScaledCounts:
        return self._from_here(node.value, node.shape)

    def linear(self, node: n.LinearNode, sums: ScaledCounts) -> ScaledCounts:
        if self._power == 0:
            return ScaledCounts(node.apply_ones(sums.mantissa), sums.exponent).rescaled()
        weight, exponent = self._size(node.weight)
        return ScaledCounts(node.apply(sums.mantissa, weight), sums.exponent + exponent).rescaled()

    def bias(self, node: n.BiasNode, sums: ScaledCounts) -> ScaledCounts:
        return sums.plus(self._from_here(node.value, node.shape))

    def gate(self, node: n.GateNode, sums: ScaledCounts) -> ScaledCounts:
        for gates in self._gates:
            gate = gates[node.name]
            sums = ScaledCounts(sums.mantissa * gate.to(sums.mantissa.dtype).abs(), sums.exponent)
            if gate.dtype != torch.bool:  # soft gates may be tiny
                sums = sums.rescaled()
        return sums

    def activation(self, node: n.ActivationNode, sums: ScaledCounts) -> ScaledCounts:
        raise no_paths_through(node)

    def scale(self, node: n.ScaleNode, sums: ScaledCounts) -> ScaledCounts:
        factor, exponent = self._size(node.factor)
        return ScaledCounts(sums.mantissa * factor, sums.exponent + exponent).rescaled()

    def add(self, node: n.AddNode, *branches: ScaledCounts) -> ScaledCounts:
        total = branches[0]
        for branch in branches[1:]:
            total = total.plus(branch)
        return total

    def concat(self, node: n.ConcatNode, *branches: ScaledCounts) -> ScaledCounts:
        branches = tuple(branch.rescaled() for branch in branches)
        exponent = torch.stack([branch.exponent for branch in branches]).amax(0)
        return ScaledCounts(torch.cat([branch.at(exponent) for branch in branches], dim=1), exponent)

    def select(self, node: n.SelectNode, sums: ScaledCounts) -> ScaledCounts:
        return ScaledCounts(node.apply(sums.mantissa), sums.exponent)

    def average_pool(self, node: n.AveragePoolNode, sums: ScaledCounts) -> ScaledCounts:
        matrices, exponent = [], sums.exponent
        for matrix in node.matrices:
            size, power = _power_of(matrix, self._power)
            matrices.append(torch.where(matrix != 0, size, 0.0))  # 0 to the power 0 is no path
            exponent = exponent + power
        return ScaledCounts(n.average(sums.mantissa, tuple(matrices)), exponent)

    def max_pool(self, node: n.MaxPoolNode, sums: ScaledCounts) -> ScaledCounts:
        if not self._gates:
            return ScaledCounts(node.places(sums.mantissa, 0).sum(-1).reshape(-1, *node.shape), sums.exponent)
        index = self._gates[0][node.name]
        values = n.gather_positions(sums.mantissa, index)
        for gates in self._gates[1:]:
            values = values * (gates[node.name] == index)
        return ScaledCounts(values, sums.exponent)

    def reshape(self, node: n.ReshapeNode, sums: ScaledCounts) -> ScaledCounts:
        return ScaledCounts(sums.mantissa.reshape(sums.mantissa.shape[0], *node.shape), sums.exponent)


@torch.no_grad()
def log_active_paths(
    network: Network, x: Batch, *, outputs: int | None = None, memory: int = CHUNK_BYTES
) -> Float[Tensor, " batch"]:
    r"""Natural logarithm of the number of active paths of each example.

    .. math:: \log \sum_p A(x, p)

    Symbols: :math:`A(x, p)` is the product of the gates on the path :math:`p`. For soft gates this is the sum of the
    activities; for gates below 0 (a negative slope of PReLU) the sum of their sizes, :math:`|A(x, p)|`. Paths that
    start at a bias count.

    Args:
        network: A module or its path graph.
        x: The examples.
        outputs: The index of the output unit whose paths count; ``None`` where all outputs share their paths.
        memory: About how many bytes are held at once; examples are computed in chunks.

    Returns:
        One logarithm for each example; minus infinity where no path is active.

    Raises:
        ValueError: ``x`` does not fit the network, or the outputs do not share their paths and ``outputs`` is not
            given.
        TypeError: ``x`` has another dtype than the network.

    Reference: P1 definition 2.1, P2 definition 3.2. Cost: one pass over the units, linear in the batch; no overflow at
    any depth, since each example has an exponent of its own.

    >>> import neuralpath as npath
    >>> graph = npath.trace(npath.nets.FC(3, width=8, depth=2), torch.ones(1, 3))
    >>> x = torch.randn(2, 3)
    >>> open_gates = graph.gates(x)[0].sum(1)
    >>> bool(torch.allclose(npath.paths.log_active_paths(graph, x).exp(), 3.0 * open_gates))
    True
    """
    graph = checked_graph(network, x=x)
    unit = chosen_output(graph, outputs)
    gates = graph.gates(x, memory=memory)
    chunk = _chunk_size(graph, gates, memory)
    parts = [slice(start, min(start + chunk, len(x))) for start in range(0, len(x), chunk)]
    logs = [_count(graph, [gates.batch(part)], part.stop - part.start, unit) for part in parts]
    return torch.cat(logs).to(x.dtype)


@torch.no_grad()
def log_shared_paths(
    network: Network, x1: Batch1, x2: Batch2 | None = None, *, outputs: int | None = None, memory: int = CHUNK_BYTES
) -> Float[Tensor, "batch1 batch2"]:
    r"""Natural logarithm of the number of paths that are active for both inputs of each pair.

    .. math:: \log \sum_p A(x, p) A(x', p)

    The diagonal for one batch is ``log_active_paths`` (for hard gates; of other gates the sizes count, as there). A
    path through a max pool is shared where both inputs pick the same position.

    Args:
        network: A module or its path graph.
        x1: The examples of the rows.
        x2: The examples of the columns; ``None`` means ``x1``.
        outputs: The index of the output unit whose paths count; ``None`` where all outputs share their paths.
        memory: About how many bytes are held at once; examples are computed in chunks.

    Raises:
        ValueError, TypeError: As ``log_active_paths``.

    Cost: one pass over the units for each pair.

    >>> import neuralpath as npath
    >>> x = torch.randn(3, 2)
    >>> graph = npath.trace(npath.nets.FC(2, width=8, depth=3), x[:1])
    >>> shared = npath.paths.log_shared_paths(graph, x)
    >>> bool(torch.allclose(shared.diagonal(), npath.paths.log_active_paths(graph, x)))
    True
    """
    graph = checked_graph(network, x1=x1, x2=x2)
    unit = chosen_output(graph, outputs)

    logs = _over_pairs(graph, x1, x2, lambda g1, g2, pairs: _count(graph, (g1, g2), pairs, unit), memory)
    return logs.to(x1.dtype)


def path_overlap(
    network: Network,
    x1: Batch1,
    x2: Batch2 | None = None,
    *,
    per_input: bool = False,
    outputs: int | None = None,
    memory: int = CHUNK_BYTES,
) -> Float[Tensor, "batch1 batch2 *input"]:
    r"""Number of paths from an input node that are active for both inputs of each pair.

    .. math:: \Lambda(i, x, x') = |\{p : p \text{ starts at } i,\ A(x, p) = A(x', p) = 1\}|

    Paths from biases do not count; soft gates give the sum of the sizes of activities.

    Args:
        network: A module or its path graph.
        x1: The examples of the rows.
        x2: The examples of the columns; ``None`` means ``x1``.
        per_input: Return an entry for each input node instead of the mean over them. For a fully connected network the
            mean is the common value :math:`\Lambda(x, x') = \prod_l \langle G_l, G_l' \rangle`.
        outputs: The index of the output unit whose paths count; ``None`` where all outputs share their paths.
        memory: About how many bytes are held at once; examples are computed in chunks.

    Raises:
        OverflowError: A count exceeds the range of the dtype; ``log_shared_paths`` gives logarithms.
        ValueError, TypeError: As ``log_active_paths``.

    Reference: P1 definition 2.2, P2 definition 4.2. Cost: one pass over the units for each pair, two with
    ``per_input``.

    >>> import neuralpath as npath
    >>> x = torch.randn(3, 2)
    >>> graph = npath.trace(npath.nets.FC(2, width=8, depth=2), x[:1])
    >>> gates = graph.gates(x)[0].float()
    >>> bool(torch.equal(npath.paths.path_overlap(graph, x), gates @ gates.T))
    True
    """
    graph = checked_graph(network, x1=x1, x2=x2)
    unit = chosen_output(graph, outputs)

    def count(gates1: Gates, gates2: Gates, pairs: int) -> Tensor:
        ones = torch.ones(pairs, *graph.input_shape, dtype=torch.float64, device=x1.device, requires_grad=per_input)
        sums = walk(graph, PathSums(graph, ones, gates=(gates1, gates2), input_only=True))
        mantissa = sums.mantissa.reshape(pairs, -1)[:, unit]
        if per_input:
            (mantissa,) = torch.autograd.grad(mantissa.sum(), ones, materialize_grads=True)
        else:
            mantissa = mantissa / math.prod(graph.input_shape)
        return ScaledCounts(mantissa.detach(), sums.exponent).values()

    # The count by input node is a derivative, which an inference mode of the caller's would not allow.
    with torch.inference_mode(False), torch.set_grad_enabled(per_input):
        overlap = _over_pairs(graph, x1, x2, count, memory).to(x1.dtype)
    if not bool(torch.isfinite(overlap).all()):
        dtype = str(x1.dtype).removeprefix("torch.")
        raise OverflowError(f"`path_overlap` exceeds the range of {dtype}: `log_shared_paths` gives the logarithm.")
    return overlap


def path_norm(graph: PathGraph, q: float = 1, *, log: bool = False) -> Float[Tensor, ""]:
    r"""The path norm of a network.

    .. math:: \Big( \sum_k \sum_{p \to k} \prod_{w \in p} |w|^q \Big)^{1/q}

    over all outputs k and the paths that end there. Constants (pooling factors, scales) count as weights, gates are
    open, and every path through the window of a max pool counts; biases are first weights. Differentiable in the
    parameters, so it can be a penalty; at a norm of 0 its gradient is 0. Works for tied weights too.

    Args:
        graph: The path graph, as ``trace`` returns it.
        q: The power, a positive number.
        log: Return the natural logarithm, for networks whose norm exceeds the range of the dtype.

    Raises:
        ValueError: ``q`` is not positive.
        OverflowError: The norm exceeds the range of the dtype.

    Cost: one forward pass with |w|^q on one example, in double precision.

    >>> import neuralpath as npath
    >>> graph = npath.trace(npath.nets.FC(2, width=4, depth=2), torch.ones(1, 2))
    >>> first, second = graph.params.values()
    >>> by_hand = (second.abs() @ first.abs()).sum()
    >>> bool(torch.allclose(npath.paths.path_norm(graph), by_hand))
    True
    """
    check_graph(graph)
    if not isinstance(q, int | float) or isinstance(q, bool):
        raise TypeError(f"`q` must be a positive number, got {describe(q)}.")
    if not 0 < q <= LARGEST_POWER:
        raise ValueError(f"`q` must be a positive finite number, at most {LARGEST_POWER}, got {q}.")
    like = next(iter(graph.params.values()), torch.zeros(()))
    ones = torch.ones(1, *graph.input_shape, dtype=torch.float64, device=like.device)
    sums = walk(graph, PathSums(graph, ones, power=q))
    total = ScaledCounts(sums.mantissa.reshape(1, -1).sum(1), sums.exponent).rescaled()
    if float(total.mantissa.detach()) == 0:
        # No path has a weight. Neither root nor logarithm has a derivative there; 0 is one that harms no training.
        return (0 * total.mantissa[0] + (-math.inf if log else 0.0)).to(like.dtype)
    if log:
        return (total.log()[0] / q).to(like.dtype)
    norm = _root(total, q).values()[0].to(like.dtype)
    if not bool(torch.isfinite(norm.detach())):
        power = float(total.log().detach()) / q
        raise OverflowError(f"the path norm, e^{power:.1f}, exceeds {like.dtype}: use `log=True` or a wider dtype.")
    return norm


def _root(total: ScaledCounts, q: float) -> ScaledCounts:
    """The q-th root of positive values; of the exponent, what is not whole goes to the mantissa."""
    exponent = (total.exponent.double() / q).clamp(-(2.0**40), 2.0**40)
    whole = exponent.floor()
    return ScaledCounts(total.mantissa ** (1 / q) * torch.exp2(exponent - whole), whole.long())


def _count(graph: PathGraph, gates: Sequence[Gates], pairs: int, unit: int) -> Tensor:
    """Logarithms of the numbers of paths into an output unit that are active for all gates."""
    tensors = [*gates[0].layers.values(), *graph.params.values(), torch.zeros(())]
    ones = torch.ones(pairs, *graph.input_shape, dtype=torch.float64, device=tensors[0].device)
    log = walk(graph, PathSums(graph, ones, gates=gates)).log()
    return log.flatten(1)[:, unit] if log.ndim > 1 else log


def _chunk_size(graph: PathGraph, gates: Gates, memory: int) -> int:
    """Pairs of examples that are walked at once: copies of their gates, and the values of a node and the next."""
    gate_bytes = 2 * sum(layer.element_size() * layer[0].numel() for layer in gates.layers.values())
    return max(1, memory // (gate_bytes + 2 * 8 * graph.widest))


def _over_pairs(
    graph: PathGraph, x1: Batch1, x2: Batch2 | None, count: Callable[[Gates, Gates, int], Tensor], memory: int
) -> Tensor:
    """A quantity of pairs of gates for all pairs of two batches; for one batch each pair once."""
    gates1 = graph.gates(x1, memory=memory)
    gates2 = gates1 if x2 is None else graph.gates(x2, memory=memory)
    n1, n2 = len(x1), len(x1 if x2 is None else x2)
    pairs = torch.triu_indices(n1, n1) if x2 is None else torch.cartesian_prod(torch.arange(n1), torch.arange(n2)).T
    rows, columns = pairs
    chunks = pairs.split(_chunk_size(graph, gates1, memory), dim=1)
    values = torch.cat([count(gates1.batch(part1), gates2.batch(part2), len(part1)) for part1, part2 in chunks])
    result = values.new_empty(n1, n2, *values.shape[1:])
    result[rows, columns] = values
    if x2 is None:
        result[columns, rows] = values
    return result
