"""Estimates over seeds with 95 % confidence intervals, compared with what a claim says; all thresholds are here."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from scipy import stats

from neuralpath.papers.experiments import DataSpec, Printed, Results, Seeds, Spread, accuracy, paired

# Intervals and errors, in standard errors or in points of accuracy
CONFIDENCE = 0.95  # level of the confidence intervals
SIGMAS = 3.0  # standard errors beyond which a comparison says that something is above, or outside its bounds
MARGIN = 1.0  # standard errors that a mean must be inside its bounds to support a claim, or outside to be doubtful
MIN_SEEDS = 3  # seeds that a comparison needs to count; CIFAR-10 is exempt, its number of seeds is printed
MIN_ORDERS = 6  # orders of the gates that a comparison over orders needs to count (C23, C24)
SINGLE_RUN_DEVIATION = 0.5  # points between seeds, assumed for a single run: the mean of P1 table 2 on CIFAR-10
SINGLE_SEED_ERROR = 0.7  # points of error assumed for the difference of two single runs: √2 times the deviation

# Bounds in points of accuracy. Those that the papers do not name say "chosen here".
NAMED_DIFFERENCE = 0.3  # a smaller one is not worth naming; ReLU and FL on MNIST print 98.14 and 97.82; chosen here
RECOVERED = 1.0  # FL may be this far below the network that its gates come from (C9)
DECOUPLED = 3.0  # DL, and linear gates, may be this far below ReLU (C27, C28, C34)
NO_DIFFERENCE = 0.5  # between FR-II and FR-DI; the papers' own tables differ by as much (C10)
RANDOM_LABELS_COST = 2.0  # training on random labels with fixed gates may cost this: "less than 2 %" (C31)
SAME_GATES = 0.5  # between M4 and M5: "within 0.5 %" (C32)
PEAK = 1.0  # the test accuracy must fall this far from its peak on noisy labels (C33); chosen here
FAR_ABOVE = 5.0  # M2 above the end of M1: "far above" (C33); chosen here, the papers print 11.6 to 40.5
KERNEL_ACCURACY = 1.0  # between a wide value network and its kernel (C37); chosen here
# Per cent, with ten classes, that random gates must exceed to generalize (C8): twice the accuracy of guessing, with
# which P2 section 6 compares them. Chosen here.
ABOVE_GUESSING = 20.0
# Per cent of its training labels that a ReLU network must fit to be a reference (C9, C25, C27, C34), as in C14. The
# papers' networks fit about all; a network that is hardly trained is easily matched. Chosen here.
REFERENCE_FITTED = 90.0
# Orders of gates, tilings and inputs may move an accuracy this far, and it counts as the same (C23 to C25, C28, C30).
# The papers say "robust" without a number. Chosen here: the 3 % of C27 on CIFAR-10, the 1 % of C9 on MNIST.
ROBUST = {"mnist": 1.0, "cifar10": 3.0}

# Other bounds
ONE_SCALE = 10.0  # factor within which two sizes are of one scale (C13); chosen here
NEAR_LIMIT = 0.1  # relative distance from a limit at the largest width (C16, C17, C35); chosen here
ROOT_LAW = -0.4  # largest power of the width that counts as a fall like 1 / sqrt(width), with a margin of 0.1 (C36)
MEAN_OFF = 1.0  # standard errors that the mean of draws may be off, in the median over entries; 0.67 is exact (C4)
HALF_THE_DISTANCE = 0.5  # share of the first layer's distance from 1/2 that may remain at the last (C29); chosen here
LEAST_SQUARES = 1.8  # least sum of squares of a network without biases on the pair (x, 1), (x / 2, -1) (C2)
# Share of the first error at which random labels count as fitted (C15). Chosen here, of the two shares in the records:
# a few directions make half of the error, and steps to half do not separate the depths of wide networks.
FITTED = 0.1

_SMALLEST = 1e-12  # floor for quantities that are 0 or rounding noise, before their logarithm

Outcome = Literal["supports", "contradicts", "doubtful", "inconclusive"]
"""Result of one comparison; `doubtful`: the estimate contradicts the claim, and noise may still explain it."""

Values = Mapping[int, float]
"""A quantity by seed."""


@dataclass(frozen=True)
class Comparison:
    """One estimate of ours in one setting, such as ``mnist fc-w128-d6 Adam``, beside the papers' figure if any."""

    where: str
    ours: str
    outcome: Outcome
    paper: str = ""
    difference: str = ""
    value: float | None = None
    """Our figure as a number, for summaries of several comparisons."""
    printed: float | None = None
    """The papers' figure as a number."""
    unit: str = ""
    """Unit of the value if it is not that of the part's name, such as ``a factor of``."""
    excluded: str = ""
    """Why it does not count, if it does not."""

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


