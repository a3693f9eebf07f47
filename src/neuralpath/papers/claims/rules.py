"""The rules of the verdicts, with every threshold in this one directory."""

import math

from neuralpath.papers.claims.checks import Aspect, Outcome
from neuralpath.papers.claims.claim_verdict import Verdict
from neuralpath.papers.experiments import DataSpec, Spread

SIGMAS = 3.0
"""Standard errors beyond which a check says that something is above, or outside of its bounds."""

MARGIN = 1.0
"""Standard errors by which a mean must be inside its bounds for a check to say so, or outside for it to be doubtful."""

MIN_SEEDS = 3
"""Seeds that a check needs to decide, but on CIFAR-10, where the number is told."""

SINGLE_RUN_DEVIATION = 0.5
"""Points by which runs of several seeds are taken to spread where there is one: the mean of P1 table 2 on CIFAR-10."""

SINGLE_SEED_ERROR = 0.7
"""Points: the error of a difference of two single runs, √2 times that."""

NAMED_DIFFERENCE = 0.3
"""Points: a difference below this is none worth naming; ReLU and FL on MNIST print 98.14 and 97.82. Chosen here."""

RECOVERED = 1.0
"""Points by which FL may be below the network that its gates come from (C9)."""

DECOUPLED = 3.0
"""Points by which DL, and linear gates, may be below ReLU (C27, C28, C34)."""

NO_DIFFERENCE = 0.5
"""Points: FR-II and FR-DI differ by up to so much in the papers' own tables (C10)."""

ABOVE_CHANCE = 20.0
"""Per cent, with ten classes, from which on random gates are said to generalize (C8). Twice what guessing gives, beside
which P2 section 6 sets them; chosen here."""

REFERENCE_FITTED = 90.0
"""Per cent of its training labels that a ReLU network must have fitted, as in C14, for it to be a mark that others can
miss (C9, C25, C27, C34): the papers' fit about all of them, and what has hardly been trained is easily reached. Chosen
here."""

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

FITTED = 0.1
"""Share of the first error at which random labels count as fitted (C15). Chosen here, of the two shares that runs note:
some directions alone make half of the error, and steps to it are too few to tell depths of wide networks apart.
"""

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
    """Yes if the mean plus and minus a standard error is within the bounds, no if the mean is outside by 3, else open.

    Runs whose standard error is larger than the bounds are wide can then not say yes. Doubtful if the mean is outside
    by as much as it would have to be inside.
    """
    error = error_of(ours, single)
    if low <= ours.mean - MARGIN * error and ours.mean + MARGIN * error <= high:
        return "yes"
    outside = max(low - ours.mean, ours.mean - high)
    if outside > SIGMAS * error:
        return "no"
    return "doubtful" if outside > MARGIN * error else "open"


def above(ours: Spread, floor: float = 0.0, *, named: float = 0.0, single: float = math.inf) -> Outcome:
    """Yes if the mean is above the floor by more than 3 standard errors.

    No if 3 standard errors more would still not bring it to the floor, or above 0 to the smallest difference that one
    would name: another floor is such a difference itself. Else open, and doubtful if it is below the floor by more than
    one.
    """
    error = error_of(ours, single)
    if ours.mean - SIGMAS * error > floor:
        return "yes"
    if ours.mean + SIGMAS * error < (named if floor == 0 else floor):
        return "no"
    return "doubtful" if ours.mean + MARGIN * error < floor else "open"


def exactly(holds: bool) -> Outcome:
    """Of a statement that knows no chance."""
    return "yes" if holds else "no"


def chance_of(sigmas: float, n: int) -> float:
    """How often a mean of n normal values is off by so many of its own standard errors, up or down, by chance alone.

    The two tails of Student's distribution with n - 1 degrees of freedom, by Simpson's rule for the middle.

    >>> round(chance_of(3.0, 3), 3), round(chance_of(3.0, 24), 4)
    (0.095, 0.0064)
    """
    freedom, pieces = n - 1, 1000
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    heights = [(1 + (k * sigmas / pieces) ** 2 / freedom) ** (-(freedom + 1) / 2) for k in range(pieces + 1)]
    middle = heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])
    return 1 - 2 * scale * middle * sigmas / pieces / 3


def verdict_of(aspects: tuple[Aspect, ...], *, is_finished: bool = True) -> Verdict:
    """The verdict in its four words.

    Holds: every aspect was tested, no run is missing, all checks that decide say yes and none is doubtful. Does not
    hold: the first two, and all that decide say no. Holds in part: some say yes, and others no, or are doubtful, or
    something was not tested. Otherwise it is not tested here; so too where all that decide say no and something was not
    tested: that could say yes, so that the claim is not refuted as a whole, and nothing was found of which one could
    say that it holds in part.
    """
    outcomes: set[Outcome] = {outcome for aspect in aspects for outcome in aspect.outcomes}
    is_whole = is_finished and all(aspect.outcomes for aspect in aspects)
    if "yes" in outcomes:
        is_doubtful = any(aspect.doubts for aspect in aspects)
        return "holds" if outcomes == {"yes"} and is_whole and not is_doubtful else "holds in part"
    return "does not hold" if outcomes and is_whole else "not tested here"
