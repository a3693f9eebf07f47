r"""The value tangent kernel of a network, for given gates and weights, and random weights for it.

The gradients are stored in factors, the input of each linear node and the gradient by its result;
``neuralpath.kernels.tangent`` computes their inner products.
"""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath import graph as graphs
from neuralpath._checks import describe
from neuralpath._resources import without_autocast
from neuralpath.graph import Gates, PathGraph, as_graph, nodes as n, walk
from neuralpath.kernels.path.path_kernel import FanVariance, Variance, weight_variances
from neuralpath.kernels.tangent.contraction import add_inner_products, cheaper_by_position
from neuralpath.kernels.tangent.features import assemble
from neuralpath.kernels.tangent.gradients import ConvolutionGeometry, LayerGradient
from neuralpath.kernels.tangent.rules import AffineForm, FilterForm, MatrixForm

Draw = Callable[[n.Shape, torch.Generator], Tensor]
"""From a shape and a generator to a tensor of uncorrelated entries of mean 0 and variance 1."""


def gaussian(shape: n.Shape, generator: torch.Generator) -> Float[Tensor, "..."]:
    """Independent normal entries of variance 1."""
    return torch.randn(shape, generator=generator, device=generator.device)


def random_signs(shape: n.Shape, generator: torch.Generator) -> Float[Tensor, "..."]:
    """Independent fair signs, the papers' symmetric Bernoulli weights (P1 assumption 5.1)."""
    return torch.randint(0, 2, shape, generator=generator, device=generator.device) * 2.0 - 1.0


def weight_shape(node: n.LinearNode | n.BiasNode) -> n.Shape:
    """Shape of the weights of a node."""
    return node.weight_shape if isinstance(node, n.LinearNode) else node.value_shape


def random_weights(
    graph: PathGraph,
    *,
    generator: torch.Generator,
    weight_variance: Variance = FanVariance(2.0),  # noqa: B008  (frozen)
    bias_variance: float = 0.0,
    draw: Draw = gaussian,
) -> dict[str, Float[Tensor, "..."]]:
    """Random value weights of a graph: a tensor for each linear and bias node, in the graph's dtype and on its device.

    Args:
        graph: The path graph.
        generator: The source of randomness.
        weight_variance: Variance of the weights: one number, a number for each linear node by its name, or
            ``FanVariance``.
        bias_variance: Variance of the biases.
        draw: The distribution: ``gaussian``, ``random_signs``, or a function of a shape and a generator that returns
            entries of mean 0 and variance 1.

    Raises:
        ValueError: A variance is not positive.

    >>> import neuralpath as npath
    >>> graph = npath.trace(npath.nets.FC(3, width=4, depth=2), torch.ones(1, 3))
    >>> generator = torch.Generator().manual_seed(0)
    >>> weights = random_weights(graph, generator=generator, draw=random_signs, weight_variance=0.25)
    >>> {name: tuple(tensor.shape) for name, tensor in weights.items()}
    {'layers.linear1': (4, 3), 'layers.linear2': (1, 4)}
    >>> weights["layers.linear2"].abs().unique()
    tensor([0.5000])
    """
    variances = weight_variances(graph, weight_variance)
    if not 0 <= bias_variance < float("inf"):
        raise ValueError(f"`bias_variance` must be 0 or positive, got {bias_variance}.")
    like = next(iter(graph.params.values()), torch.zeros(()))
    weights = {}
    for node in graph.weights():
        size = (variances[node.name] if isinstance(node, n.LinearNode) else bias_variance) ** 0.5
        weights[node.name] = draw(weight_shape(node), generator).to(like) * size
    return weights


def own_weights(graph: PathGraph) -> dict[str, Float[Tensor, "..."]]:
    """The network's own weights: a tensor for each linear node and bias node."""
    values = {node.name: node.weight if isinstance(node, n.LinearNode) else node.value for node in graph.weights()}
    state = graph.state
    return {name: value.evaluate(state).detach() for name, value in values.items()}


