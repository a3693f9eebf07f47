"""Claims about what networks with fixed gates can fit: C2, C15, C16."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from neuralpath.papers.claims.estimates import (
    A_FACTOR,
    FITTED,
    LEAST_SQUARES,
    NEAR_LIMIT,
    Comparison,
    above,
    counted,
    is_exact,
    is_smaller,
    lies_within,
    ratio,
    too_few,
)
from neuralpath.papers.claims.rows import ClaimRow, claim_row
from neuralpath.papers.claims.sweep_records import Records, SweepRecords, by_seed
from neuralpath.papers.experiments import FitPair, Memorize, Spread, paired


def c2(records: Records) -> ClaimRow:
    """C2: homogeneity without biases; opposite labels on one ray."""
    least = f"sum of squares without biases, at least {LEAST_SQUARES}"
    parts: dict[str, list[Comparison]] = {least: [], "sum of squares with biases": []}
    for one in records.of("memorization"):
        for bias, comparisons in zip((False, True), parts.values(), strict=True):
            losses = [run["loss"] for run in by_seed(one.results, FitPair, bias=bias).values()]
            if not losses:
                continue
            ours = f"{min(losses):.4g} to {max(losses):.4g} ({counted(len(losses), 'seed')})"
            # The outputs have single precision.
            holds = max(losses) < LEAST_SQUARES / 2 if bias else min(losses) >= LEAST_SQUARES * (1 - 1e-6)
            comparisons += is_exact("with biases" if bias else "without biases", ours, holds, len(losses))
    return claim_row("C2", records, parts)


Runs = dict[int, dict[int, dict[str, Any]]]
"""Results by depth and seed."""


def _cases(records: Records) -> Iterator[tuple[SweepRecords, str, int, Runs]]:
    """The runs by depth, for each kind of inputs and width of every sweep."""
    for one in records.of("memorization"):
        config = one.sweep.config
        for inputs in config.inputs:
            for width in config.widths:
                by_depth = {
                    depth: by_seed(one.results, Memorize, inputs=inputs, width=width, depth=depth)
                    for depth in sorted(config.depths)
                }
                yield one, inputs, width, {depth: several for depth, several in by_depth.items() if several}


@dataclass(frozen=True)
class StepCounts:
    """Steps to a share of the first error, by seed.

    A run that never reaches it counts with all its steps, a lower bound.
    """

    counts: dict[int, int]
    unfinished: frozenset[int]
    """Seeds of the runs that never reach the share, including those that diverged."""

    @staticmethod
    def to(share: float, runs: Mapping[int, dict[str, Any]], n_steps: int) -> "StepCounts":
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
    is_bound = [bool(steps.unfinished & set(seeds)) for steps in (first, second)]
    error = None if fall.error is None else max(fall.error, _rounding(first, second, seeds))
    fall = Spread(fall.mean, fall.deviation, error, fall.n)
    outcome = above(fall)
    if is_bound[0 if outcome == "supports" else 1]:
        outcome = "inconclusive"
    suffix = "" if is_bound[0] == is_bound[1] else " or more" if is_bound[0] else " or less"
    seen = f"{second.listed(seeds)} to {first.listed(seeds)}{ratio(fall, suffix)} ({counted(fall.n, 'seed')})"
    factor = math.exp(-fall.mean)
    return [Comparison(where, seen, outcome, value=factor, unit=A_FACTOR, excluded=too_few(None, fall.n))]


def _rounding(first: StepCounts, second: StepCounts, seeds: tuple[int, ...]) -> float:
    """The standard error that whole steps leave: each count is off by up to one, uniformly, so by 1 / sqrt(12).

    Without it, counts that are equal for all seeds would have no error at all.
    """
    variances = [1 / (12 * steps.counts[seed] ** 2) for steps in (first, second) for seed in seeds]
    return math.sqrt(sum(variances)) / len(seeds)


def c15(records: Records) -> ClaimRow:
    """C15: the steps that the best depth takes, against those of the smallest and of the largest depth.

    Speed is compared, not the remaining error: after 500 steps many depths are down to the rounding of float32. The
    claim names no depth, so no largest depth can contradict the second half.
    """
    helps: list[Comparison] = []
    hurts: list[Comparison] = []
    for one, inputs, width, by_depth in _cases(records):
        n_steps = one.sweep.config.n_steps
        steps = {depth: StepCounts.to(FITTED, several, n_steps) for depth, several in by_depth.items()}
        if len(steps) < 3:
            continue
        where, least, most = f"{inputs} w = {width}", min(steps), max(steps)
        best = _fastest(steps, excluding=least)
        helps += takes_fewer(f"{where}, d = {least} to {best}", steps[best], steps[least])
        best = _fastest(steps, excluding=most)
        for comparison in takes_fewer(f"{where}, d = {most} to {best}", steps[best], steps[most]):
            outcome = comparison.outcome if comparison.outcome == "supports" else "inconclusive"
            hurts.append(replace(comparison, outcome=outcome))
    to = f"steps to {100 * FITTED:g} % of the first error"
    return claim_row(
        "C15",
        records,
        {f"{to}, from the smallest depth to the best": helps, f"{to}, from the largest depth to the best": hurts},
    )


def _fastest(steps: dict[int, StepCounts], excluding: int) -> int:
    """The depth with the fewest steps, apart from one."""
    return min((depth for depth in steps if depth != excluding), key=lambda depth: steps[depth].mean)


def c16(records: Records) -> ClaimRow:
    """C16: the diagonal against 1, and off-diagonal entries against the product of overlaps, at the largest width."""
    diagonal: list[Comparison] = []
    nearer: list[Comparison] = []
    product: list[Comparison] = []
    suppressed: list[Comparison] = []
    for one, inputs, width, by_depth in _cases(records):
        widths = one.sweep.config.widths
        if width != max(widths) or not by_depth:
            continue
        for depth, several in by_depth.items():
            where = f"{inputs} w = {width} d = {depth}"
            diagonal += lies_within(where, _entry(several, "diagonal_mean"), 1 - NEAR_LIMIT, 1 + NEAR_LIMIT)
            measured, limit = _entry(several, "suppression"), _entry(several, "suppression_in_the_limit")
            ratios = {seed: measured[seed] / limit[seed] for seed in measured}
            product += lies_within(where, ratios, 1 - NEAR_LIMIT, 1 + NEAR_LIMIT)
            narrow = by_seed(one.results, Memorize, inputs=inputs, width=min(widths), depth=depth)
            if min(widths) < width:
                where = f"{inputs} d = {depth}, w = {min(widths)} to {width}"
                nearer += is_smaller(where, _off_one(several), _off_one(narrow))
        least, most = min(by_depth), max(by_depth)
        if least < most:
            shallow, deep = (_entry(by_depth[depth], "suppression") for depth in (least, most))
            suppressed += is_smaller(f"{inputs} w = {width}, d = {least} to {most}", deep, shallow)
    return claim_row(
        "C16",
        records,
        {
            "mean of the diagonal": diagonal,
            "diagonal off 1 against width, root mean square": nearer,
            "off-diagonal entries over Π μ_l": product,
            "off-diagonal entries against depth": suppressed,
        },
    )


def _entry(runs: dict[int, dict[str, Any]], name: str) -> dict[int, float]:
    return {seed: run["entries"][name] for seed, run in runs.items()}


def _off_one(runs: dict[int, dict[str, Any]]) -> dict[int, float]:
    """Root mean square distance of the diagonal from 1, by seed."""
    entries = {seed: run["entries"] for seed, run in runs.items()}
    return {seed: math.hypot(e["diagonal_mean"] - 1, e["diagonal_deviation"]) for seed, e in entries.items()}
