"""Claims about kernels during training and as estimators: C6, C12, C13, C26, C37."""

import math
from collections.abc import Iterator
from typing import Any, Literal

from neuralpath.papers.claims.estimates import (
    KERNEL_ACCURACY,
    ONE_SCALE,
    Comparison,
    is_above,
    is_exact,
    is_smaller,
    is_within,
    lies_within,
    printed_difference,
)
from neuralpath.papers.claims.regime_claims import in_all_settings
from neuralpath.papers.claims.rows import ClaimRow, claim_row
from neuralpath.papers.claims.sweep_records import Records, by_seed, runs
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


def c6(records: Records) -> ClaimRow:
    """C6: the parts of the tangent kernel; during training no run may differ from 0."""
    cross: list[Comparison] = []
    fixed: list[Comparison] = []
    for one in records.of("kernel-parts"):
        for regime in one.sweep.config.regimes:
            measured = by_seed(one.results, TraceKernelParts, regime=regime)
            if not measured:
                continue
            points = [point for run in measured.values() for point in run["measured"]]
            where = f"{one.sweep.config.data.label} {one.sweep.config.net.label} {regime}"
            for part, comparisons in (("cross", cross), ("feature", fixed)):
                if part == "feature" and regime == "DL":
                    continue
                largest = max(abs(point[part]["frobenius"]) for point in points)
                comparisons += is_exact(where, f"{largest:g} at most", largest == 0, len(measured))
    return claim_row("C6", records, {"K^CROSS of a gated network": cross, "K^F with fixed gates": fixed})


def c12(records: Records) -> ClaimRow:
    """C12: the label energy falls."""
    comparisons: list[Comparison] = []
    for one in records.of("label-energy"):
        for depth in one.sweep.config.depths:
            ends: dict[int, list[float | None]] = {
                task.seed: [run["measured"][at]["energy"] for at in (0, -1)]
                for task, run in runs(one.results, TraceLabelEnergy)
                if task.net.depth == depth
            }
            first, last = (
                {seed: value for seed, both in ends.items() if (value := both[at]) is not None} for at in (0, 1)
            )
            comparisons += is_smaller(f"{one.sweep.config.data.label} d = {depth}, before to after", last, first)
    return claim_row("C12", records, {"label energy": comparisons})


def c13(records: Records) -> ClaimRow:
    """C13: value and feature part at the worst moment of training of each run."""
    comparisons: list[Comparison] = []
    for one in records.of("kernel-parts"):
        measured = by_seed(one.results, TraceKernelParts, regime="DL")
        for norm, title in NORMS.items():
            worst = {seed: _worst_ratio(run, norm) for seed, run in measured.items()}
            where = f"{one.sweep.config.data.label} {one.sweep.config.net.label}, {title}"
            comparisons += lies_within(where, worst, 1.0, ONE_SCALE)
    return claim_row("C13", records, {"largest factor between K^F and K^V in training": comparisons})


def _worst_ratio(run: dict[str, Any], norm: str) -> float:
    """The factor between the parts, whichever is larger, at the worst moment."""
    ratios = [abs(math.log(point["feature"][norm] / point["value"][norm])) for point in run["measured"]]
    return math.exp(max(ratios))


_LIMIT: Literal["limit-tangent"] = "limit-tangent"

_NOT_A_CNTK = "the kernel is the NTK of a fully connected network, not the CNTK of the claim"
_NOT_WIDE = "a network of finite width, trained with Adam on cross-entropy; the claim is about wide value networks"


