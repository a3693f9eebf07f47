"""Claims about what fixed gates can fit: C2, C15, C16."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from neuralpath.papers.claims.checks import Aspect, Check
from neuralpath.papers.claims.compared import counted
from neuralpath.papers.claims.evidence import Evidence, Found, by_seed
from neuralpath.papers.claims.measured import Values, is_exact, is_smaller, lies_within
from neuralpath.papers.claims.rules import FITTED, LEAST_SQUARES, NEAR_LIMIT
from neuralpath.papers.claims.steps import Steps, takes_fewer
from neuralpath.papers.experiments import FitPair, Memorize


def pair_on_a_ray(evidence: Evidence) -> tuple[Aspect, ...]:
    """C2, by training: no run without biases gets below the least sum of squares, all with biases do."""
    without: list[Check] = []
    beside: list[Check] = []
    for found in evidence.of("memorization"):
        for bias, checks in ((False, without), (True, beside)):
            losses = [run["loss"] for run in by_seed(found.results, FitPair, bias=bias).values()]
            if not losses:
                continue
            ours = f"{min(losses):.4g} to {max(losses):.4g} ({counted(len(losses), 'seed')})"
            # Outputs are of single precision.
            is_right = max(losses) < LEAST_SQUARES / 2 if bias else min(losses) >= LEAST_SQUARES * (1 - 1e-6)
            checks += is_exact("with biases" if bias else "without biases", ours, is_right, len(losses))
    return (
        Aspect(f"sum of squares without biases, at least {LEAST_SQUARES}", tuple(without)),
        Aspect("sum of squares with biases", tuple(beside)),
    )


Runs = dict[int, dict[int, dict[str, Any]]]
"""By depth and seed."""


def _cases(evidence: Evidence) -> Iterator[tuple[Found, str, int, Runs]]:
    """For each kind of inputs and width of every sweep the runs by depth."""
    for found in evidence.of("memorization"):
        config = found.sweep.config
        for inputs in config.inputs:
            for width in config.widths:
                by_depth = {
                    depth: by_seed(found.results, Memorize, inputs=inputs, width=width, depth=depth)
                    for depth in sorted(config.depths)
                }
                yield found, inputs, width, {depth: some for depth, some in by_depth.items() if some}


def depth_helps_then_hurts(evidence: Evidence) -> tuple[Aspect, ...]:
    """C15: the steps that the best depth takes, against those of the least and of the largest depth.

    By speed and not by the error that is left: after 500 steps many depths are down to the rounding of float32. The
    claim names no depth, so that no largest depth can say no to the second half.
    """
    helps: list[Check] = []
    hurts: list[Check] = []
    for found, inputs, width, by_depth in _cases(evidence):
        n_steps = found.sweep.config.n_steps
        steps = {depth: Steps.to(FITTED, some, n_steps) for depth, some in by_depth.items()}
        if len(steps) < 3:
            continue
        where, least, most = f"{inputs} w = {width}", min(steps), max(steps)
        best = _fastest(steps, but=least)
        helps += takes_fewer(f"{where}, d = {least} to {best}", steps[best], steps[least])
        best = _fastest(steps, but=most)
        for check in takes_fewer(f"{where}, d = {most} to {best}", steps[best], steps[most]):
            hurts.append(check if check.outcome == "yes" else replace(check, outcome="open"))
    to = f"steps to {100 * FITTED:g} % of the first error"
    return (
        Aspect(f"{to}, from the least depth to the best", tuple(helps)),
        Aspect(f"{to}, from the largest depth to the best", tuple(hurts)),
    )


def _fastest(steps: dict[int, Steps], but: int) -> int:
    """The depth with the fewest steps, but for one."""
    return min((depth for depth in steps if depth != but), key=lambda depth: steps[depth].mean)


def suppressed_entries(evidence: Evidence) -> tuple[Aspect, ...]:
    """C16: the diagonal against 1, and off-diagonal entries against the product of overlaps, at the largest width."""
    diagonal: list[Check] = []
    nearer: list[Check] = []
    product: list[Check] = []
    depth_suppresses: list[Check] = []
    for found, inputs, width, by_depth in _cases(evidence):
        widths = found.sweep.config.widths
        if width != max(widths) or not by_depth:
            continue
        for depth, some in by_depth.items():
            where = f"{inputs} w = {width} d = {depth}"
            diagonal += lies_within(where, _entry(some, "diagonal_mean"), 1 - NEAR_LIMIT, 1 + NEAR_LIMIT)
            kept, limit = _entry(some, "suppression"), _entry(some, "suppression_in_the_limit")
            ratios = {seed: kept[seed] / limit[seed] for seed in kept}
            product += lies_within(where, ratios, 1 - NEAR_LIMIT, 1 + NEAR_LIMIT)
            narrow = by_seed(found.results, Memorize, inputs=inputs, width=min(widths), depth=depth)
            if min(widths) < width:
                where = f"{inputs} d = {depth}, w = {min(widths)} to {width}"
                nearer += is_smaller(where, _off_one(some), _off_one(narrow))
        least, most = min(by_depth), max(by_depth)
        if least < most:
            shallow, deep = (_entry(by_depth[depth], "suppression") for depth in (least, most))
            depth_suppresses += is_smaller(f"{inputs} w = {width}, d = {least} to {most}", deep, shallow)
    return (
        Aspect("mean of the diagonal", tuple(diagonal)),
        Aspect("diagonal off 1 against width, root mean square", tuple(nearer)),
        Aspect("off-diagonal entries over Π μ_l", tuple(product)),
        Aspect("off-diagonal entries against depth", tuple(depth_suppresses)),
    )


def _entry(some: dict[int, dict[str, Any]], name: str) -> dict[int, float]:
    return {seed: run["entries"][name] for seed, run in some.items()}


def _off_one(some: dict[int, dict[str, Any]]) -> Values:
    return {
        seed: math.hypot(run["entries"]["diagonal_mean"] - 1, run["entries"]["diagonal_deviation"])
        for seed, run in some.items()
    }
