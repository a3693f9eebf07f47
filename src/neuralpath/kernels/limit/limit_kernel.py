"""Kernels of infinite width of any graph: outputs, tangents and paths."""

from jaxtyping import Float
from torch import Tensor

from neuralpath._memory import memory_budget
from neuralpath._precision import without_autocast
from neuralpath.graph import PathGraph, check_input
from neuralpath.kernels.limit.activations import Pair
from neuralpath.kernels.limit.fused_chains import fused_tiles
from neuralpath.kernels.limit.limit_network import (
    ActivationChoice,
    LimitNetwork,
    OutputVariance,
    Variance,
    limit_network,
)
from neuralpath.kernels.limit.limit_reading import ReadingTiles
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel, refuse_overflow

OVERFLOW_HINT = "scale the inputs, or give them in float64"
"""What to do about kernels beyond the range of their dtype."""


def limit_tangent_kernel(
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
) -> Float[Tensor, "batch1 batch2"]:
    r"""The tangent kernel of a random network in the limit of infinite width.

    .. math:: \Sigma^{(1)} = \langle x, x' \rangle, \quad \Sigma^{(l+1)} = \sigma_w^2 E[\chi(q) \chi(q')], \quad
        \tilde K^{(1)} = \Sigma^{(1)}, \quad
        \tilde K^{(l+1)} = \tilde K^{(l)} \odot \sigma_w^2 E[\chi'(q) \chi'(q')] + \Sigma^{(l+1)}

    with :math:`(q, q')` normal of covariance :math:`\Sigma^{(l)}`. For several outputs, that of each one.

    The graph is used for its structure only; widths and weights do not matter. The parametrization: a linear node that
    reads the input has standard normal weights and a factor of one over the root of its window size (none for a dense
    layer); any other has a factor of the root of ``weight_variance`` over fan-in. Weights are trained as such ("NTK
    parametrization"). ``weight_variance`` is by default that which goes with the activations: 2 for ReLU and in
    general, 2 / (1 + slope^2) for leaky ReLU, 1 for linear networks; or a number for each such linear node by its name.
    ``output_variance`` chooses between the two limits of the papers (erratum E1): ``"equal"`` (2.0 for ReLU) treats the
    output layer as the others and gives :math:`\tilde K^{(d)}`, as weights of variance 2 / width everywhere do;
    ``"half"`` (1.0 for ReLU) gives :math:`(\tilde K^{(d)} + \Sigma^{(d)}) / 2`, the form that P0 and P1 print, for an
    output layer of variance 1 / width. Any other number v gives :math:`\tilde K^{(d-1)} \odot v E[\chi' \chi''] +
    \Sigma^{(d)}`.
    Biases have the variance ``bias_variance``, and each adds ``bias_gradient`` to the kernel: by default the same, as
    in NTK parametrization; 1.0 for biases that are trained as they stand, as torch does. Both may be given by name.

    ``activation`` replaces the graph's activations, all or some by the node's name, by a gate such as ``SoftGate(8.0)``
    or any elementwise function. ReLU, leaky ReLU, soft-ReLU, GELU and softplus are closed forms; others are integrated
    (``ByQuadrature``) to an accuracy of 1e-9.

    Sums of branches are derived where they come from different layers with weights, and activations of such sums where
    every term is normal; a scalar factor is a constant. Max pooling and batch norm have no such limit. The angle of a
    vector of length 0 with any other, itself included, is taken as a right one.

    ``memory`` is a budget in bytes (default: half of what is free); ``progress`` shows a bar, or not (default: on a
    terminal, for long work).

    Reference: Theory, "Kernels of infinite width"; P0 section 3, P1 equation 4.
    Cost: for each pair of examples one expectation for each layer and each pair of positions: all pairs where positions
    are pooled, equal positions only where they are flattened.
    Raises: ValueError for inputs that do not fit, tied weights, variances that are not positive, an accuracy that is
    not reached, and for parts without a limit, all of which are named; BudgetTooSmall where one pair needs more than
    the budget.

    >>> import torch, neuralpath as npath
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> limit_tangent_kernel(npath.trace(npath.nets.FC(2, width=8, depth=2), x[:1]), x)
    tensor([[2.0000, 0.3183],
            [0.3183, 2.0000]])
    """
    tiles = limit_tangent_kernel_tiles(
        graph, x1, x2, activation=activation, weight_variance=weight_variance, output_variance=output_variance,
        bias_variance=bias_variance, bias_gradient=bias_gradient, memory=memory,
    )  # fmt: skip
    kernel = tiles.filled(progress)
    refuse_overflow(kernel, tiles.what, OVERFLOW_HINT)
    return kernel