def c26(records: Records) -> ClaimRow:
    """C26: networks and the CNTK on the same examples; fully connected networks and their NTK do not count."""
    learned: list[Comparison] = []
    random: list[Comparison] = []
    cntk = printed(architecture="CNTK", dataset="CIFAR-10")
    fl, fr = (
        printed(paper="P1", where="table 2", architecture="GCONV", optimizer="Adam", regime=regime)
        for regime in ("FL", "FR-II")
    )
    for one in records.of("kernels"):
        config = one.sweep.config
        for part, data, net in _networks(config):
            tests = _accuracies(config, part, one.results)
            is_cntk = part == "images"
            limit, excluded = ("CNTK", "") if is_cntk else ("NTK", _NOT_A_CNTK)
            where = f"{data.label} {net.label}"
            learned += is_above(
                data,
                f"{where}, FL network - {limit}",
                paired(tests["FL"], tests[_LIMIT]),
                printed_difference(fl, cntk) if is_cntk else None,
                excluded=excluded,
            )
            random += is_above(
                data,
                f"{where}, {limit} - FR-II network",
                paired(tests[_LIMIT], tests["FR-II"]),
                printed_difference(cntk, fr) if is_cntk else None,
                excluded=excluded,
            )
    return claim_row(
        "C26",
        records,
        {
            "learned gates - CNTK": learned,
            "CNTK - random gates": random,
            "FL - FR-II": in_all_settings(records, lambda setting: setting.above("FL", "FR-II")),
        },
    )


def _networks(config: kernels.KernelsConfig) -> Iterator[tuple[kernels.KernelsPart, DataSpec, NetSpec]]:
    """The networks that are compared with kernels on the same examples."""
    if "images" in config.only:
        yield "images", config.image_data, config.image_net
    if "dense" in config.only:
        yield "dense", config.dense_data, config.dense_net


def _accuracies(
    config: kernels.KernelsConfig, part: kernels.KernelsPart, results: Results
) -> dict[str, dict[int, float]]:
    """Test accuracies in per cent by seed; networks after their last epoch, so test data choose nothing."""
    kernel_names: tuple[kernels.KernelOf, ...] = (_LIMIT, "path-random", "path-learnt")
    tests: dict[str, dict[int, float]] = {name: {} for name in (*kernel_names, "FL", "FR-II")}
    for seed in config.seeds:
        for name in kernel_names:
            regression = kernels.regression(config, part, name, seed)
            if regression in results:
                tests[name][seed] = 100 * results[regression]["test_accuracy"]
        for regime in ("FL", "FR-II"):
            network = kernels.gated(config, part, regime, seed)
            if network in results:
                tests[regime][seed] = 100 * results[network]["last"]["test_accuracy"]
    return tests


def c37(records: Records) -> ClaimRow:
    """C37: wider value networks with the same gates approach their kernel, in outputs and in accuracy."""
    nearer: list[Comparison] = []
    alike: list[Comparison] = []
    bounds = (-KERNEL_ACCURACY, KERNEL_ACCURACY)
    for one in records.of("kernels"):
        config = one.sweep.config
        for gates in ("random", "learnt") if "widened" in config.only else ():
            narrow, wide = _widened(config, one.results, gates)
            where = f"{config.wide_data.label} {config.wide_net.label}, {gates} gates"
            distances = ({seed: run["distance"] for seed, run in several.items()} for several in (wide, narrow))
            nearer += is_smaller(f"{where}, narrowest to widest", *distances)
            tests = ({seed: 100 * run[name] for seed, run in wide.items()} for name in ("network", "kernel"))
            alike += is_within(config.wide_data, f"{where}, the widest", paired(*tests), *bounds)
        for part, data, net in _networks(config):
            reached = _accuracies(config, part, one.results)
            for gates, regime in (("random", "FR-II"), ("learnt", "FL")):
                pair = paired(reached[regime], reached[f"path-{gates}"])
                where = f"{data.label} {net.label}, {gates} gates, not widened"
                alike += is_within(data, where, pair, *bounds, excluded=_NOT_WIDE)
    return claim_row(
        "C37", records, {"distance of test outputs": nearer, "accuracy of the network - its kernel": alike}
    )


def _widened(config: kernels.KernelsConfig, results: Results, gates: str) -> tuple[dict[int, Any], dict[int, Any]]:
    """The narrowest and the widest value networks by seed; the first is empty if all have one width."""
    narrow, wide = (
        {
            task.seed: run
            for task, run in runs(results, WidenValue, repeats=repeats)
            if (task.gates is None) == (gates == "random") and not run["diverged"]
        }
        for repeats in (min(config.repeats), max(config.repeats))
    )
    return ({} if len(set(config.repeats)) == 1 else narrow), wide
