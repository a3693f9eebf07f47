"""The number of threads of torch and of the compiled loops."""

from collections.abc import Iterator
from contextlib import contextmanager

import numba
import torch

MOST_THREADS = 1024
"""More than any machine has; the system ends programs that start many more."""


def check_threads(count: int, name: str = "`threads`") -> None:
    """Refuse a number of threads that no machine has.

    Raises:
        ValueError: It is not between 1 and 1024.
    """
    if not 1 <= count <= MOST_THREADS:
        raise ValueError(f"{name} must be from 1 to {MOST_THREADS}, got {count}; use one for each processor.")


@contextmanager
def pinned_threads(count: int) -> Iterator[None]:
    """Run torch and the compiled loops on a number of threads: the rounding of some kernels depends on it."""
    before = torch.get_num_threads()
    numba.get_num_threads()  # the first call starts numba's threads, and sets torch's count to theirs
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
