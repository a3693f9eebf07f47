"""Estimates over seeds with 95 % confidence intervals, compared with what a claim says; all thresholds are here."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

from scipy import stats

from neuralpath.papers.experiments import (
    DataSpec,
    Paired,
    Printed,
    Results,
    Seeds,
    Spread,
    When,
    accuracies,
    accuracy,
    paired,
)

CONFIDENCE = 0.95
"""Level of the confidence intervals."""

SIGMAS = 3.0
"""Standard errors beyond which a comparison says that something is above, or outside its bounds."""

MARGIN = 1.0
"""Standard errors that a mean must be inside its bounds to support a claim, or outside to be doubtful."""

MIN_SEEDS = 3
"""Seeds that a comparison needs to count. CIFAR-10 is exempt; its number of seeds is printed."""

SINGLE_RUN_DEVIATION = 0.5
"""Points of deviation between seeds, assumed for a single run: the mean of P1 table 2 on CIFAR-10."""

SINGLE_SEED_ERROR = 0.7
"""Points of error assumed for the difference of two single runs: √2 times the deviation."""

NAMED_DIFFERENCE = 0.3
"""Points: a smaller difference is not worth naming; ReLU and FL on MNIST print 98.14 and 97.82. Chosen here."""

RECOVERED = 1.0
"""Points that FL may be below the network that its gates come from (C9)."""

DECOUPLED = 3.0
"""Points that DL, and linear gates, may be below ReLU (C27, C28, C34)."""

NO_DIFFERENCE = 0.5
"""Points between FR-II and FR-DI; the papers' own tables differ by as much (C10)."""

ABOVE_GUESSING = 20.0
"""Per cent, with ten classes, that random gates must exceed to generalize (C8): twice the accuracy of guessing, with
which P2 section 6 compares them. Chosen here."""

REFERENCE_FITTED = 90.0
"""Per cent of its training labels that a ReLU network must fit to be a reference (C9, C25, C27, C34), as in C14. The
papers' networks fit about all; a network that is hardly trained is easily matched. Chosen here."""

ROBUST = {"mnist": 1.0, "cifar10": 3.0}
"""Points by which orders of gates, tilings and inputs may move an accuracy that still counts as the same (C23 to C25,
C28, C30). The papers say "robust" without a number. Chosen here: the 3 % of C27 on CIFAR-10, the 1 % of C9 on MNIST."""

MIN_ORDERS = 6
"""Orders of the gates that a comparison over orders needs to count (C23, C24)."""

RANDOM_LABELS_COST = 2.0
"""Points that training on random labels with fixed gates may cost: "less than 2 %" (C31)."""

SAME_GATES = 0.5
"""Points between M4 and M5: "within 0.5 %" (C32)."""

PEAK = 1.0
"""Points that the test accuracy must fall from its peak on noisy labels (C33). Chosen here."""

FAR_ABOVE = 5.0
"""Points that M2 must be above the end of M1: "far above" (C33). Chosen here; the papers print 11.6 to 40.5."""

FITTED = 0.1
"""Share of the first error at which random labels count as fitted (C15). Chosen here, of the two shares in the records:
a few directions make half of the error, and steps to half do not separate the depths of wide networks."""

ONE_SCALE = 10.0
"""Factor within which two sizes are of one scale (C13). Chosen here."""

NEAR_LIMIT = 0.1
"""Relative distance from a limit at the largest width (C16, C17, C35). Chosen here."""

ROOT_LAW = -0.4
"""Largest power of the width that counts as a fall like 1 / sqrt(width), with a margin of 0.1 (C36)."""

MEAN_OFF = 1.0
"""Standard errors that the mean of draws may be off its expectation, in the median over entries; 0.67 is exact (C4)."""

HALF_THE_DISTANCE = 0.5
"""Share of the first layer's distance from 1/2 that may remain at the last layer (C29). Chosen here."""

KERNEL_ACCURACY = 1.0
"""Points between a wide value network and its kernel (C37). Chosen here."""

LEAST_SQUARES = 1.8
"""Least sum of squares of a network without biases on the pair (x, 1), (x / 2, -1) (C2)."""

A_FACTOR = "a factor of"
"""Unit of comparisons by logarithms: the second quantity is the first times this factor."""

_SMALLEST = 1e-12
"""Floor for quantities that are 0 or rounding noise, before their logarithm."""

Outcome = Literal["supports", "contradicts", "doubtful", "inconclusive"]
"""Result of one comparison; `doubtful`: the estimate contradicts the claim, and noise may still explain it."""

Values = Mapping[int, float]
"""A quantity by seed."""


