"""Random-sign features: inner products that estimate the path kernel of any graph, in time linear in the examples."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral

import torch
from jaxtyping import Float, Int
from torch import Tensor

from neuralpath._checks import describe
from neuralpath._resources import without_autocast
from neuralpath.graph import (
    Forward,
    Gates,
    PathGraph,
    checked_graph,
    no_paths_through,
    nodes as n,
    outputs_share_paths,
    refuse_tied,
    walk,
)
from neuralpath.kernels import FanVariance, weight_variances
from neuralpath.paths.inputs import Batch, Network, checked_gates

CHUNK_BYTES = 2**27  # hidden values that are held at once, over draws and examples: a few times a second-level cache
DRAWS = 16  # that are computed together, where memory allows: the same for every number of examples

Weights = dict[str, Float[Tensor, "draw ..."]]  # by the name of a linear or bias node


class _WithWeights(Forward):
    """The forward pass with the weights of paths given for each linear node and bias node, and fixed gates."""

    def __init__(self, x: Tensor, graph: PathGraph, gates: Gates, weights: Mapping[str, Tensor]) -> None:
        super().__init__(x, graph.state, gates)
        self._weights = weights

    def linear(self, node: n.LinearNode, z: Tensor) -> Tensor:
        return node.apply(z, self._weights[node.name])

    def bias(self, node: n.BiasNode, z: Tensor) -> Tensor:
        return z + self._weights[node.name]

    def activation(self, node: n.ActivationNode, q: Tensor) -> Tensor:
        raise no_paths_through(node)


@torch.no_grad()
def path_sketch(
    network: Network,
    x: Batch,
    n_features: int,
    *,
    generator: torch.Generator,
    gates: Gates | None = None,
    normalize: bool = False,
    memory: int = CHUNK_BYTES,
) -> Float[Tensor, "batch feature"]:
    r"""Random-sign features whose inner products estimate the neural path kernel (NPK), for any graph.

    .. math:: f_k(x) = \hat y_{\epsilon_k}(x) / \sqrt{m}, \qquad E \sum_k f_k(x) f_k(x') = H(x, x')

    with :math:`\epsilon_1 \dots \epsilon_m` independent draws of random signs for all weights and biases, and fixed
    gates. The estimate is unbiased. The variance of an entry is about :math:`(H_{xx} H_{x'x'} + H_{xx'}^2) / m`: an
    absolute error, useless for entries far below the diagonal, as deep networks have; ``sketched_kernel`` reports it.
    The features of an example depend neither on the other examples nor on the chunks, so a data set may be sketched in
    parts with generators of one seed.

    Args:
        network: A module or its path graph.
        x: The examples.
        n_features: The number of features, :math:`m`.
        generator: The source of the random signs.
        gates: The gates to use instead of those that ``x`` opens.
        normalize: Divide every linear node by its fan-in, as in ``path_kernel``.
        memory: About how many bytes of hidden values are held at once.

    Raises:
        ValueError: ``x`` or ``gates`` does not fit, weights are tied, or an activation is not a gate.
        TypeError: ``n_features`` is not an integer, or ``generator`` is not a generator.
        OverflowError: A feature exceeds the range of the dtype.

    Cost: ``n_features`` forward passes; memory for a chunk of them, and for the gates of ``x``.

    >>> import neuralpath as npath
    >>> x = torch.randn(3, 4, dtype=torch.float64)
    >>> graph = npath.trace(npath.nets.FC(4, width=8, depth=3).double(), x[:1])
    >>> features = npath.paths.path_sketch(graph, x, 2000, generator=torch.Generator().manual_seed(0))
    >>> sketched = npath.paths.sketched_kernel(features)
    >>> exact = npath.path_kernel(graph, x)
    >>> bool(((sketched.kernel - exact).abs() <= 5 * sketched.standard_error).all())
    True
    """
    graph = checked_graph(network, x=x)
    refuse_tied(graph, "the path sketch")
    if not isinstance(n_features, Integral) or isinstance(n_features, bool):
        raise TypeError(f"`n_features` must be a number of features, an integer, got {describe(n_features)}.")
    if n_features < 1:
        raise ValueError(f"`n_features` must be at least 1, got {n_features}.")
    if not isinstance(generator, torch.Generator):
        hint = "such as `torch.Generator().manual_seed(0)`"
        raise TypeError(f"`generator` must be a torch.Generator, {hint}, got {describe(generator)}.")
    gates = checked_gates(graph, x, gates)
    variances = weight_variances(graph, FanVariance(1.0) if normalize else 1.0)
    features = x.new_empty(len(x), n_features)
    rows, draws = _chunks(graph, x, n_features, memory)
    for start in range(0, n_features, draws):
        count = min(draws, n_features - start)
        weights, output = _draw(graph, count, variances, x, generator)
        for first in range(0, len(x), rows):
            part = slice(first, first + rows)
            features[part, start : start + count] = _outputs(graph, x[part], gates.batch(part), weights, output).T
    features /= n_features**0.5
    if not bool(torch.isfinite(features).all()):
        raise OverflowError("the path sketch exceeds the range of its dtype: use `normalize=True`, or float64 inputs.")
    return features


def _chunks(graph: PathGraph, x: Tensor, n_features: int, memory: int) -> tuple[int, int]:
    """Examples and draws that are walked at once."""
    widest = 3 * graph.widest * x.element_size()
    weights = x.element_size() * sum(torch.Size(_shape(node)).numel() for node in graph.weights())
    rows = max(1, min(len(x), memory // (DRAWS * widest)))
    return rows, max(1, min(n_features, memory // (rows * widest), 4 * memory // max(weights, 1)))


def _shape(node: n.LinearNode | n.BiasNode) -> n.Shape:
    return node.weight_shape if isinstance(node, n.LinearNode) else node.value_shape


def _draw(
    graph: PathGraph, count: int, variances: Mapping[str, float], x: Tensor, generator: torch.Generator
) -> tuple[Weights, Int[Tensor, " draw"]]:
    """Weights of each draw, one draw after the other, so that chunks do not change them; and an output for each."""
    nodes = list(graph.weights())
    drawn: dict[str, list[Tensor]] = {node.name: [] for node in nodes}
    outputs = []
    for _ in range(count):
        for node in nodes:
            signs = torch.randint(0, 2, _shape(node), generator=generator, device=generator.device)
            drawn[node.name].append(signs.to(x.device, torch.int8))
        outputs.append(torch.randint(graph.n_outputs, (), generator=generator, device=generator.device))
    weights = {}
    for node in nodes:
        size = variances[node.name] ** 0.5 if isinstance(node, n.LinearNode) else 1.0
        weights[node.name] = (2 * torch.stack(drawn[node.name]).to(x.dtype) - 1) * size
    return weights, torch.stack(outputs).to(x.device)


def _outputs(
    graph: PathGraph, x: Tensor, gates: Gates, weights: Weights, output: Int[Tensor, " draw"]
) -> Float[Tensor, "draw batch"]:
    """For each draw one of the outputs; where all of them share their paths it does not matter which."""
    share = outputs_share_paths(graph)

    def output_of(drawn: dict[str, Tensor], unit: Int[Tensor, ""]) -> Float[Tensor, " batch"]:
        y = walk(graph, _WithWeights(x, graph, gates, drawn)).reshape(len(x), -1)
        return y[:, 0] if share else y.index_select(1, unit[None])[:, 0]

    return torch.func.vmap(output_of)(weights, output)


@dataclass(frozen=True, slots=True, eq=False)
class SketchedKernel:
    """An estimate of a kernel and the standard error of each entry.

    Args:
        kernel: The estimate.
        standard_error: The standard error of each entry.
    """

    kernel: Float[Tensor, "batch1 batch2"]
    standard_error: Float[Tensor, "batch1 batch2"]


@without_autocast()
def sketched_kernel(
    features1: Float[Tensor, "batch1 feature"], features2: Float[Tensor, "batch2 feature"] | None = None
) -> SketchedKernel:
    """The kernel that sketched features estimate, with standard errors from the spread over the draws.

    Args:
        features1: The features of the rows, as ``path_sketch`` returns them.
        features2: The features of the columns, from the same draws; ``None`` means ``features1``.

    Raises:
        ValueError: There are fewer than two features, or the batches have different numbers of them.

    >>> sketched = sketched_kernel(torch.ones(3, 16) / 4)
    >>> float(sketched.kernel[0, 1]), float(sketched.standard_error[0, 1])
    (1.0, 0.0)
    """
    features2 = features1 if features2 is None else features2
    count = features1.shape[1]
    if count < 2 or features2.shape[1] != count:
        counts = f"{count} and {features2.shape[1]}"
        raise ValueError(f"`features1` and `features2` need the same number of features, two or more, got {counts}.")
    kernel = features1 @ features2.T
    squares = count * (features1.square() @ features2.square().T)  # mean of the squared terms, each `count` times large
    variance = (squares - kernel.square()).clamp(min=0) / (count - 1)
    return SketchedKernel(kernel, variance.sqrt())
