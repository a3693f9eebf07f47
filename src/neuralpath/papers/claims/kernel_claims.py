"""Claims about kernels: C4, C6, C12, C13, C17, C22, C26, C29, C35 to C37."""

import math
from collections.abc import Iterator
from dataclasses import replace

import neuralpath.papers.experiments as experiments
from neuralpath.kernels import printed_variance_bound
from neuralpath.papers.claims import bounds, estimates
from neuralpath.papers.claims.accuracy_claims import regime_settings
from neuralpath.papers.claims.estimates import Comparison, Gap, Values, is_exact, is_smaller, lies_within, too_few
from neuralpath.papers.claims.rows import Part, Records, SweepRecords, claim
from neuralpath.papers.experiments import ApproachLimits, DrawKernels, GateOverlaps, Spread, TrainLazily, kernels

# Kernels during training


@claim("K^CROSS of a gated network", "K^F with fixed gates")
def c6(records: Records, cross: Part, fixed: Part) -> None:
    """C6: the parts of the tangent kernel; during training no run may differ from 0."""
    for sweep in records.of("kernel-parts"):
        for regime in sweep.config.regimes:
            runs = sweep.by_seed(experiments.TraceKernelParts, "measured", regime=regime).values()
            where = f"{sweep.config.data.label} {sweep.config.net.label} {regime}"
            for name, part in (("cross", cross), ("feature", fixed)):
                if name == "cross" or regime != "DL":
                    largest = max((abs(point[name]["frobenius"]) for run in runs for point in run), default=0.0)
                    part += is_exact(where, f"{largest:g} at most", largest == 0, len(runs))


@claim("label energy")
def c12(records: Records, part: Part) -> None:
    """C12: the label energy falls."""
    for sweep in records.of("label-energy"):
        for depth in sweep.config.depths:
            runs = {task.seed: run for task, run in sweep.runs(experiments.TraceLabelEnergy) if task.net.depth == depth}
            by_seed = [{seed: run["measured"][at]["energy"] for seed, run in runs.items()} for at in (0, -1)]
            first, last = ({s: energy for s, energy in values.items() if energy is not None} for values in by_seed)
            part += is_smaller(f"{sweep.config.data.label} d = {depth}, before to after", last, first)


@claim("largest factor between K^F and K^V in training")
def c13(records: Records, part: Part) -> None:
    """C13: value and feature part at the worst moment of training of each run, whichever is larger."""
    for sweep in records.of("kernel-parts"):
        runs = sweep.by_seed(experiments.TraceKernelParts, "measured", regime="DL")
        for norm, title in experiments.NORMS.items():
            worst = {
                seed: math.exp(max(abs(math.log(point["feature"][norm] / point["value"][norm])) for point in run))
                for seed, run in runs.items()
            }
            where = f"{sweep.config.data.label} {sweep.config.net.label}, {title}"
            part += lies_within(where, worst, 1.0, bounds.ONE_SCALE)


# Kernels as estimators

_NOT_A_CNTK = "the kernel is the NTK of a fully connected network, not the CNTK of the claim"
_NOT_WIDE = "a network of finite width, trained with Adam on cross-entropy; the claim is about wide value networks"


@claim("learned gates - CNTK", "CNTK - random gates", "FL - FR-II")
def c26(records: Records, learned: Part, random: Part, networks: Part) -> None:
    """C26: networks and the CNTK on the same examples; fully connected networks and their NTK do not count."""
    cntk = experiments.printed(architecture="CNTK", dataset="CIFAR-10")
    fl, fr = (
        experiments.printed(paper="P1", where="table 2", architecture="GCONV", optimizer="Adam", regime=regime)
        for regime in ("FL", "FR-II")
    )
    for sweep in records.of("kernels"):
        for part, data, where, tests in _networks(sweep):
            limit, excluded = ("CNTK", "") if part == "images" else ("NTK", _NOT_A_CNTK)
            for comparisons, label, first, second, pair in (
                (learned, f"FL network - {limit}", "FL", "limit-tangent", (fl, cntk)),
                (random, f"{limit} - FR-II network", "limit-tangent", "FR-II", (cntk, fr)),
            ):
                fields = {"printed": None if excluded else estimates.printed_difference(*pair), "excluded": excluded}
                comparisons += Gap.between(data, f"{where}, {label}", tests[first], tests[second], **fields).above()
    for setting in regime_settings(records):
        networks += setting.gap("FL", "FR-II").above()


