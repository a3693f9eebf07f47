"""Max pools as gates: each output unit reads one position of its channel."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neuralpath.graph import Window

_POOLS: dict[int, Any] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_ADAPTIVE: dict[int, Any] = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


@dataclass(frozen=True, slots=True)
class MaxPoolCall:
    """A call that picks, for each output unit, one position of its channel.

    ``pick`` gives the largest entries and their flat positions, of shape ``(batch, channels, *out)``; ``finish`` turns
    these two into the result of the call. A pool picks one of equal entries; ``shares_ties`` means that torch spreads
    the gradient over all of them, so only the original call has the exact gradient.
    """

    operation: str
    values: Tensor
    out_space: tuple[int, ...]
    pick: Callable[[], tuple[Tensor, Tensor]]
    finish: Callable[[Tensor, Tensor], Any]
    shares_ties: bool = False


def _settings(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip(names, args[1:], strict=False)), **kwargs}


def _for_each(value: Any, n_axes: int) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values * n_axes if len(values) == 1 else values


def read_pool(operation: str, args: tuple[Any, ...], kwargs: dict[str, Any], returns_pair: bool) -> MaxPoolCall:
    """A call of ``max_pool2d`` or ``adaptive_max_pool2d``, or of one with 1 or 3 axes of space."""
    n_space = next(int(letter) for letter in operation if letter.isdigit())
    is_adaptive, operation = operation.startswith("adaptive"), operation.removesuffix("_with_indices")
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
    settings = _settings(("output_size", "return_indices") if is_adaptive else names, args, kwargs)
    returns_pair = bool(settings.pop("return_indices", False)) or returns_pair
    values, space = args[0], args[0].shape[2:]
    if values.ndim != n_space + 2:
        expected = f"(batch, channels, {n_space} axes of space)"
        raise ValueError(f"{operation} of values of shape {tuple(values.shape)}: gates are swapped in {expected}.")
    if is_adaptive:
        sizes = _for_each(settings["output_size"], n_space)
        out_space = tuple(whole if size is None else size for size, whole in zip(sizes, space, strict=True))
        pick = partial(_ADAPTIVE[n_space], values, out_space, return_indices=True)
    else:
        size = _for_each(settings["kernel_size"], n_space)
        stride = _for_each(settings.get("stride") or size, n_space)
        padding = _for_each(settings.get("padding", 0), n_space)
        dilation = _for_each(settings.get("dilation", 1), n_space)
        ceil = bool(settings.get("ceil_mode", False))
        windows = [Window(*axis) for axis in zip(size, stride, dilation, padding, padding, strict=True)]
        out_space = tuple(window.n_out(n, ceil=ceil) for window, n in zip(windows, space, strict=True))
        pick = partial(_POOLS[n_space], values, size, stride, padding, dilation, ceil_mode=ceil, return_indices=True)
    return MaxPoolCall(operation, values, out_space, pick, lambda *both: both if returns_pair else both[0])


def read_reduction(operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> MaxPoolCall | None:
    """A call of ``amax`` or of ``max`` along axes of space: a pool; None if there is only one entry to pick."""
    settings = _settings(("dim", "keepdim"), args, kwargs)
    values, keepdim = args[0], bool(settings.get("keepdim", False))
    dims = settings.get("dim", ())
    rank = values.ndim
    axes = sorted(axis % rank for axis in (_for_each(dims, 1) or range(rank)))
    if any(values.shape[axis] != 1 for axis in axes if axis < 2):
        problem = f"{operation} over the axes {tuple(axes)} of values of shape {tuple(values.shape)}"
        raise ValueError(f"{problem} picks an example or a channel; only a maximum over positions is a gate.")
    if not any(axis >= 2 for axis in axes):
        return None
    if rank - 2 not in _POOLS:
        problem = f"{operation} of values of shape {tuple(values.shape)} picks from {rank - 2} axes of space"
        raise ValueError(f"{problem}, more than {max(_POOLS)}: flatten space first, with `x.flatten(2)`.")
    window = [size if axis + 2 in axes else 1 for axis, size in enumerate(values.shape[2:])]
    out_space = tuple(1 if axis + 2 in axes else size for axis, size in enumerate(values.shape[2:]))

    def finish(largest: Tensor, positions: Tensor) -> Any:
        shape = [size for axis, size in enumerate(largest.shape) if keepdim or axis not in axes]
        largest = largest.reshape(shape)
        if operation == "amax":
            return largest
        stride = prod(values.shape[axes[0] + 1 :])
        indices = (positions // stride) % values.shape[axes[0]]
        return torch.return_types.max((largest, indices.reshape(shape)))

    pick = partial(_POOLS[rank - 2], values, window, window, return_indices=True)
    return MaxPoolCall(operation, values, out_space, pick, finish, shares_ties=True)
