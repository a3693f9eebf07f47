"""Claims about kernels in training and as machines: C6, C12, C13, C26, C37."""

import math
from collections.abc import Iterator
from typing import Any, Literal

from neuralpath.papers.claims.checks import Aspect, Check
from neuralpath.papers.claims.compared import is_above, is_within, printed_difference
from neuralpath.papers.claims.evidence import Evidence, by_seed, runs
from neuralpath.papers.claims.measured import is_exact, is_smaller, lies_within
from neuralpath.papers.claims.regime_claims import settings
from neuralpath.papers.claims.rules import KERNEL_ACCURACY, ONE_SCALE
from neuralpath.papers.experiments import (
    NORMS,
    DataSpec,
    NetSpec,
    Results,
    TraceKernelParts,
    TraceLabelEnergy,
    WidenValue,
    kernels,
    paired,
    printed,
)


def parts_of_fixed_and_learnt_gates(evidence: Evidence) -> tuple[Aspect, ...]:
    """C6, in training: exact, so that no run may differ."""
    cross: list[Check] = []
    fixed: list[Check] = []
    for found in evidence.of("kernel-parts"):
        for regime in found.sweep.config.regimes:
            measured = by_seed(found.results, TraceKernelParts, regime=regime)
            if not measured:
                continue
            points = [point for run in measured.values() for point in run["measured"]]
            where = f"{found.sweep.config.data.label} {found.sweep.config.net.label} {regime}"
            for part, checks in (("cross", cross), ("feature", fixed)):
                if part == "feature" and regime == "DL":
                    continue
                largest = max(abs(point[part]["frobenius"]) for point in points)
                checks += is_exact(where, f"{largest:g} at most", largest == 0, len(measured))
    return (
        Aspect("K^CROSS of a gated network", tuple(cross)),
        Aspect("K^F with fixed gates", tuple(fixed)),
    )


def falling_energy(evidence: Evidence) -> tuple[Aspect, ...]:
    """C12."""
    checks: list[Check] = []
    for found in evidence.of("label-energy"):
        for depth in found.sweep.config.depths:
            ends: dict[int, list[float | None]] = {
                task.seed: [run["measured"][at]["energy"] for at in (0, -1)]
                for task, run in runs(found.results, TraceLabelEnergy)
                if task.net.depth == depth
            }
            first, last = (
                {seed: value for seed, both in ends.items() if (value := both[at]) is not None} for at in (0, 1)
            )
            checks += is_smaller(f"{found.sweep.config.data.label} d = {depth}, before to after", last, first)
    return (Aspect("label energy", tuple(checks)),)


def one_scale(evidence: Evidence) -> tuple[Aspect, ...]:
    """C13: the worst moment of training of each run."""
    checks: list[Check] = []
    for found in evidence.of("kernel-parts"):
        measured = by_seed(found.results, TraceKernelParts, regime="DL")
        for norm, title in NORMS.items():
            worst = {seed: _worst_ratio(run, norm) for seed, run in measured.items()}
            where = f"{found.sweep.config.data.label} {found.sweep.config.net.label}, {title}"
            checks += lies_within(where, worst, 1.0, ONE_SCALE)
    return (Aspect("largest factor between K^F and K^V in training", tuple(checks)),)


def _worst_ratio(run: dict[str, Any], norm: str) -> float:
    """The factor by which the parts differ, whichever is the larger, at the worst moment."""
    ratios = [abs(math.log(point["feature"][norm] / point["value"][norm])) for point in run["measured"]]
    return math.exp(max(ratios))


_LIMIT: Literal["limit-tangent"] = "limit-tangent"

_NOT_A_CNTK = "the kernel is the NTK of a fully connected network, not the CNTK of the claim"
_NOT_WIDE = "a network of finite width, trained with Adam on cross-entropy; the claim is about wide value networks"


