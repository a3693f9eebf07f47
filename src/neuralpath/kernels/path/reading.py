"""The pair reading: the effect of each kind of node on the entries of a pair of inputs."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath.graph import Gates, Operand, State, incidence, no_paths_through, nodes as n
from neuralpath.kernels.path.contraction import Frame, contracted_units, convolved, pooled
from neuralpath.kernels.path.entries import SIGNAL, Entry, Scaled, Side, measured, merged


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """One batch: its examples and the gates that are applied to it."""

    x: Float[Tensor, "batch *shape"]
    gates: Gates


@dataclass(frozen=True, slots=True, eq=False)
class WeightMoments:
    """Second moments of the random weights and biases, and whether scale factors count as 1."""

    variances: Mapping[str, float]  # by linear node
    bias_variance: float
    unit_scales: bool


@dataclass(frozen=True, slots=True, eq=False)
class PairState:
    """The entries of the current units."""

    entries: tuple[Entry, ...]
    shape: n.Shape  # (channels, *space)
    flat: bool = False  # flattened in the network; here positions share pair values until a dense layer sums all units

    def each(self, change: Callable[[Entry], Entry], shape: n.Shape | None = None) -> "PairState":
        return PairState(tuple(map(change, self.entries)), self.shape if shape is None else shape, self.flat)

    def as_units(self) -> "PairState":
        """The state with every unit as a channel of its own."""
        if len(self.shape) == 1:
            return self
        return PairState(tuple(entry.as_units() for entry in self.entries), (math.prod(self.shape),))


class PairReading:
    """E[z(x) z(x')] of the units z under random weights and fixed gates, for all pairs of two batches.

    With ``frame.orders`` 2 also the sum of its derivatives by all variances, which is the expected tangent kernel.
    """

    def __init__(self, sides: tuple[Inputs, Inputs], state: State, frame: Frame, weights: WeightMoments) -> None:
        self._sides, self._state, self._frame, self._weights = sides, state, frame, weights

    def _signal(self, shape: n.Shape, left: Tensor, right: Tensor) -> Entry:
        """The entry of a known signal: its values are the masks of a constant 1, whose derivative is 0."""
        channels = torch.arange(shape[0])
        constant = (1.0, 0.0)[: self._frame.orders]
        return Entry(SIGNAL, channels, channels, (Side(left), Side(right)), shape[1:], None, constant)

    def _factor(self, operand: Operand, shape: n.Shape, n_channels: int) -> Float[Tensor, "1 channel position"]:
        """The value of an operand for each unit."""
        value = operand.evaluate(self._state).detach().to(self._frame.device, self._frame.dtype)
        return value.expand(1, *shape).reshape(1, n_channels, -1)

    def input(self, node: n.InputNode) -> PairState:
        left, right = (side.x.reshape(len(side.x), node.shape[0], -1) for side in self._sides)
        return PairState((self._signal(node.shape, left, right),), node.shape)

    def constant(self, node: n.ConstantNode) -> PairState:
        shape = node.shape or (1,)
        value = self._factor(node.value, node.shape, shape[0])
        return PairState((self._signal(shape, value, value),), shape)

    def linear(self, node: n.LinearNode, state: PairState) -> PairState:
        sums = []
        for group in range(node.groups):
            entries = state.entries
            if node.groups > 1:
                start, size = group * node.weight_shape[1], node.weight_shape[1]
                parts = [e.at_channels(((e.at >= start) & (e.at < start + size)).nonzero()[:, 0]) for e in entries]
                entries = tuple(part for part in parts if len(part.at))
            sums.append(self.weighted(node, self._contracted(node, state, entries)))
        return self.after_linear(node, tuple(sums))

    def after_linear(self, node: n.LinearNode, sums: tuple[Scaled, ...]) -> PairState:
        """The state after a linear node: the sums over what each group of its outputs reads, times the variance."""
        out = torch.arange(node.shape[0])
        groups = None if node.groups == 1 else out // (node.shape[0] // node.groups)
        entry = Entry(node.name, out, out, (Side(), Side()), node.shape[1:], sums, group=groups)
        return PairState((entry,), node.shape)

    def _contracted(self, node: n.LinearNode, state: PairState, entries: tuple[Entry, ...]) -> Scaled:
        if not entries:  # every channel that the group reads is 0
            positions = [size for size in node.shape[1:] for _ in range(2)]
            return measured(self._frame.zeros(*positions), self._frame.exponent())
        if node.windows:
            return convolved(entries, node.windows, self._frame)
        if state.flat:
            return contracted_units(entries, self._frame)
        return pooled(entries, self._frame)

    def weighted(self, node: n.LinearNode, sums: Scaled) -> Scaled:
        """The sum over weights of one variance, and its derivative."""
        variance = self._weights.variances[node.name]
        if self._frame.orders == 1:
            return replace(sums, gain=sums.gain * variance)
        values = sums.at(sums.top)
        derivative = variance * values[1] + values[0]
        return measured(torch.stack([variance * values[0], derivative]), sums.top)

    def bias(self, node: n.BiasNode, state: PairState) -> PairState:
        if state.flat:  # a flattened bias has a parameter for each unit, not for each channel
            state = state.as_units()
        channels = torch.arange((node.shape or state.shape)[0])
        constant = (self._weights.bias_variance, 1.0)[: self._frame.orders]  # and its derivative by itself
        entry = Entry(node.name, channels, channels, (Side(), Side()), node.shape[1:], None, constant)
        value_shape = (1,) * (len(node.shape) - len(node.value_shape)) + node.value_shape
        if node.shape and value_shape[0] == 1:  # one parameter for all channels
            entry = replace(entry, origin=torch.zeros_like(entry.origin))
        if node.shape and any(size > 1 for size in value_shape[1:]):
            entry = replace(entry, pairs=(self._by_position(node, value_shape, constant),))
        if entry.is_known and not any(constant):
            return state
        return PairState((*state.entries, entry), state.shape)

    def _by_position(self, node: n.BiasNode, value_shape: n.Shape, constant: tuple[float, ...]) -> Scaled:
        """Pair values of a bias with one parameter for each position of some axes: only equal positions correlate."""
        values = self._frame.constant(constant, 0)
        for size, own in zip(node.shape[1:], value_shape[1:], strict=True):
            matrix = torch.eye(size) if own > 1 else torch.ones(size, size)
            values = values[..., None, None] * matrix.to(values)
        return measured(self._frame.expanded(values).contiguous(), self._frame.exponent())

    def gate(self, node: n.GateNode, state: PairState) -> PairState:
        left, right = (side.gates[node.name].reshape(len(side.x), state.shape[0], -1) for side in self._sides)
        return state.each(lambda entry: entry.times((left, right)))

    def activation(self, node: n.ActivationNode, state: PairState) -> PairState:
        raise no_paths_through(node)

    def scale(self, node: n.ScaleNode, state: PairState) -> PairState:
        if self._weights.unit_scales:
            return state.each(lambda entry: replace(entry, scales=(*entry.scales, node.name)))
        factor = self._factor(node.factor, node.shape, state.shape[0])
        return state.each(lambda entry: entry.times((factor, factor)))

    def add(self, node: n.AddNode, *states: PairState) -> PairState:
        if len({(state.shape, state.flat) for state in states}) > 1:
            states = tuple(state.as_units() for state in states)
        entries = states[0].entries
        for state in states[1:]:
            for entry in state.entries:
                clash = any(own.source == entry.source and own.scales != entry.scales for own in entries)
                if self._weights.unit_scales and clash:
                    raise ValueError(
                        f"`unit_scales` has no meaning at {node.name!r}: branches of {entry.source!r} with different "
                        "constants meet there."
                    )
                entries = merged(entries, entry)
        return PairState(entries, states[0].shape, states[0].flat)

    def concat(self, node: n.ConcatNode, *states: PairState) -> PairState:
        if any(state.flat for state in states):
            states = tuple(state.as_units() for state in states)
        start, entries = 0, []
        for state in states:
            entries += [replace(entry, at=entry.at + start) for entry in state.entries]
            start += state.shape[0]
        return PairState(tuple(entries), (start, *states[0].shape[1:]))

    def select(self, node: n.SelectNode, state: PairState) -> PairState:
        if state.flat:
            state = state.as_units()
        channels, *space = node.indices
        if channels is not None:
            entries = []
            for entry in state.entries:  # a channel may be read twice, or not at all
                own, new = (entry.at[:, None] == channels[None, :]).nonzero(as_tuple=True)
                entries += [replace(entry.at_channels(own), at=new)] if len(own) else []
            state = PairState(tuple(entries), (len(channels), *state.shape[1:]))
        if any(index is not None for index in space):
            sizes = state.shape[1:]
            indices = [torch.arange(size) if i is None else i for i, size in zip(space, sizes, strict=True)]
            axes = tuple(incidence(index[:, None], size) for index, size in zip(indices, sizes, strict=True))
            state = state.each(lambda entry: entry.mapped(axes))
        return PairState(state.entries, node.shape)

    def average_pool(self, node: n.AveragePoolNode, state: PairState) -> PairState:
        return state.each(lambda entry: entry.mapped(node.matrices), node.shape)

    def max_pool(self, node: n.MaxPoolNode, state: PairState) -> PairState:
        chosen = (self._sides[0].gates[node.name], self._sides[1].gates[node.name])
        return state.each(lambda entry: entry.max_pooled(node, chosen), node.shape)

    def reshape(self, node: n.ReshapeNode, state: PairState) -> PairState:
        shape = node.shape or (1,)
        if not state.entries:
            return PairState((), shape)
        if all(entry.source == SIGNAL for entry in state.entries):
            return PairState((self._viewed(node, state, shape),), shape)
        if len(shape) == 1 and (state.flat or len(state.shape) == 1):
            return state
        if len(shape) == 1:  # flattening: positions stay apart until a dense layer sums them
            single = math.prod(state.shape[1:]) == 1
            return PairState(state.entries, shape) if single else PairState(state.entries, state.shape, True)
        if state.flat:  # an axis that is given back to flattened units has size 1: each unit is a channel
            state = state.as_units()
        return state.each(lambda entry: entry.with_space(shape[1:]), shape)

    def _viewed(self, node: n.ReshapeNode, state: PairState, shape: n.Shape) -> Entry:
        """A known signal under another shape: nothing random yet, so channels and positions are free."""

        def values(side: int) -> Tensor:
            masks = [entry.masks()[side] for entry in state.entries]
            whole = masks[0].new_zeros(max(map(len, masks)), state.shape[0], math.prod(state.shape[1:]))
            for entry, mask in zip(state.entries, masks, strict=True):
                whole[:, entry.at] += mask  # after a concatenation each entry has some channels, in any order
            return whole.reshape(len(whole), shape[0], -1)

        scales = {entry.scales for entry in state.entries}
        # Units with different scales cannot be told apart after this, so they get a name that no other entry has.
        common = scales.pop() if len(scales) == 1 else (node.name,)
        return replace(self._signal(shape, values(0), values(1)), scales=common)

    def finish(self, state: PairState) -> Scaled:
        """The mean over the outputs of their second moments."""
        sums = contracted_units(state.entries, self._frame) if state.flat else pooled(state.entries, self._frame)
        return replace(sums, gain=sums.gain / math.prod(state.shape))
