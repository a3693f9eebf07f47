"""Experiment `theorem`: the value tangent kernel against its expectation, its limits, and its change in training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.grids import Course, Grid, counted, course, finished_runs, grid, part_of
from neuralpath.papers.experiments.kernel_draws import ApproachLimits, DrawKernels, DrawnFamily, FirstLayer, TrainLazily
from neuralpath.papers.experiments.seed_tables import mean_curves
from neuralpath.papers.experiments.settings import check_integers
from neuralpath.papers.experiments.statistics import Read, Runs, means, spread
from neuralpath.papers.experiments.summary_items import Cell, Curves, SummaryItem, Table
from neuralpath.papers.runs import Task

LIMITS = {"dependent": "K^(d)", "independent": "d Σ Π"}
"""Limits of the kernel of the weights that made the gates, and of other weights."""

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
        check_integers(1, widths=self.widths, other_widths=self.other_widths, limit_widths=self.limit_widths)
        check_integers(1, deep_width=self.deep_width, n_examples=self.n_examples, most_draws=self.most_draws)
        check_integers(1, lazy_widths=self.lazy_widths, lazy_steps=self.lazy_steps, lazy_seeds=self.lazy_seeds)
        check_integers(2, depth=self.depth, depths=self.depths, deep_draws=self.deep_draws)


def tasks(config: TheoremConfig) -> tuple[Task, ...]:
    """Runs of all four parts, seed by seed."""
    grids = (_draws(config), _deep_draws(config), _limits(config), _lazy(config))
    points = [runs for points in grids for runs in points.values()]
    return tuple(runs[seed] for seed in config.seeds for runs in points)


def _draws(config: TheoremConfig) -> Grid:
    """By family and width."""

    def task(family: DrawnFamily, width: int, seed: int) -> DrawKernels:
        return DrawKernels(family, width, config.depth, config.n_examples, _n_draws(config, width), seed)

    points: Grid = {}
    for family in config.families:
        widths = config.widths if family == "fc" else config.other_widths
        points |= grid(task, config.seeds, family=[family], width=widths)
    return points


def _deep_draws(config: TheoremConfig) -> Grid:
    """By family and depth."""
    task = partial(DrawKernels, width=config.deep_width, n_examples=config.n_examples, n_draws=config.deep_draws)
    return grid(task, config.seeds, family=config.deep_families, depth=config.depths)


def _limits(config: TheoremConfig) -> Grid:
    """By width."""

    def task(width: int, seed: int) -> ApproachLimits:
        return ApproachLimits(width, config.depth, config.n_examples, _n_draws(config, width), seed)

    return grid(task, config.seeds, width=config.limit_widths)


def _lazy(config: TheoremConfig) -> Grid:
    """By the variance of the first layer's weights, and width."""

    def task(first_layer: FirstLayer, width: int, seed: int) -> TrainLazily:
        return TrainLazily(first_layer, width, 3, config.n_examples, config.lazy_steps, config.lazy_seeds, seed)

    return grid(task, config.seeds, first_layer=config.first_layers, width=config.lazy_widths)


