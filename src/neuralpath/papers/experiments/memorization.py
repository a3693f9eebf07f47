"""Experiment `memorization`: fitting random labels with fixed random gates, against depth and width (P0 2.3, 4.2)."""

from dataclasses import dataclass, field
from functools import partial

from neuralpath.papers.experiments.experiment import Experiment, Results
from neuralpath.papers.experiments.grids import Course, Grid, counted, course, finished_runs, grid, part_of, tasks_of
from neuralpath.papers.experiments.random_labels import REMAINING, FitPair, Inputs, Memorize
from neuralpath.papers.experiments.seed_tables import mean_curves
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
        check_integers(1, n_examples=self.n_examples, widths=self.widths, n_steps=self.n_steps)
        check_integers(1, pair_steps=self.pair_steps)
        check_integers(2, depths=self.depths)
        check_positive(lr=self.lr)


def tasks(config: MemorizationConfig) -> tuple[Task, ...]:
    """A run for each kind of input, width, depth and seed, and the pair with and without biases."""
    return tasks_of(_grid(config), _pairs(config))


def _grid(config: MemorizationConfig) -> Grid:
    task = partial(Memorize, config.data, n_examples=config.n_examples, n_steps_trained=config.n_steps, lr=config.lr)
    return grid(task, config.seeds, inputs=config.inputs, width=config.widths, depth=config.depths)


def _pairs(config: MemorizationConfig) -> Grid:
    return grid(partial(FitPair, 32, 3, n_steps_trained=config.pair_steps), config.seeds, bias=(False, True))


def summary(config: MemorizationConfig, results: Results) -> tuple[SummaryItem, ...]:
    """Tables of speed, spectrum and entries, curves of each against depth, and the pair."""
    every = finished_runs(_grid(config), results)
    items: list[SummaryItem] = []
    for inputs in config.inputs:
        runs = part_of(every, inputs)
        items += [_speeds(config, inputs, runs), _entry_table(inputs, runs), *_figures(config, inputs, runs)]
    pair = _pair_table(finished_runs(_pairs(config), results))
    return counted((*items, pair), tasks(config), results)


_ByShape = dict[tuple[int, int], Runs]
"""Runs by width and depth."""


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
    return row | {
        "error left in %": spread(100 * error for run in runs.values() if (error := run["errors"][-1]) is not None),
        "the expected kernel says": spread(
            100 * errors[-1] for run in runs.values() if (errors := run["predicted_by"]["expected"])
        ),
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
    def against_depth(read: Read) -> dict[str, Course]:
        return {f"w = {width}": course(part_of(by_shape, width), read) for width in config.widths}

    least = min(REMAINING)
    steps = against_depth(lambda run: run["reached"][f"{least:g}"] or config.n_steps)
    errors = against_depth(lambda run: run["errors"][-1])
    suppression = against_depth(lambda run: run["entries"]["suppression"])
    in_the_limit = against_depth(lambda run: run["entries"]["suppression_in_the_limit"])
    suppression["infinite width"] = [point for points in in_the_limit.values() for point in points]
    return [
        Curves(
            f"Steps to {100 * least:g} % of the error ({inputs})",
            "depth",
            "steps of gradient descent",
            mean_curves(steps),
            f"Runs that never got there count with all their {config.n_steps} steps.",
            "y",
        ),
        Curves(
            f"Error left after training ({inputs})", "depth", "share of the first error", mean_curves(errors), log="y"
        ),
        Curves(
            f"Off-diagonal suppression ({inputs})",
            "depth",
            "entry over inner product of the inputs",
            mean_curves(suppression),
            log="y",
        ),
        *(_courses(config, inputs, width, by_shape) for width in config.widths),
        *(_spectra(config, inputs, width, by_shape) for width in sorted({min(config.widths), max(config.widths)})),
    ]


def _courses(config: MemorizationConfig, inputs: Inputs, width: int, by_shape: _ByShape) -> Curves:
    courses = {
        f"d = {depth}": [
            dict(zip(map(float, run["moments"]), run["errors"], strict=True)) for run in by_shape[width, depth].values()
        ]
        for depth in _few(config.depths)
    }
    title = f"Training ({inputs}), w = {width}"
    return Curves(title, "step", "share of the first error", mean_curves(courses), log="xy")


def _spectra(config: MemorizationConfig, inputs: Inputs, width: int, by_shape: _ByShape) -> Curves:
    spectra = {
        f"d = {depth}, {name}": [
            {float(k): value for k, value in enumerate(run["spectrum"][name], 1)}
            for run in by_shape[width, depth].values()
        ]
        for name in ("expected", "drawn")
        for depth in _few(config.depths)
    }
    title = f"Spectra of the kernel over d ({inputs}), w = {width}"
    return Curves(title, "eigenvalue number", "eigenvalue", mean_curves(spectra), log="xy")


def _few(depths: tuple[int, ...], most: int = 4) -> tuple[int, ...]:
    """Up to four depths from the smallest to the largest: more curves in one figure are not legible."""
    ordered = sorted(set(depths))
    n = min(most, len(ordered))
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


_PAPER = MemorizationConfig()

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
        "cpu": _PAPER,
        "paper": _PAPER,
    },
    reduced={"smoke": "embedded digits, 20 examples, few depths and steps"},
    tasks=tasks,
    summary=summary,
)

run = EXPERIMENT.run