def limit_output_kernel(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    activation: ActivationChoice = None,
    weight_variance: Variance | None = None,
    output_variance: OutputVariance = "equal",
    bias_variance: Variance = 0.0,
    memory: int | None = None,
    progress: bool | None = None,
) -> Float[Tensor, "batch1 batch2"]:
    r"""The covariance of the outputs of a random network in the limit of infinite width (NNGP), :math:`\Sigma^{(d)}`.

    Arguments, parametrization, cost and errors as for ``limit_tangent_kernel``; with another ``output_variance`` v it
    is :math:`v E[\chi(q) \chi(q')]` at the last layer.

    >>> import torch, neuralpath as npath
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> limit_output_kernel(npath.trace(npath.nets.FC(2, width=8, depth=2), x[:1]), x)
    tensor([[1.0000, 0.3183],
            [0.3183, 1.0000]])
    """
    tiles = limit_output_kernel_tiles(
        graph, x1, x2, activation=activation, weight_variance=weight_variance, output_variance=output_variance,
        bias_variance=bias_variance, memory=memory,
    )  # fmt: skip
    kernel = tiles.filled(progress)
    refuse_overflow(kernel, tiles.what, OVERFLOW_HINT)
    return kernel


def limit_path_kernel(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    activation: ActivationChoice = None,
    weight_variance: Variance | None = None,
    bias_variance: Variance = 0.0,
    linear_features: bool = False,
    memory: int | None = None,
    progress: bool | None = None,
) -> Float[Tensor, "batch1 batch2"]:
    r"""The normalized path kernel in the limit of infinite width, for the gates of a random network.

    The limit of ``path_kernel(graph, x, normalize=True)`` for a network of random weights: every linear node is divided
    by its fan-in, and a gate becomes its expectation. Fully connected:

    .. math:: \frac{\langle x, x' \rangle}{d_{in}} \prod_{l=1}^{d-1} E[\gamma(q_l) \gamma(q_l')], \quad
        E[\gamma \gamma'] = \frac{\pi - \theta_l}{2 \pi} \text{ for ReLU}

    with :math:`\theta_l` the angle between the layer's inputs. So :math:`d \, 2^{d-1} d_{in}` times it is the limit
    :math:`d \, \Sigma^{(1)} \odot \prod_l \hat\Sigma^{(l)}` of the value tangent kernel of weights that are independent
    of the gates. With ``linear_features`` the gates come from a network without activations, as in a deep linearly
    gated network: :math:`\theta_l` is then the angle between the inputs at every layer of a fully connected network.
    Paths that start at a bias count with 1, as in ``path_kernel``, whatever ``bias_variance``, that of the gates'
    network, is.

    Other arguments, cost and errors as for ``limit_tangent_kernel``; the variances, too, are those of the network that
    makes the gates. Only activations with a gate are taken.

    >>> import torch, neuralpath as npath
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    >>> limit_path_kernel(npath.trace(npath.nets.FC(2, width=8, depth=2), x[:1]), x)
    tensor([[0.2500, 0.1875],
            [0.1875, 0.5000]])
    """
    tiles = limit_path_kernel_tiles(
        graph, x1, x2, activation=activation, weight_variance=weight_variance, bias_variance=bias_variance,
        linear_features=linear_features, memory=memory,
    )  # fmt: skip
    kernel = tiles.filled(progress)
    refuse_overflow(kernel, tiles.what, OVERFLOW_HINT)
    return kernel


