"""How much memory may be used."""

import os
import re
from numbers import Real

DEFAULT_SHARE = 0.5
"""Share of the free memory that a computation takes unless told otherwise."""

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def available_memory() -> int:
    """Bytes of main memory that are free for use now."""
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: fall through to what the standard library knows
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def memory_budget(memory: int | None = None) -> int:
    """The budget in bytes: the given one, or a share of what is free.

    Raises: TypeError if it is no number; ValueError if it is not positive.
    """
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
        raise ValueError(f"a size of memory is a number with a unit, such as 8GiB or 500MB; got {text!r}.")
    return int(float(match[1]) * _UNITS[match[2] or ""])


def format_memory(size: float) -> str:
    """Bytes for people.

    >>> format_memory(3 * 2**30)
    '3.0 GiB'
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
