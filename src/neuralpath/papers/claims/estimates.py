"""Estimates over seeds with 95 % confidence intervals, compared with what a claim says."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from scipy import stats

from neuralpath.papers.claims import bounds
from neuralpath.papers.experiments import DataSpec, Printed, Results, Seeds, Spread, accuracy, paired

Outcome = Literal["supports", "contradicts", "doubtful", "inconclusive"]
"""Result of one comparison; `doubtful`: the estimate contradicts the claim, and noise may still explain it."""

Values = Mapping[int, float]  # a quantity by seed


@dataclass(frozen=True)
class Comparison:
    """One estimate of ours in one setting, such as ``mnist fc-w128-d6 Adam``, beside the papers' figure if any."""

    where: str
    ours: str
    outcome: Outcome
    paper: str = ""
    difference: str = ""
    value: float | None = None  # our figure as a number, for summaries of several comparisons
    printed: float | None = None  # the papers' figure as a number
    unit: str = ""  # of the value, if it is not that of the part's name: such as ``a factor of``
    excluded: str = ""  # why it does not count, if it does not

    @property
    def counts(self) -> bool:
        """Whether it supports or contradicts the claim and is not excluded."""
        return self.outcome in ("supports", "contradicts") and not self.excluded

    @property
    def contradicts(self) -> bool:
        """Whether it contradicts the claim and is not excluded."""
        return self.outcome == "contradicts" and not self.excluded

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
    half = float(stats.t.ppf(0.5 + bounds.CONFIDENCE / 2, estimate.n - 1)) * estimate.error
    return estimate.mean - half, estimate.mean + half


def false_alarms(sigmas: float, n: int) -> float:
    """Probability that the mean of n normal values is off by more than this many of its own standard errors.

    >>> round(false_alarms(3.0, 3), 3), round(false_alarms(3.0, 24), 4)
    (0.095, 0.0064)
    """
    return 2 * float(stats.t.sf(sigmas, n - 1))


def within(estimate: Spread, low: float, high: float, *, single: float = math.inf) -> Outcome:
    """Whether a mean lies within bounds; ``single`` is the standard error to assume for a single seed."""
    error = single if estimate.error is None else estimate.error
    if low <= estimate.mean - bounds.MARGIN * error and estimate.mean + bounds.MARGIN * error <= high:
        return "supports"
    outside = max(low - estimate.mean, estimate.mean - high)
    if outside > bounds.SIGMAS * error:
        return "contradicts"
    return "doubtful" if outside > bounds.MARGIN * error else "inconclusive"


def above(estimate: Spread, floor: float = 0.0, *, named: float = 0.0, single: float = math.inf) -> Outcome:
    """Whether a mean is above a floor; ``named`` is the least difference worth naming, with a floor of 0."""
    error = single if estimate.error is None else estimate.error
    if estimate.mean - bounds.SIGMAS * error > floor:
        return "supports"
    if estimate.mean + bounds.SIGMAS * error < (named if floor == 0 else floor):
        return "contradicts"
    return "doubtful" if estimate.mean + bounds.MARGIN * error < floor else "inconclusive"


def robust(data: DataSpec) -> float:
    """Points within which two accuracies on these data count as the same."""
    return bounds.ROBUST.get(data.name, max(bounds.ROBUST.values()))


def counted(n: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "seed"), counted(2000, "run")
    ('1 seed', '2,000 runs')
    """
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def too_few(data: DataSpec | None, n: int, *, least: int = bounds.MIN_SEEDS, noun: str = "seed") -> str:
    """Why this many runs are too few to count; empty if they suffice. ``data`` is None for random inputs."""
    if n >= least or (data is not None and data.name.startswith("cifar") and noun == "seed"):
        return ""
    return f"{counted(n, noun)} of the {least} that are needed"


def with_interval(estimate: Spread, form: str = "+.2f", noun: str = "seed") -> str:
    """A mean with its interval, by default a difference of accuracies in points."""
    ends = interval(estimate)
    brackets = "" if ends is None else f" [{ends[0]:{form}}, {ends[1]:{form}}]"
    return f"{estimate.mean:{form}}{brackets} ({counted(estimate.n, noun)})"


def beside(value: float, printed: float | Printed | None, form: str = ".2f") -> dict[str, Any]:
    """Entries of a comparison: our figure as a number, and the papers' figure, if any, with the difference from it."""
    printed = printed.accuracy if isinstance(printed, Printed) else printed
    texts = {} if printed is None else {"paper": f"{printed:{form}}", "difference": f"{value - printed:+.2f}"}
    return {"value": value, "printed": printed, **texts}


def printed_difference(first: Printed | None, second: Printed | None) -> float | None:
    """The papers' first minus second accuracy in points."""
    return None if first is None or second is None else first.accuracy - second.accuracy


