"""Work in threads of Python's own, which compiled loops let run side by side.

Not numba's: its threads go on spinning after a loop, in the way of torch's, and take long to compile for.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from neuralpath.bits.compiled import n_threads

SHARES = 16
"""Shares of the work for each thread: small enough that one which is held up does not keep the others waiting."""


def in_threads(run: Callable[[slice], None], n_jobs: int) -> None:
    """Call a function, which must let go of Python's lock, with slices of so many jobs, on as many threads as torch."""
    count = min(n_threads(), n_jobs)
    if count <= 1:
        run(slice(0, n_jobs))
        return
    step = -(-n_jobs // (SHARES * count))
    with ThreadPoolExecutor(count) as pool:
        for _ in pool.map(run, [slice(start, start + step) for start in range(0, n_jobs, step)]):
            pass  # an exception in a thread is raised here
