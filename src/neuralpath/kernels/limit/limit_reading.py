"""The recursion of infinite width for any graph: each kind of node's effect on covariances and tangent kernels."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath.graph import Forward, PathGraph, nodes as n, walk
from neuralpath.kernels.limit.activations import Identity, Pair
from neuralpath.kernels.limit.limit_network import LimitNetwork, NodeDistribution, by_position
from neuralpath.kernels.limit.pair_values import Fixed, Pairing, PairValues, Random, State, of_examples
from neuralpath.kernels.tiling import Cost, Plan, Tile, make_plan

USEFUL_BYTES = 2**22
"""Largest useful size of a tile's pair values; larger tiles leave the caches and are not faster."""

MAX_PAIRS = 2**20

SCRATCH = 8
"""Temporary tensors of the size of a node's pair values in an activation or a window sum, at most."""

Variances = dict[str, Float[Tensor, "_batch ..."]]
"""Variances of the pre-activations of each example, by the name of the activation."""


class Need(IntEnum):
    """The pairs of positions of a node that later nodes need."""

    NONE = 0
    EQUAL = 1  # only the same position in both examples
    ALL = 2


def needed_pairs(
    graph: PathGraph, distributions: Mapping[str, NodeDistribution], demands: Mapping[str, Need]
) -> dict[str, Need]:
    """The needs of all nodes, propagated backwards from those in ``demands``.

    A window moves both positions together, so equal positions need only equal positions; pooling needs all pairs.
    """
    needs = {node.name: demands.get(node.name, Need.NONE) for node in graph.nodes}
    for node in reversed(graph.nodes):
        own = needs[node.name]
        for name in node.inputs:
            need = own
            if own is not Need.NONE:
                if isinstance(node, n.AveragePoolNode) and math.prod(distributions[name].shape[1:]) > 1:
                    need = Need.ALL
                elif isinstance(node, n.LinearNode) and not node.windows:
                    need = Need.EQUAL
            needs[name] = max(needs[name], need)
    return needs


def _of_random(method: Callable[[Any, Any, Random], State]) -> Callable[[Any, Any, State], State]:
    """A node's effect on random values; fixed values take the forward pass, and unneeded values stay None."""

    def read(self: "LimitReading", node: n.Node, state: State) -> State:
        if isinstance(state, Fixed):
            return self._fixed(node, state)
        return None if state is None or self._skips(node) else method(self, node, state)

    return read


