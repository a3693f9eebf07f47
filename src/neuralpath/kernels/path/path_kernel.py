"""The neural path kernel and the expected tangent kernel of any graph."""

import math
from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

from neuralpath._checks import check_number
from neuralpath._memory import memory_budget
from neuralpath.graph import Gates, PathGraph, nodes as n, refuse_tied
from neuralpath.kernels.path.path_tiles import make_job, tiled
from neuralpath.kernels.path.variances import FanVariance, Variance, weight_variances
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel, refuse_overflow


def path_kernel(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    gates1: Gates | None = None,
    gates2: Gates | None = None,
    normalize: bool = False,
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
    with any gates. ``normalize`` divides every linear node by its fan-in, and so keeps deep networks in range.
    ``unit_scales`` sets all scales to 1. ``memory`` is a budget in bytes (default: half of what is free);
    ``progress`` shows a bar, or not (default: on a terminal, for long work).

    Reference: P1 lemma 2.1, P2 lemmas 4.1 to 4.3; Theory, "The neural path kernel". Constants are counted in
    the features.
    Cost: for a fully connected network a population count of each pair's gates; with space, a few matrices over
    pairs of positions for each pair of inputs, in tiles under the budget.
    Raises: ValueError for inputs or gates that do not fit, tied weights or activations that are not gates;
    OverflowError where the result passes the range of the dtype; BudgetTooSmall where one pair needs more than the
    budget.

    >>> import torch, neuralpath as npath
    >>> x = torch.tensor([[1.0, 2.0], [-1.0, 0.5]])
    >>> graph = npath.trace(npath.nets.FC(2, width=8, depth=2), x[:1])
    >>> gates = graph.gates(x)[0].float()
    >>> bool(torch.equal(npath.path_kernel(graph, x), (x @ x.T) * (gates @ gates.T)))
    True
    """
    tiles = path_kernel_tiles(
        graph, x1, x2, gates1=gates1, gates2=gates2, normalize=normalize, unit_scales=unit_scales, memory=memory
    )
    kernel = tiles.filled(progress)
    way_out = "give the inputs in float64"
    refuse_overflow(kernel, tiles.what, way_out if normalize else f"use `normalize=True`, or {way_out}")
    return kernel


def expected_tangent_kernel(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    weight_variance: Variance = FanVariance(2.0),  # noqa: B008  (frozen)
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
    uncorrelated with mean 0 and one variance (any distribution). ``weight_variance`` is one number for all linear
    nodes, a rule such as ``FanVariance(2.0)`` (2 / fan-in, the default), or a number for each linear node by its name;
    ``bias_variance`` is that of the biases, whose gradient counts even at 0.
    Its special cases are the theorems of the papers: :math:`d \sigma^{2(d-1)} H` for a fully connected network (P1
    theorem 5.1), the convolutional and residual forms of P2 theorem 5.1.
    Batch-norm gains and PReLU slopes are constants here: where they are trained, their share is left out. All other
    weights count as trained, also those that are frozen or behind a ``detach``.

    Cost: that of ``path_kernel`` for a chain without biases, about twice as much with biases or
    skips. Raises: as ``path_kernel``; ValueError for variances that are not positive, TypeError for what is none.

    >>> import torch, neuralpath as npath
    >>> x = torch.randn(3, 4, dtype=torch.float64)
    >>> graph = npath.trace(npath.nets.FC(4, width=8, depth=3).double(), x[:1])
    >>> expected = npath.expected_tangent_kernel(graph, x, weight_variance=0.25)
    >>> bool(torch.allclose(expected, 3 * 0.25**2 * npath.path_kernel(graph, x)))  # d * variance^(d - 1) * H
    True
    """
    tiles = expected_tangent_kernel_tiles(
        graph,
        x1,
        x2,
        weight_variance=weight_variance,
        bias_variance=bias_variance,
        gates1=gates1,
        gates2=gates2,
        memory=memory,
    )
    kernel = tiles.filled(progress)
    refuse_overflow(kernel, tiles.what, "use smaller variances, or give the inputs in float64")
    return kernel


def expected_tangent_kernel_tiles(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    weight_variance: Variance = FanVariance(2.0),  # noqa: B008  (frozen)
    bias_variance: float = 0.0,
    gates1: Gates | None = None,
    gates2: Gates | None = None,
    memory: int | None = None,
) -> TiledKernel:
    """The expected tangent kernel as tiles, as ``path_kernel_tiles``; arguments as ``expected_tangent_kernel``.

    >>> import torch, neuralpath as npath
    >>> x = torch.randn(5, 3)
    >>> tiles = npath.expected_tangent_kernel_tiles(npath.trace(npath.nets.FC(3, 8, 3), x[:1]), x)
    >>> [tuple(values.shape) for tile, values in tiles]
    [(5, 5)]
    """
    refuse_tied(graph, "the expected tangent kernel")
    bias_variance = check_number("bias_variance", bias_variance, or_zero=True)
    variances = weight_variances(graph, weight_variance)
    degree = _sum_of_log_derivatives(graph, variances)
    job = make_job(graph, x1, x2, gates1, gates2, variances, bias_variance, 2 if degree is None else 1, False)
    kernel = tiled("expected tangent kernel", job, memory_budget(memory))
    return kernel if degree is None else kernel.times(degree)


def path_kernel_tiles(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    gates1: Gates | None = None,
    gates2: Gates | None = None,
    normalize: bool = False,
    unit_scales: bool = False,
    memory: int | None = None,
) -> TiledKernel:
    """The path kernel as a plan and tiles that are computed when they are asked for, for kernels beyond memory.

    Arguments as for ``path_kernel``. With ``x2=None`` only tiles on and above the diagonal are there.

    >>> import torch, neuralpath as npath
    >>> x = torch.randn(5, 3)
    >>> tiles = npath.path_kernel_tiles(npath.trace(npath.nets.FC(3, 8, 3), x[:1]), x)
    >>> [tuple(values.shape) for tile, values in tiles]
    [(5, 5)]
    """
    refuse_tied(graph, "the path kernel")
    variances = weight_variances(graph, FanVariance(1.0) if normalize else 1.0)
    job = make_job(graph, x1, x2, gates1, gates2, variances, 1.0, 1, unit_scales)
    return tiled("path kernel", job, memory_budget(memory))


def _sum_of_log_derivatives(graph: PathGraph, variances: Mapping[str, float]) -> float | None:
    """E[K^V] / N where every path passes every linear node: N is then linear in each variance. ``None`` elsewhere."""
    first, *others = graph.nodes
    starts_once = isinstance(first, n.InputNode) and not any(isinstance(node, n.BiasNode) for node in others)
    if not starts_once or any(len(node.inputs) != 1 for node in others):
        return None
    return math.fsum(1 / variance for variance in variances.values())
