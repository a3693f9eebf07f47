"""Sums over paths without cancellation: active paths, shared paths, overlap, path norms.

All are one walk in which weights and constants are replaced by powers of their absolute values; the power 0
counts paths. A number of paths soon passes any floating-point range, so each example carries a power of two
of its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from neuralpath._checks import check_batch
from neuralpath.graph import linear
from neuralpath.graph import nodes as n
from neuralpath.graph.counting import no_paths_through
from neuralpath.graph.forward import Gates
from neuralpath.graph.operands import Operand, State
from neuralpath.graph.path_graph import PathGraph
from neuralpath.graph.walk import walk
from neuralpath.readings._outputs import chosen_output

PAIRS_CHUNK = 1024  # pairs of examples that are walked at once
Values = Float[Tensor, "batch ..."]


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Non-negative values ``mantissa * 2**exponent`` with one exponent for each example.

    Within an example, values more than 2**1022 below the largest one are lost.
    """

    mantissa: Float[Tensor, "batch *shape"]
    exponent: Int[Tensor, " batch"]

    def rescaled(self) -> "Scaled":
        """The same values with the largest mantissa of each example between 1/2 and 1."""
        largest = self.mantissa.detach().flatten(1).amax(1)
        shift = torch.frexp(largest).exponent.to(self.exponent.dtype)
        return Scaled(_times_power(self.mantissa, -shift), self.exponent + shift)

    def plus(self, other: "Scaled") -> "Scaled":
        """The sum, at the larger of the two exponents."""
        exponent = torch.maximum(self.exponent, other.exponent)
        return Scaled(
            _times_power(self.mantissa, self.exponent - exponent)
            + _times_power(other.mantissa, other.exponent - exponent),
            exponent,
        )

    def log(self) -> Float[Tensor, "batch *shape"]:
        """Natural logarithm of the values; minus infinity where there is nothing."""
        exponent = self.exponent.to(self.mantissa.dtype).reshape(-1, *(1,) * (self.mantissa.ndim - 1))
        return self.mantissa.log() + exponent * math.log(2)


def _times_power(values: Values, power: Int[Tensor, " batch"]) -> Values:
    factor = torch.ldexp(torch.ones_like(power, dtype=values.dtype), power)
    return values * factor.reshape(-1, *(1,) * (values.ndim - 1))


class PathSums:
    """Sum over the paths into each unit of |weights|^power * |constants|^power * activity.

    Activity is the product of the gates of ``gates``, and of ``second`` where given (paths active for both);
    without gates all are open, and every path of a max pool's window counts.
    """

    def __init__(
        self,
        state: State,
        ones: Values,
        *,
        power: float = 0,
        gates: Gates | None = None,
        second: Gates | None = None,
        from_input_only: bool = False,
    ) -> None:
        self._state = state
        self._ones = ones
        self._power = power
        self._gates = [g for g in (gates, second) if g is not None]
        self._from_input_only = from_input_only

    def _start(self, values: Tensor, shape: n.Shape) -> Scaled:
        """Paths that start here."""
        batch = self._ones.shape[0]
        zero = torch.zeros(batch, dtype=torch.int64, device=self._ones.device)
        return Scaled(values.expand(batch, *shape), zero)

    def _size(self, operand: Operand) -> Tensor:
        value = operand.evaluate(self._state).to(self._ones)
        return torch.ones_like(value) if self._power == 0 else value.abs() ** self._power

    def _from_here(self, operand: Operand, shape: n.Shape) -> Scaled:
        size = self._size(operand)
        return self._start(torch.zeros_like(size) if self._from_input_only else size, shape)

    def input(self, node: n.InputNode) -> Scaled:
        return self._start(self._ones, node.shape)

    def constant(self, node: n.ConstantNode) -> Scaled:
        return self._from_here(node.value, node.shape)

    def mix(self, node: n.MixNode, sums: Scaled) -> Scaled:
        if self._power == 0:
            mixed = linear.mix_with_ones(node, sums.mantissa)
        else:
            mixed = linear.mix(node, sums.mantissa, self._size(node.weight))
        return Scaled(mixed, sums.exponent).rescaled()

    def bias(self, node: n.BiasNode, sums: Scaled) -> Scaled:
        return sums.plus(self._from_here(node.value, node.shape))

    def gate(self, node: n.GateNode, sums: Scaled) -> Scaled:
        values = sums.mantissa
        for gates in self._gates:
            values = values * gates[node.name].to(values.dtype)
        return Scaled(values, sums.exponent)

    def activation(self, node: n.ActivationNode, sums: Scaled) -> Scaled:
        raise no_paths_through(node)

    def scale(self, node: n.ScaleNode, sums: Scaled) -> Scaled:
        return Scaled(sums.mantissa * self._size(node.factor), sums.exponent)

    def add(self, node: n.AddNode, *branches: Scaled) -> Scaled:
        total = branches[0]
        for branch in branches[1:]:
            total = total.plus(branch)
        return total

    def concat(self, node: n.ConcatNode, *branches: Scaled) -> Scaled:
        exponent = torch.stack([branch.exponent for branch in branches]).amax(0)
        parts = [_times_power(branch.mantissa, branch.exponent - exponent) for branch in branches]
        return Scaled(torch.cat(parts, dim=1), exponent)

    def select(self, node: n.SelectNode, sums: Scaled) -> Scaled:
        return Scaled(linear.select(node, sums.mantissa), sums.exponent)

    def average_pool(self, node: n.AveragePoolNode, sums: Scaled) -> Scaled:
        power = self._power
        matrices = tuple(torch.where(m != 0, m.abs() ** power, 0.0) for m in node.matrices)
        return Scaled(linear.average(sums.mantissa, matrices), sums.exponent)

    def max_pool(self, node: n.MaxPoolNode, sums: Scaled) -> Scaled:
        if not self._gates:
            return Scaled(linear.sum_windows(node, sums.mantissa), sums.exponent)
        index = self._gates[0][node.name]
        values = linear.gather_positions(sums.mantissa, index)
        for gates in self._gates[1:]:
            values = values * (gates[node.name] == index)
        return Scaled(values, sums.exponent)

    def reshape(self, node: n.ReshapeNode, sums: Scaled) -> Scaled:
        return Scaled(sums.mantissa.reshape(sums.mantissa.shape[0], *node.shape), sums.exponent)


