"""The limit reading: what each kind of node does to covariances and tangent kernels of infinite width."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath.graph import Forward, nodes as n
from neuralpath.kernels.limit.activations import Identity, Pair
from neuralpath.kernels.limit.positions import Pairing, PairValues
from neuralpath.kernels.limit.setup import Limit
from neuralpath.kernels.limit.states import Fixed, Random, State
from neuralpath.kernels.limit.structure import Need, by_position

Variances = dict[str, Float[Tensor, "_batch ..."]]


class LimitReading:
    """Covariances and carried kernels of all pairs of two batches, or of each example with itself.

    ``variances`` has those of the pre-activations of both batches, at each activation; each example with itself needs
    none, and leaves its own in ``found``.
    """

    def __init__(
        self,
        limit: Limit,
        sides: tuple[Float[Tensor, "batch1 *shape"], Float[Tensor, "batch2 *shape"]],
        needs: Mapping[str, Need],
        variances: tuple[Variances, Variances] | None,
    ) -> None:
        self._limit = limit
        self._sides = sides
        self._needs = needs
        self._variances = variances
        self._pairing = Pairing(own=variances is None)
        self._state = limit.graph.state
        self._forward = tuple(Forward(side, self._state) for side in sides)
        self.found: Variances = {}

    def _fitted(self, node: n.Node, state: Random) -> Random:
        return state.equal() if self._needs[node.name] is Need.EQUAL else state

    def _skips(self, node: n.Node) -> bool:
        return self._needs[node.name] is Need.NONE

    def _fixed(self, node: n.Node, *states: Fixed) -> Fixed:
        """The forward pass of both batches."""
        one, two = (
            getattr(forward, node.kind)(node, *([s.one, s.two][side] for s in states))
            for side, forward in enumerate(self._forward)
        )
        return Fixed(one, two)

    def input(self, node: n.InputNode) -> State:
        return Fixed(*self._sides)

    def constant(self, node: n.ConstantNode) -> State:
        return self._fixed(node)

    def linear(self, node: n.LinearNode, state: State) -> State:
        if state is None or self._skips(node):
            return None
        limit = self._limit
        if isinstance(state, Fixed):
            full = self._needs[node.name] is Need.ALL
            moment = self._pairing.products(state.one, state.two, full=full).window_mean(node.windows)
            share = 1 / node.weight_shape[1] if limit.paths else 1.0
            return Random(moment, tuple(replace(moment, values=share * moment.values) for _ in limit.carried))
        moment, *carried = (_summed(node, values) for values in (state.moment, *state.carried))
        passed, own = limit.weights.passed[node.name], limit.weights.own[node.name]
        if not limit.paths:
            carried = [replace(k, values=passed * k.values + own * moment.values) for k in carried]
        return self._fitted(node, Random(replace(moment, values=passed * moment.values), tuple(carried)))

    def bias(self, node: n.BiasNode, state: State) -> State:
        if state is None or self._skips(node):
            return None
        assert isinstance(state, Random)
        limit, place = self._limit, self._limit.places[node.name]
        own = (1,) * (len(node.shape) - len(node.value_shape)) + node.value_shape
        by_axis = [place.flat or size > 1 for size in (own[1:] if not place.flat else place.shape[1:])]
        gradient = 1.0 if limit.paths else limit.weights.bias_gradients[node.name]
        moment = _shifted(state.moment, limit.weights.biases[node.name], by_axis)
        return self._fitted(node, Random(moment, tuple(_shifted(k, gradient, by_axis) for k in state.carried)))

    def gate(self, node: n.GateNode, state: State) -> State:
        return self._activated(node, state)

    def activation(self, node: n.ActivationNode, state: State) -> State:
        return self._activated(node, state)

    def _activated(self, node: n.GateNode | n.ActivationNode, state: State) -> State:
        activation = self._limit.activations[node.name]
        if state is None:
            return None
        if isinstance(state, Fixed):
            return Fixed(activation(state.one), activation(state.two))
        if self._variances is None and not isinstance(activation, Identity):
            self.found[node.name] = state.moment.equal().values.clamp(min=0)
        if self._skips(node):
            return None
        state = self._fitted(node, state)
        if isinstance(activation, Identity):
            return state
        full, moment = state.moment.full, state.moment
        one, two = (v[node.name] for v in self._variances or (self.found, self.found))
        v, w = self._pairing.first(one, full=full), self._pairing.second(two, full=full)
        features = self._limit.linear_features
        wanted = self._limit.carried if features else (Pair.SIGNALS, *self._limit.carried)
        factors = activation.moments(v, w, moment.values, wanted)
        signals = moment if features else replace(moment, values=factors.pop(0))
        carried = tuple(replace(k, values=k.values * f) for k, f in zip(state.carried, factors, strict=True))
        if features:
            return Random(signals, carried)
        means = (_of_examples(activation.mean(one)), _of_examples(activation.mean(two)))
        return Random(signals, carried, means)

    def scale(self, node: n.ScaleNode, state: State) -> State:
        if isinstance(state, Fixed):
            return self._fixed(node, state)
        if state is None or self._skips(node):
            return None
        factor = by_position(node.factor, node, self._limit.places[node.name].shape, self._state)[:1]
        factor = factor.to(state.moment.values)

        def scaled(values: PairValues) -> PairValues:
            full = values.full
            both = self._pairing.first(factor, full=full) * self._pairing.second(factor, full=full)
            return replace(values, values=values.values * both)

        result = self._fitted(node, replace(state, means=None)).each(scaled)
        if state.means is None:
            return result
        one, two = (replace(mean, values=mean.values * factor) for mean in state.means)
        return replace(result, means=(one, two))

    def add(self, node: n.AddNode, *states: State) -> State:
        if all(isinstance(state, Fixed) for state in states):
            return self._fixed(node, *states)  # type: ignore[arg-type]
        if self._skips(node):
            return None
        branches = [self._fitted(node, state) for state in states if isinstance(state, Random)]
        total = branches[0]
        for branch in branches[1:]:
            total = self._sum(total, branch)
        return total

    def _sum(self, a: Random, b: Random) -> Random:
        """The sum of two independent branches; with means that are not 0 they still have a mixed second moment."""
        full = a.moment.full
        moment = a.moment.values + b.moment.values
        means = a.means or b.means
        if a.means is not None and b.means is not None:
            for (one, _), (_, two) in ((a.means, b.means), (b.means, a.means)):
                mixed = self._pairing.first(one.values, full=full) * self._pairing.second(two.values, full=full)
                moment = moment + mixed
            one, two = (_of_examples(x.values + y.values) for x, y in zip(a.means, b.means, strict=True))
            means = (one, two)
        kernels = zip(a.carried, b.carried, strict=True)
        carried = tuple(replace(one, values=one.values + two.values) for one, two in kernels)
        return Random(replace(a.moment, values=moment), carried, means)

    def concat(self, node: n.ConcatNode, *states: State) -> State:
        return self._fixed(node, *states)  # type: ignore[arg-type]  # others have been refused

    def select(self, node: n.SelectNode, state: State) -> State:
        if isinstance(state, Fixed):
            return self._fixed(node, state)
        if state is None or self._skips(node):
            return None
        return self._fitted(node, state).each(lambda values: values.selected(node.indices[1:]))

    def average_pool(self, node: n.AveragePoolNode, state: State) -> State:
        if isinstance(state, Fixed):
            return self._fixed(node, state)
        if state is None or self._skips(node):
            return None
        moment = state.moment
        if not moment.full:  # of a single position, whose pairs are all there
            state = Random(moment.as_full(), tuple(kernel.as_full() for kernel in state.carried), state.means)
        return self._fitted(node, state.each(lambda values: values.averaged(node.matrices)))

    def max_pool(self, node: n.MaxPoolNode, state: State) -> State:
        assert isinstance(state, Fixed)  # others have been refused
        return self._fixed(node, state)

    def reshape(self, node: n.ReshapeNode, state: State) -> State:
        if isinstance(state, Fixed):
            return self._fixed(node, state)
        if state is None or self._skips(node):
            return None
        space = self._limit.places[node.name].shape[1:]
        return self._fitted(node, state).each(lambda values: values.reshaped(space))

    def finish(self, state: Random) -> list[Float[Tensor, "batch1 batch2"]]:
        """The mean over the outputs of second moments, and of the carried kernels."""
        return [values.mean_of_equal().values for values in (state.moment, *state.carried)]


def _summed(node: n.LinearNode, values: PairValues) -> PairValues:
    """What a linear node sums, over its fan-in; a dense layer joins equal positions only."""
    return values.window_mean(node.windows) if node.windows else values.mean_of_equal()


def _of_examples(values: Float[Tensor, "batch *space"]) -> PairValues:
    """A value of each example and position, which moves as a pair value of equal positions does."""
    return PairValues(values, tuple(values.shape[1:]), False)


def _shifted(values: PairValues, variance: float, by_axis: list[bool]) -> PairValues:
    """Pair values plus those of a bias: the same for all pairs, or for equal positions along axes of their own."""
    if variance == 0:
        return values
    pattern = torch.full((), variance, dtype=values.values.dtype, device=values.values.device)
    if values.full:
        size = values.space
        for axis, own in enumerate(by_axis):
            eye = torch.eye(size[axis]).to(pattern) if own else torch.ones(size[axis], size[axis]).to(pattern)
            shape = [extent if i in (axis, axis + len(size)) else 1 for i, extent in enumerate(size * 2)]
            pattern = pattern * eye.reshape(shape)
    return replace(values, values=values.values + pattern)