def learnt_and_random_gates(evidence: Evidence) -> tuple[Aspect, ...]:
    """C26: the networks on the same examples as the CNTK; fully connected ones and their NTK are shown beside."""
    learnt: list[Check] = []
    random: list[Check] = []
    cntk = printed(architecture="CNTK", dataset="CIFAR-10")
    figures = {
        regime: printed(paper="P1", where="table 2", architecture="GCONV", optimizer="Adam", regime=regime)
        for regime in ("FL", "FR-II")
    }
    for found in evidence.of("kernels"):
        config = found.sweep.config
        for part, data, net in _networks(config):
            tests = _accuracies(config, part, found.results)
            is_cntk = part == "images"
            limit = "CNTK" if is_cntk else "NTK"
            where, aside = f"{data.label} {net.label}", "" if is_cntk else _NOT_A_CNTK
            learnt += is_above(
                data, f"{where}, FL network - {limit}", paired(tests["FL"], tests[_LIMIT]),
                printed_difference(figures["FL"], cntk) if is_cntk else None, aside=aside,
            )  # fmt: skip
            random += is_above(
                data, f"{where}, {limit} - FR-II network", paired(tests[_LIMIT], tests["FR-II"]),
                printed_difference(cntk, figures["FR-II"]) if is_cntk else None, aside=aside,
            )  # fmt: skip
    networks = tuple(check for one in settings(evidence) for check in one.above("FL", "FR-II"))
    return (
        Aspect("learnt gates - CNTK", tuple(learnt)),
        Aspect("CNTK - random gates", tuple(random)),
        Aspect("FL - FR-II", networks),
    )


def _networks(config: kernels.KernelsConfig) -> Iterator[tuple[kernels.KernelsPart, DataSpec, NetSpec]]:
    """The networks that stand beside kernels on the same examples."""
    if "images" in config.only:
        yield "images", config.image_data, config.image_net
    if "dense" in config.only:
        yield "dense", config.dense_data, config.dense_net


def _accuracies(
    config: kernels.KernelsConfig, part: kernels.KernelsPart, results: Results
) -> dict[str, dict[int, float]]:
    """Test accuracies in per cent by seed: networks after their last epoch, so that test data choose nothing."""
    kernel_names: tuple[kernels.KernelOf, ...] = (_LIMIT, "path-random", "path-learnt")
    tests: dict[str, dict[int, float]] = {name: {} for name in (*kernel_names, "FL", "FR-II")}
    for seed in config.seeds:
        for name in kernel_names:
            fitted = kernels.regression(config, part, name, seed)
            if fitted in results:
                tests[name][seed] = 100 * results[fitted]["test_accuracy"]
        for regime in ("FL", "FR-II"):
            trained = kernels.gated(config, part, regime, seed)
            if trained in results:
                tests[regime][seed] = 100 * results[trained]["last"]["test_accuracy"]
    return tests


def networks_and_their_kernel(evidence: Evidence) -> tuple[Aspect, ...]:
    """C37: wider value networks behind the same gates come near their kernel, in outputs and in accuracy.

    Networks as they are, beside kernel regression with their own gates, are shown and do not decide.
    """
    nearer: list[Check] = []
    alike: list[Check] = []
    for found in evidence.of("kernels"):
        config = found.sweep.config
        if "widened" in config.only:
            for gates in ("random", "learnt"):
                narrow, wide = _widened(config, found.results, gates)
                where = f"{config.wide_data.label} {config.wide_net.label}, {gates} gates"
                distances = ({seed: run["distance"] for seed, run in some.items()} for some in (wide, narrow))
                nearer += is_smaller(f"{where}, narrowest to widest", *distances)
                accuracies = ({seed: 100 * run[name] for seed, run in wide.items()} for name in ("network", "kernel"))
                alike += is_within(
                    config.wide_data, f"{where}, the widest", paired(*accuracies), -KERNEL_ACCURACY, KERNEL_ACCURACY
                )
        for part, data, net in _networks(config):
            tests = _accuracies(config, part, found.results)
            for gates, network in (("random", "FR-II"), ("learnt", "FL")):
                pair = paired(tests[network], tests[f"path-{gates}"])
                where = f"{data.label} {net.label}, {gates} gates, as it is"
                alike += is_within(data, where, pair, -KERNEL_ACCURACY, KERNEL_ACCURACY, aside=_NOT_WIDE)
    return (
        Aspect("distance of test outputs", tuple(nearer)),
        Aspect("accuracy of the network - its kernel", tuple(alike)),
    )


def _widened(config: kernels.KernelsConfig, results: Results, gates: str) -> tuple[dict[int, Any], dict[int, Any]]:
    """The narrowest and the widest value networks by seed; nothing narrow where all are of one width."""
    by_width = [
        {
            task.seed: run
            for task, run in runs(results, WidenValue, repeats=repeats)
            if (task.gates is None) == (gates == "random") and not run["diverged"]
        }
        for repeats in (min(config.repeats), max(config.repeats))
    ]
    return ({} if len(set(config.repeats)) == 1 else by_width[0]), by_width[1]