def _n_draws(config: TheoremConfig, width: int) -> int:
    """Many where they are cheap."""
    return max(6, min(config.most_draws, 16384 // width))


def summary(config: TheoremConfig, results: Results) -> tuple[SummaryItem, ...]:
    """A table and a figure of each part."""
    items = (
        *_concentration(config, finished_runs(_draws(config), results)),
        *_depths(config, finished_runs(_deep_draws(config), results)),
        *_two_limits(finished_runs(_limits(config), results)),
        *_training(config, finished_runs(_lazy(config), results)),
    )
    return counted(items, tasks(config), results)


def _concentration(config: TheoremConfig, every: dict[tuple[DrawnFamily, int], Runs]) -> tuple[SummaryItem, ...]:
    rows: list[dict[str, Cell]] = []
    laws: list[dict[str, Cell]] = []
    for family in config.families:
        by_width = part_of(every, family)
        rows += [{"network": family, "width": width} | _drawn_row(width, runs) for width, runs in by_width.items()]
        squares = {
            width: [distance**2 for run in runs.values() for distance in run["distances"]]
            for width, runs in by_width.items()
        }
        for least in (0, LAW_FROM):
            power, error = (None if part is None else part / 2 for part in _law(squares, least))
            law: dict[str, Cell] = {"power of the width": power, "standard error": error}
            laws.append({"network": family, "widths from": least or "all", **law})
    courses = {str(family): course(part_of(every, family), lambda run: run["distance"]) for family in config.families}
    return (
        Table.of(
            "One draw of the value tangent kernel against its expectation",
            rows,
            "Root mean square over draws. The last column is the median over entries: about 0.7 where the expectation "
            "is exact.",
        ),
        Table.of("Law of the distance", laws, "-1/2 is expected."),
        Curves("One draw and its expectation", "width", "relative distance", mean_curves(courses), log="xy"),
    )


def _drawn_row(width: int, runs: Runs) -> dict[str, Cell]:
    columns: dict[str, Read] = {
        "relative distance": lambda run: run["distance"],
        "times sqrt(width)": lambda run: run["distance"] * math.sqrt(width),
        "eigenvalue ratios from": lambda run: run["eigenvalue_ratios"][0],
        "to": lambda run: run["eigenvalue_ratios"][1],
    }
    off = max((run["mean_off_in_errors"] for run in runs.values()), default=None)
    return {**means(runs, columns), "mean of the draws off by, in standard errors": off}


def _depths(config: TheoremConfig, every: dict[tuple[DrawnFamily, int], Runs]) -> tuple[SummaryItem, ...]:
    from neuralpath.kernels import printed_variance_bound

    width = config.deep_width
    bounds = {
        # In units of the squared expectation, for open gates and inputs whose squared norm is their dimension.
        depth: printed_variance_bound(1, width, depth, 1 / width) / depth**2
        for depth in config.depths
        if 4 * depth < width**2
    }
    rows: list[dict[str, Cell]] = []
    for (family, depth), runs in every.items():
        variance = spread(run["distance"] ** 2 for run in runs.values())
        bound = bounds.get(depth) if family == "open" else None
        rows.append(
            {
                "gates": family,
                "depth": depth,
                "relative variance": variance,
                "in units of d / w": variance.times(width / depth) if variance else None,
                "printed bound": bound,
                "measured / bound": variance.mean / bound if variance and bound else None,
            }
        )
    courses: dict[str, Course] = {
        family: course(part_of(every, family), lambda run: run["distance"] ** 2) for family in config.deep_families
    }
    courses["printed bound (P0 theorem 4.1)"] = [{float(depth): bound for depth, bound in bounds.items()}]
    return (
        Table.of(
            f"Relative variance against depth, width {width}",
            rows,
            "`open` has all gates open and random signs, the case of the printed bound, whose dependence on the depth "
            "is wrong (erratum E13).",
        ),
        Curves(f"Variance against depth, width {width}", "depth", "relative variance", mean_curves(courses), log="xy"),
    )


def _two_limits(by_width: dict[int, Runs]) -> tuple[SummaryItem, ...]:
    def distance(kind: str, limit: str) -> Read:
        return lambda run: run["distance"][kind][limit]

    pairs = list(product(LIMITS, repeat=2))
    columns = {f"{kind} to {LIMITS[limit]}": distance(kind, limit) for kind, limit in pairs}
    courses = {f"{kind} weights to the {limit} limit": course(by_width, distance(kind, limit)) for kind, limit in pairs}
    powers = []
    for kind in LIMITS:
        power, error = _law(
            {
                width: [distance**2 for run in runs.values() for distance in run["distances"][kind]]
                for width, runs in by_width.items()
            }
        )
        powers += [f"{power / 2:.3f} ± {error / 2:.3f} ({kind})"] if power and error is not None else []
    apart = spread(run["between_limits"] for runs in by_width.values() for run in runs.values())
    return (
        Table.of(
            "Two limits: weights that made the gates, and others",
            [{"width": width} | means(runs, columns) for width, runs in by_width.items()],
            "Relative distances."
            + (f" The limits are {apart.mean:.3f} apart." if apart else "")
            + (f" Powers of the width for each one's own limit: {' and '.join(powers)}." if powers else ""),
        ),
        Curves("Distances from the two limits", "width", "relative distance", mean_curves(courses), log="xy"),
    )


def _training(config: TheoremConfig, every: dict[tuple[FirstLayer, int], Runs]) -> tuple[SummaryItem, ...]:
    columns = {
        "gates that differ in %": "flips",
        "change of the kernel in %": "kernel",
        "off the fixed kernel's prediction in %": "prediction",
        "loss left in %": "loss",
    }
    quantities = {"flips": "gates that differ", "kernel": "change of the kernel", "prediction": "off the fixed kernel"}
    rows: list[dict[str, Cell]] = []
    laws: list[dict[str, Cell]] = []
    courses = {}
    for first in config.first_layers:
        variance = "2 / width" if first == "width" else "2 / fan-in"
        by_width = {
            # Each run has several networks.
            width: {name: [value for run in runs.values() for value in run[name]] for name in columns.values()}
            for width, runs in part_of(every, first).items()
        }
        for width, values in by_width.items():
            cells = {title: spread(100 * value for value in values[name]) for title, name in columns.items()}
            rows.append({"variance of the first layer": variance, "width": width, **cells})
        for name, quantity in quantities.items():
            samples = {width: values[name] for width, values in by_width.items()}
            (power, error), (wide_power, wide_error) = _law(samples), _law(samples, LAW_FROM)
            laws.append(
                {
                    "variance of the first layer": variance,
                    "quantity": quantity,
                    "power of the width": power,
                    "standard error": error,
                    f"from width {LAW_FROM}": wide_power,
                    "standard error from there": wide_error,
                }
            )
            if name != "prediction":
                courses[f"{quantity}, first layer {variance}"] = [
                    {float(width): value} for width, values in samples.items() for value in values
                ]
    return (
        Table.of(
            "Gates and kernel in training",
            rows,
            f"After {config.lazy_steps} steps of gradient descent with a tenth of the largest stable rate.",
        ),
        Table.of(
            "Laws of the change in training", laws, "The papers say that gates and kernel change as the power -1/2."
        ),
        Curves("Change in training", "width", "share", mean_curves(courses), log="xy"),
    )


def _law(samples: Mapping[int, Sequence[float]], least: int = 0) -> tuple[float | None, float | None]:
    """The power of the width and its standard error, from the large enough widths with at least two positive values."""
    import torch

    from neuralpath.kernels import fitted_power

    wide = {width: values for width, values in samples.items() if width >= least}
    usable = {width: values for width, values in wide.items() if len(values) >= 2 and sum(values) > 0}
    if len(usable) < 2:
        return None, None
    # A network of which no gate flips counts as one of the smallest share that is not 0.
    floor = min(value for values in usable.values() for value in values if value > 0)
    law = fitted_power(list(usable), [torch.tensor(values).double().clamp(min=floor) for values in usable.values()])
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
