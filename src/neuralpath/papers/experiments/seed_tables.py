"""Cells, comparisons and curves from the runs of a table, beside the figures that the papers print.

Every function accepts any subset of finished runs and leaves the others out.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from neuralpath.papers.experiments.experiment import Results
from neuralpath.papers.experiments.statistics import Spread, paired, spread as spread
from neuralpath.papers.experiments.summary_items import Cell, Curve, Curves, Table
from neuralpath.papers.runs import Task

When = Literal["best", "last"]
"""The epoch of the best test accuracy, which the papers print, or the last."""

DECIMALS = 2
"""Of accuracies in percent and of their differences: as in the papers, and 10,000 test images give no more."""

Seeds = Mapping[int, Task]
"""The runs of one row of a table, by seed."""


def results_by_seed(runs: Seeds, results: Results) -> dict[int, dict[str, Any]]:
    """The results of the finished runs, by seed."""
    return {seed: results[task] for seed, task in runs.items() if task in results}


def each_once(runs: Iterable[Seeds]) -> tuple[Task, ...]:
    """The tasks of several rows, in order, each once."""
    return tuple(dict.fromkeys(task for seeds in runs for task in seeds.values()))


def finished(runs: Iterable[Task | Seeds], results: Results) -> str:
    """A sentence for the note of a table: how many of its runs are finished."""
    tasks = {task: None for entry in runs for task in ([entry] if isinstance(entry, Task) else entry.values())}
    return f"{sum(task in results for task in tasks)} of {len(tasks)} runs are finished."


# Curves


def mean_curves(named: Mapping[str, Sequence[Mapping[float, float | None]]]) -> tuple[Curve, ...]:
    """For each name that has a finished run the mean against x over the runs that have x, with its deviation."""
    curves = []
    for name, runs in named.items():
        points = {x: spread(run.get(x) for run in runs) for x in sorted({x for run in runs for x in run})}
        known = {x: point for x, point in points.items() if point is not None}
        if known:
            means, deviations = zip(*((point.mean, point.deviation) for point in known.values()), strict=True)
            curves.append(Curve(name, tuple(known), means, None if None in deviations else deviations))
    return tuple(curves)


def accuracy_figure(title: str, named: Mapping[str, Seeds], results: Results, x_label: str = "epoch") -> Curves:
    """Mean test accuracy in percent against the epoch, for each row that has a finished run."""

    def course(result: dict[str, Any]) -> dict[float, float | None]:
        return {float(e["epoch"]): 100 * e["test_accuracy"] for e in result["epochs"] if "test_accuracy" in e}

    courses = {name: list(map(course, results_by_seed(runs, results).values())) for name, runs in named.items()}
    return Curves(title, x_label, "test accuracy in %", mean_curves(courses))


# Accuracies


def accuracies(runs: Seeds, results: Results, when: When = "best", of: str = "test_accuracy") -> dict[int, float]:
    """Accuracies in percent of the finished runs, by seed."""
    epochs = {seed: result[when] for seed, result in results_by_seed(runs, results).items()}
    return {seed: 100 * epoch[of] for seed, epoch in epochs.items() if epoch is not None}


def accuracy(runs: Seeds, results: Results, when: When = "best", of: str = "test_accuracy") -> Spread | None:
    """Mean accuracy over the finished seeds; None if there are none."""
    return spread(accuracies(runs, results, when, of).values(), DECIMALS)


def accuracy_table(
    title: str, rows: Iterable[tuple[Mapping[str, Any], Seeds, "Printed | None"]], results: Results, note: str = ""
) -> Table:
    """A table of the best epoch beside the papers' figure, the last epoch, and training.

    A row has its first cells, its runs by seed, and the papers' figure; without any figure there is no column for them.
    """
    rows = list(rows)
    is_printed = any(figure is not None for _, _, figure in rows)
    table: list[dict[str, Cell]] = []
    for head, runs, figure in rows:
        best, last = accuracy(runs, results), accuracy(runs, results, "last")
        cells = {"best epoch %": best, **(beside(best, figure) if is_printed else {}), "last epoch %": last}
        table.append({**head, **cells, "training %": accuracy(runs, results, "last", "train_accuracy")})
    sentences = ("Test accuracy, mean ± standard deviation (seeds).", note, finished((r for _, r, _ in rows), results))
    return Table.of(title, table, " ".join(filter(None, sentences)))


def beside(ours: Spread | None, figure: "Printed | None", of: str = "") -> dict[str, Cell]:
    """Two columns: the printed figure, and our mean minus it."""
    difference = None if ours is None or figure is None else round(ours.mean - figure.accuracy, DECIMALS)
    return {f"paper{of} %": None if figure is None else str(figure), f"difference{of}": difference}


def comparison(first: Seeds, second: Seeds, results: Results, when: When) -> tuple[Cell, Cell]:
    """First minus second over the seeds that both have, in points and in standard errors of that difference."""
    pair = paired(accuracies(first, results, when), accuracies(second, results, when))
    if pair is None:
        return None, None
    return pair.difference.with_decimals(DECIMALS), None if pair.exceeds is None else round(pair.exceeds, 2)


def pairs_of(rows: Mapping[Any, Seeds], pairs: Iterable[tuple[Any, Any]]) -> dict[str, tuple[Seeds, Seeds]]:
    """The runs of pairs of rows, for `comparisons`, named such as ``FL - ReLU``; without those that are not run."""
    names = {row: row if isinstance(row, str) else " ".join(row) for row in rows}
    return {f"{names[a]} - {names[b]}": (rows[a], rows[b]) for a, b in pairs if a in rows and b in rows}


def comparisons(title: str, pairs: Mapping[str, tuple[Seeds, Seeds]], results: Results, note: str = "") -> Table:
    """A table of paired differences of test accuracies, at the best and at the last epoch."""
    columns = ("first minus second", "best epoch", "in standard errors", "last epoch", "last, in standard errors")
    differences = (comparison(*pair, results, "best") + comparison(*pair, results, "last") for pair in pairs.values())
    rows = tuple((name, *cells) for name, cells in zip(pairs, differences, strict=True))
    count = finished([runs for pair in pairs.values() for runs in pair], results)
    return Table(title, columns, rows, f"Points of test accuracy, paired by seed. {count} {note}".strip())


# The papers' figures


@dataclass(frozen=True)
class Printed:
    """One printed accuracy in percent, with its spread if one is given."""

    paper: str
    where: str
    architecture: str
    optimizer: str
    dataset: str
    regime: str
    accuracy: float
    spread: float | None
    note: str

    def __str__(self) -> str:
        """As in the papers, such as ``97.10 ± 0.09``."""
        return " ± ".join(f"{number:.{DECIMALS}f}" for number in (self.accuracy, self.spread) if number is not None)


@cache
def all_printed() -> tuple[Printed, ...]:
    """Every printed figure."""
    text = files("neuralpath.papers.experiments").joinpath("printed.csv").read_text()
    figures = []
    for row in csv.DictReader(text.splitlines()):
        numbers = {"accuracy": float(row["accuracy"]), "spread": float(row["spread"]) if row["spread"] else None}
        figures.append(Printed(**{**row, **numbers}))  # type: ignore[arg-type]
    return tuple(figures)


_DATASETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def printed(**fields: str) -> Printed | None:
    """The first figure with these fields, such as ``printed(paper="P1", regime="FL", …)``; None if there is none.

    ``dataset`` is the name of a `DataSpec`, or as the papers spell it.
    """
    if "dataset" in fields:
        fields["dataset"] = _DATASETS.get(fields["dataset"], fields["dataset"])
    matches = (f for f in all_printed() if all(getattr(f, name) == value for name, value in fields.items()))
    return next(matches, None)
