"""The exact expectation over all sign assignments of the weights and biases, gates held fixed.

The output is multilinear in them, so the mean of y(x) y(x') over all 2^k assignments is the path kernel, and that of
the Jacobian's outer product the expected tangent kernel. This knows nothing of the closed forms; it needs only the
forward pass, and gets derivatives by flipping signs.
"""

import torch
from torch import Tensor

from neuralpath.graph import Forward, Gates, PathGraph, nodes as n, walk

MOST_WEIGHTS = 15
CHUNK = 2048  # assignments that are walked at once


def _shape(node: n.LinearNode | n.BiasNode) -> tuple[int, ...]:
    return node.weight_shape if isinstance(node, n.LinearNode) else node.value_shape


class SignedForward(Forward):
    """The forward pass of many networks at once, one for each row of weights; the batch is (network, example)."""

    def __init__(self, x: Tensor, graph: PathGraph, gates: Gates, weights: Tensor) -> None:
        repeated = Gates({k: g.repeat(len(weights), *[1] * (g.ndim - 1)) for k, g in gates.layers.items()})
        super().__init__(x.repeat(len(weights), *[1] * (x.ndim - 1)), graph.state, repeated)
        sizes = [torch.Size(_shape(node)).numel() for node in graph.weights()]
        self._weights = dict(zip((node.name for node in graph.weights()), weights.split(sizes, dim=1), strict=True))

    def linear(self, node: n.LinearNode, z: Tensor) -> Tensor:
        """Apply each network's weights as a matrix: the sum over the weights of what each alone would do."""
        weights = self._weights[node.name]
        shape = z.shape[1:]
        units = torch.eye(shape.numel(), dtype=z.dtype).reshape(-1, *shape)
        alone = torch.eye(weights.shape[1], dtype=z.dtype).reshape(-1, *node.weight_shape)
        matrices = torch.stack([node.apply(units, weight).flatten(1) for weight in alone])
        matrix = torch.einsum("nw,wio->nio", weights, matrices)
        mixed = z.reshape(len(weights), -1, shape.numel()) @ matrix
        return mixed.reshape(len(z), *node.shape)

    def bias(self, node: n.BiasNode, z: Tensor) -> Tensor:
        missing = (1,) * (len(node.shape) - len(node.value_shape))
        shift = self._weights[node.name].reshape(-1, 1, *missing, *node.value_shape)
        return (z.reshape(len(shift), -1, *node.shape) + shift).reshape(z.shape)


def _outputs(graph: PathGraph, x: Tensor, gates: Gates | None, sizes: Tensor) -> Tensor:
    """Outputs (assignment, example, output) for every assignment of signs to weights of the given sizes."""
    count = len(sizes)
    assert count <= MOST_WEIGHTS, f"{count} weights are too many to try all signs"
    numbers = torch.arange(2**count)
    signs = (((numbers[:, None] >> torch.arange(count)) & 1) * 2 - 1).double()
    gates = graph.gates(x) if gates is None else gates
    with torch.no_grad():
        parts = [
            walk(graph, SignedForward(x, graph, gates, part * sizes)).reshape(len(part), len(x), -1)
            for part in signs.split(CHUNK)
        ]
    return torch.cat(parts)


def _sizes(graph: PathGraph, variances: dict[str, float] | None, bias_variance: float) -> Tensor:
    sizes = []
    for node in graph.weights():
        is_mix = isinstance(node, n.LinearNode)
        variance = (1.0 if variances is None else variances[node.name]) if is_mix else bias_variance
        sizes.append(torch.full((torch.Size(_shape(node)).numel(),), variance**0.5, dtype=torch.float64))
    return torch.cat(sizes)


def path_kernel_by_signs(graph, x, gates=None, variances=None, bias_variance=1.0) -> Tensor:
    """The mean over all signs, and over the outputs, of the outer product of the outputs."""
    y = _outputs(graph, x, gates, _sizes(graph, variances, bias_variance))
    return torch.einsum("sak,sbk->ab", y, y) / (y.shape[0] * y.shape[2])


def expected_tangent_kernel_by_signs(graph, x, gates=None, variances=None, bias_variance=0.4) -> Tensor:
    """The mean over all signs, and over the outputs, of the sum over weights of products of derivatives.

    A multilinear function's derivative by one weight is its change when that sign flips, over twice the weight.
    """
    sizes = _sizes(graph, variances, bias_variance)
    y = _outputs(graph, x, gates, sizes)
    numbers = torch.arange(len(y))
    total = torch.zeros(len(x), len(x), dtype=torch.float64)
    for weight, size in enumerate(sizes.tolist()):
        change = (y - y[numbers ^ (1 << weight)]) / (2 * size)
        total += torch.einsum("sak,sbk->ab", change, change)
    return total / (y.shape[0] * y.shape[2])
