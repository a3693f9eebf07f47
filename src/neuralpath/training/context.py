"""Context managers of a training run: restored modes, threads, generators and memory."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import nn

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt, from malloc.h
_ADAPTED = 2**25  # the largest mmap threshold that glibc adapts to by itself; it trims at twice that
_USER_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


@contextmanager
def restored_modes(model: nn.Module) -> Iterator[None]:
    """Put every submodule back into training or evaluation mode, as it was."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let torch use this many threads, None for as many as it does, and restore their number afterwards."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def restored_generators(model: nn.Module) -> AbstractContextManager[None]:
    """Restore the state of torch's global generators."""
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    return torch.random.fork_rng(sorted(devices, key=str))


@contextmanager
def reused_memory() -> Iterator[None]:
    """Let the C library reuse the memory of a batch for the next one.

    By default glibc returns large blocks to the operating system, which then zeroes new pages for every layer of every
    batch: training a GCONV takes half as long again. Other C libraries, and settings of the user, are left alone. glibc
    cannot report its thresholds, so they are set afterwards to those that it adapts to in a program with large arrays.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is None or not hasattr(libc, "mallopt") or any(name in os.environ for name in _USER_SETTINGS):
        yield
        return
    libc.mallopt(_MMAP_THRESHOLD, 2**30)
    libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_THRESHOLD, _ADAPTED)
        libc.mallopt(_TRIM_THRESHOLD, 2 * _ADAPTED)
        libc.malloc_trim(0)
