"""Max pools as gates: each output unit reads one position of its channel."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neuralpath.graph import Window, gather_positions

_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_ADAPTIVE = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


@dataclass(frozen=True, slots=True)
class MaxPool:
    """A call that picks, for each output unit, one position of its channel.

    ``pick`` gives the largest entries and their flat positions, with the shape ``(batch, channels, *out)``;
    ``finish`` makes of these two what the call returns. Of equal entries a pool picks one; ``shares_ties`` says
    that torch spreads the gradient over all of them, so that only the call itself is exact.
    """

    operation: str
    values: Tensor
    out_space: tuple[int, ...]
    pick: Callable[[], tuple[Tensor, Tensor]]
    finish: Callable[[Tensor, Tensor], Any]
    shares_ties: bool = False

    @property
    def in_space(self) -> tuple[int, ...]:
        """The positions of a channel, axis by axis, that the pool reads."""
        return tuple(self.values.shape[2:])

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the picked positions."""
        return (*self.values.shape[:2], *self.out_space)

    def read_at(self, positions: Tensor) -> Any:
        """The call's result with given positions in place of the largest entries."""
        return self.finish(gather_positions(self.values, positions), positions)


def _value(values: Tensor, positions: Tensor) -> Any:
    return values


def _pair(values: Tensor, positions: Tensor) -> Any:
    return values, positions


def _settings(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip(names, args[1:], strict=False)), **kwargs}


def _check_space(operation: str, values: Tensor, n_space: int) -> None:
    if values.ndim != n_space + 2:
        raise ValueError(
            f"{operation} of values of shape {tuple(values.shape)}: gates are swapped in batches of shape "
            f"(batch, channels, and {n_space} axis of space each), so add the axis that is missing."
        )


def _for_each(value: Any, n_axes: int) -> tuple[Any, ...]:
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values * n_axes if len(values) == 1 else values


def read_windows(n_space: int, args: tuple[Any, ...], kwargs: dict[str, Any], gives_pair: bool) -> MaxPool:
    """A call of ``max_pool1d``, ``max_pool2d`` or ``max_pool3d``, by either of its namespaces."""
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
    given = _settings(names, args, kwargs)
    gives_pair = bool(given.pop("return_indices", False)) or gives_pair
    values = args[0]
    _check_space(f"max_pool{n_space}d", values, n_space)
    size = _for_each(given["kernel_size"], n_space)
    stride = _for_each(given.get("stride") or size, n_space)
    padding = _for_each(given.get("padding", 0), n_space)
    dilation = _for_each(given.get("dilation", 1), n_space)
    ceil = bool(given.get("ceil_mode", False))
    windows = [Window(*axis) for axis in zip(size, stride, dilation, padding, padding, strict=True)]
    out_space = tuple(w.n_out(n, ceil=ceil) for w, n in zip(windows, values.shape[2:], strict=True))

    def pick() -> tuple[Tensor, Tensor]:
        return _POOLS[n_space](values, size, stride, padding, dilation, ceil_mode=ceil, return_indices=True)

    return MaxPool(f"max_pool{n_space}d", values, out_space, pick, _pair if gives_pair else _value)


def read_adaptive(n_space: int, args: tuple[Any, ...], kwargs: dict[str, Any], gives_pair: bool) -> MaxPool:
    """A call of ``adaptive_max_pool1d`` and its kin."""
    given = _settings(("output_size", "return_indices"), args, kwargs)
    gives_pair = bool(given.pop("return_indices", False)) or gives_pair
    values = args[0]
    operation = f"adaptive_max_pool{n_space}d"
    _check_space(operation, values, n_space)
    wanted = _for_each(given["output_size"], n_space)
    out_space = tuple(have if want is None else want for want, have in zip(wanted, values.shape[2:], strict=True))

    def pick() -> tuple[Tensor, Tensor]:
        return _ADAPTIVE[n_space](values, out_space, return_indices=True)

    return MaxPool(operation, values, out_space, pick, _pair if gives_pair else _value)


def read_reduction(operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> MaxPool | None:
    """A call of ``amax`` or of ``max`` along an axis: a pool over all of space, or over some axes of it.

    ``None`` where nothing is picked from. Raises: ValueError where examples or channels would be picked from.
    """
    given = _settings(("dim", "keepdim"), args, kwargs)
    values, keepdim = args[0], bool(given.get("keepdim", False))
    dims = given.get("dim", ())
    rank = values.ndim
    axes = sorted(axis % rank for axis in (_for_each(dims, 1) or range(rank)))
    if any(values.shape[axis] != 1 for axis in axes if axis < 2):
        raise ValueError(
            f"{operation} over the axes {tuple(axes)} of values of shape {tuple(values.shape)} picks an example or a "
            "channel; only a maximum over positions, the axes behind (batch, channels), is a gate that can be swapped."
        )
    if not any(axis >= 2 for axis in axes):
        return None
    if rank - 2 not in _POOLS:
        raise ValueError(
            f"{operation} of values of shape {tuple(values.shape)} picks from {rank - 2} axes of space; gates of a "
            f"maximum over more than {max(_POOLS)} cannot be swapped. Flatten space first, such as by `x.flatten(2)`."
        )
    window = [size if axis + 2 in axes else 1 for axis, size in enumerate(values.shape[2:])]
    out_space = tuple(1 if axis + 2 in axes else size for axis, size in enumerate(values.shape[2:]))

    def pick() -> tuple[Tensor, Tensor]:
        return _POOLS[rank - 2](values, window, window, return_indices=True)

    def finish(largest: Tensor, positions: Tensor) -> Any:
        shape = [size for axis, size in enumerate(largest.shape) if keepdim or axis not in axes]
        largest = largest.reshape(shape)
        if operation == "amax":
            return largest
        behind = prod(values.shape[axes[0] + 1 :])
        places = (positions // behind) % values.shape[axes[0]]
        return torch.return_types.max((largest, places.reshape(shape)))

    return MaxPool(operation, values, out_space, pick, finish, shares_ties=True)
