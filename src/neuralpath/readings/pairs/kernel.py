"""The neural path kernel and the expected tangent kernel of any graph."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._checks import check_batch
from neuralpath.graph.forward import Gates
from neuralpath.graph.path_graph import PathGraph, check_gates
from neuralpath.graph.walk import walk
from neuralpath.readings._outputs import refuse_tied
from neuralpath.readings.pairs.chain import dense_chain
from neuralpath.readings.pairs.contraction import Frame
from neuralpath.readings.pairs.cost import pair_cost
from neuralpath.readings.pairs.reading import Inputs, PairReading
from neuralpath.readings.pairs.scaled import Scaled
from neuralpath.readings.pairs.variances import FanVariance, Variance, mix_variances
from neuralpath.tiles.fill import fill
from neuralpath.tiles.memory import memory_budget
from neuralpath.tiles.plan import Tile, make_plan


def path_kernel(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    gates1: Gates | None = None,
    gates2: Gates | None = None,
    normalise: bool = False,
    unit_scales: bool = False,
    memory: int | None = None,
    progress: bool | None = None,
) -> Float[Tensor, "batch1 batch2"]:
    r"""The neural path kernel: inner products of the path features of two batches, exactly, without listing a path.

    .. math:: H(x, x') = \langle \phi_x, \phi_{x'} \rangle = E[\hat y(x) \hat y(x')]

    over bundles of paths with the same weights; the second form, with every weight and bias an independent random
    sign and the gates held fixed, holds for every graph. For several outputs their mean (behind a dense layer all
    are equal). For a bias-free fully connected network it is :math:`\langle x, x' \rangle \prod_l \langle G_l, G_l'
    \rangle`.

    ``gates1``, ``gates2`` replace the gates that the inputs open, so that any input, such as all ones, can be combined
    with any gates. ``normalise`` divides every mix by its fan-in, and so keeps deep networks in range.
    ``unit_scales`` sets all scales to 1. ``memory`` is a budget in bytes (default: half of what is free);
    ``progress`` shows a bar, or not (default: on a terminal, for long work).

    Reference: P1 lemma 2.1, P2 lemmas 4.1 to 4.3; THEORY 2.4. Constants are counted in the features.
    Cost: for a fully connected network a population count of each pair's gates; with space, a few matrices over
    pairs of positions for each pair of inputs, in tiles under the budget.
    Raises: ValueError for inputs or gates that do not fit, tied weights or activations that are not gates;
    OverflowError where the result passes the range of the dtype; BudgetTooSmall where one pair needs more than the
    budget.

    >>> import neuralpath as npath
    >>> x = torch.tensor([[1.0, 2.0], [-1.0, 0.5]])
    >>> graph = npath.trace(npath.nets.FC(2, width=8, depth=2), x[:1])
    >>> gates = graph.gates(x).layers[0].float()
    >>> bool(torch.equal(npath.path_kernel(graph, x), (x @ x.T) * (gates @ gates.T)))
    True
    """
    refuse_tied(graph, "the path kernel")
    variances = mix_variances(graph, FanVariance(1.0) if normalise else 1.0)
    job = _job(graph, x1, x2, gates1, gates2, variances, 1.0, 1, unit_scales)
    kernel = _computed(job, memory, progress, "path kernel")
    _refuse_overflow(kernel, "the path kernel", "" if normalise else "use `normalise=True`, or ")
    return kernel


def expected_tangent_kernel(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    variance: Variance = FanVariance(2.0),  # noqa: B008  (frozen)
    bias_variance: float = 0.0,
    gates1: Gates | None = None,
    gates2: Gates | None = None,
    memory: int | None = None,
    progress: bool | None = None,
) -> Float[Tensor, "batch1 batch2"]:
    r"""Expectation of the value tangent kernel over random value weights, exact at every width.

    .. math:: E[K^V] = \sum_m \frac{\partial N}{\partial \sigma_m^2} + \sum_b \frac{\partial N}{\partial \sigma_b^2},
        \quad N(\sigma^2) = E[\hat y(x) \hat y(x')]

    for gates held fixed and value weights that are independent of them and between nodes, and within a node
    uncorrelated with mean 0 and one variance (any distribution). ``variance`` is one number for all mixes, a rule
    such as ``FanVariance(2.0)`` (2 / fan-in, the default), or a number for each mix node by its name;
    ``bias_variance`` is that of the biases, whose gradient counts even at 0.
    Its special cases are the theorems of the papers: :math:`d \sigma^{2(d-1)} H` for a fully connected network (P1
    theorem 5.1), the convolutional and residual forms of P2 theorem 5.1.
    Batch-norm gains and PReLU slopes are constants here: where they are trained, their share is left out.

    Cost: twice that of ``path_kernel``. Raises: as ``path_kernel``; ValueError for variances that are not positive.
    """
    refuse_tied(graph, "the expected tangent kernel")
    if not 0 <= bias_variance < float("inf"):
        raise ValueError(f"`bias_variance` must be 0 or positive, got {bias_variance}.")
    job = _job(graph, x1, x2, gates1, gates2, mix_variances(graph, variance), float(bias_variance), 2, False)
    kernel = _computed(job, memory, progress, "expected tangent kernel")
    _refuse_overflow(kernel, "the expected tangent kernel", "use smaller variances, or ")
    return kernel


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """A kernel to be computed: the graph, both batches, and how large the weights are."""

    graph: PathGraph
    x1: Tensor
    x2: Tensor | None
    gates1: Gates | None
    gates2: Gates | None
    variances: Mapping[str, float]
    bias_variance: float
    orders: int
    unit_scales: bool

    def batch(self, rows: slice, *, second: bool) -> Inputs:
        """Some examples of a batch with their gates."""
        x, gates = (self.x1, self.gates1) if not second or self.x2 is None else (self.x2, self.gates2)
        part = x[rows]
        return Inputs(part, self.graph.gates(part) if gates is None else gates.batch(rows))


def _job(
    graph: PathGraph,
    x1: Tensor,
    x2: Tensor | None,
    gates1: Gates | None,
    gates2: Gates | None,
    variances: Mapping[str, float],
    bias_variance: float,
    orders: int,
    unit_scales: bool,
) -> _Job:
    check_batch("x1", x1, graph.input_shape)
    if x2 is not None:
        check_batch("x2", x2, graph.input_shape)
        if x2.dtype != x1.dtype or x2.device != x1.device:
            raise ValueError(
                f"`x1` and `x2` must have one dtype and device, got {x1.dtype} on {x1.device} and "
                f"{x2.dtype} on {x2.device}."
            )
        if (gates1 is None) != (gates2 is None):
            raise ValueError("`gates1` and `gates2` replace the gates of `x1` and `x2`: give both or neither.")
    elif gates2 is not None:
        raise ValueError("`gates2` are the gates of `x2`, which is not given.")
    if gates1 is not None:
        check_gates("gates1", gates1, graph, len(x1))
    if gates2 is not None and x2 is not None:
        check_gates("gates2", gates2, graph, len(x2))
    x1 = x1.detach()
    x2 = None if x2 is None else x2.detach()
    return _Job(graph, x1, x2, gates1, gates2, variances, bias_variance, orders, unit_scales)


@torch.no_grad()
def _computed(job: _Job, memory: int | None, progress: bool | None, what: str) -> Float[Tensor, "batch1 batch2"]:
    n1, n2 = len(job.x1), len(job.x1 if job.x2 is None else job.x2)
    out = torch.empty(n1, n2, dtype=job.x1.dtype, device=job.x1.device)
    chain = dense_chain(job.graph)
    budget = max(memory_budget(memory) - out.nbytes, 0) if memory is None else memory_budget(memory)
    if chain is not None:
        chain_job = chain.prepared(job.x1, job.x2, job.gates1, job.gates2, job.variances, job.orders)
        if chain_job is not None:
            plan = make_plan(n1, n2, chain_job.cost(), budget, symmetric=job.x2 is None)
            fill(out, plan, chain_job.tile, what=what, show=progress)
            return out
    plan = make_plan(n1, n2, pair_cost(job.graph, job.x1.dtype, job.orders), budget, symmetric=job.x2 is None)
    fill(out, plan, lambda tile: _tile(job, tile), what=what, show=progress)
    return out


def _tile(job: _Job, tile: Tile) -> Float[Tensor, "rows columns"]:
    rows, columns = tile.shape
    symmetric = job.x2 is None and tile.rows == tile.columns
    frame = Frame(rows, columns, job.orders, job.x1.dtype, job.x1.device, 0 if symmetric else rows)
    one = job.batch(tile.rows, second=False)
    two = one if symmetric else job.batch(tile.columns, second=True)
    reading = PairReading(
        (one, two), job.graph.state, frame, job.variances, job.bias_variance, unit_scales=job.unit_scales
    )
    sums: Scaled = reading.finish(walk(job.graph, reading))
    zero = torch.zeros_like(sums.exponent)
    return sums.at(zero)[-1].reshape(rows, columns)


def _refuse_overflow(kernel: Float[Tensor, "batch1 batch2"], what: str, way_out: str) -> None:
    if not bool(torch.isfinite(kernel).all()):
        name = str(kernel.dtype).removeprefix("torch.")
        raise OverflowError(f"{what} passes the range of {name}: {way_out}give the inputs in float64.")
