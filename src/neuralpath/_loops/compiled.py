"""Compilation of the inner loops."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numba
import torch


def compiled(*, parallel: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with numba, without the interpreter's lock and with C's rules for arithmetic.

    A ``parallel`` function is called from Python only, and runs on as many threads as torch is set to.

    With ``cache=True`` the result is kept on disk. Numba looks for changes in the function's own file only, so a cached
    function must call no compiled function of another file but the instructions of this package (`popcount`,
    `transpose`, those of `blocks`); and it can be no closure.

    The function is unwrapped first: checks of annotations, which the tests put around every function of the
    package, cannot be compiled.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        plain = inspect.unwrap(function)
        kernel = numba.njit(nogil=True, error_model="numpy", parallel=parallel, **options)(plain)
        return _on_torch_threads(plain, kernel) if parallel else kernel

    return decorate


def n_threads() -> int:
    """Threads of a parallel loop: as many as torch uses, as far as numba has them."""
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    return min(torch.get_num_threads(), most)


def _on_torch_threads(function: Callable[..., Any], kernel: Any) -> Callable[..., None]:
    """The kernel with numba's thread count set to torch's for the call.

    Both use one OpenMP, and numba sets its count there for good: without this, a call would change torch's count, and
    with it the rounding of what torch computes afterwards.
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> None:
        # Read before numba is asked anything: its first answer starts its threads, which raises torch's count, and
        # buffers have been made for as many threads as torch had.
        wanted, count = torch.get_num_threads(), n_threads()
        before = numba.get_num_threads()
        numba.set_num_threads(count)
        try:
            kernel(*arguments)
        finally:
            numba.set_num_threads(before)
            if torch.get_num_threads() != wanted:
                torch.set_num_threads(wanted)

    return call
