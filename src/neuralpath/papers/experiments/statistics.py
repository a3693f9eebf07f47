"""Means over seeds, and comparisons between runs of equal seeds."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

_DEVIATION_DIGITS = 2  # significant digits of the deviation
_LEAST_DIGITS = 3  # least number of significant digits of the larger of mean and deviation
_MOST_DIGITS = 6  # largest number of them, since records have no more
_PLAIN = (1e-3, 1e6)  # range of numbers that are written without an exponent


@dataclass(frozen=True)
class Spread:
    """Mean of numbers, their standard deviation (n - 1) and the standard error; None for a single number."""

    mean: float
    deviation: float | None
    error: float | None
    n: int
    decimals: int | None = field(default=None, compare=False)  # None: the sizes of mean and deviation decide

    @staticmethod
    def of(values: Sequence[float], decimals: int | None = None) -> "Spread":
        """Of at least one number."""
        n = len(values)
        if n == 0:
            raise ValueError("`values` is empty; a spread needs at least one number.")
        mean = math.fsum(values) / n
        if n == 1:
            return Spread(mean, None, None, 1, decimals)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
        return Spread(mean, deviation, deviation / math.sqrt(n), n, decimals)

    def times(self, factor: float) -> "Spread":
        """In another unit, such as per cent."""
        deviation, error = (None if size is None else abs(factor) * size for size in (self.deviation, self.error))
        return replace(self, mean=factor * self.mean, deviation=deviation, error=error)

    def with_decimals(self, decimals: int) -> "Spread":
        """The same numbers, with this many digits after the decimal point."""
        return replace(self, decimals=decimals)

    @property
    def digits(self) -> tuple[str, str]:
        """Mean and deviation as text, the deviation empty for a single number.

        The deviation has two significant digits and the mean as many decimals, but the larger of the two has three
        significant digits or more. Without a deviation the mean has four.

        >>> Spread.of([0.00401, 0.00399, 0.00403]).digits
        ('0.004010', '0.000020')
        >>> Spread.of([17_500.0, 18_300.0]).digits
        ('17900', '566')
        >>> Spread.of([1.4e-7, 2.2e-7]).digits
        ('1.80e-07', '5.7e-08')
        >>> Spread.of([98.2, 98.204], decimals=2).digits
        ('98.20', '0.00')
        """
        spread = self.deviation or 0.0
        largest = max(abs(self.mean), spread)
        if self.decimals is not None:
            texts = [f"{value:.{self.decimals}f}" for value in (self.mean, spread)]
        elif not math.isfinite(largest) or largest == 0:
            texts = [f"{value:g}" for value in (self.mean, spread)]
        else:
            top = math.floor(math.log10(largest))  # exponent of the first significant digit
            below = top - math.floor(math.log10(spread)) if spread else 2 * (self.deviation is None)
            # Counted from the first digit of the larger of the two.
            of_both = min(_MOST_DIGITS, max(_LEAST_DIGITS, below + _DEVIATION_DIGITS))
            if _PLAIN[0] <= largest < _PLAIN[1]:
                decimals = max(0, of_both - 1 - top)
                texts = [f"{value:.{decimals}f}" for value in (self.mean, spread)]
            else:
                texts = [f"{self.mean:.{of_both - 1}e}", f"{spread:.{_DEVIATION_DIGITS - 1}e}"]
        return texts[0], "" if self.deviation is None else texts[1]

    def __str__(self) -> str:
        mean, deviation = self.digits
        return f"{mean}{f' ± {deviation}' if deviation else ''} ({self.n})"


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


def spread(values: Iterable[float | None], decimals: int | None = None) -> Spread | None:
    """Mean and spread of the values that are not None; None if there are none. Decimals as in `Spread`."""
    known = [value for value in values if value is not None]
    return Spread.of(known, decimals) if known else None


def rounded(values: Iterable[float]) -> list[float]:
    """To the digits that records have."""
    return [float(f"{value:.{_MOST_DIGITS}g}") for value in values]


# Rows of tables

Cell = str | int | float | Spread | None  # a number is shown with the digits that it needs; None as a dash
Runs = dict[int, dict[str, Any]]  # results of the finished runs of one point, by seed
Read = Callable[[dict[str, Any]], float | None]  # a number from the result of a run; None: it does not count


def means(runs: Runs, columns: Mapping[str, Read]) -> dict[str, Cell]:
    """Cells of a row: the mean over seeds of each column.

    >>> row = means({0: {"loss": 0.5}, 1: {"loss": 0.7}}, {"loss in %": lambda run: 100 * run["loss"]})
    >>> str(row["loss in %"])
    '60.0 ± 14.1 (2)'
    """
    return {title: spread(map(read, runs.values())) for title, read in columns.items()}


def accuracy_at(when: Literal["best", "last"]) -> Read:
    """Reads the test accuracy in percent."""
    return lambda run: 100 * run[when]["test_accuracy"] if run[when] else None
