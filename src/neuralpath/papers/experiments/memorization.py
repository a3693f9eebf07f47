"""Experiment `memorization`: fitting random labels with fixed random gates, against depth and width (P0 2.3, 4.2)."""

from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from typing import Any

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.grids import Grid, counted, course, figure, finished_runs, grid, part_of, tasks_of
from neuralpath.papers.experiments.random_labels import REMAINING, FitPair, Inputs, Memorize
from neuralpath.papers.experiments.settings import check_given, check_integers, check_positive
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.papers.experiments.statistics import Read, Runs, means, spread
from neuralpath.papers.experiments.summary_items import Cell, Curves, SummaryItem, Table
from neuralpath.papers.runs import Task


@dataclass(frozen=True)
class MemorizationConfig:
    """Fixed random gates: training speed, spectrum and off-diagonal entries against depth and width."""

    data: DataSpec = field(default=DataSpec("mnist"))
    inputs: tuple[Inputs, ...] = ("images", "sphere")
    """Where the inputs come from; all are scaled to length 1, and their labels are random signs."""
    n_examples: int = 200
    widths: tuple[int, ...] = (25, 100, 500)
    depths: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16, 20)
    n_steps: int = 1000
    """Steps of gradient descent over all examples."""
    lr: float = 0.1
    """Learning rate as a share of 1 / (largest eigenvalue of the kernel before training)."""
    pair_steps: int = 2000
    """Steps for the pair that cannot be memorized without biases."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    def __post_init__(self) -> None:
        check_given(inputs=self.inputs, widths=self.widths, depths=self.depths)
        check_integers(1, n_examples=self.n_examples, n_steps=self.n_steps, pair_steps=self.pair_steps)
        check_integers(1, widths=self.widths)
        check_integers(2, depths=self.depths)
        check_positive(lr=self.lr)


def tasks(config: MemorizationConfig) -> tuple[Task, ...]:
    """A run for each kind of input, width, depth and seed, and the pair with and without biases."""
    return tasks_of(*_grids(config))


def _grids(config: MemorizationConfig) -> tuple[Grid, Grid]:
    task = partial(Memorize, config.data, n_examples=config.n_examples, n_steps_trained=config.n_steps, lr=config.lr)
    pair = partial(FitPair, 32, 3, n_steps_trained=config.pair_steps)
    shapes = grid(task, config.seeds, inputs=config.inputs, width=config.widths, depth=config.depths)
    return shapes, grid(pair, config.seeds, bias=(False, True))


def summary(config: MemorizationConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Tables of speed, spectrum and entries, curves of each against depth, and the pair."""
    every, pairs = (finished_runs(points, results) for points in _grids(config))
    items: list[SummaryItem] = []
    for inputs in config.inputs:
        runs = part_of(every, inputs)
        items += [_speeds(config, inputs, runs), _entry_table(inputs, runs), *_figures(config, inputs, runs)]
    return counted((*items, _pair_table(pairs)), tasks(config), results)


_ByShape = dict[tuple[int, int], Runs]  # by width and depth


def _speeds(config: MemorizationConfig, inputs: Inputs, by_shape: _ByShape) -> Table:
    return Table.of(
        f"Training with fixed random gates ({inputs})",
        [{"width": width, "depth": depth} | _speed(runs) for (width, depth), runs in by_shape.items()],
        f"Random signs as labels for {config.n_examples} inputs of length 1; {config.n_steps} steps of gradient descent"
        f" with {config.lr:g} / (largest eigenvalue of the kernel). P0 says that more depth first helps and then "
        "hurts, without numbers. Means of steps are of the runs that got there; errors of about 1e-5 % are rounding.",
    )


def _speed(runs: Runs) -> dict[str, Cell]:
    row: dict[str, Cell] = {}
    for share in REMAINING:
        steps = [run["reached"][f"{share:g}"] for run in runs.values()]
        row[f"steps to {100 * share:g} % of the error"] = spread(steps)
        row[f"runs that never got to {100 * share:g} %"] = steps.count(None) if runs else None
    errors = [run["errors"][-1] for run in runs.values()]
    predicted = [run["predicted_by"]["expected"] for run in runs.values()]
    return row | {
        "error left in %": spread(100 * error for error in errors if error is not None),
        "the expected kernel says": spread(100 * of_steps[-1] for of_steps in predicted if of_steps),
        "diverged": sum(run["diverged"] for run in runs.values()),
    }


