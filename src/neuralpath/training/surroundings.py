"""What a run changes around it and puts back: modes of the model, threads and generators of torch, the allocator."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt, by malloc.h
_ALL, _LARGE = 2**31 - 1, 2**30
_ADAPTED = 2**25
"""Size of blocks up to which glibc, as it adapts to a program, comes to keep them; it trims at twice that."""
_OF_THE_USER = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Put every module back to training or evaluation mode, as it was."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def threads_kept(count: int | None) -> Iterator[None]:
    """Let torch use so many threads (None: as many as it does), and as many as before afterwards."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def generators_kept(model: nn.Module) -> Iterator[None]:
    """Leave torch's global generators as they are found."""
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    with torch.random.fork_rng(sorted(devices, key=str)):
        yield


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Let the C library keep the memory that a batch leaves free for the next one, and give it back afterwards.

    By itself glibc returns large blocks to the system, which then fills new pages with zeros for every layer of every
    batch: the forward pass of a GCONV takes twice as long. It cannot tell its thresholds; afterwards they are those
    that it adapts to in a program with large arrays. Where the environment sets them they stand, and other C libraries
    are left alone.
    """
    libc = _glibc()
    if libc is None or any(name in os.environ for name in _OF_THE_USER):
        yield
        return
    _set_thresholds(libc, mmap=_LARGE, trim=_ALL)
    try:
        yield
    finally:
        _set_thresholds(libc, mmap=_ADAPTED, trim=2 * _ADAPTED)
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """The C library, if its allocator has thresholds that can be set."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    return libc if hasattr(libc, "mallopt") else None


def _set_thresholds(libc: ctypes.CDLL, *, mmap: int, trim: int) -> None:
    """Blocks up to ``mmap`` bytes come from the heap, and up to ``trim`` free bytes at its end are kept."""
    libc.mallopt(_MMAP_THRESHOLD, mmap)
    libc.mallopt(_TRIM_THRESHOLD, trim)
