"""Slices, splits, padding and concatenation."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from neuralpath.graph import nodes as n
from neuralpath.graph.builder import Builder, Refused, Signal
from neuralpath.graph.nodes import OUTSIDE, Literal, Operand, is_zero, parameters_of
from neuralpath.graph.operations.table import OPERATIONS, reads, without

aten = torch.ops.aten


def _axis(x: Signal, dim: int, what: str) -> int:
    axis = dim % (len(x.shape) + 1)
    if axis == 0:
        raise Refused(f"{what} along the batch: it mixes or drops examples")
    return axis - 1


@reads(aten.slice.Tensor)
def _slice(build: Builder, x: Signal, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Signal:
    # A slice that only happens to hold this batch is refused; one at the batch's own size shows at replay.
    whole = (None, build.batch, sys.maxsize)
    if dim % (len(x.shape) + 1) == 0 and not start and end in whole and step == 1:
        return x
    axis = _axis(x, dim, "a slice")
    return build.selected(x, axis, torch.arange(x.shape[axis])[slice(start, end, step)], "slice")


@reads(aten.narrow.default)
def _narrow(build: Builder, x: Signal, dim: int, start: int, length: int) -> Signal:
    return _slice(build, x, dim, start, start + length)


@reads(aten.select.int)
def _select(build: Builder, x: Signal, dim: int, index: int) -> Signal:
    axis = _axis(x, dim, "picking one index")
    picked = build.selected(x, axis, torch.arange(x.shape[axis])[index].reshape(1), "select")
    return build.reshaped(picked, without(picked, [axis]))


@reads(aten.index_select.default)
def _index_select(build: Builder, x: Signal, dim: int, index: Any) -> Signal:
    if not isinstance(index, Operand):
        raise Refused("indexing with a tensor that depends on the input is not supported")
    axis = _axis(x, dim, "an index")
    positions = torch.arange(x.shape[axis])[index.evaluate(build.state).cpu()]  # masks and negative indices too
    return build.selected(x, axis, positions, "index")


@reads(aten.index.Tensor)
def _index(build: Builder, x: Signal, indices: Sequence[Any]) -> Signal:
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    if len(dims) != 1:
        raise Refused("indexing several axes at once is not supported")
    index = indices[dims[0]]
    if isinstance(index, Operand) and index.evaluate(build.state).ndim != 1:
        raise Refused("indexing with a tensor that is not a list of positions is not supported")
    return _index_select(build, x, dims[0], index)


@reads(aten.roll.default)
def _roll(build: Builder, x: Signal, shifts: Sequence[int], dims: Sequence[int] = ()) -> Signal:
    if not dims:
        raise Refused("rolls all axes as one; give `dims`")
    for shift, dim in zip(shifts, dims, strict=True):
        axis = _axis(x, dim, "a roll")
        x = build.selected(x, axis, torch.arange(x.shape[axis]).roll(shift), "roll")
    return x


@reads(aten.repeat.default, aten.tile.default)
def _repeat(build: Builder, x: Signal, repeats: Sequence[int]) -> Signal:
    rank = len(x.shape) + 1
    repeats = [1] * (rank - len(repeats)) + list(repeats)
    if len(repeats) > rank or repeats[0] != 1:
        raise Refused("repeats along the batch or along a new axis")
    for axis, times in enumerate(repeats[1:]):
        x = build.selected(x, axis, torch.arange(x.shape[axis]).repeat(times), "repeat")
    return x


@reads(aten.repeat_interleave.self_int)
def _repeat_interleave(build: Builder, x: Signal, repeats: int, dim: int | None = None, **kwargs: Any) -> Signal:
    if dim is None:
        raise Refused("repeats all axes as one; give `dim`")
    axis = _axis(x, dim, "a repetition")
    return build.selected(x, axis, torch.arange(x.shape[axis]).repeat_interleave(repeats), "repeat")


def _nearest(one_axis: Any, build: Builder, x: Signal, size: Any, factors: Any) -> Signal:
    """Nearest upsampling: torch's own rule along one axis says which position each one reads."""
    for axis in range(1, len(x.shape)):
        places = torch.arange(x.shape[axis], dtype=torch.float64)[None, None]
        extent = None if size is None else [size[axis - 1]]
        factor = None if factors is None else [factors[axis - 1]]
        x = build.selected(x, axis, one_axis(places, extent, factor)[0, 0].long(), "upsample")
    return x


