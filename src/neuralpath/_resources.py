"""Resources of a computation: memory budget, threads, precision; and sizes as text."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from numbers import Real

import psutil
import torch

DEFAULT_SHARE = 0.5  # of the free memory, which a computation uses by default
MOST_THREADS = 1024  # more than any machine has; the system ends programs that start many more
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def available_memory() -> int:
    """Bytes that new allocations of the machine can use without swapping, whatever a container or `ulimit` allows."""
    return int(psutil.virtual_memory().available)


def memory_budget(memory: int | None = None) -> int:
    """The memory budget in bytes; None: half of the free memory."""
    if memory is None:
        return int(DEFAULT_SHARE * available_memory())
    if not isinstance(memory, Real) or isinstance(memory, bool):
        hint = "; text such as '8GiB' is for the command line" if isinstance(memory, str) else ""
        kind = type(memory).__name__
        raise TypeError(f"`memory` must be a number of bytes, such as 8 * 2**30 for 8 GiB, got a {kind}{hint}.")
    if not 0 < memory < float("inf"):
        raise ValueError(f"`memory` must be a positive number of bytes, got {memory}.")
    return int(memory)


def parse_memory(text: str) -> int:
    """Bytes from text such as ``8GiB``, ``500 MB`` or a plain number.

    >>> parse_memory("8GiB"), parse_memory("500 MB")
    (8589934592, 500000000)
    """
    match = re.fullmatch(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([kmg]i?)?b?\s*", text.lower())
    if match is None:
        raise ValueError(f"a memory size is a number with a unit, such as 8GiB or 500MB; got {text!r}.")
    return int(float(match[1]) * _UNITS[match[2] or ""])


def format_memory(size: float) -> str:
    """A number of bytes as text.

    >>> format_memory(3 * 2**30)
    '3.0 GiB'
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"


def check_threads(count: int, name: str = "`threads`") -> None:
    """Refuse a number of threads that no machine has."""
    if not 1 <= count <= MOST_THREADS:
        raise ValueError(f"{name} must be from 1 to {MOST_THREADS}, got {count}; use one for each processor.")


@contextmanager
def pinned_threads(count: int) -> Iterator[None]:
    """Run torch and the compiled loops on a number of threads: the rounding of some kernels depends on it."""
    import numba

    before = torch.get_num_threads()
    numba.get_num_threads()  # the first call starts numba's threads, and sets torch's count to theirs
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def without_autocast() -> Iterator[None]:
    """Compute in the precision of the tensors, even under torch's autocast. A context manager and a decorator.

    Autocast would round products to a few digits, and results would still have the dtype of exact ones.

    >>> with torch.autocast("cpu", torch.bfloat16), without_autocast():
    ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
    torch.float32
    """
    with ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
