"""Checks of how many steps training takes to a share of its first error, with runs that never get there."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neuralpath.papers.claims.checks import Check, Outcome
from neuralpath.papers.claims.compared import counted
from neuralpath.papers.claims.measured import A_FACTOR
from neuralpath.papers.claims.rules import above, too_few
from neuralpath.papers.experiments import Spread, paired


@dataclass(frozen=True)
class Steps:
    """Steps by seed; a run that never got there counts with all its steps, which are fewer than it would take."""

    counts: dict[int, int]
    unfinished: frozenset[int]
    """Seeds of the runs that never got there, those that diverged among them."""

    @staticmethod
    def to(share: float, runs: Mapping[int, dict[str, Any]], n_steps: int) -> "Steps":
        """To a share of the first error, of runs of `random_labels.Memorize` by seed with so many steps."""
        reached = {seed: None if run["diverged"] else run["reached"][f"{share:g}"] for seed, run in runs.items()}
        counts = {seed: n_steps if count is None else count for seed, count in reached.items()}
        return Steps(counts, frozenset(seed for seed, count in reached.items() if count is None))

    @property
    def logarithms(self) -> dict[int, float]:
        """By seed."""
        return {seed: math.log(count) for seed, count in self.counts.items()}

    @property
    def mean(self) -> float:
        """Of the logarithms."""
        return Spread.of(list(self.logarithms.values())).mean

    def told(self, seeds: tuple[int, ...]) -> str:
        """Every seed's count, and that it is more where a run never got there."""
        return ", ".join(f"{'> ' if seed in self.unfinished else ''}{self.counts[seed]}" for seed in seeds)


def takes_fewer(where: str, first: Steps, second: Steps) -> tuple[Check, ...]:
    """A check that training takes fewer steps in the first case than in the second, by logarithms and by seed.

    Counts of runs that never got there are bounds from below. So it is yes only where all of the first case did, no
    only where all of the second did, and open otherwise. None where no seed has both.
    """
    found = paired(second.logarithms, first.logarithms)
    if found is None:
        return ()
    fall, seeds = found.difference, found.seeds
    bounded = {name: bool(one.unfinished & set(seeds)) for name, one in (("first", first), ("second", second))}
    error = None if fall.error is None else max(fall.error, _rounding(first, second, seeds))
    outcome: Outcome = above(Spread(fall.mean, fall.deviation, error, fall.n))
    if bounded["first" if outcome == "yes" else "second"]:
        outcome = "open"
    bound = {(False, True): " or less", (True, False): " or more"}.get((bounded["first"], bounded["second"]), "")
    ratio = "" if error is None else f", log ratio {-fall.mean:.3g} ± {error:.2g}{bound}"
    return (Check(
        where, f"{second.told(seeds)} to {first.told(seeds)}{ratio} ({counted(fall.n, 'seed')})", outcome,
        value=math.exp(-fall.mean), value_is=A_FACTOR, aside=too_few(None, fall.n),
    ),)  # fmt: skip


def _rounding(first: Steps, second: Steps, seeds: tuple[int, ...]) -> float:
    """The standard error that whole steps leave: each count is off by up to one, evenly, so by 1 / sqrt(12).

    Without it, counts that are equal in all seeds would have no error at all.
    """
    variances = [1 / (12 * one.counts[seed] ** 2) for one in (first, second) for seed in seeds]
    return math.sqrt(sum(variances)) / len(seeds)