@dataclass(frozen=True)
class Comparison:
    """One estimate of ours in one setting, beside the papers' figure if they print one."""

    where: str
    """The setting, such as ``mnist fc-w128-d6 Adam``."""
    ours: str
    outcome: Outcome
    paper: str = ""
    difference: str = ""
    value: float | None = None
    """Our figure as a number, for summaries of several comparisons."""
    printed: float | None = None
    """The papers' figure as a number."""
    _: KW_ONLY
    unit: str = ""
    """Unit of the value if it is not that of the part's name, such as ``a factor of``."""
    excluded: str = ""
    """Why the comparison does not count, such as too few seeds; empty if it counts."""

    @property
    def counts(self) -> bool:
        """Whether it supports or contradicts the claim and is not excluded."""
        return self.outcome in ("supports", "contradicts") and not self.excluded

    @property
    def is_doubtful(self) -> bool:
        """Whether it keeps the claim from holding everywhere without contradicting it."""
        return self.outcome == "doubtful" and not self.excluded


def interval(estimate: Spread) -> tuple[float, float] | None:
    """The 95 % confidence interval of a mean over seeds, by Student's t; None for a single seed.

    >>> [round(end, 3) for end in interval(Spread.of([1.0, 2.0, 3.0]))]
    [-0.484, 4.484]
    """
    if estimate.error is None or estimate.n < 2:
        return None
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, estimate.n - 1)) * estimate.error
    return estimate.mean - half, estimate.mean + half


def false_alarms(sigmas: float, n: int) -> float:
    """Probability that the mean of n normal values is off by more than this many of its own standard errors.

    >>> round(false_alarms(3.0, 3), 3), round(false_alarms(3.0, 24), 4)
    (0.095, 0.0064)
    """
    return 2 * float(stats.t.sf(sigmas, n - 1))


def within(estimate: Spread, low: float, high: float, *, single: float = math.inf) -> Outcome:
    """Whether a mean lies within bounds.

    Args:
        estimate: The mean over seeds.
        low: Lower bound.
        high: Upper bound.
        single: Standard error to assume for a single seed.

    Returns:
        ``supports`` if the mean is inside by 1 standard error, so an error wider than the bounds never supports;
        ``contradicts`` if it is outside by more than 3, ``doubtful`` if by more than 1, otherwise ``inconclusive``.
    """
    error = single if estimate.error is None else estimate.error
    if low <= estimate.mean - MARGIN * error and estimate.mean + MARGIN * error <= high:
        return "supports"
    outside = max(low - estimate.mean, estimate.mean - high)
    if outside > SIGMAS * error:
        return "contradicts"
    return "doubtful" if outside > MARGIN * error else "inconclusive"


def above(estimate: Spread, floor: float = 0.0, *, named: float = 0.0, single: float = math.inf) -> Outcome:
    """Whether a mean is above a floor.

    Args:
        estimate: The mean over seeds.
        floor: Value that the mean must exceed.
        named: With a floor of 0: the least difference worth naming.
        single: Standard error to assume for a single seed.

    Returns:
        ``supports`` if the mean is above by more than 3 standard errors; ``contradicts`` if 3 more would not bring it
        to the floor (to ``named`` with a floor of 0); ``doubtful`` if it is below by more than 1, otherwise
        ``inconclusive``.
    """
    error = single if estimate.error is None else estimate.error
    if estimate.mean - SIGMAS * error > floor:
        return "supports"
    if estimate.mean + SIGMAS * error < (named if floor == 0 else floor):
        return "contradicts"
    return "doubtful" if estimate.mean + MARGIN * error < floor else "inconclusive"


def robust(data: DataSpec) -> float:
    """Points within which two accuracies on these data count as the same."""
    return ROBUST.get(data.name, max(ROBUST.values()))


