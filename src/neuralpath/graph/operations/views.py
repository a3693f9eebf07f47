"""Reshapes, and operations that change nothing."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from neuralpath.graph.builder import Builder, Refused, Signal
from neuralpath.graph.nodes import Operand
from neuralpath.graph.operations.table import for_each, reads

aten = torch.ops.aten


@reads(
    aten.clone.default, aten.alias.default, aten.detach.default, aten.contiguous.default, aten.lift_fresh_copy.default
)
def _same(build: Builder, x: Signal, **kwargs: Any) -> Signal:
    return x


@reads(aten._assert_tensor_metadata.default)
def _assertion(build: Builder, *args: Any, **kwargs: Any) -> None:
    """What torch checks beside a cast: it gives no value."""


@reads(aten._to_copy.default, aten.to.dtype, aten.type_as.default)
def _cast(
    build: Builder, x: Signal, like: Any = None, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any
) -> Signal:
    if isinstance(like, Signal):
        return x
    target = like.evaluate(build.state).dtype if isinstance(like, Operand) else like or dtype
    if target not in (None, build.dtype):
        raise Refused(
            f"casts from {build.dtype} to {target}: a path graph has one dtype; convert the model and its input "
            "instead, for example with `.double()`"
        )
    return x


@reads(aten.view.default, aten.reshape.default, aten._unsafe_view.default)
def _view(build: Builder, x: Signal, size: Sequence[int]) -> Signal:
    known = prod(extent for extent in size if extent >= 0)
    sizes = [build.batch * prod(x.shape) // known if extent < 0 else extent for extent in size]
    if not sizes or sizes[0] != build.batch:
        raise Refused(f"a view of examples of shape {x.shape} that does not keep the batch as its first axis")
    return build.reshaped(x, tuple(sizes[1:]))


@reads(aten.flatten.using_ints)
def _flatten(build: Builder, x: Signal, start: int = 0, end: int = -1) -> Signal:
    rank = len(x.shape) + 1
    start, end = start % rank, end % rank
    if start == end:
        return x
    if start == 0:
        raise Refused("flattens the batch into the units; flatten from axis 1")
    return build.reshaped(x, (*x.shape[: start - 1], prod(x.shape[start - 1 : end]), *x.shape[end:]))


@reads(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def _squeeze(build: Builder, x: Signal, dims: Any = None) -> Signal:
    rank = len(x.shape) + 1
    axes = range(1, rank) if dims is None else [axis % rank for axis in for_each(dims, 1)]
    shape = tuple(size for axis, size in enumerate(x.shape, start=1) if axis not in axes or size != 1)
    return build.reshaped(x, shape)


@reads(aten.unsqueeze.default)
def _unsqueeze(build: Builder, x: Signal, dim: int) -> Signal:
    axis = dim % (len(x.shape) + 2) - 1
    if axis < 0:
        raise Refused("puts a new axis in front of the batch")
    return build.reshaped(x, (*x.shape[:axis], 1, *x.shape[axis:]))


@reads(aten.expand.default)
def _expand(build: Builder, x: Signal, size: Sequence[int], **kwargs: Any) -> Signal:
    if len(size) != len(x.shape) + 1:
        raise Refused(f"expands values of shape {x.shape} by new axes")
    return build.broadcast(x, tuple(have if want == -1 else want for have, want in zip(x.shape, size[1:], strict=True)))


@reads(aten.permute.default)
def _permute(build: Builder, x: Signal, dims: Sequence[int]) -> Signal:
    rank = len(x.shape) + 1
    order = [dim % rank for dim in dims]
    moving = [axis for axis in order if axis == 0 or x.shape[axis - 1] != 1]
    if moving != sorted(moving):
        raise Refused("permutes axes; bring the data into the order (batch, channels, *space) before the model")
    return build.reshaped(x, tuple(x.shape[axis - 1] for axis in order[1:]))


@reads(aten.transpose.int)
def _transpose(build: Builder, x: Signal, dim0: int, dim1: int) -> Signal:
    order = list(range(len(x.shape) + 1))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return _permute(build, x, order)
