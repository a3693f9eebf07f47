"""Work side by side, in threads of Python's own, each of which does all of its work alone.

Not numba's threads, which go on waiting in a circle after a loop, in the way of torch's, and take long to compile for.
"""

import ctypes
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from neuralpath._loops.compiled import n_threads

SHARES = 16
"""Shares of the work for each thread: small enough that one which is held up does not keep the others waiting."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch with one thread, for small operations: dividing them takes longer than doing them."""
    wanted = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(wanted)


def in_threads(run: Callable[[slice], None], n_jobs: int) -> None:
    """Call a function, which must let go of Python's lock, with slices of so many jobs, on as many threads as torch."""
    count = min(n_threads(), n_jobs)
    step = math.ceil(n_jobs / (SHARES * count)) if count > 1 else max(n_jobs, 1)
    side_by_side(run, n_jobs, step, tuple)


def side_by_side(run: Callable[..., None], n_examples: int, step: int, rooms: Callable[[], tuple[Any, ...]]) -> None:
    """Call ``run(examples, *rooms)`` for all blocks of ``step`` examples, each thread with memory of its own.

    Not torch's threads, which share each operation: between small operations they wait for each other, and for long
    where other programs take their processors.
    """
    starts = iter(range(0, n_examples, step))  # shared: a thread takes the next block when it is done with one

    def work() -> None:
        memory = rooms()
        for start in starts:
            run(slice(start, min(start + step, n_examples)), *memory)

    def work_alone() -> None:
        torch.set_num_threads(1)
        work()

    wanted, count = torch.get_num_threads(), min(n_threads(), math.ceil(n_examples / step))
    if count <= 1:
        work()
        return
    end_idle_openmp_threads()
    others: list[Future[None]] = []
    try:
        others = [_pool().submit(work_alone) for _ in range(count - 1)]
        work_alone()  # this thread too: one that waits for another to begin waits for milliseconds
    finally:
        for _ in starts:  # nothing is left, unless there was an error: then no other block is begun
            pass
        wait(others)
        torch.set_num_threads(wanted)  # also what threads that begin later start with
    for other in others:
        other.result()


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that are kept, since to start one takes as long as to transform some images."""
    return ThreadPoolExecutor(os.cpu_count(), "neuralpath")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a process that is forked has none of the threads


def end_idle_openmp_threads() -> None:
    """End the threads that OpenMP keeps for the next loop: for milliseconds they wait in a circle, and hold a core.

    The next loop starts them anew, in microseconds. Where OpenMP cannot be asked, they are left alone.
    """
    try:
        pause = ctypes.CDLL(None).omp_pause_resource_all
    except (AttributeError, OSError, TypeError):
        return
    soft = 1
    pause(soft)