@claim("distance of test outputs", "accuracy of the network - its kernel")
def c37(records: Records, nearer: Part, alike: Part) -> None:
    """C37: wider value networks with the same gates approach their kernel, in outputs and in accuracy."""
    near = (-bounds.KERNEL_ACCURACY, bounds.KERNEL_ACCURACY)
    for sweep in records.of("kernels"):
        config = sweep.config
        ends = (min(config.repeats), max(config.repeats))
        widened = [(task, run) for task, run in sweep.runs(experiments.WidenValue) if not run["diverged"]]
        for gates in ("random", "learnt") if "widened" in config.only else ():
            runs = [(task, run) for task, run in widened if (task.gates is None) == (gates == "random")]
            narrow, wide = ({task.seed: run for task, run in runs if task.repeats == repeats} for repeats in ends)
            where = f"{config.wide_data.label} {config.wide_net.label}, {gates} gates"
            if len(set(config.repeats)) > 1:
                distances = ({seed: run["distance"] for seed, run in several.items()} for several in (wide, narrow))
                nearer += is_smaller(f"{where}, narrowest to widest", *distances)
            tests = ({seed: 100 * run[name] for seed, run in wide.items()} for name in ("network", "kernel"))
            alike += Gap.between(config.wide_data, f"{where}, the widest", *tests).within(*near)
        for _, data, label, reached in _networks(sweep):
            for gates, regime in (("random", "FR-II"), ("learnt", "FL")):
                where, ours = f"{label}, {gates} gates, not widened", (reached[regime], reached[f"path-{gates}"])
                alike += Gap.between(data, where, *ours, excluded=_NOT_WIDE).within(*near)


def _networks(
    sweep: SweepRecords,
) -> Iterator[tuple[kernels.KernelsPart, experiments.DataSpec, str, dict[str, Values]]]:
    """The networks that are compared with kernels: data, label, and accuracies by seed on the same examples."""
    config, results = sweep.config, sweep.results
    part: kernels.KernelsPart
    kernel: kernels.KernelOf
    images, dense = (config.image_data, config.image_net), (config.dense_data, config.dense_net)
    for part, (data, net) in (("images", images), ("dense", dense)):
        if part not in config.only:
            continue
        tests: dict[str, Values] = {}
        for kernel in ("limit-tangent", "path-random", "path-learnt"):
            fits = {seed: kernels.regression(config, part, kernel, seed) for seed in config.seeds}
            tests[kernel] = {seed: 100 * results[fit]["test_accuracy"] for seed, fit in fits.items() if fit in results}
        for regime in ("FL", "FR-II"):
            runs = {seed: kernels.gated(config, part, regime, seed) for seed in config.seeds}
            tests[regime] = experiments.accuracies(runs, results, "last")  # so that test data choose no epoch
        yield part, data, f"{data.label} {net.label}", tests


# Random networks against width and depth

_MEANS = "mean of the draws off its expectation, in standard errors"
_FALLS = "relative distance of a draw against width"


@claim(_MEANS, _FALLS, "relative variance against depth")
def c4(records: Records, means: Part, falls: Part, deeper: Part) -> None:
    """C4: the expected value tangent kernel; for open gates the printed bound stands beside the variance (E13)."""
    _against_width(records, ("fc",), means, falls)
    for sweep in records.of("theorem"):
        config = sweep.config
        width, least, most = config.deep_width, min(config.depths), max(config.depths)
        for family in ("open", "fc"):
            if family not in config.deep_families:
                continue
            draws = (_distances(sweep, family, width, depth) for depth in (least, most))
            shallow, deep = ({seed: distance**2 for seed, distance in distances.items()} for distances in draws)
            compared = is_smaller(f"{family} w = {width}, d = {most} to {least}", shallow, deep)
            if family == "open" and compared:
                bound = printed_variance_bound(1, width, most, 1 / width) / most**2
                excess = f"{sum(deep.values()) / len(deep) / bound:.3g} times the bound (E13)"
                compared = [replace(compared[0], paper=f"at most {bound:.3g} at d = {most}", difference=excess)]
            deeper += compared


@claim(_MEANS, _FALLS)
def c22(records: Records, means: Part, falls: Part) -> None:
    """C22: the same for convolutional and residual networks."""
    _against_width(records, ("cnn", "residual"), means, falls)


def _against_width(records: Records, families: tuple[experiments.DrawnFamily, ...], means: Part, falls: Part) -> None:
    for sweep in records.of("theorem"):
        depth = sweep.config.depth
        for family in families:
            widths = sweep.config.widths if family == "fc" else sweep.config.other_widths
            least, most, where = min(widths), max(widths), f"{family} d = {depth}"
            off = sweep.by_seed(DrawKernels, "mean_off_in_errors", family=family, width=most, depth=depth)
            means += lies_within(f"{where}, w = {most}", off, 0.0, bounds.MEAN_OFF)
            if least < most:
                wide, narrow = (_distances(sweep, family, width, depth) for width in (most, least))
                falls += is_smaller(f"{where}, w = {least} to {most}", wide, narrow)


def _distances(sweep: SweepRecords, family: str, width: int, depth: int) -> Values:
    """The relative distance of a drawn kernel from its expectation, by seed."""
    return sweep.by_seed(DrawKernels, "distance", family=family, width=width, depth=depth)


