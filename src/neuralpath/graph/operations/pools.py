"""Average and maximum over windows and over space."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from neuralpath.graph import nodes as n
from neuralpath.graph.builder import Builder, Refused, Signal
from neuralpath.graph.nodes import Window, WindowTable, adaptive_table, incidence
from neuralpath.graph.operations.table import OPERATIONS, check_batched, for_each, label_of, reads, without

aten = torch.ops.aten


def _pool_windows(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, n_space: int) -> tuple[Window, ...]:
    check_batched(x, n_space, "pooling")
    kernel = for_each(kernel, n_space)
    stride = for_each(stride or kernel, n_space)
    padding, dilation = for_each(padding, n_space), for_each(dilation, n_space)
    return tuple(Window(k, s, d, p, p) for k, s, d, p in zip(kernel, stride, dilation, padding, strict=True))


def _average_pool(
    n_space: int,
    build: Builder,
    x: Any,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Signal:
    windows = _pool_windows(x, kernel, stride, padding, 1, n_space)
    matrices = []
    for window, size in zip(windows, x.shape[1:], strict=True):
        table = window.table(size, ceil=ceil)
        matrix = incidence(table, size)
        if divisor is not None:
            counts = torch.ones(table.shape[0], dtype=torch.float64)
        elif count_include_pad:
            starts = torch.arange(table.shape[0]) * window.stride - window.before
            counts = ((starts + window.size).clamp(max=size + window.after) - starts).double()
        else:
            counts = matrix.sum(1)
        matrices.append(matrix / counts[:, None])
    if divisor is not None:
        matrices[0] = matrices[0] / divisor
    return _averaged(build, x, matrices)


def _averaged(build: Builder, x: Signal, matrices: Sequence[Tensor], label: str = "pool") -> Signal:
    shape = (x.shape[0], *(matrix.shape[0] for matrix in matrices))
    return build.append(n.AveragePoolNode, shape, x, label=label_of(build, label), matrices=tuple(matrices))


def _adaptive_sizes(x: Any, size: Any, n_space: int) -> list[int]:
    check_batched(x, n_space, "adaptive pooling")
    return [want or have for want, have in zip(for_each(size, n_space), x.shape[1:], strict=True)]


def _adaptive_average(n_space: int, build: Builder, x: Any, size: Any) -> Signal:
    matrices = []
    for n_in, n_out in zip(x.shape[1:], _adaptive_sizes(x, size, n_space), strict=True):
        matrix = incidence(adaptive_table(n_in, n_out), n_in)
        matrices.append(matrix / matrix.sum(1, keepdim=True))
    return _averaged(build, x, matrices)


def _space_axes(x: Signal, dims: Any, what: str, how: str = "sums them without weights") -> list[int]:
    """Axes of an example (channels are 0) that a reduction is over: positions, or a channel that is alone."""
    rank = len(x.shape) + 1
    axes = range(rank) if dims is None or list(for_each(dims, 1)) == [] else for_each(dims, 1)
    axes = sorted(axis % rank for axis in axes)
    if 0 in axes:
        raise Refused(f"{what} over the batch: it mixes the examples")
    if 1 in axes and x.shape[0] != 1:
        raise Refused(f"{what} over the channels, which {how}; only space can be pooled")
    return [axis - 1 for axis in axes]


def _sum_over_space(
    name: str, build: Builder, x: Signal, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Signal:
    axes = _space_axes(x, dims, f"a {name}")
    if not any(axes):  # of a channel that is alone: nothing to sum
        return x if keepdim else build.reshaped(x, without(x, axes))
    matrices = []
    for axis, size in enumerate(x.shape[1:], start=1):
        row = torch.ones(1, size, dtype=torch.float64) / (size if name == "mean" else 1)
        matrices.append(row if axis in axes else torch.eye(size, dtype=torch.float64))
    pooled = _averaged(build, x, matrices, name)
    return pooled if keepdim else build.reshaped(pooled, without(pooled, axes))


def _max_pooled(
    build: Builder, x: Signal, tables: Sequence[WindowTable], windows: tuple[Window, ...] | None, ceil: bool
) -> Signal:
    shape = (x.shape[0], *(table.shape[0] for table in tables))
    fields = {"tables": tuple(tables), "in_space": x.shape[1:], "windows": windows, "ceil": ceil}
    return build.append(n.MaxPoolNode, shape, x, label=label_of(build, "pool"), **fields)


def _max_pool_with_indices(
    n_space: int,
    build: Builder,
    x: Any,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil: bool = False,
) -> tuple[Signal, None]:
    windows = _pool_windows(x, kernel, stride, padding, dilation, n_space)
    tables = [w.table(size, ceil=ceil) for w, size in zip(windows, x.shape[1:], strict=True)]
    return _max_pooled(build, x, tables, windows, ceil), None


def _max_pool(n_space: int, *args: Any, **kwargs: Any) -> Signal:
    return _max_pool_with_indices(n_space, *args, **kwargs)[0]


def _adaptive_max(n_space: int, build: Builder, x: Any, size: Any) -> tuple[Signal, None]:
    sizes = _adaptive_sizes(x, size, n_space)
    tables = [adaptive_table(have, want) for have, want in zip(x.shape[1:], sizes, strict=True)]
    return _max_pooled(build, x, tables, None, False), None


def _largest_over_space(build: Builder, x: Signal, dims: Any = None, keepdim: bool = False) -> Signal:
    axes = _space_axes(x, dims, "a maximum", "picks one of them")
    if not any(axes):
        return x if keepdim else build.reshaped(x, without(x, axes))
    windows = tuple(Window(size, size) if axis in axes else Window(1) for axis, size in enumerate(x.shape[1:], start=1))
    tables = [w.table(size) for w, size in zip(windows, x.shape[1:], strict=True)]
    # Torch has pools over up to three axes of space; beyond, the tables alone say where windows are.
    pooled = _max_pooled(build, x, tables, windows if len(windows) <= 3 else None, False)
    return pooled if keepdim else build.reshaped(pooled, without(pooled, axes))


@reads(aten.max.dim)
def _max_dim(build: Builder, x: Signal, dim: int, keepdim: bool = False) -> tuple[Signal, None]:
    return _largest_over_space(build, x, [dim], keepdim), None


for _n_space in (1, 2, 3):
    OPERATIONS[getattr(aten, f"avg_pool{_n_space}d").default] = partial(_average_pool, _n_space)
    OPERATIONS[getattr(aten, f"max_pool{_n_space}d").default] = partial(_max_pool, _n_space)
    OPERATIONS[getattr(aten, f"adaptive_avg_pool{_n_space}d").default] = partial(_adaptive_average, _n_space)
    OPERATIONS[getattr(aten, f"adaptive_max_pool{_n_space}d").default] = partial(_adaptive_max, _n_space)
OPERATIONS[aten._adaptive_avg_pool2d.default] = partial(_adaptive_average, 2)
OPERATIONS[aten.max_pool1d_with_indices.default] = partial(_max_pool_with_indices, 1)
OPERATIONS[aten.max_pool2d_with_indices.default] = partial(_max_pool_with_indices, 2)
OPERATIONS[aten.mean.dim] = OPERATIONS[aten.mean.default] = partial(_sum_over_space, "mean")
OPERATIONS[aten.sum.dim_IntList] = OPERATIONS[aten.sum.default] = partial(_sum_over_space, "sum")
OPERATIONS[aten.amax.default] = _largest_over_space