def beside(value: float, printed: float | None, form: str = ".2f") -> dict[str, Any]:
    """Entries of a comparison: our figure as a number, and the papers' figure, if any, with the difference from it."""
    texts = {} if printed is None else {"paper": f"{printed:{form}}", "difference": f"{value - printed:+.2f}"}
    return {"value": value, "printed": printed, **texts}


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
    """Whether a mean lies within bounds; ``single`` is the standard error to assume for a single seed.

    It ``supports`` this if it is inside by 1 standard error, so an error wider than the bounds never supports;
    ``contradicts`` if it is outside by more than 3, is ``doubtful`` if by more than 1, otherwise ``inconclusive``.
    """
    error = single if estimate.error is None else estimate.error
    if low <= estimate.mean - MARGIN * error and estimate.mean + MARGIN * error <= high:
        return "supports"
    outside = max(low - estimate.mean, estimate.mean - high)
    if outside > SIGMAS * error:
        return "contradicts"
    return "doubtful" if outside > MARGIN * error else "inconclusive"


def above(estimate: Spread, floor: float = 0.0, *, named: float = 0.0, single: float = math.inf) -> Outcome:
    """Whether a mean is above a floor; ``named`` is the least difference worth naming, with a floor of 0.

    It ``supports`` this if it is above by more than 3 standard errors; ``contradicts`` if 3 more would not bring it to
    the floor (to ``named`` with a floor of 0); is ``doubtful`` if below by more than 1, otherwise ``inconclusive``.
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

    >>> counted(1, "seed"), counted(2000, "run")
    ('1 seed', '2,000 runs')
    """
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def too_few(data: DataSpec | None, n: int, *, least: int = MIN_SEEDS, noun: str = "seed") -> str:
    """Why this many runs are too few to count; empty if they suffice. ``data`` is None for random inputs."""
    if n >= least or (data is not None and data.name.startswith("cifar") and noun == "seed"):
        return ""
    return f"{counted(n, noun)} of the {least} that are needed"


def with_interval(estimate: Spread, form: str = "+.2f", noun: str = "seed") -> str:
    """A mean with its interval, by default a difference of accuracies in points."""
    ends = interval(estimate)
    shown = "" if ends is None else f" [{ends[0]:{form}}, {ends[1]:{form}}]"
    return f"{estimate.mean:{form}}{shown} ({counted(estimate.n, noun)})"


def difference(first: Values, second: Values) -> Spread | None:
    """First minus second, paired by seed; None if no seed has both."""
    pair = paired(first, second)
    return None if pair is None else pair.difference


def printed_difference(first: Printed | None, second: Printed | None) -> float | None:
    """The papers' first minus second accuracy in points."""
    return None if first is None or second is None else first.accuracy - second.accuracy


@dataclass(frozen=True)
class Gap:
    """A difference of accuracies in points, which is compared with bounds or a floor; None if no seed has both."""

    data: DataSpec
    where: str
    estimate: Spread | None
    printed: float | None = None
    """The papers' difference."""
    excluded: str = ""
    """Why the comparison does not count."""
    noun: Literal["seed", "order"] = "seed"
    """The accuracies are paired by seeds, or by orders of the gates."""

    def within(self, low: float, high: float = math.inf) -> list[Comparison]:
        """Compare it with bounds; empty if there is no difference."""
        estimate = self.estimate
        return [] if estimate is None else self._compared(within(estimate, low, high, single=SINGLE_SEED_ERROR))

    def above(self, floor: float = 0.0, named: float = NAMED_DIFFERENCE) -> list[Comparison]:
        """Compare it with a floor; empty if there is no difference."""
        if self.estimate is None:
            return []
        return self._compared(above(self.estimate, floor, named=named, single=SINGLE_SEED_ERROR))

    def _compared(self, outcome: Outcome) -> list[Comparison]:
        assert self.estimate is not None
        figures = beside(self.estimate.mean, self.printed, "+.2f")
        least = MIN_SEEDS if self.noun == "seed" else MIN_ORDERS
        few = self.excluded or too_few(self.data, self.estimate.n, least=least, noun=self.noun)
        text = with_interval(self.estimate, noun=self.noun)
        return [Comparison(self.where, text, outcome, **figures, excluded=few)]


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


def falls_by(where: str, change: str, fall: Spread, outcome: Outcome, suffix: str = "") -> list[Comparison]:
    """A comparison of logarithms: the second quantity is the first times a factor, whose logarithm falls by so much."""
    ends, factor = interval(fall), math.exp(-fall.mean)
    ratio = "" if ends is None else f", ratio {factor:.3g} [{math.exp(-ends[1]):.3g}, {math.exp(-ends[0]):.3g}]{suffix}"
    ours = f"{change}{ratio} ({counted(fall.n, 'seed')})"
    return [Comparison(where, ours, outcome, value=factor, unit="a factor of", excluded=too_few(None, fall.n))]


def is_smaller(where: str, first: Values, second: Values) -> list[Comparison]:
    """Compare the logarithms of two positive quantities by seed: is the first smaller? Empty if no seed has both."""
    logarithms = (
        {seed: math.log(max(value, _SMALLEST)) for seed, value in values.items()} for values in (second, first)
    )
    if (pair := paired(*logarithms)) is None:
        return []
    start, end = (Spread.of([values[seed] for seed in pair.seeds]).mean for values in (second, first))
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
