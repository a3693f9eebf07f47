"""Wide random networks: the tangent kernels of explicit per-example gradients, averaged over draws of the weights.

A weight is s * omega with omega standard normal and trained, so its gradient counts with s^2. Nothing here uses the
limit reading; the graph says only which parameter belongs to which layer.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from neuralpath.graph import nodes as n

CHUNK = 25


@dataclass(frozen=True)
class Draws:
    """A quantity of several draws, (draw, batch, batch)."""

    values: Tensor

    @property
    def mean(self) -> Tensor:
        return self.values.mean(0)

    @property
    def error(self) -> Tensor:
        """Standard error of the mean."""
        return self.values.std(0) / math.sqrt(len(self.values))

    def deviation(self, expected: Tensor) -> float:
        """Largest difference from what is expected, in standard errors."""
        return float(((self.mean - expected).abs() / self.error).max())

    def assert_near(self, expected: Tensor) -> None:
        """Within 5 standard errors; a value that is 10 % off would fail."""
        assert self.deviation(expected) < 5
        assert self.deviation(1.1 * expected) > 5


def layer_sizes(graph, *, weight=2.0, output=2.0, bias=0.0, bias_gradient=None) -> dict[str, tuple[float, float]]:
    """For each parameter its variance, and the weight of its gradient in the tangent kernel."""
    sizes = {}
    linear_nodes = [node for node in graph.nodes if isinstance(node, n.LinearNode)]
    for node in graph.nodes:
        if isinstance(node, n.BiasNode):
            sizes[node.parameters[0]] = bias, bias if bias_gradient is None else bias_gradient
        elif node in linear_nodes:
            window = math.prod(node.weight_shape[2:])
            fan = window if node is linear_nodes[0] else node.fan_in
            own = 1.0 if node is linear_nodes[0] else weight
            sizes[node.parameters[0]] = (output if node is linear_nodes[-1] else own) / fan, own / fan
    return sizes


def drawn(model: nn.Module, sizes, n_draws: int, generator) -> dict[str, Tensor]:
    """Random parameters, with an axis for the draws in front."""
    return {
        name: math.sqrt(sizes[name][0]) * torch.randn(n_draws, *p.shape, generator=generator, dtype=p.dtype)
        for name, p in model.named_parameters()
    }


def _chunks(n_draws: int):
    """Draws that are computed at once."""
    return [min(CHUNK, n_draws - start) for start in range(0, n_draws, CHUNK)]


def tangents_of_draws(model: nn.Module, x: Tensor, n_draws: int, sizes, *, seed: int = 0, others=()) -> list[Draws]:
    """Tangent kernels of the first output for random weights of the given sizes (``layer_sizes``).

    ``others`` are models with the same parameters whose gradients are taken at the same weights. The result has the
    products of the gradients of every model with those of every other, row by row.
    """
    generator = torch.Generator().manual_seed(seed)
    models = (model, *others)
    found = [[[] for _ in models] for _ in models]

    def gradients(of, params):
        def first_output(params, example):
            return functional_call(of, params, (example[None],)).reshape(-1)[0]

        return vmap(vmap(grad(first_output), in_dims=(None, 0)), in_dims=(0, None))(params, x)

    for size in _chunks(n_draws):
        params = drawn(model, sizes, size, generator)
        rows = [gradients(of, params) for of in models]
        for i, one in enumerate(rows):
            for j, two in enumerate(rows):
                products = (sizes[name][1] * one[name].flatten(2) @ two[name].flatten(2).mT for name in params)
                found[i][j].append(sum(products))
    return [Draws(torch.cat(kernels)) for row in found for kernels in row]


@torch.no_grad()
def outputs_of_draws(model: nn.Module, x: Tensor, n_draws: int, sizes, *, seed: int = 0) -> Draws:
    """Products of the outputs for random weights, averaged over the output units."""
    generator = torch.Generator().manual_seed(seed)
    products = []
    for size in _chunks(n_draws):
        params = drawn(model, sizes, size, generator)
        y = vmap(lambda p: functional_call(model, p, (x,)).reshape(len(x), -1))(params)
        products.append(y @ y.mT / y.shape[2])
    return Draws(torch.cat(products))
