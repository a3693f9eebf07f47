"""Kernels of infinitely wide networks: the tangent kernel (NTK), the output kernel (NNGP) and the path kernel."""

from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._resources import memory_budget, without_autocast
from neuralpath.graph import PathGraph, check_input
from neuralpath.kernels.kernel import GraphKernel, check_same_kind
from neuralpath.kernels.limit.activations import Pair
from neuralpath.kernels.limit.fused_kernels import fused_tiles
from neuralpath.kernels.limit.limit_network import ActivationChoice, OutputVariance, Variance, limit_network
from neuralpath.kernels.limit.limit_reading import ReadingTiles
from neuralpath.kernels.tiling import TiledKernel

OVERFLOW_HINT = "scale the inputs, or give them in float64"  # advice for kernels beyond the range of their dtype

LimitKind = Literal["ntk", "nngp", "path"]

_NAMES = {"ntk": "limit tangent kernel", "nngp": "limit output kernel", "path": "limit path kernel"}
_CARRIED: dict[str, tuple[Pair, ...]] = {"ntk": (Pair.SLOPES,), "nngp": (), "path": (Pair.GATES,)}


@dataclass(frozen=True, eq=False)
class LimitKernel(GraphKernel):
    r"""The kernel of a random network in the limit of infinite width: NTK, NNGP or path kernel.

    ``kind="nngp"`` is the covariance :math:`\Sigma` of the outputs, ``kind="ntk"`` the tangent kernel :math:`\tilde K`:

    .. math:: \Sigma^{(1)} = \langle x, x' \rangle, \quad \Sigma^{(l+1)} = \sigma_w^2 E[\chi(q) \chi(q')], \quad
        \tilde K^{(1)} = \Sigma^{(1)}, \quad
        \tilde K^{(l+1)} = \tilde K^{(l)} \odot \sigma_w^2 E[\chi'(q) \chi'(q')] + \Sigma^{(l+1)}

    with :math:`(q, q')` normal of covariance :math:`\Sigma^{(l)}`. All outputs have the same kernel.

    ``kind="path"`` is the limit of ``path_kernel(network, x, normalize=True)`` for the gates of a random network: every
    linear node is divided by its fan-in, and a gate becomes its expectation. Fully connected:

    .. math:: \frac{\langle x, x' \rangle}{d_{in}} \prod_{l=1}^{d-1} E[\gamma(q_l) \gamma(q_l')], \quad
        E[\gamma \gamma'] = \frac{\pi - \theta_l}{2 \pi} \text{ for ReLU}

    with :math:`\theta_l` the angle between the layer's inputs. :math:`d \, 2^{d-1} d_{in}` times it is the limit
    :math:`d \, \Sigma^{(1)} \odot \prod_l \hat\Sigma^{(l)}` of the value tangent kernel of weights that are independent
    of the gates. Paths that start at a bias count with 1, as in ``path_kernel``, for any ``bias_variance``.

    Only the structure of the network matters, not its widths and weights. The parametrization: a linear node that
    reads the input has standard normal weights and a factor of one over the root of its window size (none for a dense
    layer); any other has a factor of the root of ``weight_variance`` over fan-in. Gradients are those with respect to
    the standard normal weights ("NTK parametrization").

    ReLU, leaky ReLU, soft-ReLU, GELU and softplus have closed forms; other activations are integrated
    (``ByQuadrature``) to an accuracy of 1e-9. Sums of branches are derived where the branches come from different
    layers with weights, and activations of such sums where every term is normal; a scalar factor is a constant. Max
    pooling and batch norm have no such limit. The angle of a vector of length 0 with any vector is a right angle.

    Reference: Theory, "Kernels of infinite width"; P0 section 3, P1 equation 4.
    Cost: for each pair of examples one expectation for each layer and each pair of positions: all pairs where positions
    are pooled, equal positions only where they are flattened.

    Args:
        network: A module, or its graph from `trace`. A module is traced on the first example.
        kind: "ntk" (tangent kernel), "nngp" (output kernel) or "path" (path kernel).
        activation: Replaces the network's activations, all of them or by the names of their nodes: a gate such as
            ``SoftGate(8.0)``, or any elementwise function. None: the network's own. Kind "path" needs gates.
        weight_variance: Variance of the weights times fan-in: one number, or one for each linear node that does not
            read the input, by its name. None: 2 in general, 2 / (1 + slope^2) for leaky ReLU, 1 for linear networks.
            For kind "path" that of the network that makes the gates.
        output_variance: The same for the output layer; chooses between the two limits of the papers (erratum E1).
            "equal": as the other layers, which gives :math:`\tilde K^{(d)}`. "half": half of it, which gives
            :math:`(\tilde K^{(d)} + \Sigma^{(d)}) / 2`, the form that P0 and P1 print. A number v gives
            :math:`\tilde K^{(d-1)} \odot v E[\chi' \chi''] + \Sigma^{(d)}`. Not for kind "path".
        bias_variance: Variance of the biases: one number, or one for each bias by its name.
        bias_gradient: What each bias adds to the tangent kernel. None: ``bias_variance``, as in NTK parametrization;
            1.0 for biases that are trained as in torch. Only for kind "ntk".
        linear_features: The gates come from a network without activations, as in a deep linearly gated network:
            :math:`\theta_l` is then the angle between the inputs at every layer. Only for kind "path".

    Raises:
        ValueError: A setting does not belong to the kind, is not positive or names other nodes; inputs do not fit;
            weights are tied; nodes have no limit (the message names all); an accuracy is not reached.

    >>> import torch, neuralpath as npath
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> LimitKernel(npath.nets.FC(2, width=8, depth=2), kind="nngp")(x)
    tensor([[1.0000, 0.3183],
            [0.3183, 1.0000]])
    """

    network: nn.Module | PathGraph
    _: KW_ONLY
    kind: LimitKind = "ntk"
    activation: ActivationChoice = None
    weight_variance: Variance | None = None
    output_variance: OutputVariance = "equal"
    bias_variance: Variance = 0.0
    bias_gradient: Variance | None = None
    linear_features: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in _NAMES:
            raise ValueError(f"`kind` must be one of {', '.join(map(repr, _NAMES))}, got {self.kind!r}.")
        if self.kind == "path" and self.output_variance != "equal":
            raise ValueError(f"`output_variance` is not a setting of kind 'path', got {self.output_variance!r}.")
        if self.kind != "ntk" and self.bias_gradient is not None:
            raise ValueError(f"`bias_gradient` is a setting of kind 'ntk' only, got kind {self.kind!r}.")
        if self.kind != "path" and self.linear_features:
            raise ValueError(f"`linear_features` is a setting of kind 'path' only, got kind {self.kind!r}.")

    @without_autocast()
    def tiles(
        self,
        x1: Float[Tensor, "batch1 *shape"],
        x2: Float[Tensor, "batch2 *shape"] | None = None,
        *,
        memory: int | None = None,
    ) -> TiledKernel:
        """The kernel matrix as tiles that are computed on demand, for kernels beyond memory.

        Args:
            x1: Examples of the rows.
            x2: Examples of the columns; None: the same batch, and only tiles on and above the diagonal.
            memory: Budget in bytes for the computation; None: half of the free memory.

        >>> import torch, neuralpath as npath
        >>> x = torch.randn(5, 3)
        >>> [tuple(values.shape) for tile, values in LimitKernel(npath.nets.FC(3, 8, 3)).tiles(x, x[:2])]
        [(5, 2)]
        """
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("network", "kind")}
        network = limit_network(self.graph(x1), _CARRIED[self.kind], paths=self.kind == "path", **settings)
        x1, x2 = checked_batches(network.graph, x1, x2)
        name, budget = _NAMES[self.kind], memory_budget(memory)
        fused = fused_tiles(name, network, x1, x2, budget, overflow_hint=OVERFLOW_HINT)
        if fused is not None:
            return fused
        tiles, plan = ReadingTiles.of(network, x1, x2).planned(budget)
        # The last kernel is the carried one, or the second moments where none is carried.
        last = lambda tile: tiles.kernels(tile)[-1]  # noqa: E731
        return TiledKernel(name, plan, last, x1.dtype, x1.device, overflow_hint=OVERFLOW_HINT)


