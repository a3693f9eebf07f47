"""Average and maximum over windows and over space."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from neuralpath.graph import nodes as n
from neuralpath.graph.builder import Builder, Refused, Signal
from neuralpath.graph.nodes import Window, WindowTable, adaptive_table, incidence
from neuralpath.graph.operations.table import OPERATIONS, check_batched, for_each, label_of, with_defaults, without

aten = torch.ops.aten


def _pool_windows(n_space: int, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> tuple[Window, ...]:
    check_batched(x, n_space, "pooling")
    rules = (for_each(rule, n_space) for rule in (kernel, stride or kernel, dilation, padding, padding))
    return tuple(map(Window, *rules))


def _average_pool(n_space: int, build: Builder, x: Any, kernel: Any, *rule: Any) -> Signal:
    stride, padding, ceil, count_include_pad, divisor = with_defaults(rule, None, 0, False, True, None)
    windows = _pool_windows(n_space, x, kernel, stride, padding, 1)
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


def _adaptive_tables(n_space: int, x: Any, sizes: Any) -> list[WindowTable]:
    check_batched(x, n_space, "adaptive pooling")
    sizes = for_each(sizes, n_space)
    return [adaptive_table(n_in, n_out or n_in) for n_in, n_out in zip(x.shape[1:], sizes, strict=True)]


def _adaptive_average(n_space: int, build: Builder, x: Any, size: Any) -> Signal:
    tables = _adaptive_tables(n_space, x, size)
    counts = [incidence(table, n_in) for table, n_in in zip(tables, x.shape[1:], strict=True)]
    return _averaged(build, x, [matrix / matrix.sum(1, keepdim=True) for matrix in counts])


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


def _sum_over_space(name: str, build: Builder, x: Signal, dims: Any = None, keepdim: bool = False, **_: Any) -> Signal:
    axes = _space_axes(x, dims, f"a {name}")
    if not any(axes):  # of a channel that is alone: nothing to sum
        return x if keepdim else build.reshaped(x, without(x, axes))
    matrices = []
    for axis, size in enumerate(x.shape[1:], start=1):
        row = torch.ones(1, size, dtype=torch.float64) / (size if name == "mean" else 1)
        matrices.append(row if axis in axes else torch.eye(size, dtype=torch.float64))
    pooled = _averaged(build, x, matrices, name)
    return pooled if keepdim else build.reshaped(pooled, without(pooled, axes))


def _max_node(build: Builder, x: Signal, tables: list[WindowTable], windows: Any = None, ceil: bool = False) -> Signal:
    shape = (x.shape[0], *(table.shape[0] for table in tables))
    fields = {"tables": tuple(tables), "in_space": x.shape[1:], "windows": windows, "ceil": ceil}
    return build.append(n.MaxPoolNode, shape, x, label=label_of(build, "pool"), **fields)


def _max_pool(n_space: int, build: Builder, x: Any, kernel: Any, *rule: Any) -> Signal:
    *rule_of_windows, ceil = with_defaults(rule, None, 0, 1, False)
    windows = _pool_windows(n_space, x, kernel, *rule_of_windows)
    tables = [w.table(size, ceil=ceil) for w, size in zip(windows, x.shape[1:], strict=True)]
    return _max_node(build, x, tables, windows, ceil)


def _adaptive_max(n_space: int, build: Builder, x: Any, size: Any) -> Signal:
    return _max_node(build, x, _adaptive_tables(n_space, x, size))


def _largest_over_space(build: Builder, x: Signal, dims: Any = None, keepdim: bool = False) -> Signal:
    axes = _space_axes(x, dims, "a maximum", "picks one of them")
    if not any(axes):
        return x if keepdim else build.reshaped(x, without(x, axes))
    windows = tuple(Window(size, size) if axis in axes else Window(1) for axis, size in enumerate(x.shape[1:], start=1))
    tables = [w.table(size) for w, size in zip(windows, x.shape[1:], strict=True)]
    # Torch has pools over up to three axes of space; beyond, the tables alone say where windows are.
    pooled = _max_node(build, x, tables, windows if len(windows) <= 3 else None)
    return pooled if keepdim else build.reshaped(pooled, without(pooled, axes))


def _with_indices(pool: Callable[..., Signal]) -> Callable[..., tuple[Signal, None]]:
    """The rule of an operation that also returns where it read, which nothing may use."""
    return lambda *args: (pool(*args), None)


for _n_space in (1, 2, 3):
    OPERATIONS[getattr(aten, f"avg_pool{_n_space}d").default] = partial(_average_pool, _n_space)
    OPERATIONS[getattr(aten, f"max_pool{_n_space}d").default] = partial(_max_pool, _n_space)
    OPERATIONS[getattr(aten, f"adaptive_avg_pool{_n_space}d").default] = partial(_adaptive_average, _n_space)
    OPERATIONS[getattr(aten, f"adaptive_max_pool{_n_space}d").default] = _with_indices(partial(_adaptive_max, _n_space))
OPERATIONS[aten._adaptive_avg_pool2d.default] = partial(_adaptive_average, 2)
OPERATIONS[aten.max_pool1d_with_indices.default] = _with_indices(partial(_max_pool, 1))
OPERATIONS[aten.max_pool2d_with_indices.default] = _with_indices(partial(_max_pool, 2))
OPERATIONS[aten.mean.dim] = OPERATIONS[aten.mean.default] = partial(_sum_over_space, "mean")
OPERATIONS[aten.sum.dim_IntList] = OPERATIONS[aten.sum.default] = partial(_sum_over_space, "sum")
OPERATIONS[aten.amax.default] = _largest_over_space
OPERATIONS[aten.max.dim] = _with_indices(_largest_over_space)
