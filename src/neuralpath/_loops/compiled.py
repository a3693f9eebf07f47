"""Compilation of the inner loops, and the threads that they run on."""

import ctypes
import functools
import inspect
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any

import numba
import torch
from torch import Tensor

SHARES = 16  # of the work for each thread: small enough that a delayed thread does not keep the others waiting


def use_bits(*tensors: Tensor | None) -> bool:
    """Whether compiled loops are used: with numba on, and for gates that are Boolean tensors on the CPU.

    ``NUMBA_DISABLE_JIT`` or ``NEURALPATH_NUMBA=0`` turns numba off; matrix products then compute the same.
    """
    if getattr(numba.config, "DISABLE_JIT", 0) or os.environ.get("NEURALPATH_NUMBA") == "0":
        return False
    return all(t is not None and t.dtype == torch.bool and t.device.type == "cpu" for t in tensors)


def has_loops(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the compiled loops compute with this dtype on this device."""
    return device.type == "cpu" and dtype in (torch.float32, torch.float64) and use_bits()


def compiled(*, parallel: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with numba, without the interpreter's lock and with C's rules for arithmetic.

    A ``parallel`` function is called from Python only, and runs on as many threads as torch is set to.

    With ``cache=True`` the machine code is stored on disk. Numba looks for changes in the function's own file only, so
    a cached function must not call compiled functions of other files, except `instructions.py`, and it must not be a
    closure.

    The function is unwrapped first: the checks of annotations that the tests put around it cannot be compiled.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        plain = inspect.unwrap(function)
        kernel = numba.njit(nogil=True, error_model="numpy", parallel=parallel, **options)(plain)
        return _on_torch_threads(plain, kernel) if parallel else kernel

    return decorate


def n_threads() -> int:
    """Threads of a parallel loop: as many as torch uses, and at most as many as numba has."""
    return min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


def _on_torch_threads(function: Callable[..., Any], kernel: Any) -> Callable[..., None]:
    """The kernel with numba's thread count set to torch's for the call.

    Both use one OpenMP, and numba sets its count there for good: without this, a call would change torch's count, and
    with it the rounding of what torch computes afterwards.
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> None:
        # Read first: numba's first answer starts its threads, which raises torch's count, and the callers' buffers
        # are for as many threads as torch had.
        torch_count, count = torch.get_num_threads(), n_threads()
        before = numba.get_num_threads()
        numba.set_num_threads(count)
        try:
            kernel(*arguments)
        finally:
            numba.set_num_threads(before)
            if torch.get_num_threads() != torch_count:
                torch.set_num_threads(torch_count)

    return call


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch with one thread, for small operations: dividing them takes longer than doing them."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)


def in_threads(run: Callable[[slice], None], n_items: int) -> None:
    """Call ``run``, which must release Python's lock, with slices of the items, on as many threads as torch uses."""
    count = min(n_threads(), n_items)
    step = math.ceil(n_items / (SHARES * count)) if count > 1 else max(n_items, 1)
    side_by_side(run, n_items, step, tuple)


def side_by_side(
    run: Callable[..., None], n_examples: int, step: int, make_buffers: Callable[[], tuple[Any, ...]]
) -> None:
    """Call ``run(examples, *buffers)`` for all blocks of ``step`` examples, each thread with its own buffers.

    These are Python's threads, each of which runs whole blocks. Torch's threads share each operation: between small
    operations they wait for each other, and for long where other programs use the cores. Numba's threads spin-wait
    after a loop, which slows down torch's, and take long to compile for.
    """
    starts = iter(range(0, n_examples, step))  # shared: a thread takes the next block when it has finished one

    def run_blocks() -> None:
        buffers = make_buffers()
        for start in starts:
            run(slice(start, min(start + step, n_examples)), *buffers)

    def run_single_threaded() -> None:
        torch.set_num_threads(1)
        run_blocks()

    torch_count, count = torch.get_num_threads(), min(n_threads(), math.ceil(n_examples / step))
    if count <= 1:
        run_blocks()
        return
    end_idle_openmp_threads()
    others: list[Future[None]] = []
    try:
        others = [_pool().submit(run_single_threaded) for _ in range(count - 1)]
        run_single_threaded()  # in this thread too: waiting for another to begin takes milliseconds
    finally:
        for _ in starts:  # empty, unless there was an error: then no further block is started
            pass
        wait(others)
        torch.set_num_threads(torch_count)  # also the count that later threads start with
    for other in others:
        other.result()


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Threads that are reused, since starting one takes as long as transforming several images."""
    return ThreadPoolExecutor(os.cpu_count(), "neuralpath")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has none of the threads


def end_idle_openmp_threads() -> None:
    """End the threads that OpenMP reserves for the next loop: they spin-wait for milliseconds and occupy a core.

    The next loop starts them again, in microseconds. Without OpenMP's function they are left alone.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).omp_pause_resource_all(1)  # 1: soft