for _name in ("upsample_nearest", "_upsample_nearest_exact"):
    for _n_space in ("1d", "2d", "3d"):
        OPERATIONS[getattr(aten, _name + _n_space).vec] = partial(_nearest, getattr(aten, f"{_name}1d").vec)


@reads(aten.flip.default)
def _flip(build: Builder, x: Signal, dims: Sequence[int]) -> Signal:
    for dim in dims:
        axis = _axis(x, dim, "a flip")
        x = build.selected(x, axis, torch.arange(x.shape[axis]).flip(0), "flip")
    return x


def _split(function: Any, build: Builder, x: Signal, sizes: int | list[int], dim: int = 0) -> tuple[Signal, ...]:
    axis = _axis(x, dim, "a split")
    return tuple(build.selected(x, axis, part, "split") for part in function(torch.arange(x.shape[axis]), sizes))


OPERATIONS[aten.split.Tensor] = OPERATIONS[aten.split_with_sizes.default] = partial(_split, torch.split)
OPERATIONS[aten.chunk.default] = partial(_split, torch.chunk)


def _padding_index(size: int, before: int, after: int, mode: str) -> Tensor:
    if mode in ("circular", "reflect") and min(before, after) < 0:
        raise Refused(f"{mode} padding by a negative amount; crop with a slice")
    place = torch.arange(-before, size + after)
    if mode == "constant":
        return torch.where((place >= 0) & (place < size), place, OUTSIDE)
    if mode == "circular":
        return place % size
    if mode == "replicate":
        return place.clamp(0, size - 1)
    if mode == "reflect":
        period = max(2 * (size - 1), 1)
        folded = place.abs() % period
        return torch.minimum(folded, period - folded) if size > 1 else torch.zeros_like(place)
    raise Refused(f"padding of mode {mode!r} is not supported")


