"""The tangent kernel of infinite width in its parts: value, feature and cross."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._resources import memory_budget, without_autocast
from neuralpath.graph import PathGraph, as_graph
from neuralpath.kernels.limit.activations import Pair
from neuralpath.kernels.limit.limit_kernel import OVERFLOW_HINT, checked_batches
from neuralpath.kernels.limit.limit_network import ActivationChoice, OutputVariance, Variance, limit_network
from neuralpath.kernels.limit.limit_reading import ReadingTiles
from neuralpath.kernels.tiling import Tile, TiledKernel

CARRIED = (Pair.SLOPES, Pair.GATES, Pair.GATE_SLOPE, Pair.SLOPE_GATE)


@dataclass(frozen=True, slots=True, eq=False)
class LimitParts:
    """Parts of a tangent kernel of infinite width."""

    value: Float[Tensor, "batch1 batch2"]
    """The kernel with fixed gates."""
    feature: Float[Tensor, "batch1 batch2"]
    """The part that comes from the dependence of the gates on the weights."""
    cross: Float[Tensor, "batch1 batch2"]
    """Both mixed products of the two."""

    @property
    def total(self) -> Float[Tensor, "batch1 batch2"]:
        """The tangent kernel."""
        return self.value + self.feature + self.cross


@without_autocast()
def limit_tangent_parts(
    network: nn.Module | PathGraph,
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
    r"""Value, feature and cross part of the tangent kernel (NTK) of infinite width.

    The gradient is :math:`\psi = \psi^V + \psi^F`, :math:`\psi^V` that with fixed gates. With :math:`K^V` the recursion
    of `LimitKernel` with :math:`E[\gamma \gamma']` in place of :math:`E[\chi' \chi'']`, and
    :math:`R = \langle \psi^V, \psi' \rangle` that with :math:`E[\gamma \chi'']`:

    .. math:: K^{CROSS} = R + R^T - 2 K^V, \qquad K^F = K - R - R^T + K^V

    where :math:`R^T` has the roles of the two examples exchanged. For ReLU and leaky ReLU both are 0.

    Reference: Theory, "Kernels of infinite width". Cost: about 2.5 times that of ``limit_tangent_kernel``.

    Args:
        network: A module, or its graph from `trace`. A module is traced on the first example.
        x1: Examples of the rows.
        x2: Examples of the columns; None: the same batch.
        activation: A gate that replaces the network's activations, all or by name; None: its own.
        weight_variance: Variance of the weights times fan-in, one number or by name; None: by the activations.
        output_variance: The same for the output layer: "equal", "half" or a number.
        bias_variance: Variance of the biases, one number or by name.
        bias_gradient: What each bias adds to the kernel; None: ``bias_variance``; 1.0: biases trained as in torch.
        memory: Budget in bytes for the computation; None: half of the free memory.
        progress: Whether to show a progress bar; None: on a terminal, for long computations.

    Raises:
        ValueError: As for `LimitKernel`; also for activations that are not of the form q * gate(q), such as softplus.

    >>> import neuralpath as npath
    >>> x = torch.randn(3, 2)
    >>> parts = limit_tangent_parts(npath.nets.FC(2, width=8, depth=3), x, activation=npath.SoftGate(4.0))
    >>> bool((parts.feature.diagonal() > 0).all())
    True
    """
    limit = limit_network(
        as_graph(network, x1, "x1"),
        CARRIED,
        activation=activation,
        weight_variance=weight_variance,
        output_variance=output_variance,
        bias_variance=bias_variance,
        bias_gradient=bias_gradient,
    )
    x1, x2 = checked_batches(limit.graph, x1, x2)
    tiles, plan = ReadingTiles.of(limit, x1, x2).planned(memory_budget(memory))

    def parts(tile: Tile) -> Float[Tensor, "3 rows columns"]:
        _, tangent, value, left, right = tiles.kernels(tile)
        both = left + right
        return torch.stack([value, tangent - both + value, both - 2 * value])

    name = "limit tangent kernel in parts"
    kernel = TiledKernel(name, plan, parts, x1.dtype, x1.device, kernels=(3,), overflow_hint=OVERFLOW_HINT)
    return LimitParts(*kernel.filled(progress))