def limit_tangent_kernel_tiles(
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
    """The tangent kernel of infinite width as tiles, for kernels beyond memory; arguments as ``limit_tangent_kernel``.

    With ``x2=None`` only tiles on and above the diagonal are there. ``estimate()`` says beforehand how long all take.

    >>> import torch, neuralpath as npath
    >>> x = torch.randn(5, 3)
    >>> tiles = limit_tangent_kernel_tiles(npath.trace(npath.nets.FC(3, 8, 3), x[:1]), x)
    >>> [tuple(values.shape) for tile, values in tiles]
    [(5, 5)]
    """
    network = limit_network(
        graph, (Pair.SLOPES,), activation=activation, weight_variance=weight_variance, output_variance=output_variance,
        bias_variance=bias_variance, bias_gradient=bias_gradient,
    )  # fmt: skip
    return _tiled("limit tangent kernel", network, x1, x2, memory)


def limit_output_kernel_tiles(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    activation: ActivationChoice = None,
    weight_variance: Variance | None = None,
    output_variance: OutputVariance = "equal",
    bias_variance: Variance = 0.0,
    memory: int | None = None,
) -> TiledKernel:
    """The output kernel of infinite width as tiles; arguments as ``limit_output_kernel``.

    >>> import torch, neuralpath as npath
    >>> x = torch.randn(5, 3)
    >>> tiles = limit_output_kernel_tiles(npath.trace(npath.nets.FC(3, 8, 3), x[:1]), x)
    >>> [tuple(values.shape) for tile, values in tiles]
    [(5, 5)]
    """
    network = limit_network(
        graph, (), activation=activation, weight_variance=weight_variance, output_variance=output_variance,
        bias_variance=bias_variance,
    )  # fmt: skip
    return _tiled("limit output kernel", network, x1, x2, memory)


def limit_path_kernel_tiles(
    graph: PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    activation: ActivationChoice = None,
    weight_variance: Variance | None = None,
    bias_variance: Variance = 0.0,
    linear_features: bool = False,
    memory: int | None = None,
) -> TiledKernel:
    """The path kernel of infinite width as tiles; arguments as ``limit_path_kernel``.

    >>> import torch, neuralpath as npath
    >>> x = torch.randn(5, 3)
    >>> tiles = limit_path_kernel_tiles(npath.trace(npath.nets.FC(3, 8, 3), x[:1]), x, x[:2])
    >>> [tuple(values.shape) for tile, values in tiles]
    [(5, 2)]
    """
    network = limit_network(
        graph, (Pair.GATES,), activation=activation, weight_variance=weight_variance, bias_variance=bias_variance,
        paths=True, linear_features=linear_features,
    )  # fmt: skip
    return _tiled("limit path kernel", network, x1, x2, memory)


@without_autocast()
def _tiled(what: str, network: LimitNetwork, x1: Tensor, x2: Tensor | None, memory: int | None) -> TiledKernel:
    x1, x2 = checked(network, x1, x2)
    budget = memory_budget(memory)
    fused = fused_tiles(what, network, x1, x2, budget)
    if fused is not None:
        return fused
    tiles, plan = ReadingTiles.of(network, x1, x2).planned(budget)
    return TiledKernel(what, plan, lambda tile: tiles.kernels(tile)[-1], x1.dtype, x1.device)


def checked(network: LimitNetwork, x1: Tensor, x2: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Both batches, detached, if they fit the network."""
    check_input("x1", x1, network.graph)
    if x2 is None:
        return x1.detach(), None
    check_input("x2", x2, network.graph)
    if x2.dtype != x1.dtype or x2.device != x1.device:
        raise ValueError(
            f"`x1` and `x2` must have one dtype and device, got {x1.dtype} on {x1.device} and "
            f"{x2.dtype} on {x2.device}."
        )
    return x1.detach(), x2.detach()