@reads(aten.pad.default)
def _pad(build: Builder, x: Signal, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Signal:
    pairs = list(zip(pad[::2], pad[1::2], strict=True))  # from the last axis backwards
    if len(pairs) > len(x.shape) and any(pairs[len(x.shape)]):
        raise Refused("pads the batch")
    indices: list[Tensor | None] = [None] * len(x.shape)
    for axis, sides in zip(reversed(range(len(x.shape))), pairs, strict=False):
        if any(sides):
            indices[axis] = _padding_index(x.shape[axis], *sides, mode)
    if all(index is None for index in indices):
        return x
    if mode == "constant" and value:
        return _padded_with(build, x, indices, value)
    shape = tuple(size if i is None else i.numel() for size, i in zip(x.shape, indices, strict=True))
    return build.append(n.SelectNode, shape, x, label="pad", in_shape=x.shape, indices=tuple(indices))


def _padded_with(build: Builder, x: Signal, indices: Sequence[Tensor | None], value: float) -> Signal:
    """Padding with a constant: axis by axis, since what lies outside one axis is a selection, of all axes it is not."""
    for axis, index in enumerate(indices):
        if index is None:
            continue
        x = build.selected(x, axis, index, "pad")
        if bool((index >= 0).all()):  # it only crops
            continue
        constant = build.append(n.ConstantNode, x.shape, label="constant", value=Literal(float(value)))
        outside = torch.where(index < 0, 0, OUTSIDE)
        x = build.append(n.AddNode, x.shape, x, build.selected(constant, axis, outside, "outside"), label="shift")
    return x


@reads(aten.constant_pad_nd.default)
def _constant_pad(build: Builder, x: Signal, pad: Sequence[int], value: Any = 0) -> Signal:
    return _pad(build, x, pad, "constant", value)


for _mode, _prefix in {"reflect": "reflection", "replicate": "replication"}.items():
    for _names in ("1d", "2d", "3d"):
        OPERATIONS[getattr(aten, f"{_prefix}_pad{_names}").default] = partial(_pad, mode=_mode)


@reads(aten.cat.default)
def _concatenate(build: Builder, branches: Sequence[Any], dim: int = 0) -> Signal:
    like = next(branch for branch in branches if isinstance(branch, Signal))
    axis = _axis(like, dim, "a concatenation")
    signals, n_joined = [], 0
    places = []  # of each unit among those that are joined; zeros are not, as padding is not: no path starts there
    for branch in branches:
        signal, size = _branch(build, branch, like, axis)
        if signal is None:
            places.append(torch.full((size,), OUTSIDE))
            continue
        signals.append(signal)
        places.append(torch.arange(n_joined, n_joined + size))
        n_joined += size
    joined = signals[0]
    if axis > 0:
        joined = _side_by_side(build, signals, axis)
    elif len(signals) > 1:
        sizes = tuple(signal.shape[0] for signal in signals)
        joined = build.append(n.ConcatNode, (sum(sizes), *like.shape[1:]), *signals, label="concat", sizes=sizes)
    return build.selected(joined, axis, torch.cat(places), "pad")


def _branch(build: Builder, branch: Any, like: Signal, axis: int) -> tuple[Signal | None, int]:
    """A branch of a concatenation, None for zeros, and its size along the axis."""
    if isinstance(branch, Signal):
        return branch, branch.shape[axis]
    operand = build.constant(branch, like.shape)
    shape = tuple(operand.evaluate(build.state).shape)
    if parameters_of(operand):  # biases of units that get nothing else
        nothing = build.selected(like, axis, torch.full((shape[axis],), OUTSIDE), "pad")
        return build.added(nothing, operand), shape[axis]
    if is_zero(operand, build.state):
        return None, shape[axis]
    return build.append(n.ConstantNode, shape, label="constant", value=operand), shape[axis]


def _side_by_side(build: Builder, signals: Sequence[Signal], axis: int) -> Signal:
    """Signals joined along space: parts of one signal are read by index, others are padded with zeros and added."""
    read = [_read_from(build, signal, axis) for signal in signals]
    if len({whole.name for whole, _ in read}) == 1:
        return build.selected(read[0][0], axis, torch.cat([index for _, index in read]), "concat")
    padded, end, total = [], 0, sum(signal.shape[axis] for signal in signals)
    for signal in signals:
        start, end = end, end + signal.shape[axis]
        index = torch.nn.functional.pad(torch.arange(end - start), (start, total - end), value=OUTSIDE)
        padded.append(build.selected(signal, axis, index, "pad"))
    return build.append(n.AddNode, padded[0].shape, *padded, label="concat")


def _read_from(build: Builder, signal: Signal, axis: int) -> tuple[Signal, Tensor]:
    """What a signal is read from by index along one axis, and the index: itself and all, where it is read by none."""
    match next(node for node in build.nodes if node.name == signal.name):
        case n.SelectNode(inputs=(source,), in_shape=shape, indices=indices):
            index = indices[axis]
            if index is not None and all(other is None for at, other in enumerate(indices) if at != axis):
                return Signal(source, shape, signal.weightless), index
    return signal, torch.arange(signal.shape[axis])


def _constant_like(operation: Any, build: Builder, x: Signal, *args: Any, **kwargs: Any) -> Operand:
    """A constant that takes nothing but its shape from a signal, for the whole batch as torch has it."""
    # In float64, so that a number is not rounded to the model's dtype.
    like = torch.empty((), dtype=torch.float64).expand(build.batch, *x.shape)
    return Literal(operation(like, *args, **kwargs))


for _name in ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"):
    OPERATIONS[getattr(aten, _name).default] = partial(_constant_like, getattr(aten, _name).default)
