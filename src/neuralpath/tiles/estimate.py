"""How long a kernel will take and how much memory, found from a small part of it before the work begins."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from neuralpath.tiles.memory import format_memory
from neuralpath.tiles.plan import Plan, Tile

LONG = 10.0
"""Seconds of expected work that are announced beforehand."""

_GLANCE = 0.005  # seconds of a first sample; what looks short then is not looked at again
_LONGEST_SAMPLE = 2.0
_SAMPLE = 0.25  # seconds of a sample that work which looks long is judged by


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a kernel will cost: seconds by extrapolation from a sample, bytes by the plan."""

    seconds: float
    tile_bytes: int  # for one tile at a time, and what is kept for all of them
    result_bytes: int  # of the whole kernel, where it is held in memory

    @property
    def long(self) -> bool:
        """Whether the work is long enough to be announced."""
        return self.seconds > LONG

    def __str__(self) -> str:
        return (
            f"about {format_time(self.seconds)}, {format_memory(self.tile_bytes)} for the work "
            f"and {format_memory(self.result_bytes)} for the result"
        )


def format_time(seconds: float) -> str:
    """Seconds for people.

    >>> format_time(0.25), format_time(90), format_time(7260)
    ('0.2 s', '2 min', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = max(round(seconds / 60), 2)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def may_be_long(plan: Plan, compute: Callable[[Tile], object]) -> bool:
    """Whether all pairs might be long work, judged by a few, compilation and the cost of each call included.

    Where one pair looks long, it may be the call that is slow: then more pairs are looked at, 64 times as many at a
    time, until they look short or have taken a few milliseconds.
    """
    side, limit = 1, min(plan.block1, plan.block2)
    while True:
        spent = _spent(plan, compute, side)
        if spent * plan.n_pairs <= LONG * side**2:
            return False
        if side == limit or spent > _GLANCE:
            return True
        side = min(8 * side, limit)


def sampled_seconds(plan: Plan, compute: Callable[[Tile], object]) -> float:
    """Seconds for all pairs, from timing square parts of growing size in the kernel's corner far from the diagonal.

    The first pair is computed once before any is timed, since it compiles and packs. Sampling ends after a few
    milliseconds where the whole is short, and after a fraction of a second where it is long.
    """
    side, limit, before = 1, min(plan.block1, plan.block2), 0.0
    _spent(plan, compute, 1)
    while True:
        # The lesser of two: on a busy machine one call in a few waits for a thread.
        spent = min(_spent(plan, compute, side), _spent(plan, compute, side))
        expected = spent * plan.n_pairs / side**2
        enough = spent > (_SAMPLE if expected > LONG else _GLANCE)
        # Four times the pairs in nearly the same time: it is the call that is slow, and pairs tell nothing yet.
        overhead = spent < 2 * before
        if side == limit or spent > _LONGEST_SAMPLE or (enough and not overhead):
            return expected
        side, before = min(2 * side, limit), spent


def _spent(plan: Plan, compute: Callable[[Tile], object], side: int) -> float:
    begun = time.perf_counter()
    compute(Tile(slice(0, side), slice(plan.n2 - side, plan.n2)))
    return time.perf_counter() - begun