@without_autocast()
def value_kernel(
    network: PathGraph | nn.Module,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    weights: Mapping[str, Float[Tensor, "..."]] | None = None,
    gates1: Gates | None = None,
    gates2: Gates | None = None,
) -> Float[Tensor, "batch1 batch2"]:
    r"""The value tangent kernel for given gates and given value weights.

    .. math:: K^V(x, x') = \langle \psi^V_x, \psi^V_{x'} \rangle, \qquad
        \psi^V_x = \nabla_\Theta \langle \phi_x, v_\Theta \rangle \text{ with } \phi_x \text{ held fixed}

    The gradient is by the weights of all linear nodes and by all biases; gains and slopes are constants, as in
    ``expected_tangent_kernel``, which is its mean over random ``weights``. For several outputs it is their mean. With
    the network's own weights and hard gates it is the tangent kernel of a ReLU network without trained gains.

    Reference: P0 section 2.4, P1 equation 3; Theory, "The tangent kernel and its parts".
    Cost: a forward pass and, for each output, a backward pass; then for each dense layer two products of batches, for
    each convolution the cheaper of per-example gradients and pairs of positions. Memory for the hidden values of both
    batches, so it is meant for some hundreds of examples.

    Args:
        network: A path graph, or a module, which is traced on the first example.
        x1: A batch of examples.
        x2: A second batch, or None for the same.
        weights: A tensor for each linear node and bias node, by its name, as ``random_weights`` returns them. None for
            the network's own.
        gates1: Gates for ``x1``; None for those that it opens in the network.
        gates2: Gates for ``x2``; None for those that it opens in the network.

    Raises:
        ValueError: Inputs, gates or weights do not fit, weights are tied, or an activation is not a gate.

    >>> model, x = torch.nn.Linear(3, 1, bias=False), torch.randn(4, 3)
    >>> bool(torch.allclose(value_kernel(model, x), x @ x.T))
    True
    """
    graph = as_graph(network, x1, "x1")
    graphs.refuse_tied(graph, "the value tangent kernel")
    if not any(True for _ in graph.weights()):
        raise ValueError("the network has no weights, so there is nothing to take gradients by.")
    if x2 is None and gates2 is not None:
        raise ValueError("`gates2` are the gates of `x2`, which is not given.")
    tensors = own_weights(graph) if weights is None else _checked_weights(graph, weights)
    first = _gradients(graph, x1, gates1, "1", tensors)
    n1, n2 = len(x1), len(x1 if x2 is None else x2)
    by_position = cheaper_by_position(first, n1, n2, graph.n_outputs, joint=False)
    left = assemble(first, by_position)
    right = left if x2 is None else assemble(_gradients(graph, x2, gates2, "2", tensors), by_position)
    kernel = x1.new_zeros(n1, n2)
    add_inner_products(kernel, left, right, joint=False)
    kernel /= graph.n_outputs
    return kernel if x2 is not None else kernel.triu() + kernel.triu(1).T


class _Tape(graphs.Forward):
    """The forward pass with fixed gates and weights, which records what the gradients of the weights need."""

    def __init__(self, x: Tensor, graph: PathGraph, gates: Gates, weights: Mapping[str, Tensor]) -> None:
        super().__init__(x, graph.state, gates)
        self._weights = weights
        self.inputs: dict[str, Tensor] = {}
        self.probes: dict[str, Tensor] = {}

    def _with_probe(self, node: n.Node, values: Tensor) -> Tensor:
        # The gradient by an added zero is the gradient by the node's result, even if no parameter before the node
        # requires gradients.
        probe = self.probes[node.name] = torch.zeros_like(values, requires_grad=True)
        return values + probe

    def linear(self, node: n.LinearNode, z: Tensor) -> Tensor:
        self.inputs[node.name] = z.detach()
        return self._with_probe(node, node.apply(z, self._weights[node.name]))

    def bias(self, node: n.BiasNode, z: Tensor) -> Tensor:
        return self._with_probe(node, z + self._weights[node.name])

    def activation(self, node: n.ActivationNode, q: Tensor) -> Tensor:
        raise graphs.no_paths_through(node)


def _gradients(
    graph: PathGraph, x: Tensor, gates: Gates | None, which: str, weights: Mapping[str, Tensor]
) -> dict[str, list[LayerGradient]]:
    """The gradients of each example's outputs by the weights of each linear node and bias, in factors."""
    graphs.check_input(f"x{which}", x, graph)
    if gates is not None:
        graphs.check_gates(f"gates{which}", gates, graph, len(x))
    else:
        gates = graph.gates(x)
    # The caller may have turned gradients off.
    with torch.inference_mode(False), torch.enable_grad():
        tape = _Tape(x.detach(), graph, gates, weights)
        sums = walk(graph, tape).reshape(len(x), -1).sum(0)
        probes = list(tape.probes.values())
        rows = [torch.autograd.grad(total, probes, retain_graph=True, materialize_grads=True) for total in sums]
    deltas = {name: torch.stack(parts, dim=1) for name, *parts in zip(tape.probes, *rows, strict=True)}
    return {name: [_gradient(graph.by_name[name], tape.inputs.get(name), delta)] for name, delta in deltas.items()}


def _gradient(node: n.Node, signal: Tensor | None, delta: Float[Tensor, "batch output ..."]) -> LayerGradient:
    """The gradients by the weight of one node, from its input and the gradient by its result."""
    if isinstance(node, n.BiasNode):
        return AffineForm(node.value_shape).gradient(delta, delta)
    assert isinstance(node, n.LinearNode)
    assert signal is not None
    if not node.windows:
        return MatrixForm(transposed=False).gradient(signal, delta)
    sides = [side for window in reversed(node.windows) for side in (window.before, window.after)]
    strides, gaps = (tuple(getattr(window, name) for window in node.windows) for name in ("stride", "dilation"))
    geometry = ConvolutionGeometry(node.weight_shape[2:], strides, (0,) * len(node.windows), gaps, node.groups)
    return FilterForm(geometry).gradient(F.pad(signal, sides), delta)


def _checked_weights(graph: PathGraph, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    nodes = {node.name: node for node in graph.weights()}
    if set(weights) != set(nodes):
        names = f"({', '.join(nodes)}), got {', '.join(weights) or 'none'}"
        raise ValueError(f"`weights` must have a tensor for each linear node and bias node {names}.")
    for name, node in nodes.items():
        tensor, expected, dtype = weights[name], weight_shape(node), graph.dtype
        if not isinstance(tensor, Tensor) or tuple(tensor.shape) != expected or dtype not in (None, tensor.dtype):
            raise ValueError(f"`weights[{name!r}]` must be {dtype} of shape {expected}, got {describe(tensor)}.")
    return weights