def _entry_table(inputs: Inputs, by_shape: _ByShape) -> Table:
    columns: dict[str, Read] = {
        "diagonal": lambda run: run["entries"]["diagonal_mean"],
        "its deviation": lambda run: run["entries"]["diagonal_deviation"],
        "off-diagonal / inner product": lambda run: run["entries"]["suppression"],
        "infinite width": lambda run: run["entries"]["suppression_in_the_limit"],
        "distance of the draw from its mean": lambda run: run["distance"],
        "median / largest eigenvalue, mean": lambda run: _condition(run["spectrum"]["expected"]),
        "of the draw": lambda run: _condition(run["spectrum"]["drawn"]),
    }
    return Table.of(
        f"Entries and spectrum of the kernel divided by d ({inputs})",
        [{"width": width, "depth": depth} | means(runs, columns) for (width, depth), runs in by_shape.items()],
        "The diagonal should tend to 1, and off-diagonal entries be suppressed by the product of overlaps.",
    )


def _condition(spectrum: list[float]) -> float:
    """The median eigenvalue over the largest: how fast most directions are learned at the largest stable rate."""
    return spectrum[len(spectrum) // 2] / spectrum[0]


def _figures(config: MemorizationConfig, inputs: Inputs, by_shape: _ByShape) -> list[Curves]:
    def against_depth(read: Read) -> dict[str, Any]:
        return {f"w = {width}": course(part_of(by_shape, width), read) for width in widths}

    def drawn(title: str, y_label: str, courses: dict[str, Any], note: str = "") -> Curves:
        return figure(f"{title} ({inputs})", "depth", y_label, courses, note=note, log="y")

    widths, least = config.widths, min(REMAINING)
    steps = against_depth(lambda run: run["reached"][f"{least:g}"] or config.n_steps)
    note = f"Runs that never got there count with all their {config.n_steps} steps."
    suppression = against_depth(lambda run: run["entries"]["suppression"])
    limits = against_depth(lambda run: run["entries"]["suppression_in_the_limit"])
    suppression["infinite width"] = [point for points in limits.values() for point in points]
    return [
        drawn(f"Steps to {100 * least:g} % of the error", "steps of gradient descent", steps, note),
        drawn("Error left after training", "share of the first error", against_depth(lambda run: run["errors"][-1])),
        drawn("Off-diagonal suppression", "entry over inner product of the inputs", suppression),
        *(_courses(config, inputs, width, by_shape) for width in widths),
        *(_spectra(config, inputs, width, by_shape) for width in sorted({min(widths), max(widths)})),
    ]


def _courses(config: MemorizationConfig, inputs: Inputs, width: int, by_shape: _ByShape) -> Curves:
    courses = {}
    for depth in _few(config.depths):
        runs = by_shape[width, depth].values()
        courses[f"d = {depth}"] = [dict(zip(map(float, run["moments"]), run["errors"], strict=True)) for run in runs]
    title = f"Training ({inputs}), w = {width}"
    return figure(title, "step", "share of the first error", courses, log="xy")


def _spectra(config: MemorizationConfig, inputs: Inputs, width: int, by_shape: _ByShape) -> Curves:
    spectra = {}
    for name, depth in product(("expected", "drawn"), _few(config.depths)):
        values = [run["spectrum"][name] for run in by_shape[width, depth].values()]
        spectra[f"d = {depth}, {name}"] = [dict(zip(count(1.0), spectrum, strict=False)) for spectrum in values]
    title = f"Spectra of the kernel over d ({inputs}), w = {width}"
    return figure(title, "eigenvalue number", "eigenvalue", spectra, log="xy")


def _few(depths: tuple[int, ...]) -> tuple[int, ...]:
    """Up to four depths from the smallest to the largest: more curves in one figure are not legible."""
    ordered = sorted(set(depths))
    n = min(4, len(ordered))
    return tuple(ordered[round(k * (len(ordered) - 1) / max(n - 1, 1))] for k in range(n))


def _pair_table(by_bias: dict[bool, Runs]) -> Table:
    columns: dict[str, Read] = {
        "f(x)": lambda run: run["outputs"][0],
        "f(x / 2)": lambda run: run["outputs"][1],
        "sum of squares": lambda run: run["loss"],
    }
    return Table.of(
        "The pair (x, 1), (x / 2, -1)",
        [{"biases": "with" if bias else "without"} | means(runs, columns) for bias, runs in by_bias.items()],
        "Without biases f(x / 2) = f(x) / 2, so that the sum of squares is at least 1.8, at f(x) = 0.4.",
    )


EXPERIMENT = Experiment(
    name="memorization",
    description="how fast random labels are fitted with fixed random gates, against depth and width",
    source="P0 sections 2.3 and 4.2",
    config=MemorizationConfig,
    presets={
        "smoke": MemorizationConfig(
            data=DataSpec("digits"),
            inputs=("images",),
            n_examples=20,
            widths=(8, 64),
            depths=(2, 6),
            n_steps=40,
            pair_steps=300,
            seeds=(0, 1, 2),
        ),
        **dict.fromkeys(("cpu", "paper"), MemorizationConfig()),
    },
    reduced={"smoke": "embedded digits, 20 examples, few depths and steps"},
    tasks=tasks,
    summary=summary,
)