@dataclass(frozen=True)
class Gap:
    """A difference of accuracies in points, which is compared with bounds or a floor."""

    data: DataSpec
    where: str
    estimate: Spread | None  # None if no seed has both accuracies; then there is no comparison
    printed: float | None = None  # the papers' difference
    excluded: str = ""  # why the comparison does not count
    noun: Literal["seed", "order"] = "seed"  # what the accuracies are paired by; orders are those of the gates

    @staticmethod
    def between(data: DataSpec, where: str, first: Values, second: Values, **fields: Any) -> "Gap":
        """First minus second, paired by seed (or order); ``fields`` are further fields."""
        pair = paired(first, second)
        return Gap(data, where, None if pair is None else pair.difference, **fields)

    def within(self, low: float, high: float = math.inf) -> list[Comparison]:
        """Compare it with bounds."""
        return self._compared(lambda estimate: within(estimate, low, high, single=bounds.SINGLE_SEED_ERROR))

    def above(self, floor: float = 0.0, named: float = bounds.NAMED_DIFFERENCE) -> list[Comparison]:
        """Compare it with a floor."""
        return self._compared(lambda estimate: above(estimate, floor, named=named, single=bounds.SINGLE_SEED_ERROR))

    def _compared(self, judge: Callable[[Spread], Outcome]) -> list[Comparison]:
        estimate = self.estimate
        if estimate is None:
            return []
        least = bounds.MIN_SEEDS if self.noun == "seed" else bounds.MIN_ORDERS
        few = self.excluded or too_few(self.data, estimate.n, least=least, noun=self.noun)
        figures, text = beside(estimate.mean, self.printed, "+.2f"), with_interval(estimate, noun=self.noun)
        return [Comparison(self.where, text, judge(estimate), **figures, excluded=few)]


def with_fit(comparisons: Iterable[Comparison], name: str, runs: Seeds, results: Results) -> list[Comparison]:
    """Add to comparisons how much of their training labels runs have fitted."""
    share = accuracy(runs, results, "last", "train_accuracy")
    suffix = "" if share is None else f", {name} fitted {share.mean:.1f} %"
    return [replace(comparison, ours=comparison.ours + suffix) for comparison in comparisons]


def against_fitted_relu(
    comparisons: Iterable[Comparison], relu: Seeds, name: str, other: Seeds, results: Results
) -> list[Comparison]:
    """Add what both networks have fitted, and exclude comparisons with a ReLU network that has fitted too little."""
    compared = with_fit(with_fit(comparisons, "ReLU", relu, results), name, other, results)
    share = accuracy(relu, results, "last", "train_accuracy")
    if share is None or share.mean >= bounds.REFERENCE_FITTED:
        return compared
    reason = f"the ReLU network has fitted less than {bounds.REFERENCE_FITTED:g} % of its training labels"
    return [replace(comparison, excluded=comparison.excluded or reason) for comparison in compared]


def falls_by(where: str, change: str, fall: Spread, outcome: Outcome, suffix: str = "") -> list[Comparison]:
    """A comparison of logarithms: the second quantity is the first times a factor, whose logarithm is ``-fall``."""
    ends, factor = interval(fall), math.exp(-fall.mean)
    ratio = "" if ends is None else f", ratio {factor:.3g} [{math.exp(-ends[1]):.3g}, {math.exp(-ends[0]):.3g}]{suffix}"
    ours = f"{change}{ratio} ({counted(fall.n, 'seed')})"
    return [Comparison(where, ours, outcome, value=factor, unit="a factor of", excluded=too_few(None, fall.n))]


def is_smaller(where: str, first: Values, second: Values) -> list[Comparison]:
    """Compare the logarithms of two positive quantities by seed: is the first smaller? Empty if no seed has both."""
    both = (second, first)
    pair = paired(*({seed: math.log(max(value, bounds.SMALLEST)) for seed, value in v.items()} for v in both))
    if pair is None:
        return []
    start, end = (Spread.of([values[seed] for seed in pair.seeds]).mean for values in both)
    return falls_by(where, f"{start:.3g} to {end:.3g}", pair.difference, above(pair.difference))


def lies_within(where: str, values: Values, low: float, high: float) -> list[Comparison]:
    """Compare the mean of a quantity over seeds with bounds; empty without a value."""
    if not values:
        return []
    mean = Spread.of(list(values.values()))
    ours, outcome = with_interval(mean, ".3g"), within(mean, low, high)
    return [Comparison(where, ours, outcome, value=mean.mean, excluded=too_few(None, mean.n))]


def is_exact(where: str, ours: str, holds: bool, n_seeds: int) -> list[Comparison]:
    """A statement that every run must satisfy exactly; empty without a run."""
    if not n_seeds:
        return []
    return [Comparison(where, ours, "supports" if holds else "contradicts", excluded=too_few(None, n_seeds))]