class LimitReading:
    """Covariances and carried kernels of all pairs of two batches, or of each example with itself.

    ``variances`` are those of both batches. Without them each example is paired with itself, and the reading collects
    its variances in ``own_variances``.
    """

    def __init__(
        self,
        network: LimitNetwork,
        batches: tuple[Float[Tensor, "batch1 *shape"], Float[Tensor, "batch2 *shape"]],
        needs: Mapping[str, Need],
        variances: tuple[Variances, Variances] | None,
    ) -> None:
        self._network = network
        self._batches = batches
        self._needs = needs
        self._variances = variances
        self._pairing = Pairing(own=variances is None)
        self._state = network.graph.state
        self._forward = tuple(Forward(batch, self._state) for batch in batches)
        self.own_variances: Variances = {}

    def _reduced(self, node: n.Node, state: Random) -> Random:
        """The pairs of positions that are needed."""
        return state.equal() if self._needs[node.name] is Need.EQUAL else state

    def _skips(self, node: n.Node) -> bool:
        return self._needs[node.name] is Need.NONE

    def _fixed(self, node: n.Node, *states: Fixed) -> Fixed:
        """The forward pass of both batches."""
        first, second = self._forward
        return Fixed(
            getattr(first, node.kind)(node, *(state.first for state in states)),
            getattr(second, node.kind)(node, *(state.second for state in states)),
        )

    def input(self, node: n.InputNode) -> State:
        return Fixed(*self._batches)

    def constant(self, node: n.ConstantNode) -> State:
        return self._fixed(node)

    def linear(self, node: n.LinearNode, state: State) -> State:
        if state is None or self._skips(node):
            return None
        network = self._network
        if isinstance(state, Fixed):
            full = self._needs[node.name] is Need.ALL
            moment = self._pairing.products(state.first, state.second, full=full).window_mean(node.windows)
            share = 1 / node.weight_shape[1] if network.paths else 1.0
            return Random(moment, tuple(replace(moment, values=share * moment.values) for _ in network.carried))
        moment, *carried = (_fan_in_mean(node, values) for values in (state.moment, *state.carried))
        variance, own = network.variances[node.name], network.own_variances[node.name]
        if not network.paths:
            carried = [replace(k, values=variance * k.values + own * moment.values) for k in carried]
        return self._reduced(node, Random(replace(moment, values=variance * moment.values), tuple(carried)))

    def bias(self, node: n.BiasNode, state: State) -> State:
        if state is None or self._skips(node):
            return None
        assert isinstance(state, Random)
        network, distribution = self._network, self._network.distributions[node.name]
        own = (1,) * (len(node.shape) - len(node.value_shape)) + node.value_shape
        # After flattening, every position has its own bias.
        sizes = distribution.shape[1:] if distribution.flat else own[1:]
        own_axes = [distribution.flat or size > 1 for size in sizes]
        gradient = 1.0 if network.paths else network.bias_gradients[node.name]
        moment = _shifted(state.moment, network.bias_variances[node.name], own_axes)
        return self._reduced(node, Random(moment, tuple(_shifted(k, gradient, own_axes) for k in state.carried)))

    def gate(self, node: n.GateNode, state: State) -> State:
        return self.activation(node, state)

    def activation(self, node: n.GateNode | n.ActivationNode, state: State) -> State:
        activation = self._network.activations[node.name]
        if state is None:
            return None
        if isinstance(state, Fixed):
            return Fixed(activation(state.first), activation(state.second))
        # The first walk, of each example with itself, only collects variances; pairs need those of both examples.
        if self._variances is None and not isinstance(activation, Identity):
            self.own_variances[node.name] = state.moment.equal().values.clamp(min=0)
        if self._skips(node):
            return None
        state = self._reduced(node, state)
        if isinstance(activation, Identity):
            return state
        full, moment = state.moment.full, state.moment
        variance1, variance2 = (v[node.name] for v in self._variances or (self.own_variances, self.own_variances))
        v, w = self._pairing.spread(variance1, variance2, full=full)
        linear_features = self._network.linear_features
        pairs = self._network.carried if linear_features else (Pair.SIGNALS, *self._network.carried)
        factors = activation.moments(v, w, moment.values, pairs)
        signals = moment if linear_features else replace(moment, values=factors.pop(0))
        carried = tuple(replace(k, values=k.values * f) for k, f in zip(state.carried, factors, strict=True))
        if linear_features:
            return Random(signals, carried)
        means = (of_examples(activation.mean(variance1)), of_examples(activation.mean(variance2)))
        return Random(signals, carried, means)

    @_of_random
    def scale(self, node: n.ScaleNode, state: Random) -> State:
        factor = by_position(node.factor, node, self._network.distributions[node.name].shape, self._state)[:1]
        factor = factor.to(state.moment.values)

        def scaled(values: PairValues) -> PairValues:
            left, right = self._pairing.spread(factor, factor, full=values.full)
            return replace(values, values=values.values * (left * right))

        result = self._reduced(node, replace(state, means=None)).each(scaled)
        if state.means is None:
            return result
        first, second = (replace(mean, values=mean.values * factor) for mean in state.means)
        return replace(result, means=(first, second))

    def add(self, node: n.AddNode, *states: State) -> State:
        if all(isinstance(state, Fixed) for state in states):
            return self._fixed(node, *states)  # type: ignore[arg-type]
        if self._skips(node):
            return None
        branches = [self._reduced(node, state) for state in states if isinstance(state, Random)]
        total = branches[0]
        for branch in branches[1:]:
            total = self._sum(total, branch)
        return total

    def _sum(self, a: Random, b: Random) -> Random:
        """The sum of two independent branches: E[(a + b)(a' + b')] has E[a] E[b'] + E[b] E[a'] besides both moments."""
        full = a.moment.full
        moment = a.moment.values + b.moment.values
        means = a.means or b.means
        if a.means is not None and b.means is not None:
            for (first, _), (_, second) in ((a.means, b.means), (b.means, a.means)):
                left, right = self._pairing.spread(first.values, second.values, full=full)
                moment = moment + left * right
            first, second = (of_examples(x.values + y.values) for x, y in zip(a.means, b.means, strict=True))
            means = (first, second)
        kernels = zip(a.carried, b.carried, strict=True)
        carried = tuple(replace(first, values=first.values + second.values) for first, second in kernels)
        return Random(replace(a.moment, values=moment), carried, means)

    def concat(self, node: n.ConcatNode, *states: State) -> State:
        return self._fixed(node, *states)  # type: ignore[arg-type]  # random ones have been refused

    @_of_random
    def select(self, node: n.SelectNode, state: Random) -> State:
        return self._reduced(node, state).each(lambda values: values.selected(node.indices[1:]))

    @_of_random
    def average_pool(self, node: n.AveragePoolNode, state: Random) -> State:
        if not state.moment.full:  # a single position: its only pair is there
            state = Random(state.moment.as_full(), tuple(k.as_full() for k in state.carried), state.means)
        return self._reduced(node, state.each(lambda values: values.averaged(node.matrices)))

    def max_pool(self, node: n.MaxPoolNode, state: State) -> State:
        assert isinstance(state, Fixed)  # random ones have been refused
        return self._fixed(node, state)

    @_of_random
    def reshape(self, node: n.ReshapeNode, state: Random) -> State:
        space = self._network.distributions[node.name].shape[1:]
        return self._reduced(node, state).each(lambda values: values.reshaped(space))

    def finish(self, state: Random) -> list[Float[Tensor, "batch1 batch2"]]:
        """The mean over the outputs of second moments, and of the carried kernels."""
        return [values.mean_of_equal().values for values in (state.moment, *state.carried)]


