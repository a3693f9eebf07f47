"""The recursion of infinite width for any graph: each kind of node's effect on covariances and tangent kernels."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import reduce
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath.graph import Forward, nodes as n, walk
from neuralpath.kernels.limit.activations import Identity, Pair
from neuralpath.kernels.limit.limit_network import LimitNetwork, by_position
from neuralpath.kernels.limit.pair_values import Fixed, Pairing, PairValues, Random, State, of_examples
from neuralpath.kernels.tiling import Cost, Plan, Tile, make_plan

USEFUL_BYTES = 2**22  # of a tile's pair values; larger tiles leave the caches and are not faster
MAX_PAIRS = 2**20
SCRATCH = 8  # temporary tensors of the size of a node's pair values in an activation or a window sum, at most


class Need(IntEnum):
    """The pairs of positions of a node that later nodes need."""

    NONE = 0
    EQUAL = 1  # only the same position in both examples
    ALL = 2


Needs = dict[str, Need]  # by the name of the node
Variances = dict[str, Float[Tensor, "_batch ..."]]  # of each example's pre-activations, by the activation's name
BothVariances = tuple[Variances, Variances]  # of both batches


def needed_pairs(network: LimitNetwork, demands: Needs) -> Needs:
    """The needs of all nodes, propagated backwards from those in ``demands``.

    A window moves both positions together, so equal positions need only equal positions; pooling needs all pairs.
    """
    needs = {node.name: demands.get(node.name, Need.NONE) for node in network.graph.nodes}
    for node in reversed(network.graph.nodes):
        for name in node.inputs:
            need = needs[node.name]
            if need and isinstance(node, n.AveragePoolNode) and math.prod(network.distributions[name].shape[1:]) > 1:
                need = Need.ALL
            elif need and isinstance(node, n.LinearNode) and not node.windows:
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
    """Covariances and carried kernels of all pairs of two batches, from the variances of both.

    Without ``variances`` each example is paired with itself, and the reading collects them in ``own_variances``.
    """

    def __init__(
        self, network: LimitNetwork, batches: tuple[Tensor, Tensor], needs: Needs, variances: BothVariances | None
    ) -> None:
        self._network, self._batches, self._needs, self._variances = network, batches, needs, variances
        self._pairing = Pairing(own=variances is None)
        self._state = network.graph.state
        self._forward = tuple(Forward(batch, self._state) for batch in batches)
        self.own_variances: Variances = {}

    def _reduced(self, node: n.Node, state: Random) -> Random:
        """The pairs of positions that are needed."""
        return state.each(PairValues.equal) if self._needs[node.name] is Need.EQUAL else state

    def _skips(self, node: n.Node) -> bool:
        return self._needs[node.name] is Need.NONE

    def _fixed(self, node: n.Node, *states: Any) -> Fixed:
        """The forward pass of both batches."""
        inputs = [state.first for state in states], [state.second for state in states]
        walks = zip(self._forward, inputs, strict=True)
        return Fixed(*(getattr(forward, node.kind)(node, *values) for forward, values in walks))

    def input(self, node: n.InputNode) -> State:
        return Fixed(*self._batches)

    constant = concat = max_pool = _fixed  # random values have been refused

    def linear(self, node: n.LinearNode, state: State) -> State:
        if state is None or self._skips(node):
            return None
        network = self._network
        if isinstance(state, Fixed):
            full = self._needs[node.name] is Need.ALL
            moment = self._pairing.products(state.first, state.second, full=full).window_mean(node.windows)
            share = 1 / node.weight_shape[1] if network.paths else 1.0
            return Random(moment, tuple(replace(moment, values=share * moment.values) for _ in network.carried))
        # A dense layer joins equal positions only.
        mean = (lambda k: k.window_mean(node.windows)) if node.windows else PairValues.mean_of_equal
        moment, *carried = map(mean, (state.moment, *state.carried))
        variance, own = network.variances[node.name], network.own_variances[node.name]
        if not network.paths:
            carried = [replace(k, values=variance * k.values + own * moment.values) for k in carried]
        return self._reduced(node, Random(replace(moment, values=variance * moment.values), tuple(carried)))

    @_of_random
    def bias(self, node: n.BiasNode, state: Random) -> State:
        network, distribution = self._network, self._network.distributions[node.name]
        own = (1,) * (len(node.shape) - len(node.value_shape)) + node.value_shape
        # After flattening, every position has its own bias.
        own_axes = [True] * len(distribution.shape[1:]) if distribution.flat else [size > 1 for size in own[1:]]
        gradient = 1.0 if network.paths else network.bias_gradients[node.name]
        moment = _shifted(state.moment, network.bias_variances[node.name], own_axes)
        return self._reduced(node, Random(moment, tuple(_shifted(k, gradient, own_axes) for k in state.carried)))

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
        moment, linear_features = state.moment, self._network.linear_features
        variance1, variance2 = (v[node.name] for v in self._variances or (self.own_variances, self.own_variances))
        v, w = self._pairing.spread(variance1, variance2, full=moment.full)
        pairs = self._network.carried if linear_features else (Pair.SIGNALS, *self._network.carried)
        factors = activation.moments(v, w, moment.values, pairs)
        signals = moment if linear_features else replace(moment, values=factors.pop(0))
        carried = tuple(replace(k, values=k.values * f) for k, f in zip(state.carried, factors, strict=True))
        if linear_features:
            return Random(signals, carried)
        means = (of_examples(activation.mean(variance1)), of_examples(activation.mean(variance2)))
        return Random(signals, carried, means)

    gate = activation

    @_of_random
    def scale(self, node: n.ScaleNode, state: Random) -> State:
        factor = by_position(node.factor, node, self._network.distributions[node.name].shape, self._state)[:1]
        factor = factor.to(state.moment.values)

        def scaled(values: PairValues) -> PairValues:
            left, right = self._pairing.spread(factor, factor, full=values.full)
            return replace(values, values=values.values * (left * right))

        means = state.means and tuple(replace(mean, values=mean.values * factor) for mean in state.means)
        return replace(self._reduced(node, replace(state, means=None)).each(scaled), means=means)

    def add(self, node: n.AddNode, *states: State) -> State:
        if all(isinstance(state, Fixed) for state in states):
            return self._fixed(node, *states)
        if self._skips(node):
            return None
        return reduce(self._sum, (self._reduced(node, state) for state in states if isinstance(state, Random)))

    def _sum(self, a: Random, b: Random) -> Random:
        """The sum of two independent branches: E[(a + b)(a' + b')] has E[a] E[b'] + E[b] E[a'] besides both moments."""
        moment = a.moment.values + b.moment.values
        means = a.means or b.means
        if a.means is not None and b.means is not None:
            for (first, _), (_, second) in ((a.means, b.means), (b.means, a.means)):
                left, right = self._pairing.spread(first.values, second.values, full=a.moment.full)
                moment = moment + left * right
            means = tuple(of_examples(x.values + y.values) for x, y in zip(a.means, b.means, strict=True))
        kernels = zip(a.carried, b.carried, strict=True)
        carried = tuple(replace(first, values=first.values + second.values) for first, second in kernels)
        return Random(replace(a.moment, values=moment), carried, means)

    @_of_random
    def select(self, node: n.SelectNode, state: Random) -> State:
        return self._reduced(node, state).each(lambda values: values.selected(node.indices[1:]))

    @_of_random
    def average_pool(self, node: n.AveragePoolNode, state: Random) -> State:
        if not state.moment.full:  # a single position: its only pair is there
            state = Random(state.moment.as_full(), tuple(k.as_full() for k in state.carried), state.means)
        return self._reduced(node, state.each(lambda values: values.averaged(node.matrices)))

    @_of_random
    def reshape(self, node: n.ReshapeNode, state: Random) -> State:
        space = self._network.distributions[node.name].shape[1:]
        return self._reduced(node, state).each(lambda values: values.reshaped(space))


def _shifted(values: PairValues, variance: float, own_axes: list[bool]) -> PairValues:
    """Pair values plus the covariance of a bias: one number, or only for equal positions along its own axes."""
    if variance == 0:
        return values
    pattern = values.values.new_full((), variance)
    if values.full:
        # One factor for each axis, over its two dimensions: the identity along the bias's own axes, ones along shared.
        size = values.space
        for axis, own in enumerate(own_axes):
            joint = torch.eye(size[axis]) if own else torch.ones(size[axis], size[axis])
            shape = [extent if i in (axis, axis + len(size)) else 1 for i, extent in enumerate(size * 2)]
            pattern = pattern * joint.to(pattern).reshape(shape)
    return replace(values, values=values.values + pattern)


@dataclass(frozen=True, slots=True, eq=False)
class ReadingTiles:
    """The kernels of two batches by walks of the graph, tile by tile."""

    network: LimitNetwork
    x1: Tensor
    x2: Tensor | None
    needs: Needs
    own_needs: Needs  # for each example with itself
    variances: BothVariances | None = None  # of all examples; None: computed again for each tile

    @classmethod
    def of(cls, network: LimitNetwork, x1: Tensor, x2: Tensor | None) -> "ReadingTiles":
        """The tiles of checked batches; works out which pairs of positions are needed."""
        graph = network.graph
        activated = {graph.by_name[name].inputs[0]: Need.EQUAL for name in network.activations}
        needs = needed_pairs(network, {graph.output_name: Need.EQUAL})
        return cls(network, x1, x2, needs, needed_pairs(network, activated))

    def planned(self, budget: int) -> tuple["ReadingTiles", Plan]:
        """A plan within a budget in bytes, and these tiles with the variances of all examples, if they fit too."""
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
            most = max(cost.bytes_per_example, own.bytes_per_pair + own.bytes_per_example)
            cost = replace(cost, bytes_per_example=most)
        return tiles, make_plan(n1, n2, cost, budget - shared, symmetric=self.x2 is None, kept_bytes=shared)

    @torch.no_grad()
    def kernels(self, tile: Tile) -> list[Float[Tensor, "rows columns"]]:
        """Second moments of the outputs and the carried kernels of a tile."""
        rows, columns = self.x1[tile.rows], (self.x1 if self.x2 is None else self.x2)[tile.columns]
        if self.variances is None:
            variances = self._own_variances(rows), self._own_variances(columns)
        else:
            first, second = self.variances
            variances = {k: v[tile.rows] for k, v in first.items()}, {k: v[tile.columns] for k, v in second.items()}
        reading = LimitReading(self.network, (rows, columns), self.needs, variances)
        state: Random = walk(self.network.graph, reading)
        return [values.mean_of_equal().values for values in (state.moment, *state.carried)]  # over the outputs

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


def pair_cost(network: LimitNetwork, needs: Needs, dtype: torch.dtype) -> Cost:
    """Memory of one pair of examples during a walk of the graph, and of one example."""
    graph, size = network.graph, dtype.itemsize
    # As `walk` does: the values of a node are freed after its last use, so the peak is a sum over those alive.
    last_use = {name: node.name for node in graph.nodes for name in node.inputs}
    alive: dict[str, int] = {}
    peak = size
    for node in graph.nodes:
        numbers = [_pair_numbers(network, name, needs) for name in (node.name, *node.inputs)]
        alive[node.name] = (1 + len(network.carried)) * numbers[0]
        peak = max(peak, (sum(alive.values()) + SCRATCH * max(numbers)) * size)
        alive = {name: count for name, count in alive.items() if last_use.get(name) not in (node.name, None)}
    example = (_variance_numbers(network) + 4 * graph.widest) * size
    return Cost(peak, example, max(4, min(MAX_PAIRS, USEFUL_BYTES // peak)))


def _pair_numbers(network: LimitNetwork, name: str, needs: Needs) -> int:
    distribution, need = network.distributions[name], needs[name]
    return math.prod(distribution.shape[1:]) ** need if need and not distribution.fixed else 0


def _variance_numbers(network: LimitNetwork) -> int:
    return sum(math.prod(network.distributions[name].shape[1:]) for name in network.activations)
