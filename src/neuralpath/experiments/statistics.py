"""Means over seeds, and comparisons between runs of equal seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Mean of some numbers, their standard deviation (n - 1) and the standard error; None for a single number."""

    mean: float
    deviation: float | None
    error: float | None
    n: int

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        """Of at least one number."""
        n = len(values)
        if n == 0:
            raise ValueError("`values` is empty; a spread needs at least one number.")
        mean = math.fsum(values) / n
        if n == 1:
            return Spread(mean, None, None, 1)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
        return Spread(mean, deviation, deviation / math.sqrt(n), n)

    def times(self, factor: float) -> "Spread":
        """In another unit, such as per cent."""
        deviation = None if self.deviation is None else abs(factor) * self.deviation
        error = None if self.error is None else abs(factor) * self.error
        return Spread(factor * self.mean, deviation, error, self.n)

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{spread} ({self.n})"


@dataclass(frozen=True)
class Paired:
    """First minus second over the seeds that both have."""

    difference: Spread
    seeds: tuple[int, ...]

    @property
    def exceeds(self) -> float | None:
        """How many standard errors the difference is; None with fewer than two seeds or no spread."""
        return self.difference.mean / self.difference.error if self.difference.error else None


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Paired | None:
    """Compare values by seed; None where no seed is in both."""
    seeds = tuple(sorted(first.keys() & second.keys()))
    return Paired(Spread.of([first[seed] - second[seed] for seed in seeds]), seeds) if seeds else None
