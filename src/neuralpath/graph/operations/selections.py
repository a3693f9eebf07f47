"""Slices, splits, padding and concatenation."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from neuralpath.graph import nodes as n
from neuralpath.graph.builder import Builder, Refused, Signal
from neuralpath.graph.geometry import OUTSIDE
from neuralpath.graph.operands import (
    Literal,
    Operand,
)
from neuralpath.graph.operations.table import (
    reads,
    without,
)

aten = torch.ops.aten


def _axis(x: Signal, dim: int, what: str) -> int:
    axis = dim % (len(x.shape) + 1)
    if axis == 0:
        raise Refused(f"{what} along the batch: it mixes or drops examples")
    return axis - 1


@reads(aten.slice.Tensor)
def _slice(
    build: Builder, x: Signal, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Signal:
    if dim % (len(x.shape) + 1) == 0 and not start and (end is None or end >= build.batch) and step == 1:
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
        raise Refused("indexes with a tensor that depends on the input")
    axis = _axis(x, dim, "an index")
    return build.selected(x, axis, index.evaluate(build.state).cpu(), "index")


@reads(aten.flip.default)
def _flip(build: Builder, x: Signal, dims: Sequence[int]) -> Signal:
    for dim in dims:
        axis = _axis(x, dim, "a flip")
        x = build.selected(x, axis, torch.arange(x.shape[axis]).flip(0), "flip")
    return x


@reads(aten.split.Tensor)
def _split(build: Builder, x: Signal, size: int, dim: int = 0) -> tuple[Signal, ...]:
    axis = _axis(x, dim, "a split")
    parts = torch.arange(x.shape[axis]).split(size)
    return tuple(build.selected(x, axis, part, "split") for part in parts)


@reads(aten.split_with_sizes.default)
def _split_with_sizes(build: Builder, x: Signal, sizes: list[int], dim: int = 0) -> tuple[Signal, ...]:
    axis = _axis(x, dim, "a split")
    return tuple(build.selected(x, axis, part, "split") for part in torch.arange(x.shape[axis]).split(sizes))


@reads(aten.chunk.default)
def _chunk(build: Builder, x: Signal, chunks: int, dim: int = 0) -> tuple[Signal, ...]:
    axis = _axis(x, dim, "a split")
    return tuple(build.selected(x, axis, part, "split") for part in torch.arange(x.shape[axis]).chunk(chunks))


def _padding_index(size: int, before: int, after: int, mode: str) -> Tensor:
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
    raise Refused(f"padding of mode {mode!r} is not known")


@reads(aten.pad.default)
def _pad(build: Builder, x: Signal, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Signal:
    pairs = list(zip(pad[::2], pad[1::2], strict=True))  # from the last axis backwards
    if len(pairs) > len(x.shape) and any(pairs[len(x.shape)]):
        raise Refused("pads the batch")
    indices: list[Tensor | None] = [None] * len(x.shape)
    for back, (before, after) in enumerate(pairs[: len(x.shape)]):
        axis = len(x.shape) - 1 - back
        if before or after:
            indices[axis] = _padding_index(x.shape[axis], before, after, mode)
    if all(index is None for index in indices):
        return x
    shape = tuple(size if i is None else i.numel() for size, i in zip(x.shape, indices, strict=True))
    padded = build.append(n.SelectNode, shape, x, label="pad", in_shape=x.shape, indices=tuple(indices))
    if mode != "constant" or not value:
        return padded
    inside = torch.ones((), dtype=torch.float64)
    for index in indices:
        axis_inside = torch.ones(1, dtype=torch.float64) if index is None else (index >= 0).double()
        inside = inside[..., None] * axis_inside
    return build.shifted(padded, Literal((1 - inside) * value))


@reads(aten.constant_pad_nd.default)
def _constant_pad(build: Builder, x: Signal, pad: Sequence[int], value: Any = 0) -> Signal:
    return _pad(build, x, pad, "constant", value)


for _mode, _prefix in {"reflect": "reflection", "replicate": "replication"}.items():
    for _names in ("1d", "2d", "3d"):

        @reads(getattr(aten, f"{_prefix}_pad{_names}").default)
        def _edge_pad(build: Builder, x: Signal, pad: Sequence[int], *, mode: str = _mode) -> Signal:
            return _pad(build, x, pad, mode)


@reads(aten.cat.default)
def _concatenate(build: Builder, branches: Sequence[Any], dim: int = 0) -> Signal:
    like = next(branch for branch in branches if isinstance(branch, Signal))
    if _axis(like, dim, "a concatenation") != 0:
        raise Refused("concatenates along space; only channels can be stacked")
    signals = []
    for branch in branches:
        if not isinstance(branch, Signal):
            operand = build.constant(branch, like.shape)
            shape = tuple(operand.evaluate(build.state).shape)
            branch = build.append(n.ConstantNode, shape, label="constant", value=operand)
        signals.append(branch)
    shape = (sum(s.shape[0] for s in signals), *like.shape[1:])
    return build.append(n.ConcatNode, shape, *signals, label="concat", sizes=tuple(s.shape[0] for s in signals))


@reads(aten.zeros_like.default)
def _zeros_like(build: Builder, x: Signal, **kwargs: Any) -> Signal:
    return build.append(n.ConstantNode, x.shape, label="zeros", value=Literal(0.0))
