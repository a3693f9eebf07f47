"""Claims about drawn networks against width and depth: C4, C17, C22, C29, C35, C36."""

import math
from dataclasses import replace
from typing import Any

from neuralpath.papers.claims.checks import Aspect, Check
from neuralpath.papers.claims.compared import counted
from neuralpath.papers.claims.evidence import Evidence, Found, by_seed, values_of
from neuralpath.papers.claims.measured import is_smaller, lies_within
from neuralpath.papers.claims.rules import HALF_THE_WAY, MEAN_OFF, NEAR_LIMIT, ROOT_LAW, too_few, within
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


def expectation_of_dense_networks(evidence: Evidence) -> tuple[Aspect, ...]:
    """C4."""
    deeper: list[Check] = []
    for found in evidence.of("theorem"):
        for family in ("open", "fc"):
            deeper += _against_depth(found, family)
    return (*_against_width(evidence, ("fc",)), Aspect("relative variance against depth", tuple(deeper)))


def expectation_of_other_networks(evidence: Evidence) -> tuple[Aspect, ...]:
    """C22."""
    return _against_width(evidence, ("cnn", "residual"))


def _against_width(evidence: Evidence, families: tuple[DrawnFamily, ...]) -> tuple[Aspect, Aspect]:
    means: list[Check] = []
    falls: list[Check] = []
    for found in evidence.of("theorem"):
        config = found.sweep.config
        for family in families:
            widths = config.widths if family == "fc" else config.other_widths
            narrow, wide = (
                by_seed(found.results, DrawKernels, family=family, width=width, depth=config.depth)
                for width in (min(widths), max(widths))
            )
            where = f"{family} d = {config.depth}"
            off = {seed: run["mean_off_in_errors"] for seed, run in wide.items()}
            means += lies_within(f"{where}, w = {max(widths)}", off, 0.0, MEAN_OFF)
            distances = ({seed: run["distance"] for seed, run in some.items()} for some in (wide, narrow))
            if min(widths) < max(widths):
                falls += is_smaller(f"{where}, w = {min(widths)} to {max(widths)}", *distances)
    return (
        Aspect("mean of the draws off its expectation, in standard errors", tuple(means)),
        Aspect("relative distance of a draw against width", tuple(falls)),
    )


def _against_depth(found: Found, family: str) -> tuple[Check, ...]:
    """The variance grows; for open gates the printed bound stands beside it (erratum E13)."""
    from neuralpath.kernels import printed_variance_bound

    config = found.sweep.config
    if family not in config.deep_families:
        return ()
    width, least, most = config.deep_width, min(config.depths), max(config.depths)
    shallow, deep = (
        {
            seed: run["distance"] ** 2
            for seed, run in by_seed(found.results, DrawKernels, family=family, width=width, depth=depth).items()
        }
        for depth in (least, most)
    )
    checks = is_smaller(f"{family} w = {width}, d = {most} to {least}", shallow, deep)
    if family != "open" or not checks:
        return checks
    bound = printed_variance_bound(1, width, most, 1 / width) / most**2
    (check,) = checks
    ratio = sum(deep.values()) / len(deep) / bound
    paper = f"at most {bound:.3g} at d = {most}"
    return (replace(check, paper=paper, difference=f"{ratio:.3g} times the bound (E13)"),)


def limit_of_relu_networks(evidence: Evidence) -> tuple[Aspect, ...]:
    """C17."""
    falls: list[Check] = []
    ends: list[Check] = []
    for found in evidence.of("theorem"):
        fall, end = _approach(found, "dependent")
        falls += fall
        ends += end
    return (
        Aspect("distance from K^(d) against width", tuple(falls)),
        Aspect("relative distance from K^(d) at the largest width", tuple(ends)),
    )


def _approach(found: Found, kind: str) -> tuple[tuple[Check, ...], tuple[Check, ...]]:
    """How near weights of one kind come to their own limit."""
    widths = values_of(found.results, ApproachLimits, "width")
    if len(widths) < 2:
        return (), ()
    narrow, wide = (
        {seed: run["distance"][kind][kind] for seed, run in by_seed(found.results, ApproachLimits, width=width).items()}
        for width in (widths[0], widths[-1])
    )
    where = f"{kind} weights, w = {widths[0]} to {widths[-1]}"
    return is_smaller(where, wide, narrow), lies_within(f"{kind} weights, w = {widths[-1]}", wide, 0.0, NEAR_LIMIT)


