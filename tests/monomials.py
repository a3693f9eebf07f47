"""A network's output as a polynomial in its weights, gates held fixed: an exact oracle for any graph.

The output is multilinear, so it is a sum of monomials: sets of weights, each with a coefficient for every example. The
coefficients are the path feature (one for each bundle of paths that share their weights), and under independent
weights of mean 0 different monomials are uncorrelated. This knows nothing of pairs of positions, of sources or of
masks; it needs the forward pass alone, and takes more weights than trying all signs does.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralpath.graph import Forward, Gates, PathGraph, nodes as n, walk

Weight = n.LinearNode | n.BiasNode


class TooManyMonomials(Exception):
    """The polynomial is longer than was asked for."""


@dataclass(frozen=True)
class Polynomial:
    """Sets of weights, and a coefficient of each for every example and unit."""

    sets: list[frozenset[int]]
    coefficients: Tensor  # (monomial, example, *unit)


@dataclass(frozen=True)
class Output:
    """The output's polynomial, and the node that each weight belongs to."""

    polynomial: Polynomial
    weights: list[Weight]

    def value(self, graph: PathGraph) -> Tensor:
        """The output (example, unit) for the network's own weights."""
        operands = {node.name: node.weight if isinstance(node, n.LinearNode) else node.value for node in self.weights}
        values = torch.cat([operand.evaluate(graph.state).detach().flatten() for operand in operands.values()])
        factors = [math.prod(float(values[weight]) for weight in found) for found in self.polynomial.sets]
        return torch.einsum("m,mak->ak", torch.tensor(factors, dtype=torch.float64), self._flat())

    def kernel(self, variance: Callable[[Weight], float] = lambda node: 1.0) -> Tensor:
        """E[y(x) y(x')], a mean over the outputs."""
        return self._sum([math.prod(variance(self.weights[w]) for w in found) for found in self.polynomial.sets])

    def tangent_kernel(self, variance: Callable[[Weight], float]) -> Tensor:
        """The expectation of the sum over weights of products of derivatives: one factor is left out of each."""
        sizes = [variance(node) for node in self.weights]
        return self._sum([
            sum(math.prod(sizes[other] for other in found if other != weight) for weight in found)
            for found in self.polynomial.sets
        ])  # fmt: skip

    def _flat(self) -> Tensor:
        return self.polynomial.coefficients.flatten(2)

    def _sum(self, factors: list[float]) -> Tensor:
        y = self._flat()
        return torch.einsum("m,mak,mbk->ab", torch.tensor(factors, dtype=torch.float64), y, y) / y.shape[2]


class Expansion:
    """The reading: what each kind of node does to polynomials."""

    def __init__(self, x: Tensor, graph: PathGraph, gates: Gates, most: int) -> None:
        self._x, self._graph, self._gates, self._most = x, graph, gates, most
        self.weights: list[Weight] = []
        self._first: dict[str, int] = {}
        for node in graph.weights():
            shape = node.weight_shape if isinstance(node, n.LinearNode) else node.value_shape
            self._first[node.name] = len(self.weights)
            self.weights += [node] * math.prod(shape)

    def input(self, node: n.InputNode) -> Polynomial:
        return Polynomial([frozenset()], self._x[None])

    def constant(self, node: n.ConstantNode) -> Polynomial:
        return Polynomial([frozenset()], Forward(self._x, self._graph.state).constant(node)[None])

    def linear(self, node: n.LinearNode, state: Polynomial) -> Polynomial:
        """Each weight alone, times every monomial."""
        count = math.prod(node.weight_shape)
        if len(state.sets) * count > self._most:
            raise TooManyMonomials
        sets, parts = [], []
        for place, alone in enumerate(torch.eye(count, dtype=self._x.dtype)):
            weight = self._first[node.name] + place
            assert all(weight not in found for found in state.sets), "a weight stands twice on a path"
            sets += [found | {weight} for found in state.sets]
            values = node.apply(state.coefficients.flatten(0, 1), alone.reshape(node.weight_shape))
            parts.append(values.unflatten(0, state.coefficients.shape[:2]))
        coefficients = torch.cat(parts)
        there = coefficients.flatten(1).ne(0).any(1)
        there[0] = True  # so that a network of closed gates still has a shape
        return Polynomial([found for found, kept in zip(sets, there, strict=True) if kept], coefficients[there])

    def bias(self, node: n.BiasNode, state: Polynomial) -> Polynomial:
        count = math.prod(node.value_shape)
        missing = (1,) * (len(node.shape) - len(node.value_shape))
        alone = torch.eye(count, dtype=self._x.dtype).reshape(count, 1, *missing, *node.value_shape)
        first = self._first[node.name]
        added = Polynomial(
            [frozenset({first + place}) for place in range(count)], alone.expand(count, len(self._x), *node.shape)
        )
        return self.add(node, state, added)

    def add(self, node: n.Node, *states: Polynomial) -> Polynomial:
        sets, parts = _aligned(states)
        return Polynomial(sets, torch.stack(parts).sum(0))

    def concat(self, node: n.ConcatNode, *states: Polynomial) -> Polynomial:
        sets, parts = _aligned(states)
        return Polynomial(sets, torch.cat(parts, 2))

    def _without_weights(self, node: n.Node, state: Polynomial) -> Polynomial:
        """What is linear once the gates are fixed acts on every monomial alike."""
        count = len(state.sets)
        gates = Gates({k: g.repeat(count, *[1] * (g.ndim - 1)) for k, g in self._gates.layers.items()})
        forward = Forward(self._x, self._graph.state, gates)
        values = getattr(forward, node.kind)(node, state.coefficients.flatten(0, 1))
        return Polynomial(state.sets, values.unflatten(0, (count, -1)))

    gate = scale = select = average_pool = max_pool = reshape = _without_weights

    def activation(self, node: n.ActivationNode, state: Polynomial) -> Polynomial:
        raise AssertionError("an activation that is no gate has no paths")


def _aligned(states: tuple[Polynomial, ...]) -> tuple[list[frozenset[int]], list[Tensor]]:
    sets = list(dict.fromkeys(found for state in states for found in state.sets))
    place = {found: index for index, found in enumerate(sets)}
    parts = []
    for state in states:
        part = state.coefficients.new_zeros(len(sets), *state.coefficients.shape[1:])
        part[[place[found] for found in state.sets]] = state.coefficients
        parts.append(part)
    return sets, parts


@torch.no_grad()
def expanded(graph: PathGraph, x: Tensor, gates: Gates | None = None, most: int = 5000) -> Output:
    """The polynomial of a network for a batch.

    Raises: TooManyMonomials past about ``most`` of them.
    """
    reading = Expansion(x, graph, graph.gates(x) if gates is None else gates, most)
    return Output(walk(graph, reading), reading.weights)
