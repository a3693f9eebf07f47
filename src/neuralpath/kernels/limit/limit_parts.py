"""The tangent kernel of infinite width in its parts: value, feature and cross."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._memory import memory_budget
from neuralpath.graph import PathGraph
from neuralpath.kernels.limit.activations import Pair
from neuralpath.kernels.limit.limit_kernel import OVERFLOW_HINT, checked
from neuralpath.kernels.limit.limit_network import ActivationChoice, OutputVariance, Variance, limit_network
from neuralpath.kernels.limit.limit_reading import ReadingTiles
from neuralpath.kernels.tiling.plan import Tile
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel, refuse_overflow

CARRIED = (Pair.SLOPES, Pair.GATES, Pair.GATE_SLOPE, Pair.SLOPE_GATE)


@dataclass(frozen=True, slots=True, eq=False)
class LimitParts:
    """Parts of a tangent kernel of infinite width."""

    value: Float[Tensor, "batch1 batch2"]  # gates held constant
    feature: Float[Tensor, "batch1 batch2"]  # from the gates' own dependence on the weights
    cross: Float[Tensor, "batch1 batch2"]  # between the two, both ways

    @property
    def total(self) -> Float[Tensor, "batch1 batch2"]:
        """The tangent kernel."""
        return self.value + self.feature + self.cross


def limit_tangent_parts(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    activation: ActivationChoice = None,
    weight_variance: Variance | None = None,
    output_variance: OutputVariance = "equal",
    bias_variance: Variance = 0.0,
    bias_gradient: Variance | None = None,
    memory: int | None = None,
    progress: bool | None = None,
) -> LimitParts:
    r"""Value, feature and cross part of the tangent kernel of infinite width.

    The gradient is :math:`\psi = \psi^V + \psi^F`, :math:`\psi^V` that with the gates held constant. With :math:`K^V`
    the recursion of ``limit_tangent_kernel`` with :math:`E[\gamma \gamma']` in place of :math:`E[\chi' \chi'']`, and
    :math:`R = \langle \psi^V, \psi' \rangle` that with :math:`E[\gamma \chi'']`:

    .. math:: K^{CROSS} = R + R^T - 2 K^V, \qquad K^F = K - R - R^T + K^V

    where :math:`R^T` has the roles of the two examples exchanged. For ReLU and leaky ReLU both are 0.

    Reference: Theory, "Kernels of infinite width". Cost: about 2.5 times that of ``limit_tangent_kernel``. Arguments
    and errors as there; also ValueError for activations that are not of the form q * gate(q), such as softplus.

    >>> import neuralpath as npath
    >>> x = torch.randn(3, 2)
    >>> graph = npath.trace(npath.nets.FC(2, width=8, depth=3), x[:1])
    >>> parts = limit_tangent_parts(graph, x, activation=npath.SoftGate(4.0))
    >>> bool((parts.feature.diagonal() > 0).all())
    True
    """
    tiles = limit_tangent_parts_tiles(
        graph, x1, x2, activation=activation, weight_variance=weight_variance, output_variance=output_variance,
        bias_variance=bias_variance, bias_gradient=bias_gradient, memory=memory,
    )  # fmt: skip
    kernels = tiles.filled(progress)
    refuse_overflow(kernels, tiles.what, OVERFLOW_HINT)
    return LimitParts(*kernels)


def limit_tangent_parts_tiles(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    activation: ActivationChoice = None,
    weight_variance: Variance | None = None,
    output_variance: OutputVariance = "equal",
    bias_variance: Variance = 0.0,
    bias_gradient: Variance | None = None,
    memory: int | None = None,
) -> TiledKernel:
    """The parts as tiles, for kernels beyond memory: value, feature and cross part in the first axis of each tile.

    Arguments as for ``limit_tangent_parts``. With ``x2=None`` only tiles on and above the diagonal are there.
    ``estimate()`` says beforehand how long all take.

    >>> import neuralpath as npath
    >>> x = torch.randn(5, 3)
    >>> graph = npath.trace(npath.nets.FC(3, 8, 3), x[:1])
    >>> [tuple(values.shape) for tile, values in limit_tangent_parts_tiles(graph, x, activation=npath.SoftGate(4.0))]
    [(3, 5, 5)]
    """
    network = limit_network(
        graph, CARRIED, activation=activation, weight_variance=weight_variance, output_variance=output_variance,
        bias_variance=bias_variance, bias_gradient=bias_gradient,
    )  # fmt: skip
    tiles, plan = ReadingTiles.of(network, *checked(network, x1, x2)).planned(memory_budget(memory))

    def parts(tile: Tile) -> Float[Tensor, "3 rows columns"]:
        _, whole, value, left, right = tiles.kernels(tile)
        summed = left + right
        return torch.stack([value, whole - summed + value, summed - 2 * value])

    return TiledKernel("limit tangent kernel in parts", plan, parts, x1.dtype, x1.device, kernels=(3,))