@claim("distance from K^(d) against width", "relative distance from K^(d) at the largest width")
def c17(records: Records, falls: Part, ends: Part) -> None:
    """C17: the limit of wide ReLU networks."""
    for sweep in records.of("theorem"):
        widths = sweep.values_of(ApproachLimits, "width")
        if len(widths) > 1:
            distances = (sweep.by_seed(ApproachLimits, "distance", width=width) for width in (widths[0], widths[-1]))
            narrow, wide = ({seed: d["dependent"]["dependent"] for seed, d in runs.items()} for runs in distances)
            falls += is_smaller(f"dependent weights, w = {widths[0]} to {widths[-1]}", wide, narrow)
            ends += lies_within(f"dependent weights, w = {widths[-1]}", wide, 0.0, bounds.NEAR_LIMIT)


@claim("relative distance from their own limit", "nearer their own limit than the other")
def c35(records: Records, own: Part, other: Part) -> None:
    """C35: two initializations, two limits."""
    for sweep in records.of("theorem"):
        widths = sweep.values_of(ApproachLimits, "width")
        for weights, opposite in (("dependent", "independent"), ("independent", "dependent")) if widths else ():
            where = f"{weights} weights, w = {widths[-1]}"
            distances = sweep.by_seed(ApproachLimits, "distance", weights, width=widths[-1])
            to_own, to_other = ({seed: d[limit] for seed, d in distances.items()} for limit in (weights, opposite))
            if len(widths) > 1:
                own += lies_within(where, to_own, 0.0, bounds.NEAR_LIMIT)
            other += is_smaller(f"{where}: from the other limit to their own", to_own, to_other)


@claim("share of gates that flip", "relative change of K")
def c36(records: Records, flips: Part, kernel: Part) -> None:
    """C36: the power of the width with which gates and kernel change, from the width on where the law has set in."""
    for sweep in records.of("theorem"):
        for first in sweep.config.first_layers:
            widths = [w for w in sweep.values_of(TrainLazily, "width", first_layer=first) if w >= experiments.LAW_FROM]
            by_width = {width: sweep.by_seed(TrainLazily, first_layer=first, width=width) for width in widths}
            n_seeds = min(map(len, by_width.values()), default=0)
            for name, part in (("flips", flips), ("kernel", kernel)):
                samples = {w: [v for run in several.values() for v in run[name]] for w, several in by_width.items()}
                power, error = experiments.law_of(samples)
                if power is None or error is None:
                    continue
                estimate = Spread(power, None, error, n_seeds)
                variance = "2 / width" if first == "width" else "2 / fan-in"
                where = f"first layer of variance {variance}, w = {min(samples)} to {max(samples)}"
                text = f"power {estimates.with_interval(estimate, '.3f')}"
                outcome = estimates.within(estimate, -math.inf, bounds.ROOT_LAW)
                paper = ("-0.5 or below", f"{power + 0.5:+.3f}", power, -0.5)
                part.append(Comparison(where, text, outcome, *paper, excluded=too_few(None, n_seeds)))


@claim(
    "overlap off (π-θ)/2π, root mean square",
    "overlap off (π-θ)/2π against width",
    "remaining share of the distance from 1/2",
)
def c29(records: Records, near: Part, falls: Part, deep: Part) -> None:
    """C29: the overlap against the angle for all features, and its approach to 1/2 with depth for ReLU features."""
    for sweep in records.of("base-kernels"):
        for features in sweep.config.features:
            widths = sweep.values_of(GateOverlaps, "width", features=features)
            if not widths:
                continue
            draws = {width: sweep.by_seed(GateOverlaps, "layers", features=features, width=width) for width in widths}
            off: dict[int, Values] = {}
            for width, runs in draws.items():
                off[width] = {s: sum(layer["off_the_angle"] for layer in run) / len(run) for s, run in runs.items()}
            most, where = widths[-1], f"{sweep.config.data.label} {features} features"
            # Given its inputs, the gates of a layer are independent, so a share deviates by at most 1 / (2 sqrt(w)).
            noise = 0.5 / most**0.5
            near += lies_within(f"{where}, w = {most}, randomness alone gives {noise:.3g}", off[most], 0.0, noise)
            if len(widths) > 1:
                falls += is_smaller(f"{where}, w = {widths[0]} to {most}", off[most], off[widths[0]])
            if features == "relu":
                ends = {seed: (run[0]["overlap"], run[-1]["overlap"]) for seed, run in draws[most].items()}
                remaining = {seed: (0.5 - last) / (0.5 - first) for seed, (first, last) in ends.items()}
                where = f"{where}, w = {most}, layer {sweep.config.n_layers}"
                deep += lies_within(where, remaining, -bounds.HALF_THE_DISTANCE, bounds.HALF_THE_DISTANCE)
