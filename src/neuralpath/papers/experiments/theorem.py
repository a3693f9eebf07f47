"""Experiment `theorem`: the value tangent kernel against its expectation, its limits, and its change in training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.kernel_draws import ApproachLimits, DrawKernels, DrawnFamily, FirstLayer, TrainLazily
from neuralpath.papers.experiments.seed_tables import finished, mean_curves, spread
from neuralpath.papers.experiments.settings import check_integers
from neuralpath.papers.experiments.summary_items import Cell, Curves, SummaryItem, Table
from neuralpath.papers.runs import Task

Kind = Literal["dependent", "independent"]
KINDS: tuple[Kind, ...] = ("dependent", "independent")

LAW_FROM = 128
"""Widths from which on laws are fitted too: where the distance is of order 1 the law has not set in yet."""


@dataclass(frozen=True)
class TheoremConfig:
    """One draw of the value tangent kernel against its expectation; the two limits; change in training."""

    families: tuple[DrawnFamily, ...] = ("fc", "cnn", "residual")
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    """Widths of fully connected networks."""
    other_widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    """Widths of convolutional and residual networks."""
    limit_widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    """Widths of fully connected networks that are compared with the two limits."""
    depth: int = 4
    """Weight layers where the width is varied."""
    depths: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    """Weight layers where the depth is varied, at the width that follows."""
    deep_width: int = 128
    deep_families: tuple[DrawnFamily, ...] = ("open", "fc", "cnn", "residual")
    """Networks whose depth is varied; `open` has no gates."""
    n_examples: int = 8
    most_draws: int = 64
    """Draws of the weights at the smallest width; fewer where they are dear."""
    deep_draws: int = 300
    """Draws where the depth is varied."""
    lazy_widths: tuple[int, ...] = (32, 64, 128, 256, 512, 1024, 2048)
    """Widths of networks that are trained."""
    first_layers: tuple[FirstLayer, ...] = ("width", "in")
    """Variance of the first layer's weights of networks that are trained: 2 / width as in the papers, 2 / fan-in."""
    lazy_steps: int = 100
    lazy_seeds: int = 8
    """Networks that are trained at each width, for each seed."""
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        check_integers(
            1,
            widths=self.widths,
            other_widths=self.other_widths,
            limit_widths=self.limit_widths,
            deep_width=self.deep_width,
            n_examples=self.n_examples,
            most_draws=self.most_draws,
            lazy_widths=self.lazy_widths,
            lazy_steps=self.lazy_steps,
            lazy_seeds=self.lazy_seeds,
        )
        check_integers(2, depth=self.depth, depths=self.depths, deep_draws=self.deep_draws)


def tasks(config: TheoremConfig) -> tuple[Task, ...]:
    """Runs of all four parts."""
    found: list[Task] = []
    for seed in config.seeds:
        found += [_drawn(config, f, w, config.depth, seed) for f in config.families for w in _widths(config, f)]
        found += [_deep(config, family, depth, seed) for family in config.deep_families for depth in config.depths]
        found += [_limits(config, width, seed) for width in config.limit_widths]
        found += [_lazy(config, first, width, seed) for first in config.first_layers for width in config.lazy_widths]
    return tuple(found)


def _widths(config: TheoremConfig, family: DrawnFamily) -> tuple[int, ...]:
    return config.widths if family == "fc" else config.other_widths


