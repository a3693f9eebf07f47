"""The neural path kernel (NPK) and the expected tangent kernel of any network."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._checks import check_number
from neuralpath._resources import memory_budget, without_autocast
from neuralpath.graph import Gates, PathGraph, check_gates, check_graph, check_input, nodes as n, refuse_tied
from neuralpath.kernels.kernel import GraphKernel, check_same_kind
from neuralpath.kernels.path.pair_tiles import Batches, GatedBatch, pair_tiles
from neuralpath.kernels.path.reading import WeightMoments
from neuralpath.kernels.tiling import TiledKernel


@dataclass(frozen=True)
class FanVariance:
    """The variance ``scale / fan_in`` for the weights of each linear node; fan-in counts the weights of an output unit.

    ``FanVariance(2.0)`` is He's rule; ``FanVariance(1.0)`` keeps the second moment of open gates at 1.

    Args:
        scale: Numerator of the variance.

    >>> import torch, neuralpath as npath
    >>> graph = npath.trace(npath.nets.FC(4, width=8, depth=2), torch.ones(1, 4))
    >>> he = npath.expected_tangent_kernel(graph, torch.ones(1, 4), weight_variance=FanVariance(2.0))
    >>> by_name = npath.expected_tangent_kernel(
    ...     graph, torch.ones(1, 4), weight_variance={"layers.linear1": 2 / 4, "layers.linear2": 2 / 8}
    ... )
    >>> bool(torch.allclose(he, by_name))
    True
    """

    scale: float = 2.0

    def __post_init__(self) -> None:
        check_number("scale", self.scale)

    def of(self, node: n.LinearNode) -> float:
        """The variance of the weights of a linear node."""
        return self.scale / node.fan_in


Variance = float | FanVariance | Mapping[str, float]


def weight_variances(graph: PathGraph, weight_variance: Variance) -> dict[str, float]:
    """The variance of the weights of every linear node, by its name: one for all, by a rule, or each of its own."""
    check_graph(graph)
    linear_nodes = {node.name: node for node in graph.nodes if isinstance(node, n.LinearNode)}
    if isinstance(weight_variance, FanVariance):
        return {name: weight_variance.of(node) for name, node in linear_nodes.items()}
    if not isinstance(weight_variance, Mapping):
        other = " (or a rule such as `FanVariance(2.0)`, or one for each linear node by its name)"
        return dict.fromkeys(linear_nodes, check_number("weight_variance", weight_variance, other))
    if linear_nodes.keys() != weight_variance.keys():
        missing, unknown = linear_nodes.keys() - weight_variance.keys(), weight_variance.keys() - linear_nodes.keys()
        parts = f"missing: {', '.join(sorted(missing)) or 'none'}, unknown: {', '.join(sorted(unknown)) or 'none'}"
        raise ValueError(f"`weight_variance` must have one number for each linear node; {parts}.")
    return {name: check_number(f"weight_variance[{name!r}]", value) for name, value in weight_variance.items()}


class GatedPairKernel(GraphKernel):
    """A kernel of a network with fixed gates, which may replace the gates of the inputs."""

    @abstractmethod
    def _tiles(self, graph: PathGraph, batches: Batches, budget: int) -> TiledKernel:
        """The tiles, for arguments that are checked."""

    @without_autocast()
    def tiles(
        self,
        x1: Float[Tensor, "batch1 *shape"],
        x2: Float[Tensor, "batch2 *shape"] | None = None,
        *,
        gates1: Gates | None = None,
        gates2: Gates | None = None,
        memory: int | None = None,
    ) -> TiledKernel:
        """The kernel matrix as tiles that are computed on demand, for kernels beyond memory.

        Args:
            x1: Examples of the rows.
            x2: Examples of the columns; None: the same batch, and only tiles on and above the diagonal.
            gates1: Gates that replace those of `x1`.
            gates2: Gates that replace those of `x2`.
            memory: Budget in bytes for the computation; None: half of the free memory.
        """
        graph, budget = self.graph(x1), memory_budget(memory)
        check_input("x1", x1, graph)
        if x2 is not None:
            check_input("x2", x2, graph)
            check_same_kind(x1, x2)
            if (gates1 is None) != (gates2 is None):
                raise ValueError("`gates1` and `gates2` replace the gates of `x1` and `x2`: give both or neither.")
        elif gates2 is not None:
            raise ValueError("`gates2` are the gates of `x2`, which is missing.")
        for name, x, gates in (("gates1", x1, gates1), ("gates2", x2, gates2)):
            if gates is not None and x is not None:
                check_gates(name, gates, graph, len(x))
        batch2 = None if x2 is None else GatedBatch(x2.detach(), gates2)
        return self._tiles(graph, (GatedBatch(x1.detach(), gates1), batch2), budget)

    def __call__(
        self,
        x1: Float[Tensor, "batch1 *shape"],
        x2: Float[Tensor, "batch2 *shape"] | None = None,
        *,
        gates1: Gates | None = None,
        gates2: Gates | None = None,
        memory: int | None = None,
        progress: bool | None = None,
    ) -> Float[Tensor, "batch1 batch2"]:
        """The kernel matrix of two batches, or of one batch with itself.

        Args:
            x1: Examples of the rows.
            x2: Examples of the columns; None: the same batch.
            gates1: Gates that replace those of `x1`.
            gates2: Gates that replace those of `x2`.
            memory: Budget in bytes for the computation; None: half of the free memory.
            progress: Whether to show a progress bar; None: on a terminal, for long computations.
        """
        return self.tiles(x1, x2, gates1=gates1, gates2=gates2, memory=memory).filled(progress)


@dataclass(frozen=True, eq=False)
class PathKernel(GatedPairKernel):
    r"""The neural path kernel (NPK) of a network: inner products of path features, without enumerating paths.

    .. math:: H(x, x') = \langle \phi_x, \phi_{x'} \rangle = E[\hat y(x) \hat y(x')]

    The first form sums over bundles of paths with the same weights. The second form, with every weight and bias an
    independent random sign and the gates fixed, holds for every network. For several outputs it is their mean. For a
    bias-free fully connected network it is :math:`\langle x, x' \rangle \prod_l \langle G_l, G_l' \rangle`.

    Reference: P1 lemma 2.1, P2 lemmas 4.1 to 4.3; Theory, "The neural path kernel". Constants are part of the features.
    Cost: for a fully connected network, one population count of each pair's gates; for convolutions, a few matrices
    over pairs of positions for each pair of examples, in tiles within the memory budget.

    Args:
        network: A module, or its graph from `trace`. A module is traced on the first example.
        normalize: Divide every linear node by its fan-in. This keeps the kernels of deep networks in range.
        unit_scales: Set all scale factors, such as those of batch norm, to 1.

    Raises:
        ValueError: Inputs or gates do not fit the network, weights are tied, or activations are not gates.

    >>> import torch, neuralpath as npath
    >>> x = torch.randn(5, 3)
    >>> kernel = npath.PathKernel(npath.nets.FC(3, width=8, depth=3))
    >>> [tuple(values.shape) for tile, values in kernel.tiles(x)]
    [(5, 5)]
    """

    network: nn.Module | PathGraph
    _: KW_ONLY
    normalize: bool = False
    unit_scales: bool = False

    def _tiles(self, graph: PathGraph, batches: Batches, budget: int) -> TiledKernel:
        refuse_tied(graph, "the path kernel")
        variances = weight_variances(graph, FanVariance(1.0) if self.normalize else 1.0)
        weights = WeightMoments(variances, bias_variance=1.0, unit_scales=self.unit_scales)
        hint = "give the inputs in float64" if self.normalize else "use `normalize=True`, or give the inputs in float64"
        return pair_tiles("path kernel", graph, batches, weights, budget, hint, 1.0)


@dataclass(frozen=True, eq=False)
class ExpectedTangentKernel(GatedPairKernel):
    r"""The expectation of the value tangent kernel over random value weights, exact at every width.

    .. math:: E[K^V] = \sum_m \frac{\partial N}{\partial \sigma_m^2} + \sum_b \frac{\partial N}{\partial \sigma_b^2},
        \quad N(\sigma^2) = E[\hat y(x) \hat y(x')]

    The gates are fixed. The value weights are independent of the gates and between nodes; within a node they are
    uncorrelated, with mean 0 and one variance, of any distribution. The theorems of the papers are special cases:
    :math:`d \sigma^{2(d-1)} H` for a fully connected network (P1 theorem 5.1), and the convolutional and residual forms
    of P2 theorem 5.1. Batch-norm gains and PReLU slopes count as constants. All other weights count as trained, also
    those that are frozen or detached.

    Cost: that of the path kernel for a chain without biases, about twice as much with biases or skip connections.

    Args:
        network: A module, or its graph from `trace`. A module is traced on the first example.
        weight_variance: Variance of the weights: one number for all linear nodes, a rule such as `FanVariance(2.0)`
            (2 / fan-in), or a number for each linear node by its name.
        bias_variance: Variance of the biases, whose gradient counts even at 0.

    Raises:
        ValueError: A variance is not positive, or as for `PathKernel`.
        TypeError: A variance is not a number.

    >>> import torch, neuralpath as npath
    >>> x = torch.randn(3, 4, dtype=torch.float64)
    >>> network = npath.nets.FC(4, width=8, depth=3).double()
    >>> expected = npath.ExpectedTangentKernel(network, weight_variance=0.25)(x)
    >>> bool(torch.allclose(expected, 3 * 0.25**2 * npath.PathKernel(network)(x)))  # d * variance^(d - 1) * H
    True
    """

    network: nn.Module | PathGraph
    _: KW_ONLY
    weight_variance: Variance = FanVariance(2.0)
    bias_variance: float = 0.0

    def _tiles(self, graph: PathGraph, batches: Batches, budget: int) -> TiledKernel:
        refuse_tied(graph, "the expected tangent kernel")
        bias_variance = check_number("bias_variance", self.bias_variance, or_zero=True)
        weights = WeightMoments(weight_variances(graph, self.weight_variance), bias_variance, unit_scales=False)
        factor = _sum_of_log_derivatives(graph, weights.variances)
        hint = "use smaller variances, or give the inputs in float64"
        return pair_tiles("expected tangent kernel", graph, batches, weights, budget, hint, factor)


def path_kernel(
    network: nn.Module | PathGraph,
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
    r"""The neural path kernel (NPK) of a network, as a matrix; `PathKernel` has its definition, cost and errors.

    Args:
        network: A module, or its graph from `trace`. A module is traced on the first example.
        x1: Examples of the rows.
        x2: Examples of the columns; None: the same batch.
        gates1: Gates that replace those of `x1`. Any input, such as all ones, can be combined with any gates.
        gates2: Gates that replace those of `x2`.
        normalize: Divide every linear node by its fan-in. This keeps the kernels of deep networks in range.
        unit_scales: Set all scale factors, such as those of batch norm, to 1.
        memory: Budget in bytes for the computation; None: half of the free memory.
        progress: Whether to show a progress bar; None: on a terminal, for long computations.

    >>> import torch, neuralpath as npath
    >>> x = torch.tensor([[1.0, 2.0], [-1.0, 0.5]])
    >>> graph = npath.trace(npath.nets.FC(2, width=8, depth=2), x[:1])
    >>> gates = graph.gates(x)[0].float()
    >>> bool(torch.equal(npath.path_kernel(graph, x), (x @ x.T) * (gates @ gates.T)))
    True
    """
    kernel = PathKernel(network, normalize=normalize, unit_scales=unit_scales)
    return kernel(x1, x2, gates1=gates1, gates2=gates2, memory=memory, progress=progress)


def expected_tangent_kernel(
    network: nn.Module | PathGraph,
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
    r"""The expectation of the value tangent kernel over random value weights; see `ExpectedTangentKernel`.

    Args:
        network: A module, or its graph from `trace`. A module is traced on the first example.
        x1: Examples of the rows.
        x2: Examples of the columns; None: the same batch.
        weight_variance: Variance of the weights: one number for all linear nodes, a rule such as `FanVariance(2.0)`
            (2 / fan-in), or a number for each linear node by its name.
        bias_variance: Variance of the biases, whose gradient counts even at 0.
        gates1: Gates that replace those of `x1`.
        gates2: Gates that replace those of `x2`.
        memory: Budget in bytes for the computation; None: half of the free memory.
        progress: Whether to show a progress bar; None: on a terminal, for long computations.

    >>> import torch, neuralpath as npath
    >>> x = torch.randn(3, 4, dtype=torch.float64)
    >>> graph = npath.trace(npath.nets.FC(4, width=8, depth=3).double(), x[:1])
    >>> expected = npath.expected_tangent_kernel(graph, x, weight_variance=0.25)
    >>> bool(torch.allclose(expected, 3 * 0.25**2 * npath.path_kernel(graph, x)))  # d * variance^(d - 1) * H
    True
    """
    kernel = ExpectedTangentKernel(network, weight_variance=weight_variance, bias_variance=bias_variance)
    return kernel(x1, x2, gates1=gates1, gates2=gates2, memory=memory, progress=progress)


def _sum_of_log_derivatives(graph: PathGraph, variances: Mapping[str, float]) -> float | None:
    """E[K^V] / N where every path passes every linear node, since N is linear in each variance there; else None."""
    first, *others = graph.nodes
    starts_once = isinstance(first, n.InputNode) and not any(isinstance(node, n.BiasNode) for node in others)
    if not starts_once or any(len(node.inputs) != 1 for node in others):
        return None
    return math.fsum(1 / variance for variance in variances.values())