@torch.no_grad()
def active_paths(
    graph: PathGraph, x: Float[Tensor, "batch *shape"], *, output: int | None = None
) -> Float[Tensor, " batch"]:
    r"""Natural logarithm of the number of active paths of each example.

    .. math:: \log \sum_p A(x, p)

    Symbols: :math:`A(x, p)` is the product of the gates on the path :math:`p`. For soft gates the sum of the
    activities. Paths that start at a bias count. Minus infinity where no path is active.
    Reference: P1 definition 2.1, P2 definition 3.2. Cost: one pass over the units, linear in the batch; no
    overflow at any depth, since each example carries an exponent of its own.
    Raises: ValueError if ``x`` does not fit, or if the outputs do not share their paths and ``output`` is not
    given.

    >>> import neuralpath as npath
    >>> graph = npath.trace(npath.nets.FC(3, width=8, depth=2), torch.ones(1, 3))
    >>> x = torch.randn(2, 3)
    >>> open_gates = graph.gates(x).layers[0].sum(1)
    >>> bool(torch.allclose(npath.active_paths(graph, x).exp(), 3.0 * open_gates))
    True
    """
    check_batch("x", x, graph.input_shape)
    unit = chosen_output(graph, output)
    gates = graph.gates(x)
    logs = [
        _count(graph, gates.batch(slice(start, start + PAIRS_CHUNK)), None, min(PAIRS_CHUNK, len(x) - start))
        for start in range(0, len(x), PAIRS_CHUNK)
    ]
    return torch.cat([log.flatten(1)[:, unit] if log.ndim > 1 else log for log in logs]).to(x.dtype)


@torch.no_grad()
def shared_paths(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    output: int | None = None,
) -> Float[Tensor, "batch1 batch2"]:
    r"""Natural logarithm of the number of paths that are active for both inputs of each pair.

    .. math:: \log \sum_p A(x, p) A(x', p)

    The diagonal for one batch is ``active_paths`` (for hard gates). A path through a max pool is shared where
    both inputs pick the same position.
    Cost: one pass over the units for each pair. Raises: as ``active_paths``.
    """
    check_batch("x1", x1, graph.input_shape)
    if x2 is not None:
        check_batch("x2", x2, graph.input_shape)
    unit = chosen_output(graph, output)

    def count(gates1: Gates, gates2: Gates, pairs: int) -> Tensor:
        log = _count(graph, gates1, gates2, pairs)
        return log.flatten(1)[:, unit] if log.ndim > 1 else log

    return _over_pairs(graph, x1, x2, count).to(x1.dtype)