def _fan_in_mean(node: n.LinearNode, values: PairValues) -> PairValues:
    """The mean over a linear node's fan-in; a dense layer joins equal positions only."""
    return values.window_mean(node.windows) if node.windows else values.mean_of_equal()


def _shifted(values: PairValues, variance: float, own_axes: list[bool]) -> PairValues:
    """Pair values plus the covariance of a bias: one number, or only for equal positions along its own axes."""
    if variance == 0:
        return values
    pattern = torch.full((), variance, dtype=values.values.dtype, device=values.values.device)
    if values.full:
        # One factor for each axis, over its two dimensions: the identity along the bias's own axes, ones along shared.
        size = values.space
        for axis, own in enumerate(own_axes):
            eye = torch.eye(size[axis]).to(pattern) if own else torch.ones(size[axis], size[axis]).to(pattern)
            shape = [extent if i in (axis, axis + len(size)) else 1 for i, extent in enumerate(size * 2)]
            pattern = pattern * eye.reshape(shape)
    return replace(values, values=values.values + pattern)


@dataclass(frozen=True, slots=True, eq=False)
class ReadingTiles:
    """The kernels of two batches by walks of the graph, tile by tile.

    With ``variances`` the variances of all examples are computed once, else again for each tile.
    """

    network: LimitNetwork
    x1: Tensor
    x2: Tensor | None
    needs: dict[str, Need]
    own_needs: dict[str, Need]  # for each example with itself
    variances: tuple[Variances, Variances] | None = None

    @classmethod
    def of(cls, network: LimitNetwork, x1: Tensor, x2: Tensor | None) -> "ReadingTiles":
        """The tiles of checked batches; works out which pairs of positions are needed."""
        graph = network.graph
        activated = {
            name: Need.EQUAL for node in graph.nodes if node.name in network.activations for name in node.inputs
        }
        needs = needed_pairs(graph, network.distributions, {graph.output_name: Need.EQUAL})
        return cls(network, x1, x2, needs, needed_pairs(graph, network.distributions, activated))

    def planned(self, budget: int) -> tuple["ReadingTiles", Plan]:
        """A plan within a budget in bytes, and these tiles with the variances of all examples, if they fit too.

        Raises: BudgetTooSmall if not even one pair fits.
        """
        n1, n2 = len(self.x1), len(self.x1 if self.x2 is None else self.x2)
        cost, tiles = pair_cost(self.network, self.needs, self.x1.dtype), self
        shared = _variance_numbers(self.network) * self.x1.element_size() * (n1 + (0 if self.x2 is None else n2))
        if shared <= min(budget // 4, budget - cost.smallest):
            with torch.no_grad():
                first = self._own_variances(self.x1)
                second = first if self.x2 is None else self._own_variances(self.x2)
            tiles = replace(self, variances=(first, second))
        else:
            shared = 0
            own = pair_cost(self.network, self.own_needs, self.x1.dtype)
            own_bytes = own.bytes_per_pair + own.bytes_per_example
            cost = replace(cost, bytes_per_example=max(cost.bytes_per_example, own_bytes))
        return tiles, make_plan(n1, n2, cost, budget - shared, symmetric=self.x2 is None, kept_bytes=shared)

    @torch.no_grad()
    def kernels(self, tile: Tile) -> list[Float[Tensor, "rows columns"]]:
        """Second moments of the outputs and the carried kernels of a tile."""
        rows = self.x1[tile.rows]
        columns = (self.x1 if self.x2 is None else self.x2)[tile.columns]
        if self.variances is None:
            variances = self._own_variances(rows), self._own_variances(columns)
        else:
            variances = (
                {name: v[tile.rows] for name, v in self.variances[0].items()},
                {name: v[tile.columns] for name, v in self.variances[1].items()},
            )
        reading = LimitReading(self.network, (rows, columns), self.needs, variances)
        return reading.finish(walk(self.network.graph, reading))

    def _own_variances(self, x: Float[Tensor, "batch *shape"]) -> Variances:
        """Variances of the pre-activations of each example, in chunks of limited memory."""
        cost = pair_cost(self.network, self.own_needs, x.dtype)
        chunk = max(1, USEFUL_BYTES // (cost.bytes_per_pair + cost.bytes_per_example))
        parts: list[Variances] = []
        for rows in x.split(chunk):
            reading = LimitReading(self.network, (rows, rows), self.own_needs, None)
            walk(self.network.graph, reading)
            parts.append(reading.own_variances)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def pair_cost(network: LimitNetwork, needs: dict[str, Need], dtype: torch.dtype) -> Cost:
    """Memory of one pair of examples during a walk of the graph, and of one example."""
    graph, size = network.graph, dtype.itemsize
    # As `walk` does: the values of a node are freed after its last use, so the peak is a sum over those alive.
    last_use = {name: node.name for node in graph.nodes for name in node.inputs}
    alive: dict[str, int] = {}
    peak = size
    for node in graph.nodes:
        numbers = _pair_numbers(network, node, needs)
        largest = max([numbers, *(_pair_numbers(network, graph.by_name[name], needs) for name in node.inputs)])
        alive[node.name] = (1 + len(network.carried)) * numbers
        peak = max(peak, (sum(alive.values()) + SCRATCH * largest) * size)
        alive = {name: count for name, count in alive.items() if last_use.get(name) not in (node.name, None)}
    example = (_variance_numbers(network) + 4 * graph.widest) * size
    return Cost(peak, example, max(4, min(MAX_PAIRS, USEFUL_BYTES // peak)))


def _pair_numbers(network: LimitNetwork, node: n.Node, needs: dict[str, Need]) -> int:
    distribution, need = network.distributions[node.name], needs[node.name]
    if distribution.fixed or need is Need.NONE:
        return 0
    return math.prod(distribution.shape[1:]) ** int(need)


def _variance_numbers(network: LimitNetwork) -> int:
    return sum(math.prod(network.distributions[name].shape[1:]) for name in network.activations)
