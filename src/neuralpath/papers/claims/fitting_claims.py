"""Claims about what networks with fixed gates can fit: C2, C15, C16."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from neuralpath.papers.claims.bounds import FITTED, LEAST_SQUARES, NEAR_LIMIT
from neuralpath.papers.claims.estimates import Comparison, above, counted, falls_by, is_exact, is_smaller, lies_within
from neuralpath.papers.claims.rows import Part, Records, SweepRecords, claim
from neuralpath.papers.experiments import FitPair, Memorize, Spread, paired


@claim(f"sum of squares without biases, at least {LEAST_SQUARES}", "sum of squares with biases")
def c2(records: Records, without: Part, with_biases: Part) -> None:
    """C2: homogeneity without biases; opposite labels on one ray."""
    for sweep in records.of("memorization"):
        for bias, part in ((False, without), (True, with_biases)):
            if losses := list(sweep.by_seed(FitPair, "loss", bias=bias).values()):
                ours = f"{min(losses):.4g} to {max(losses):.4g} ({counted(len(losses), 'seed')})"
                # The outputs have single precision.
                holds = max(losses) < LEAST_SQUARES / 2 if bias else min(losses) >= LEAST_SQUARES * (1 - 1e-6)
                part += is_exact("with biases" if bias else "without biases", ours, holds, len(losses))


Runs = dict[int, dict[str, Any]]  # results by seed


def _cases(records: Records) -> Iterator[tuple[SweepRecords, str, int, dict[int, Runs]]]:
    """The runs by depth, for each kind of inputs and width of every sweep."""
    for sweep in records.of("memorization"):
        for inputs in sweep.config.inputs:
            for width in sweep.config.widths:
                depths = sorted(sweep.config.depths)
                by_depth = {depth: sweep.by_seed(Memorize, inputs=inputs, width=width, depth=depth) for depth in depths}
                yield sweep, inputs, width, {depth: runs for depth, runs in by_depth.items() if runs}


@dataclass(frozen=True)
class StepCounts:
    """Steps to a share of the first error, by seed; a run that never reaches it counts with all its steps."""

    counts: dict[int, int]
    unfinished: frozenset[int]  # seeds of the runs that never reach the share, including those that diverged

    @staticmethod
    def to(share: float, runs: Runs, n_steps: int) -> "StepCounts":
        """Steps of runs of `Memorize` by seed, each of ``n_steps`` steps, to a share of the first error."""
        reached = {seed: None if run["diverged"] else run["reached"][f"{share:g}"] for seed, run in runs.items()}
        counts = {seed: n_steps if count is None else count for seed, count in reached.items()}
        return StepCounts(counts, frozenset(seed for seed, count in reached.items() if count is None))

    @property
    def logarithms(self) -> dict[int, float]:
        """Logarithms of the counts by seed."""
        return {seed: math.log(count) for seed, count in self.counts.items()}

    @property
    def mean(self) -> float:
        """Mean of the logarithms."""
        return Spread.of(list(self.logarithms.values())).mean

    def listed(self, seeds: tuple[int, ...]) -> str:
        """Every seed's count; ``>`` marks lower bounds."""
        return ", ".join(f"{'> ' if seed in self.unfinished else ''}{self.counts[seed]}" for seed in seeds)


def takes_fewer(where: str, first: StepCounts, second: StepCounts) -> list[Comparison]:
    """Compare the logarithms of two step counts by seed: training takes fewer steps in the first case.

    Counts of runs that never finish are lower bounds. The comparison supports this only if all runs of the first case
    finish, contradicts it only if all of the second do, and is inconclusive otherwise. Empty if no seed has both.
    """
    pair = paired(second.logarithms, first.logarithms)
    if pair is None:
        return []
    fall, seeds = pair.difference, pair.seeds
    if fall.error is not None:
        # Whole steps: each count is off by up to one, uniformly, so by 1 / sqrt(12). Without this, counts that are
        # equal for all seeds would have no error at all.
        variances = [1 / (12 * steps.counts[seed] ** 2) for steps in (first, second) for seed in seeds]
        fall = replace(fall, error=max(fall.error, math.sqrt(sum(variances)) / len(seeds)))
    outcome = above(fall)
    is_bound = [bool(steps.unfinished & set(seeds)) for steps in (first, second)]
    if is_bound[0 if outcome == "supports" else 1]:
        outcome = "inconclusive"
    suffix = "" if is_bound[0] == is_bound[1] else " or more" if is_bound[0] else " or less"
    return falls_by(where, f"{second.listed(seeds)} to {first.listed(seeds)}", fall, outcome, suffix)