def two_limits(evidence: Evidence) -> tuple[Aspect, ...]:
    """C35."""
    own: list[Check] = []
    other: list[Check] = []
    for found in evidence.of("theorem"):
        widths = values_of(found.results, ApproachLimits, "width")
        for kind, opposite in (("dependent", "independent"), ("independent", "dependent")):
            own += _approach(found, kind)[1]
            if not widths:
                continue
            wide = by_seed(found.results, ApproachLimits, width=widths[-1])
            to_own, to_other = (
                {seed: run["distance"][kind][limit] for seed, run in wide.items()} for limit in (kind, opposite)
            )
            where = f"{kind} weights, w = {widths[-1]}: from the other limit to their own"
            other += is_smaller(where, to_own, to_other)
    return (
        Aspect("relative distance from their own limit", tuple(own)),
        Aspect("nearer their own limit than the other", tuple(other)),
    )


def change_in_training(evidence: Evidence) -> tuple[Aspect, ...]:
    """C36: the power of the width with which gates and kernel change, from the widths where the law has set in."""
    names = {"flips": "share of gates that flip", "kernel": "relative change of K"}
    checks: dict[str, list[Check]] = {name: [] for name in names}
    for found in evidence.of("theorem"):
        for first in found.sweep.config.first_layers:
            by_width = {
                width: by_seed(found.results, TrainLazily, first_layer=first, width=width)
                for width in values_of(found.results, TrainLazily, "width", first_layer=first)
                if width >= LAW_FROM
            }
            n_seeds = min((len(some) for some in by_width.values()), default=0)
            for name in names:
                samples = {w: [v for run in some.values() for v in run[name]] for w, some in by_width.items()}
                power, error = _law(samples)
                if power is None or error is None:
                    continue
                variance = "2 / width" if first == "width" else "2 / fan-in"
                checks[name].append(Check(
                    f"first layer of variance {variance}, w = {min(samples)} to {max(samples)}",
                    f"power {power:.3f} ± {error:.3f} ({counted(n_seeds, 'seed')})",
                    within(Spread(power, None, error, n_seeds), -math.inf, ROOT_LAW),
                    "-0.5 or below", f"{power + 0.5:+.3f}", power, -0.5, aside=too_few(None, n_seeds),
                ))  # fmt: skip
    return tuple(Aspect(title, tuple(checks[name])) for name, title in names.items())


def overlap_of_random_layers(evidence: Evidence) -> tuple[Aspect, ...]:
    """C29: the overlap against the angle for all features, and its way to 1/2 with depth for ReLU features."""
    near: list[Check] = []
    falls: list[Check] = []
    deep: list[Check] = []
    for found in evidence.of("base-kernels"):
        for features in found.sweep.config.features:
            widths = values_of(found.results, GateOverlaps, "width", features=features)
            if not widths:
                continue
            drawn = {w: by_seed(found.results, GateOverlaps, features=features, width=w) for w in widths}
            off = {width: {seed: _mean_off(run) for seed, run in some.items()} for width, some in drawn.items()}
            most = widths[-1]
            where = f"{found.sweep.config.data.label} {features} features"
            # Gates of one layer are independent given its inputs, so the deviation of a share is at most 1/2 sqrt(w).
            near += lies_within(f"{where}, w = {most}, chance alone gives {0.5 / most**0.5:.3g}", off[most], 0.0,
                                0.5 / most**0.5)  # fmt: skip
            if len(widths) > 1:
                falls += is_smaller(f"{where}, w = {widths[0]} to {most}", off[most], off[widths[0]])
            if features == "relu":
                left = {
                    seed: (0.5 - run["layers"][-1]["overlap"]) / (0.5 - run["layers"][0]["overlap"])
                    for seed, run in drawn[most].items()
                }
                deep += lies_within(f"{where}, w = {most}, layer {found.sweep.config.n_layers}", left, -HALF_THE_WAY,
                                    HALF_THE_WAY)  # fmt: skip
    return (
        Aspect("overlap off (π-θ)/2π, root mean square", tuple(near)),
        Aspect("overlap off (π-θ)/2π against width", tuple(falls)),
        Aspect("share of the distance from 1/2 that depth leaves", tuple(deep)),
    )


def _mean_off(run: dict[str, Any]) -> float:
    offs = [layer["off_the_angle"] for layer in run["layers"]]
    return float(sum(offs) / len(offs))