def counted(n: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{n} {noun}" + ("" if n == 1 else "s")


def too_few(data: DataSpec | None, n: int, *, least: int = MIN_SEEDS, noun: str = "seed") -> str:
    """Why this many runs are too few to count; empty if they suffice. ``data`` is None for random inputs."""
    if n >= least or (data is not None and data.name.startswith("cifar") and noun == "seed"):
        return ""
    return f"{counted(n, noun)} of the {least} that are needed"


def points(estimate: Spread, noun: str = "seed") -> str:
    """A difference of accuracies in points, with its interval."""
    ends = interval(estimate)
    shown = "" if ends is None else f" [{ends[0]:+.2f}, {ends[1]:+.2f}]"
    return f"{estimate.mean:+.2f}{shown} ({counted(estimate.n, noun)})"


def number(estimate: Spread) -> str:
    """A mean with its interval, to three digits."""
    ends = interval(estimate)
    shown = "" if ends is None else f" [{ends[0]:.3g}, {ends[1]:.3g}]"
    return f"{estimate.mean:.3g}{shown} ({counted(estimate.n, 'seed')})"


def ratio(fall: Spread, suffix: str = "") -> str:
    """The factor that belongs to a fall of logarithms, with its interval; empty for a single seed."""
    ends = interval(fall)
    if ends is None:
        return ""
    return f", ratio {math.exp(-fall.mean):.3g} [{math.exp(-ends[1]):.3g}, {math.exp(-ends[0]):.3g}]{suffix}"


def difference(
    first: Seeds, second: Seeds, results: Results, when: When = "best", second_when: When | None = None
) -> Paired | None:
    """First minus second accuracy in points, paired by seed; None if no seed has both."""
    return paired(accuracies(first, results, when), accuracies(second, results, second_when or when))


def printed_difference(first: Printed | None, second: Printed | None) -> float | None:
    """The papers' first minus second accuracy in points."""
    return None if first is None or second is None else first.accuracy - second.accuracy


def is_within(
    data: DataSpec,
    where: str,
    pair: Paired | None,
    low: float,
    high: float = math.inf,
    printed: float | None = None,
    excluded: str = "",
) -> list[Comparison]:
    """Compare a difference of accuracies with bounds; empty if no seed has both accuracies.

    Args:
        data: Data of the runs.
        where: The setting.
        pair: The difference.
        low: Lower bound in points.
        high: Upper bound in points.
        printed: The papers' difference.
        excluded: Why the comparison does not count.
    """
    if pair is None:
        return []
    outcome = within(pair.difference, low, high, single=SINGLE_SEED_ERROR)
    return [_of_points(data, where, pair.difference, outcome, printed, excluded)]


def is_above(
    data: DataSpec,
    where: str,
    pair: Paired | None,
    printed: float | None = None,
    floor: float = 0.0,
    excluded: str = "",
) -> list[Comparison]:
    """Compare a difference of accuracies with a floor; arguments as of `is_within`."""
    if pair is None:
        return []
    outcome = above(pair.difference, floor, named=NAMED_DIFFERENCE, single=SINGLE_SEED_ERROR)
    return [_of_points(data, where, pair.difference, outcome, printed, excluded)]


def _of_points(
    data: DataSpec, where: str, estimate: Spread, outcome: Outcome, printed: float | None, excluded: str
) -> Comparison:
    return Comparison(
        where,
        points(estimate),
        outcome,
        "" if printed is None else f"{printed:+.2f}",
        "" if printed is None else f"{estimate.mean - printed:+.2f}",
        estimate.mean,
        printed,
        excluded=excluded or too_few(data, estimate.n),
    )


def fitted(runs: Seeds, results: Results) -> Spread | None:
    """Per cent of their own training labels that runs have fitted at the end."""
    return accuracy(runs, results, "last", "train_accuracy")


def with_fit(comparisons: Iterable[Comparison], name: str, share: Spread | None) -> list[Comparison]:
    """Add to comparisons how much of its training labels a network has fitted."""
    shown = "" if share is None else f", {name} fitted {share.mean:.1f} %"
    return [replace(one, ours=one.ours + shown) for one in comparisons]


def against_fitted_relu(
    comparisons: Iterable[Comparison], relu: Seeds, name: str, other: Seeds, results: Results
) -> list[Comparison]:
    """Add what both networks have fitted, and exclude comparisons with a ReLU network that has fitted too little."""
    share = fitted(relu, results)
    shown = with_fit(with_fit(comparisons, "ReLU", share), name, fitted(other, results))
    if share is None or share.mean >= REFERENCE_FITTED:
        return shown
    reason = f"the ReLU network has fitted less than {REFERENCE_FITTED:g} % of its training labels"
    return [replace(one, excluded=one.excluded or reason) for one in shown]


def is_smaller(where: str, first: Values, second: Values) -> list[Comparison]:
    """Compare the logarithms of two positive quantities by seed: is the first smaller? Empty if no seed has both."""
    pair = paired(_logarithms(second), _logarithms(first))
    if pair is None:
        return []
    fall = pair.difference
    start, end = (Spread.of([values[seed] for seed in pair.seeds]).mean for values in (second, first))
    ours = f"{start:.3g} to {end:.3g}{ratio(fall)} ({counted(fall.n, 'seed')})"
    factor = math.exp(-fall.mean)
    return [Comparison(where, ours, above(fall), value=factor, unit=A_FACTOR, excluded=too_few(None, fall.n))]


def _logarithms(values: Values) -> dict[int, float]:
    return {seed: math.log(max(value, _SMALLEST)) for seed, value in values.items()}


def lies_within(where: str, values: Values, low: float, high: float) -> list[Comparison]:
    """Compare the mean of a quantity over seeds with bounds; empty without a value."""
    if not values:
        return []
    mean = Spread.of(list(values.values()))
    return [Comparison(where, number(mean), within(mean, low, high), value=mean.mean, excluded=too_few(None, mean.n))]


def is_exact(where: str, ours: str, holds: bool, n_seeds: int) -> list[Comparison]:
    """A statement that every run must satisfy exactly; empty without a run."""
    if not n_seeds:
        return []
    return [Comparison(where, ours, "supports" if holds else "contradicts", excluded=too_few(None, n_seeds))]
