"""The exact expectation over all sign assignments of the weights and biases, gates held fixed.

The output is multilinear in them, so the mean of y(x) y(x') over all 2^k assignments is the path kernel, and that of
J J^T the expected tangent kernel. This knows nothing of the closed forms; it needs only the forward pass.
"""

import torch
from torch import Tensor

from neuralpath.graph import linear
from neuralpath.graph import nodes as n
from neuralpath.graph.forward import Forward, Gates
from neuralpath.graph.path_graph import PathGraph
from neuralpath.graph.walk import walk

MOST_WEIGHTS = 17


class SignedForward(Forward):
    """The forward pass with the weights of paths given node by node, batch norm's folded bias included."""

    def __init__(self, x: Tensor, graph: PathGraph, gates: Gates, weights: dict[str, Tensor]) -> None:
        super().__init__(x, graph.state, gates)
        self._weights = weights

    def mix(self, node: n.MixNode, z: Tensor) -> Tensor:
        return linear.mix(node, z, self._weights[node.name])

    def bias(self, node: n.BiasNode, z: Tensor) -> Tensor:
        return z + self._weights[node.name]


def _shapes(graph: PathGraph) -> dict[str, tuple[int, ...]]:
    return {
        node.name: node.weight_shape if isinstance(node, n.MixNode) else node.value_shape for node in graph.weights()
    }


def _split(flat: Tensor, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), flat.split(sizes), strict=True)}


def all_signs(count: int) -> Tensor:
    assert count <= MOST_WEIGHTS, f"{count} weights are too many to try all signs"
    numbers = torch.arange(2**count)
    return (((numbers[:, None] >> torch.arange(count)) & 1) * 2 - 1).double()


def _deviations(graph: PathGraph, variances: dict[str, float] | None, bias_variance: float) -> Tensor:
    sizes = []
    for node in graph.weights():
        is_mix = isinstance(node, n.MixNode)
        variance = (1.0 if variances is None else variances[node.name]) if is_mix else bias_variance
        shape = node.weight_shape if isinstance(node, n.MixNode) else node.value_shape
        sizes.append(torch.full((torch.Size(shape).numel(),), variance**0.5, dtype=torch.float64))
    return torch.cat(sizes)


def _output(graph: PathGraph, x: Tensor, gates: Gates):
    shapes = _shapes(graph)
    return lambda flat: walk(graph, SignedForward(x, graph, gates, _split(flat, shapes))).reshape(len(x), -1)


def path_kernel_by_signs(graph, x, gates=None, variances=None, bias_variance=1.0) -> Tensor:
    """The mean over all signs, and over the outputs, of the outer product of the outputs."""
    gates = graph.gates(x) if gates is None else gates
    size = _deviations(graph, variances, bias_variance)
    y = torch.func.vmap(_output(graph, x, gates), chunk_size=4096)(all_signs(len(size)) * size)
    return (torch.einsum("sak,sbk->ab", y, y) / (y.shape[0] * y.shape[2])).detach()


def expected_tangent_kernel_by_signs(graph, x, gates=None, variances=None, bias_variance=0.0) -> Tensor:
    """The mean over all signs, and over the outputs, of the Jacobian's outer product."""
    gates = graph.gates(x) if gates is None else gates
    size = _deviations(graph, variances, bias_variance)
    jacobian = torch.func.vmap(torch.func.jacrev(_output(graph, x, gates)), chunk_size=1024)
    j = jacobian(all_signs(len(size)) * size)
    return (torch.einsum("sakw,sbkw->ab", j, j) / (j.shape[0] * j.shape[2])).detach()