def path_overlap(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    per_input: bool = False,
    output: int | None = None,
) -> Float[Tensor, "batch1 batch2 *input"]:
    r"""Number of paths from an input node that are active for both inputs of each pair.

    .. math:: \Lambda(i, x, x') = |\{p : p \text{ starts at } i,\ A(x, p) = A(x', p) = 1\}|

    With ``per_input`` the result has an entry for each input node; without it, the mean over the input nodes,
    which for a fully connected network is the common value :math:`\Lambda(x, x') = \prod_l \langle G_l, G_l'
    \rangle`. Paths from biases are not counted; soft gates give the sum of activities.
    Reference: P1 definition 2.2, P2 definition 4.2. Cost: one pass over the units for each pair, two with
    ``per_input``.
    Raises: OverflowError if a count passes the range of the dtype (``shared_paths`` gives logarithms);
    otherwise as ``active_paths``.
    """
    check_batch("x1", x1, graph.input_shape)
    if x2 is not None:
        check_batch("x2", x2, graph.input_shape)
    unit = chosen_output(graph, output)

    def count(gates1: Gates, gates2: Gates, pairs: int) -> Tensor:
        ones = torch.ones(pairs, *graph.input_shape, dtype=torch.float64, device=x1.device, requires_grad=per_input)
        sums = walk(graph, PathSums(graph.state, ones, gates=gates1, second=gates2, from_input_only=True))
        mantissa = sums.mantissa.reshape(pairs, -1)[:, unit]
        if per_input:
            (mantissa,) = torch.autograd.grad(mantissa.sum(), ones, materialize_grads=True)
        else:
            mantissa = mantissa / math.prod(graph.input_shape)
        return _times_power(mantissa.detach(), sums.exponent)

    with torch.set_grad_enabled(per_input):
        overlap = _over_pairs(graph, x1, x2, count).to(x1.dtype)
    if not bool(torch.isfinite(overlap).all()):
        raise OverflowError(
            f"`path_overlap` passes the range of {str(x1.dtype).removeprefix('torch.')}: "
            "`shared_paths` gives the logarithm of the number of shared paths."
        )
    return overlap


def path_norm(graph: PathGraph, q: float = 1, *, log: bool = False) -> Float[Tensor, ""]:
    r"""The path norm of a network.

    .. math:: \Big( \sum_k \sum_{p \to k} \prod_{w \in p} |w|^q \Big)^{1/q}

    over all outputs k and the paths that end there, constants (pooling factors, scales) counted as weights, gates
    open, and every path of a max pool's window counted; biases are first weights. Differentiable in the
    parameters, so it can be a penalty. Works for tied weights too. ``log=True`` gives its natural logarithm, for
    networks whose norm passes the range of the dtype.
    Cost: one forward pass with |w|^q on one example.
    Raises: ValueError if ``q`` is not positive; OverflowError if the norm does not fit the dtype.

    >>> import neuralpath as npath
    >>> graph = npath.trace(npath.nets.FC(2, width=4, depth=2), torch.ones(1, 2))
    >>> first, second = graph.params.values()
    >>> by_hand = (second.abs() @ first.abs()).sum()
    >>> bool(torch.allclose(npath.path_norm(graph), by_hand))
    True
    """
    if not q > 0 or math.isinf(q):
        raise ValueError(f"`q` must be a positive finite number, got {q}.")
    like = next(iter(graph.params.values()), torch.zeros(()))
    ones = torch.ones(1, *graph.input_shape, dtype=like.dtype, device=like.device)
    sums = walk(graph, PathSums(graph.state, ones, power=q))
    total = Scaled(sums.mantissa.reshape(1, -1).sum(1), sums.exponent)
    norm = total.log()[0] / q
    if log:
        return norm
    if float(norm.detach()) > math.log(torch.finfo(norm.dtype).max):
        raise OverflowError(
            f"the path norm is e^{float(norm.detach()):.1f}, past the range of {norm.dtype}: "
            "use `log=True` or a wider dtype."
        )
    return _times_power(total.mantissa, total.exponent)[0] if q == 1 else norm.exp()


def _count(graph: PathGraph, gates: Gates, second: Gates | None, pairs: int) -> Tensor:
    ones = torch.ones(pairs, *graph.input_shape, dtype=torch.float64, device=_device(graph, gates))
    return walk(graph, PathSums(graph.state, ones, gates=gates, second=second)).log()


def _device(graph: PathGraph, gates: Gates) -> torch.device:
    tensors = [*gates.layers, *graph.params.values(), torch.zeros(())]
    return tensors[0].device


def _over_pairs(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None,
    count: Callable[[Gates, Gates, int], Tensor],
) -> Tensor:
    """A quantity of pairs of gates for all pairs of two batches; for one batch each pair once."""
    gates1 = graph.gates(x1)
    gates2 = gates1 if x2 is None else graph.gates(x2)
    n1, n2 = len(x1), len(x1 if x2 is None else x2)
    rows, columns = (
        torch.triu_indices(n1, n1) if x2 is None else torch.cartesian_prod(torch.arange(n1), torch.arange(n2)).T
    )
    parts = []
    for start in range(0, len(rows), PAIRS_CHUNK):
        one, two = rows[start : start + PAIRS_CHUNK], columns[start : start + PAIRS_CHUNK]
        parts.append(count(gates1.batch(one), gates2.batch(two), len(one)))
    values = torch.cat(parts)
    result = values.new_empty(n1, n2, *values.shape[1:])
    result[rows, columns] = values
    if x2 is None:
        result[columns, rows] = values
    return result
