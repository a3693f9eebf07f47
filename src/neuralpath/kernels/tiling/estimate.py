"""How long a kernel will take and how much memory, found from a small part of it before the work begins."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from neuralpath._memory import format_memory
from neuralpath.kernels.tiling.plan import Plan, Tile

LONG = 10.0
"""Seconds of expected work that are announced beforehand."""

_GLANCE = 0.005  # seconds of a first sample; what looks short then is not looked at again
_SHORT_PART = 0.05  # seconds of a part that is timed twice
_LONG_PART = 0.5  # seconds of the largest part where the whole is long; with all before it and a first call, two
_SMALL_SHARE = 1 / 30  # of the whole work, for a tile that is timed whatever it takes
_LONGEST_LOOK = 2.5  # seconds of all timed parts, where nearly all is the cost of calls


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

    >>> format_time(0.25), format_time(90), format_time(150), format_time(7260)
    ('0.2 s', '90 s', '2 min', '2 h 1 min')
    """
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def may_be_long(plan: Plan, compute: Callable[[Tile], object]) -> bool:
    """Whether all pairs might be long work, judged by a few, compilation and the cost of each call included.

    Where one pair looks long, it may be the call that is slow: then more pairs are looked at, 64 times as many at a
    time, until they look short or have taken a few milliseconds.
    """
    side, limit = 1, min(plan.block1, plan.block2)
    while True:
        spent = _spent(plan, compute, side, side)
        if spent * plan.n_pairs <= LONG * side**2:
            return False
        if side == limit or spent > _GLANCE:
            return True
        side = min(8 * side, limit)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a kernel is computed: seconds of a call, whatever its size, and seconds of each pair on top."""

    call: float
    pair: float

    def seconds(self, plan: Plan) -> float:
        """For all tiles of a plan."""
        rows, columns = -(-plan.n1 // plan.block1), -(-plan.n2 // plan.block2)
        n_tiles = rows * (rows + 1) // 2 if plan.symmetric else rows * columns
        return self.call * n_tiles + self.pair * plan.n_pairs


def sampled_seconds(plan: Plan, compute: Callable[[Tile], object]) -> float:
    """Seconds for all pairs, from timing parts of growing size in the kernel's corner far from the diagonal.

    Each part has twice the pairs of the one before, or eight times where a call costs more than its pairs, and is
    computed once before it is timed, since a first call compiles and takes memory. The two largest tell the cost of a
    call from that of a pair; one as large as a tile tells both at once, and more: pairs that leave the caches take
    longer each. So a tile that is a small part of the work is always looked at. Otherwise sampling ends after a few
    milliseconds where the whole is short, and after about two seconds where it is long.
    """
    rows = columns = 1
    before: tuple[int, float] | None = None
    looked = 0.0
    while True:
        spent = _warm_seconds(plan, compute, rows, columns)
        whole = (rows, columns) == (plan.block1, plan.block2)
        pairs = rows * columns
        pace = _fitted(None if whole else before, (pairs, spent))
        seconds = pace.seconds(plan)
        # Twice the pairs in less than half as much again: it is the call that is slow, and pairs tell little yet.
        by_call = before is None or spent < 1.5 * before[1]
        most = _LONG_PART if seconds > LONG else _GLANCE
        small_tiles = pace.call + pace.pair * plan.block1 * plan.block2 < min(_SMALL_SHARE * seconds, _LONG_PART)
        looked += spent
        if whole or looked > _LONGEST_LOOK or (spent > most / 2 and not (by_call or small_tiles)):
            return seconds
        for _ in range(3 if by_call and before is not None else 1):
            rows, columns = _doubled(rows, columns, plan)
        before = pairs, spent


def _doubled(rows: int, columns: int, plan: Plan) -> tuple[int, int]:
    """The next part, nearly square."""
    if (rows < columns and rows < plan.block1) or columns == plan.block2:
        return min(2 * rows, plan.block1), columns
    return rows, min(2 * columns, plan.block2)


def _fitted(before: tuple[int, float] | None, last: tuple[int, float]) -> Pace:
    """Costs of a call and of a pair, from two parts, each its pairs and its time; of one part, all is the pairs'.

    Where more pairs took no longer, by chance, all is the call's.
    """
    pairs, spent = last
    if before is None:
        return Pace(0.0, spent / pairs)
    pair = max(0.0, spent - before[1]) / (pairs - before[0])
    return Pace(max(0.0, spent - pair * pairs), pair)


def _warm_seconds(plan: Plan, compute: Callable[[Tile], object], rows: int, columns: int) -> float:
    """Time of a part that was computed before; the lesser of two where that costs little, as a machine may be busy."""
    _spent(plan, compute, rows, columns)
    spent = _spent(plan, compute, rows, columns)
    return spent if spent > _SHORT_PART else min(spent, _spent(plan, compute, rows, columns))


def _spent(plan: Plan, compute: Callable[[Tile], object], rows: int, columns: int) -> float:
    begun = time.perf_counter()
    compute(Tile(slice(0, rows), slice(plan.n2 - columns, plan.n2)))
    return time.perf_counter() - begun
