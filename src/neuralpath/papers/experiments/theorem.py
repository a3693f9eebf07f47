"""Experiment `theorem`: the value tangent kernel against its expectation, its limits, and its change in training."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.grids import Grid, counted, course, figure, finished_runs, grid, part_of
from neuralpath.papers.experiments.kernel_draws import ApproachLimits, DrawKernels, DrawnFamily, FirstLayer, TrainLazily
from neuralpath.papers.experiments.settings import check_integers
from neuralpath.papers.experiments.statistics import Read, Runs, means, spread
from neuralpath.papers.experiments.summary_items import Cell, SummaryItem, Table
from neuralpath.papers.runs import Task

LIMITS = {"dependent": "K^(d)", "independent": "d Σ Π"}  # of the weights that made the gates, and of other weights
LAW_FROM = 128  # widths from which on laws are fitted too: where distances are of order 1 they have not set in yet


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
    points = [runs for points in _grids(config) for runs in points.values()]
    return tuple(runs[seed] for seed in config.seeds for runs in points)


def _grids(config: TheoremConfig) -> tuple[Grid, Grid, Grid, Grid]:
    """Draws by family and width; by family and depth; limits by width; training by first layer and width."""

    def n_draws(width: int) -> int:  # many where they are cheap
        return max(6, min(config.most_draws, 16384 // width))

    def draw(family: DrawnFamily, width: int, seed: int) -> DrawKernels:
        return DrawKernels(family, width, config.depth, config.n_examples, n_draws(width), seed)

    def limit(width: int, seed: int) -> ApproachLimits:
        return ApproachLimits(width, config.depth, config.n_examples, n_draws(width), seed)

    draws: Grid = {}
    for family in config.families:
        widths = config.widths if family == "fc" else config.other_widths
        draws |= grid(draw, config.seeds, family=[family], width=widths)
    deep = partial(DrawKernels, width=config.deep_width, n_examples=config.n_examples, n_draws=config.deep_draws)
    lengths: dict[str, Any] = {"n_steps_trained": config.lazy_steps, "n_networks": config.lazy_seeds}
    lazy = partial(TrainLazily, depth=3, n_examples=config.n_examples, **lengths)
    return (
        draws,
        grid(deep, config.seeds, family=config.deep_families, depth=config.depths),
        grid(limit, config.seeds, width=config.limit_widths),
        grid(lazy, config.seeds, first_layer=config.first_layers, width=config.lazy_widths),
    )


def summary(config: TheoremConfig, results: Results) -> tuple[SummaryItem, ...]:
    """A table and a figure of each part."""
    draws, deep, limits, lazy = (finished_runs(points, results) for points in _grids(config))
    items = (*_concentration(config, draws), *_depths(config, deep), *_two_limits(limits), *_training(config, lazy))
    return counted(items, tasks(config), results)


def _concentration(config: TheoremConfig, every: dict[tuple[DrawnFamily, int], Runs]) -> tuple[SummaryItem, ...]:
    rows: list[dict[str, Cell]] = []
    laws: list[tuple[Cell, ...]] = []
    for family in config.families:
        by_width = part_of(every, family)
        rows += [{"network": family, "width": width} | _drawn_row(width, runs) for width, runs in by_width.items()]
        for least in (0, LAW_FROM):
            power, error = _distance_law(by_width, least=least)
            laws.append((family, least or "all", power, error))
    courses = {str(family): course(part_of(every, family), lambda run: run["distance"]) for family in config.families}
    law_columns = ("network", "widths from", "power of the width", "standard error")
    note = "Root mean square over draws; the last column, a median over entries, is about 0.7 for an exact expectation."
    return (
        Table.of("One draw of the value tangent kernel against its expectation", rows, note),
        Table("Law of the distance", law_columns, tuple(laws), "-1/2 is expected."),
        figure("One draw and its expectation", "width", "relative distance", courses, log="xy"),
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

    width, families = config.deep_width, [str(family) for family in config.deep_families]
    bounds = {
        # In units of the squared expectation, for open gates and inputs whose squared norm is their dimension.
        depth: printed_variance_bound(1, width, depth, 1 / width) / depth**2
        for depth in config.depths
        if 4 * depth < width**2
    }
    columns = ("gates", "depth", "relative variance", "in units of d / w", "printed bound", "measured / bound")
    rows: list[tuple[Cell, ...]] = []
    for (family, depth), runs in every.items():
        variance = spread(run["distance"] ** 2 for run in runs.values())
        bound = bounds.get(depth) if family == "open" else None
        scaled = variance.times(width / depth) if variance else None
        rows.append((family, depth, variance, scaled, bound, variance.mean / bound if variance and bound else None))
    variances = {family: course(part_of(every, family), lambda run: run["distance"] ** 2) for family in families}
    variances["printed bound (P0 theorem 4.1)"] = [{float(depth): bound for depth, bound in bounds.items()}]
    note = "`open` is the case of the printed bound, whose dependence on the depth is wrong (erratum E13)."
    return (
        Table(f"Relative variance against depth, width {width}", columns, tuple(rows), note),
        figure(f"Variance against depth, width {width}", "depth", "relative variance", variances, log="xy"),
    )


def _two_limits(by_width: dict[int, Runs]) -> tuple[SummaryItem, ...]:
    def distance(kind: str, limit: str) -> Read:
        return lambda run: run["distance"][kind][limit]

    pairs = list(product(LIMITS, repeat=2))
    columns = {f"{kind} to {LIMITS[limit]}": distance(kind, limit) for kind, limit in pairs}
    courses = {f"{kind} weights to the {limit} limit": course(by_width, distance(kind, limit)) for kind, limit in pairs}
    note = "Relative distances."
    if apart := spread(run["between_limits"] for runs in by_width.values() for run in runs.values()):
        note += f" The limits are {apart.mean:.3f} apart."
    powers = []
    for kind in LIMITS:
        power, error = _distance_law(by_width, kind)
        powers += [f"{power:.3f} ± {error:.3f} ({kind})"] if power and error is not None else []
    if powers:
        note += f" Powers of the width for each one's own limit: {' and '.join(powers)}."
    rows = [{"width": width} | means(runs, columns) for width, runs in by_width.items()]
    return (
        Table.of("Two limits: weights that made the gates, and others", rows, note),
        figure("Distances from the two limits", "width", "relative distance", courses, log="xy"),
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
        layer = {"variance of the first layer": variance}
        by_width = {
            # Each run has several networks.
            width: {name: [value for run in runs.values() for value in run[name]] for name in columns.values()}
            for width, runs in part_of(every, first).items()
        }
        for width, values in by_width.items():
            cells = {title: spread(100 * value for value in values[name]) for title, name in columns.items()}
            rows.append({**layer, "width": width, **cells})
        for name, quantity in quantities.items():
            samples = {width: values[name] for width, values in by_width.items()}
            power, error = law_of(samples)
            law: dict[str, Cell] = {"quantity": quantity, "power of the width": power, "standard error": error}
            power, error = law_of(samples, LAW_FROM)
            laws.append({**layer, **law, f"from width {LAW_FROM}": power, "standard error from there": error})
            if name != "prediction":
                points = [{float(width): value} for width, values in samples.items() for value in values]
                courses[f"{quantity}, first layer {variance}"] = points
    note = f"After {config.lazy_steps} steps of gradient descent with a tenth of the largest stable rate."
    claim = "The papers say that gates and kernel change as the power -1/2."
    return (
        Table.of("Gates and kernel in training", rows, note),
        Table.of("Laws of the change in training", laws, claim),
        figure("Change in training", "width", "share", courses, log="xy"),
    )


_Powers = tuple[float | None, float | None]  # the power of the width and its standard error


def _distance_law(by_width: Mapping[int, Runs], kind: str = "", least: int = 0) -> _Powers:
    """The law of the root mean square of the distances, of one kind where there are several."""
    squares = {}
    for width, runs in by_width.items():
        distances = [run["distances"][kind] if kind else run["distances"] for run in runs.values()]
        squares[width] = [distance**2 for of_run in distances for distance in of_run]
    power, error = (None if part is None else part / 2 for part in law_of(squares, least))
    return power, error


def law_of(samples: Mapping[int, Sequence[float]], least: int = 0) -> _Powers:
    """The power of the width and its standard error, from the large enough widths with at least two positive values."""
    import torch

    from neuralpath.kernels import fitted_power

    usable = {width: v for width, v in samples.items() if width >= least and len(v) >= 2 and sum(v) > 0}
    if len(usable) < 2:
        return None, None
    # A network of which no gate flips counts as one of the smallest share that is not 0.
    floor = min(value for values in usable.values() for value in values if value > 0)
    law = fitted_power(list(usable), [torch.tensor(values).double().clamp(min=floor) for values in usable.values()])
    return law.exponent, law.standard_error


_PAPER = TheoremConfig(other_widths=TheoremConfig().widths, deep_draws=1000, seeds=(0, 1, 2, 3, 4))

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