def _n_draws(config: TheoremConfig, width: int) -> int:
    """Many where they are cheap."""
    return max(6, min(config.most_draws, 16384 // width))


def _drawn(config: TheoremConfig, family: DrawnFamily, width: int, depth: int, seed: int) -> DrawKernels:
    return DrawKernels(family, width, depth, config.n_examples, _n_draws(config, width), seed)


def _deep(config: TheoremConfig, family: DrawnFamily, depth: int, seed: int) -> DrawKernels:
    return DrawKernels(family, config.deep_width, depth, config.n_examples, config.deep_draws, seed)


def _limits(config: TheoremConfig, width: int, seed: int) -> ApproachLimits:
    return ApproachLimits(width, config.depth, config.n_examples, _n_draws(config, width), seed)


def _lazy(config: TheoremConfig, first: FirstLayer, width: int, seed: int) -> TrainLazily:
    return TrainLazily(first, width, 3, config.n_examples, config.lazy_steps, config.lazy_seeds, seed)


def summary(config: TheoremConfig, results: Results) -> tuple[SummaryItem, ...]:
    """A table and a figure of each part."""
    note = finished(tasks(config), results)
    return (
        *_concentration(config, results, note),
        *_depths(config, results, note),
        *_two_limits(config, results, note),
        *_training(config, results, note),
    )


def _concentration(config: TheoremConfig, results: Results, note: str) -> tuple[SummaryItem, ...]:
    rows: list[dict[str, Cell]] = []
    laws: list[dict[str, Cell]] = []
    courses: dict[str, list[dict[float, float | None]]] = {}
    for family in config.families:
        samples: dict[int, list[float]] = {}
        by_seed: dict[int, dict[float, float | None]] = {seed: {} for seed in config.seeds}
        for width in _widths(config, family):
            runs = _found(results, {seed: _drawn(config, family, width, config.depth, seed) for seed in config.seeds})
            samples[width] = [distance for run in runs.values() for distance in run["distances"]]
            for seed, run in runs.items():
                by_seed[seed][float(width)] = run["distance"]
            rows.append(
                {
                    "network": family,
                    "width": width,
                    "relative distance": spread(run["distance"] for run in runs.values()),
                    "times sqrt(width)": spread(run["distance"] * math.sqrt(width) for run in runs.values()),
                    "eigenvalue ratios from": spread(run["eigenvalue_ratios"][0] for run in runs.values()),
                    "to": spread(run["eigenvalue_ratios"][1] for run in runs.values()),
                    "mean of the draws off by, in standard errors": max(
                        (run["mean_off_in_errors"] for run in runs.values()), default=None
                    ),
                }
            )
        courses[family] = list(by_seed.values())
        for least in (0, LAW_FROM):
            law = _law({width: [value**2 for value in values] for width, values in samples.items() if width >= least})
            power, error = (None if part is None else part / 2 for part in law)
            laws.append(
                {"network": family, "widths from": least or "all", "power of the width": power, "standard error": error}
            )
    return (
        Table.of(
            "One draw of the value tangent kernel against its expectation",
            rows,
            f"Root mean square over draws. The last column is the median over entries: about 0.7 where the expectation "
            f"is exact. {note}",
        ),
        Table.of("Law of the distance", laws, f"-1/2 is expected. {note}"),
        Curves("One draw and its expectation", "width", "relative distance", mean_curves(courses), note, "xy"),
    )


def _depths(config: TheoremConfig, results: Results, note: str) -> tuple[SummaryItem, ...]:
    from neuralpath.kernels import printed_variance_bound

    rows: list[tuple[Cell, ...]] = []
    courses: dict[str, list[dict[float, float | None]]] = {}
    width = config.deep_width
    bounds = {
        # In units of the squared expectation, for open gates and inputs whose squared norm is their dimension.
        depth: printed_variance_bound(1, width, depth, 1 / width) / depth**2
        for depth in config.depths
        if depth >= 2 and 4 * depth < width**2
    }
    for family in config.deep_families:
        by_seed: dict[int, dict[float, float | None]] = {seed: {} for seed in config.seeds}
        for depth in config.depths:
            runs = _found(results, {seed: _deep(config, family, depth, seed) for seed in config.seeds})
            variance = spread(run["distance"] ** 2 for run in runs.values())
            for seed, run in runs.items():
                by_seed[seed][float(depth)] = run["distance"] ** 2
            bound = bounds.get(depth) if family == "open" else None
            rows.append(
                (
                    family,
                    depth,
                    variance,
                    None if variance is None else variance.times(width / depth),
                    bound,
                    None if variance is None or bound is None else variance.mean / bound,
                )
            )
        courses[family] = list(by_seed.values())
    courses["printed bound (P0 theorem 4.1)"] = [{float(depth): bound for depth, bound in bounds.items()}]
    return (
        Table(
            f"Relative variance against depth, width {width}",
            ("gates", "depth", "relative variance", "in units of d / w", "printed bound", "measured / bound"),
            tuple(rows),
            f"`open` has all gates open and random signs, the case of the printed bound, whose dependence on the depth "
            f"is wrong (erratum E13). {note}",
        ),
        Curves(
            f"Variance against depth, width {width}", "depth", "relative variance", mean_curves(courses), note, "xy"
        ),
    )


def _two_limits(config: TheoremConfig, results: Results, note: str) -> tuple[SummaryItem, ...]:
    rows: list[tuple[Cell, ...]] = []
    courses: dict[str, list[dict[float, float | None]]] = {
        f"{kind} weights to the {limit} limit": [{} for _ in config.seeds] for kind in KINDS for limit in KINDS
    }
    samples: dict[Kind, dict[int, list[float]]] = {kind: {} for kind in KINDS}
    between = []
    for width in config.limit_widths:
        runs = _found(results, {seed: _limits(config, width, seed) for seed in config.seeds})
        cells = [spread(r["distance"][kind][limit] for r in runs.values()) for kind in KINDS for limit in KINDS]
        rows.append((width, *cells))
        between += [run["between_limits"] for run in runs.values()]
        for kind in KINDS:
            samples[kind][width] = [distance**2 for run in runs.values() for distance in run["distances"][kind]]
            for limit in KINDS:
                for index, seed in enumerate(config.seeds):
                    if seed in runs:
                        course = courses[f"{kind} weights to the {limit} limit"][index]
                        course[float(width)] = runs[seed]["distance"][kind][limit]
    laws = {kind: _law(samples[kind]) for kind in KINDS}
    known = {kind: law for kind, law in laws.items() if law[0] is not None}
    said = " and ".join(f"{e / 2:.3f} ± {s / 2:.3f} ({kind})" for kind, (e, s) in known.items() if e and s is not None)
    apart = spread(between)
    return (
        Table(
            "Two limits: weights that made the gates, and others",
            ("width", "dependent to K^(d)", "dependent to d Σ Π", "independent to K^(d)", "independent to d Σ Π"),
            tuple(rows),
            "Relative distances. "
            + ("" if apart is None else f"The limits are {apart.mean:.3f} apart. ")
            + (f"Powers of the width for each one's own limit: {said}. " if said else "")
            + note,
        ),
        Curves("Distances from the two limits", "width", "relative distance", mean_curves(courses), note, "xy"),
    )


def _training(config: TheoremConfig, results: Results, note: str) -> tuple[SummaryItem, ...]:
    rows: list[tuple[Cell, ...]] = []
    laws: list[tuple[Cell, ...]] = []
    courses: dict[str, list[dict[float, float | None]]] = {}
    names = {"flips": "gates that differ", "kernel": "change of the kernel", "prediction": "off the fixed kernel"}
    for first in config.first_layers:
        samples: dict[str, dict[int, list[float]]] = {name: {} for name in names}
        variance = "2 / width" if first == "width" else "2 / fan-in"
        for width in config.lazy_widths:
            runs = list(_found(results, {s: _lazy(config, first, width, s) for s in config.seeds}).values())
            values = {name: [value for run in runs for value in run[name]] for name in names}
            rows.append(
                (
                    variance,
                    width,
                    *(spread(100 * value for value in found) for found in values.values()),
                    spread(100 * value for run in runs for value in run["loss"]),
                )
            )
            for name, found in values.items():
                samples[name][width] = found
        for name, shown_name in names.items():
            laws.append((variance, shown_name, *_law(samples[name]), *_law(_wide(samples[name]))))
            if name != "prediction":
                courses[f"{shown_name}, first layer {variance}"] = [
                    {float(width): values[k] for width, values in samples[name].items() if k < len(values)}
                    for k in range(max((len(values) for values in samples[name].values()), default=0))
                ]
    return (
        Table(
            "Gates and kernel in training",
            (
                "variance of the first layer",
                "width",
                "gates that differ in %",
                "change of the kernel in %",
                "off the fixed kernel's prediction in %",
                "loss left in %",
            ),
            tuple(rows),
            f"After {config.lazy_steps} steps of gradient descent with a tenth of the largest stable rate. {note}",
        ),
        Table(
            "Laws of the change in training",
            (
                "variance of the first layer",
                "quantity",
                "power of the width",
                "standard error",
                f"from width {LAW_FROM}",
                "standard error from there",
            ),
            tuple(laws),
            f"The papers say that gates and kernel change as the power -1/2. {note}",
        ),
        Curves("Change in training", "width", "share", mean_curves(courses), note, "xy"),
    )


def _wide(samples: Mapping[int, Sequence[float]]) -> dict[int, Sequence[float]]:
    return {width: values for width, values in samples.items() if width >= LAW_FROM}


def _found(results: Results, by_seed: Mapping[int, Task]) -> dict[int, dict[str, Any]]:
    return {seed: results[task] for seed, task in by_seed.items() if task in results}


def _law(samples: Mapping[int, Sequence[float]]) -> tuple[float | None, float | None]:
    """The power of the width and its standard error, from the widths with at least two positive values."""
    import torch

    from neuralpath.kernels import fitted_power

    usable = {width: values for width, values in samples.items() if len(values) >= 2 and sum(values) > 0}
    if len(usable) < 2:
        return None, None
    # A network of which no gate flips counts as one of the smallest share that is not 0.
    least = min(value for values in usable.values() for value in values if value > 0)
    law = fitted_power(list(usable), [torch.tensor(values).double().clamp(min=least) for values in usable.values()])
    return law.exponent, law.standard_error


_PAPER = replace(TheoremConfig(), other_widths=TheoremConfig().widths, deep_draws=1000, seeds=(0, 1, 2, 3, 4))

EXPERIMENT = Experiment(
    name="theorem",
    description="the value tangent kernel against its expectation, its two limits, and its change in training",
    source="P0 section 4.1, P1 section 5.1, P2 section 5.1",
    config=TheoremConfig,
    presets={
        "smoke": TheoremConfig(
            widths=(8, 64),
            other_widths=(64,),
            limit_widths=(64,),
            depth=3,
            depths=(2, 8),
            deep_width=32,
            deep_families=("open",),
            n_examples=4,
            most_draws=12,
            deep_draws=60,
            lazy_widths=(16, 256),
            first_layers=("in",),
            lazy_steps=20,
            lazy_seeds=3,
        ),
        "cpu": _PAPER,
        "paper": _PAPER,
    },
    reduced={"smoke": "two widths, two depths, few draws"},
    tasks=tasks,
    summary=summary,
)

run = EXPERIMENT.run
