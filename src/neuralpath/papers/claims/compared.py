"""Checks that compare accuracies of runs, paired by seed."""

import math
from collections.abc import Iterable
from dataclasses import replace

from neuralpath.papers.claims.checks import Check, Outcome
from neuralpath.papers.claims.rules import (
    NAMED_DIFFERENCE,
    REFERENCE_FITTED,
    SINGLE_SEED_ERROR,
    above,
    too_few,
    within,
)
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


def counted(n: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{n} {what}" + ("" if n == 1 else "s")


def points(ours: Spread, what: str = "seed") -> str:
    """A difference of accuracies in points, with its standard error."""
    error = "" if ours.error is None else f" ± {ours.error:.2f}"
    return f"{ours.mean:+.2f}{error} ({counted(ours.n, what)})"


def is_within(data: DataSpec, where: str, found: Paired | None, low: float, high: float = math.inf,
              printed: float | None = None, aside: str = "") -> tuple[Check, ...]:  # fmt: skip
    """A check that a difference of accuracies lies within bounds; none where there is no common seed."""
    if found is None:
        return ()
    return (_check(data, where, found.difference, within(found.difference, low, high, single=SINGLE_SEED_ERROR),
                   printed, aside),)  # fmt: skip


def is_above(data: DataSpec, where: str, found: Paired | None, printed: float | None = None,
             floor: float = 0.0, aside: str = "") -> tuple[Check, ...]:  # fmt: skip
    """A check that a difference of accuracies is above 0 or another floor; none where there is no common seed."""
    if found is None:
        return ()
    outcome = above(found.difference, floor, named=NAMED_DIFFERENCE, single=SINGLE_SEED_ERROR)
    return (_check(data, where, found.difference, outcome, printed, aside),)


def _check(data: DataSpec, where: str, ours: Spread, outcome: Outcome, printed: float | None, aside: str) -> Check:
    return Check(
        where, points(ours), outcome,
        paper="" if printed is None else f"{printed:+.2f}",
        difference="" if printed is None else f"{ours.mean - printed:+.2f}",
        value=ours.mean, printed=printed,
        aside=aside or too_few(data, ours.n),
    )  # fmt: skip


def difference(first: Seeds, second: Seeds, results: Results, when: When = "best",
               second_when: When | None = None) -> Paired | None:  # fmt: skip
    """First minus second in points, over the seeds that both have."""
    return paired(accuracies(first, results, when), accuracies(second, results, second_when or when))


def fitted(runs: Seeds, results: Results) -> Spread | None:
    """Per cent of their own training labels that runs have fitted at their end."""
    return accuracy(runs, results, "last", "train_accuracy")


def telling_fit(checks: Iterable[Check], who: str, share: Spread | None) -> list[Check]:
    """Checks that tell in words how much a network behind them has fitted."""
    told = "" if share is None else f", {who} fitted {share.mean:.1f} %"
    return [replace(check, ours=check.ours + told) for check in checks]


def beside_a_fitted_network(
    checks: Iterable[Check], reference: Seeds, name: str, other: Seeds, results: Results
) -> list[Check]:
    """Checks with what both networks have fitted, set aside where the reference has fitted too little to be one."""
    share = fitted(reference, results)
    told = telling_fit(telling_fit(checks, "ReLU", share), name, fitted(other, results))
    if share is None or share.mean >= REFERENCE_FITTED:
        return told
    aside = f"the ReLU network has fitted less than {REFERENCE_FITTED:g} % of its training labels"
    return [replace(check, aside=check.aside or aside) for check in told]


def printed_difference(first: Printed | None, second: Printed | None) -> float | None:
    """The papers' first minus second in points."""
    return None if first is None or second is None else first.accuracy - second.accuracy
