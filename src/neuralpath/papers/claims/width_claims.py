"""Claims about random networks against width and depth: C4, C17, C22, C29, C35, C36."""

import math
from dataclasses import replace
from typing import Any

from neuralpath.kernels import printed_variance_bound
from neuralpath.papers.claims.estimates import (
    HALF_THE_DISTANCE,
    MEAN_OFF,
    NEAR_LIMIT,
    ROOT_LAW,
    Comparison,
    counted,
    interval,
    is_smaller,
    lies_within,
    too_few,
    within,
)
from neuralpath.papers.claims.rows import ClaimRow, claim_row
from neuralpath.papers.claims.sweep_records import Records, SweepRecords, by_seed, values_of
from neuralpath.papers.experiments import (
    LAW_FROM,
    ApproachLimits,
    DrawKernels,
    DrawnFamily,
    GateOverlaps,
    Spread,
    TrainLazily,
    _law,
)


def c4(records: Records) -> ClaimRow:
    """C4: the expected value tangent kernel of dense networks."""
    deeper = [
        comparison
        for one in records.of("theorem")
        for family in ("open", "fc")
        for comparison in _against_depth(one, family)
    ]
    return claim_row("C4", records, {**_against_width(records, ("fc",)), "relative variance against depth": deeper})


def c22(records: Records) -> ClaimRow:
    """C22: the same for convolutional and residual networks."""
    return claim_row("C22", records, _against_width(records, ("cnn", "residual")))


def _against_width(records: Records, families: tuple[DrawnFamily, ...]) -> dict[str, list[Comparison]]:
    means: list[Comparison] = []
    falls: list[Comparison] = []
    for one in records.of("theorem"):
        config = one.sweep.config
        for family in families:
            widths = config.widths if family == "fc" else config.other_widths
            narrow, wide = (
                by_seed(one.results, DrawKernels, family=family, width=width, depth=config.depth)
                for width in (min(widths), max(widths))
            )
            where = f"{family} d = {config.depth}"
            off = {seed: run["mean_off_in_errors"] for seed, run in wide.items()}
            means += lies_within(f"{where}, w = {max(widths)}", off, 0.0, MEAN_OFF)
            distances = ({seed: run["distance"] for seed, run in several.items()} for several in (wide, narrow))
            if min(widths) < max(widths):
                falls += is_smaller(f"{where}, w = {min(widths)} to {max(widths)}", *distances)
    return {
        "mean of the draws off its expectation, in standard errors": means,
        "relative distance of a draw against width": falls,
    }


def _against_depth(one: SweepRecords, family: str) -> list[Comparison]:
    """The variance grows with depth; for open gates the printed bound stands beside it (erratum E13)."""
    config = one.sweep.config
    if family not in config.deep_families:
        return []
    width, least, most = config.deep_width, min(config.depths), max(config.depths)
    shallow, deep = (
        {
            seed: run["distance"] ** 2
            for seed, run in by_seed(one.results, DrawKernels, family=family, width=width, depth=depth).items()
        }
        for depth in (least, most)
    )
    comparisons = is_smaller(f"{family} w = {width}, d = {most} to {least}", shallow, deep)
    if family != "open" or not comparisons:
        return comparisons
    bound = printed_variance_bound(1, width, most, 1 / width) / most**2
    excess = sum(deep.values()) / len(deep) / bound
    paper = f"at most {bound:.3g} at d = {most}"
    return [replace(comparisons[0], paper=paper, difference=f"{excess:.3g} times the bound (E13)")]


def c17(records: Records) -> ClaimRow:
    """C17: the limit of wide ReLU networks."""
    falls: list[Comparison] = []
    ends: list[Comparison] = []
    for one in records.of("theorem"):
        fall, end = _approach(one, "dependent")
        falls += fall
        ends += end
    return claim_row(
        "C17",
        records,
        {"distance from K^(d) against width": falls, "relative distance from K^(d) at the largest width": ends},
    )


def _approach(one: SweepRecords, weights: str) -> tuple[list[Comparison], list[Comparison]]:
    """How near dependent or independent weights come to their own limit."""
    widths = values_of(one.results, ApproachLimits, "width")
    if len(widths) < 2:
        return [], []
    narrow, wide = (
        {
            seed: run["distance"][weights][weights]
            for seed, run in by_seed(one.results, ApproachLimits, width=width).items()
        }
        for width in (widths[0], widths[-1])
    )
    where = f"{weights} weights, w = "
    falls = is_smaller(f"{where}{widths[0]} to {widths[-1]}", wide, narrow)
    return falls, lies_within(f"{where}{widths[-1]}", wide, 0.0, NEAR_LIMIT)