@claim(
    f"steps to {100 * FITTED:g} % of the first error, from the smallest depth to the best",
    f"steps to {100 * FITTED:g} % of the first error, from the largest depth to the best",
)
def c15(records: Records, helps: Part, hurts: Part) -> None:
    """C15: the steps that the best depth takes, against those of the smallest and of the largest depth.

    Speed is compared, not the remaining error: after 500 steps many depths are down to the rounding of float32. The
    claim names no depth, so no largest depth can contradict the second half.
    """
    for sweep, inputs, width, by_depth in _cases(records):
        steps = {depth: StepCounts.to(FITTED, runs, sweep.config.n_steps) for depth, runs in by_depth.items()}
        if len(steps) < 3:
            continue
        for part, end in ((helps, min(steps)), (hurts, max(steps))):
            best = min((depth for depth in steps if depth != end), key=lambda depth: steps[depth].mean)
            compared = takes_fewer(f"{inputs} w = {width}, d = {end} to {best}", steps[best], steps[end])
            if part is hurts and [comparison.outcome for comparison in compared] != ["supports"]:
                compared = [replace(comparison, outcome="inconclusive") for comparison in compared]
            part += compared


@claim(
    "mean of the diagonal",
    "diagonal off 1 against width, root mean square",
    "off-diagonal entries over Π μ_l",
    "off-diagonal entries against depth",
)
def c16(records: Records, diagonal: Part, nearer: Part, product: Part, suppressed: Part) -> None:
    """C16: the diagonal against 1, and off-diagonal entries against the product of overlaps, at the largest width."""
    for sweep, inputs, width, by_depth in _cases(records):
        least = min(sweep.config.widths)
        if width != max(sweep.config.widths) or not by_depth:
            continue
        measured = {depth: _entry(runs, "suppression") for depth, runs in by_depth.items()}
        for depth, runs in by_depth.items():
            where = f"{inputs} w = {width} d = {depth}"
            diagonal += lies_within(where, _entry(runs, "diagonal_mean"), 1 - NEAR_LIMIT, 1 + NEAR_LIMIT)
            limit = _entry(runs, "suppression_in_the_limit")
            ratios = {seed: value / limit[seed] for seed, value in measured[depth].items()}
            product += lies_within(where, ratios, 1 - NEAR_LIMIT, 1 + NEAR_LIMIT)
            if least < width:
                narrow = sweep.by_seed(Memorize, inputs=inputs, width=least, depth=depth)
                where = f"{inputs} d = {depth}, w = {least} to {width}"
                nearer += is_smaller(where, _off_one(runs), _off_one(narrow))
        shallow, deep = min(by_depth), max(by_depth)
        if shallow < deep:
            where = f"{inputs} w = {width}, d = {shallow} to {deep}"
            suppressed += is_smaller(where, measured[deep], measured[shallow])


def _entry(runs: Runs, name: str) -> dict[int, float]:
    return {seed: run["entries"][name] for seed, run in runs.items()}


def _off_one(runs: Runs) -> dict[int, float]:
    """Root mean square distance of the diagonal from 1, by seed."""
    mean, deviation = _entry(runs, "diagonal_mean"), _entry(runs, "diagonal_deviation")
    return {seed: math.hypot(mean[seed] - 1, deviation[seed]) for seed in runs}
