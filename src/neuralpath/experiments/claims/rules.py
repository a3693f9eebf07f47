"""The rules of the verdicts, with every threshold in this one place."""

import math

from neuralpath.experiments.claim_verdict import Verdict
from neuralpath.experiments.claims.checks import Aspect, Outcome
from neuralpath.experiments.specs import DataSpec
from neuralpath.experiments.statistics import Spread

SIGMAS = 3.0
"""Standard errors beyond which a difference is no chance."""

MIN_SEEDS = 3
"""Seeds that a check needs to decide, but on CIFAR-10, where the number is told."""

SINGLE_SEED_ERROR = 0.7
"""Points: the error of a difference of two single runs, √2 times 0.5, the mean spread of P1 table 2 on CIFAR-10."""

NAMED_DIFFERENCE = 0.3
"""Points: a difference below this is none worth naming; ReLU and FL on MNIST print 98.14 and 97.82. Chosen here."""

RECOVERED = 1.0
"""Points by which FL may be below the network that its gates come from (C9)."""

DECOUPLED = 3.0
"""Points by which DL, and linear gates, may be below ReLU (C27, C28, C34)."""

NO_DIFFERENCE = 0.5
"""Points: FR-II and FR-DI differ by up to so much in the papers' own tables (C10)."""

FAR_ABOVE_CHANCE = 50.0
"""Per cent, with ten classes, from which on random gates are said to generalise (C8). Chosen here."""

ROBUST = {"mnist": 1.0, "cifar10": 3.0}
"""Points by which orders of gates, tilings and inputs may move the accuracy and it still is the same (C23 to C25, C28,
C30). Chosen here, since the papers say "robust" without a number: the 3 % of C27 on CIFAR-10, the 1 % of C9 on MNIST.
"""

MIN_ORDERS = 6
"""Orders of the gates that a check over orders needs (C23, C24)."""

RANDOM_LABELS_COST = 2.0
"""Points that training on random labels behind fixed gates may cost: "less than 2 %" (C31)."""

SAME_GATES = 0.5
"""Points between M4 and M5: "within 0.5 %" (C32)."""

PEAK = 1.0
"""Points that the test accuracy must fall from its peak on noisy labels (C33). Chosen here."""

FAR_ABOVE = 5.0
"""Points by which M2 must be above the end of M1: "far above" (C33). Chosen here; the papers print 11.6 to 40.5."""

ONE_SCALE = 10.0
"""Factor within which two sizes are of one scale (C13). Chosen here."""

NEAR_LIMIT = 0.1
"""Relative distance from a limit, at the largest width (C16, C17, C35). Chosen here."""

ROOT_LAW = -0.4
"""A power of the width up to which something falls as 1 / sqrt(width), with 0.1 to spare (C36)."""

MEAN_OFF = 1.0
"""Standard errors that the mean of draws may be off its expectation, in the median over entries; 0.67 is exact (C4)."""

HALF_THE_WAY = 0.5
"""Share of the first layer's distance from 1/2 that may be left at the last layer (C29). Chosen here."""

KERNEL_ACCURACY = 1.0
"""Points between a wide value network and its kernel (C37). Chosen here."""

LEAST_SQUARES = 1.8
"""Sum of squares below which no network without biases can bring the pair (x, 1), (x / 2, -1) (C2)."""


def robust(data: DataSpec) -> float:
    """Points within which two accuracies on these data are the same."""
    return ROBUST.get(data.name, max(ROBUST.values()))


def too_few(data: DataSpec | None, n: int, *, least: int = MIN_SEEDS, what: str = "seed") -> str:
    """Why so many runs do not decide; empty where they do. None stands for runs on drawn inputs."""
    if n >= least or (data is not None and data.name.startswith("cifar") and what == "seed"):
        return ""
    return f"{n} {what}{'' if n == 1 else 's'} of the {least} that are needed"


def error_of(ours: Spread, single: float = math.inf) -> float:
    """The standard error; of a single run the one that is assumed for it."""
    return single if ours.error is None else ours.error


def within(ours: Spread, low: float, high: float, *, single: float = math.inf) -> Outcome:
    """Yes if the mean lies within the bounds, no if it is outside by more than 3 standard errors, otherwise open.

    It is open too where the standard error is larger than the bounds are wide (half of it; with one bound, its distance
    from 0, unless it is 0): then the runs could not tell.
    """
    error = error_of(ours, single)
    width = (high - low) / 2 if math.isfinite(high - low) else min(abs(low), abs(high)) or math.inf
    if low <= ours.mean <= high:
        return "yes" if error <= width else "open"
    outside = max(low - ours.mean, ours.mean - high)
    return "no" if outside > SIGMAS * error else "open"


def above(ours: Spread, floor: float = 0.0, *, named: float = 0.0, single: float = math.inf) -> Outcome:
    """Yes if the mean is above the floor by more than 3 standard errors.

    No if 3 standard errors more would still not bring it to the smallest difference that one would name; else open.
    """
    error = SIGMAS * error_of(ours, single)
    if ours.mean - error > floor:
        return "yes"
    return "no" if ours.mean + error < floor + named else "open"


def exactly(holds: bool) -> Outcome:
    """Of a statement that knows no chance."""
    return "yes" if holds else "no"


def verdict_of(aspects: tuple[Aspect, ...]) -> Verdict:
    """The verdict in its four words.

    Holds: every aspect was tested, and all checks that decide say yes. Does not hold: all that decide say no. Holds in
    part: some say yes and some no, or some aspects hold and others were not tested. Otherwise it is not tested here.
    """
    outcomes: set[Outcome] = {outcome for aspect in aspects for outcome in aspect.outcomes}
    if not outcomes:
        return "not tested here"
    if outcomes == {"no"}:
        return "does not hold"
    is_whole = all(aspect.outcomes for aspect in aspects)
    return "holds" if outcomes == {"yes"} and is_whole else "holds in part"