def c35(records: Records) -> ClaimRow:
    """C35: two initializations, two limits."""
    own: list[Comparison] = []
    other: list[Comparison] = []
    for one in records.of("theorem"):
        widths = values_of(one.results, ApproachLimits, "width")
        for weights, opposite in (("dependent", "independent"), ("independent", "dependent")):
            own += _approach(one, weights)[1]
            if not widths:
                continue
            wide = by_seed(one.results, ApproachLimits, width=widths[-1])
            to_own, to_other = (
                {seed: run["distance"][weights][limit] for seed, run in wide.items()} for limit in (weights, opposite)
            )
            where = f"{weights} weights, w = {widths[-1]}: from the other limit to their own"
            other += is_smaller(where, to_own, to_other)
    return claim_row(
        "C35", records, {"relative distance from their own limit": own, "nearer their own limit than the other": other}
    )


def c36(records: Records) -> ClaimRow:
    """C36: the power of the width with which gates and kernel change, from the width on where the law has set in."""
    names = {"flips": "share of gates that flip", "kernel": "relative change of K"}
    parts: dict[str, list[Comparison]] = {title: [] for title in names.values()}
    for one in records.of("theorem"):
        for first in one.sweep.config.first_layers:
            by_width = {
                width: by_seed(one.results, TrainLazily, first_layer=first, width=width)
                for width in values_of(one.results, TrainLazily, "width", first_layer=first)
                if width >= LAW_FROM
            }
            n_seeds = min(map(len, by_width.values()), default=0)
            for name, title in names.items():
                samples = {w: [v for run in several.values() for v in run[name]] for w, several in by_width.items()}
                power, error = _law(samples)
                if power is None or error is None:
                    continue
                estimate = Spread(power, None, error, n_seeds)
                ends = interval(estimate)
                shown = "" if ends is None else f" [{ends[0]:.3f}, {ends[1]:.3f}]"
                variance = "2 / width" if first == "width" else "2 / fan-in"
                parts[title].append(
                    Comparison(
                        f"first layer of variance {variance}, w = {min(samples)} to {max(samples)}",
                        f"power {power:.3f}{shown} ({counted(n_seeds, 'seed')})",
                        within(estimate, -math.inf, ROOT_LAW),
                        "-0.5 or below",
                        f"{power + 0.5:+.3f}",
                        power,
                        -0.5,
                        excluded=too_few(None, n_seeds),
                    )
                )
    return claim_row("C36", records, parts)


def c29(records: Records) -> ClaimRow:
    """C29: the overlap against the angle for all features, and its approach to 1/2 with depth for ReLU features."""
    near: list[Comparison] = []
    falls: list[Comparison] = []
    deep: list[Comparison] = []
    for one in records.of("base-kernels"):
        for features in one.sweep.config.features:
            widths = values_of(one.results, GateOverlaps, "width", features=features)
            if not widths:
                continue
            draws = {w: by_seed(one.results, GateOverlaps, features=features, width=w) for w in widths}
            off = {width: {seed: _mean_off(run) for seed, run in several.items()} for width, several in draws.items()}
            most = widths[-1]
            where = f"{one.sweep.config.data.label} {features} features"
            # Given its inputs, the gates of a layer are independent, so a share deviates by at most 1 / (2 sqrt(w)).
            noise = 0.5 / most**0.5
            near += lies_within(f"{where}, w = {most}, randomness alone gives {noise:.3g}", off[most], 0.0, noise)
            if len(widths) > 1:
                falls += is_smaller(f"{where}, w = {widths[0]} to {most}", off[most], off[widths[0]])
            if features == "relu":
                remaining = {
                    seed: (0.5 - run["layers"][-1]["overlap"]) / (0.5 - run["layers"][0]["overlap"])
                    for seed, run in draws[most].items()
                }
                where = f"{where}, w = {most}, layer {one.sweep.config.n_layers}"
                deep += lies_within(where, remaining, -HALF_THE_DISTANCE, HALF_THE_DISTANCE)
    return claim_row(
        "C29",
        records,
        {
            "overlap off (π-θ)/2π, root mean square": near,
            "overlap off (π-θ)/2π against width": falls,
            "remaining share of the distance from 1/2": deep,
        },
    )


def _mean_off(run: dict[str, Any]) -> float:
    offs = [layer["off_the_angle"] for layer in run["layers"]]
    return float(sum(offs) / len(offs))