def checked_batches(graph: PathGraph, x1: Tensor, x2: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Both batches, detached, if they fit the graph and each other."""
    check_input("x1", x1, graph)
    if x2 is not None:
        check_input("x2", x2, graph)
        check_same_kind(x1, x2)
    return x1.detach(), None if x2 is None else x2.detach()


def limit_tangent_kernel(
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
) -> Float[Tensor, "batch1 batch2"]:
    """The neural tangent kernel (NTK) of a random network of infinite width; see `LimitKernel`.

    Args:
        network: A module, or its graph from `trace`. A module is traced on the first example.
        x1: Examples of the rows.
        x2: Examples of the columns; None: the same batch.
        activation: A gate or function that replaces the network's activations, all or by name; None: its own.
        weight_variance: Variance of the weights times fan-in, one number or by name; None: by the activations.
        output_variance: The same for the output layer: "equal", "half" or a number.
        bias_variance: Variance of the biases, one number or by name.
        bias_gradient: What each bias adds to the kernel; None: ``bias_variance``; 1.0: biases trained as in torch.
        memory: Budget in bytes for the computation; None: half of the free memory.
        progress: Whether to show a progress bar; None: on a terminal, for long computations.

    >>> import torch, neuralpath as npath
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> limit_tangent_kernel(npath.nets.FC(2, width=8, depth=2), x)
    tensor([[2.0000, 0.3183],
            [0.3183, 2.0000]])
    """
    kernel = LimitKernel(network, activation=activation, weight_variance=weight_variance, bias_variance=bias_variance)
    kernel = replace(kernel, output_variance=output_variance, bias_gradient=bias_gradient)
    return kernel(x1, x2, memory=memory, progress=progress)


def limit_output_kernel(
    network: nn.Module | PathGraph,
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
    """The covariance of the outputs of a random network of infinite width (NNGP); see `LimitKernel`.

    Args:
        network: A module, or its graph from `trace`. A module is traced on the first example.
        x1: Examples of the rows.
        x2: Examples of the columns; None: the same batch.
        activation: A gate or function that replaces the network's activations, all or by name; None: its own.
        weight_variance: Variance of the weights times fan-in, one number or by name; None: by the activations.
        output_variance: The same for the output layer: "equal", "half" or a number.
        bias_variance: Variance of the biases, one number or by name.
        memory: Budget in bytes for the computation; None: half of the free memory.
        progress: Whether to show a progress bar; None: on a terminal, for long computations.

    >>> import torch, neuralpath as npath
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> limit_output_kernel(npath.nets.FC(2, width=8, depth=2), x)
    tensor([[1.0000, 0.3183],
            [0.3183, 1.0000]])
    """
    kernel = LimitKernel(network, activation=activation, weight_variance=weight_variance, bias_variance=bias_variance)
    kernel = replace(kernel, kind="nngp", output_variance=output_variance)
    return kernel(x1, x2, memory=memory, progress=progress)


def limit_path_kernel(
    network: nn.Module | PathGraph,
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
    """The normalized neural path kernel for the gates of a random network of infinite width; see `LimitKernel`.

    Args:
        network: A module, or its graph from `trace`. A module is traced on the first example.
        x1: Examples of the rows.
        x2: Examples of the columns; None: the same batch.
        activation: A gate that replaces the network's activations, all or by name; None: its own.
        weight_variance: Variance of the weights that make the gates, times fan-in, one number or by name.
        bias_variance: Variance of the biases that make the gates, one number or by name.
        linear_features: The gates come from a network without activations.
        memory: Budget in bytes for the computation; None: half of the free memory.
        progress: Whether to show a progress bar; None: on a terminal, for long computations.

    >>> import torch, neuralpath as npath
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    >>> limit_path_kernel(npath.nets.FC(2, width=8, depth=2), x)
    tensor([[0.2500, 0.1875],
            [0.1875, 0.5000]])
    """
    kernel = LimitKernel(network, activation=activation, weight_variance=weight_variance, bias_variance=bias_variance)
    kernel = replace(kernel, kind="path", linear_features=linear_features)
    return kernel(x1, x2, memory=memory, progress=progress)
