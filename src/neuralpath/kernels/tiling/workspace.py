"""Memory that is used again: the first touch of fresh pages costs more than the arithmetic done on them."""

import math
import weakref

import numpy as np
import torch
from torch import Tensor

SLACK = 2
"""A freed block serves requests down to this fraction of its size."""


def large_empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """An uninitialized tensor; in main memory by numpy, which asks for large pages, so that first touches cost less."""
    if device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.empty(math.prod(shape) * dtype.itemsize, np.uint8)).view(dtype).reshape(shape)


class Workspace:
    """Lends blocks of main memory as tensors, and lends them again once no tensor uses them any more."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialized tensor on the processor."""
        size = math.prod(shape) * dtype.itemsize
        block = self._take(size)
        array = block[:size].view(str(dtype).removeprefix("torch.")).reshape(shape)
        tensor = torch.from_numpy(array)
        # The tensor's storage, and so every view of it, keeps `array` alive; when the last goes, the block is free.
        weakref.finalize(array, self._free.append, block)
        return tensor

    def _take(self, size: int) -> np.ndarray:
        fitting = [i for i, block in enumerate(self._free) if size <= block.nbytes <= SLACK * size]
        if fitting:
            return self._free.pop(min(fitting, key=lambda i: self._free[i].nbytes))
        self._free.clear()  # of no use now: other sizes are wanted
        return np.empty(size, np.uint8)
