"""Accuracies of runs as cells, comparisons and curves; with any part of the runs finished."""

from collections.abc import Iterable, Mapping
from typing import Literal

from neuralpath.papers.experiments import seed_means
from neuralpath.papers.experiments.experiment import Results
from neuralpath.papers.experiments.printed_results import Printed
from neuralpath.papers.experiments.statistics import Spread, paired
from neuralpath.papers.experiments.summary_items import Cell, Curve, Table
from neuralpath.papers.runs import Task

When = Literal["best", "last"]
"""The epoch of the best test accuracy, which the papers print, or the last."""

DECIMALS = 2
"""Of accuracies in per cent, and of their differences: as in the papers, and 10,000 test images give no more."""

Seeds = Mapping[int, Task]
"""The runs of one row of a table, by seed."""


def accuracies(runs: Seeds, results: Results, when: When = "best", of: str = "test_accuracy") -> dict[int, float]:
    """Accuracies in per cent by seed, of the runs that are finished."""
    found = {seed: results[task][when] for seed, task in runs.items() if task in results}
    return {seed: 100 * epoch[of] for seed, epoch in found.items() if epoch is not None}


def accuracy(runs: Seeds, results: Results, when: When = "best", of: str = "test_accuracy") -> Spread | None:
    """Over the seeds that are finished; None if there are none."""
    return seed_means.spread(accuracies(runs, results, when, of).values(), DECIMALS)


def beside(ours: Spread | None, figure: Printed | None) -> tuple[Cell, Cell]:
    """The printed figure, and ours minus it."""
    if figure is None:
        return None, None
    numbers = (figure.accuracy, *(() if figure.spread is None else (figure.spread,)))
    shown = " ± ".join(f"{number:.{DECIMALS}f}" for number in numbers)
    return shown, None if ours is None else round(ours.mean - figure.accuracy, DECIMALS)


def finished(rows: Iterable[Seeds], results: Results) -> str:
    """A sentence for the note of a table: how many of its runs there are."""
    return seed_means.finished(tuple(dict.fromkeys(task for runs in rows for task in runs.values())), results)


def comparison(first: Seeds, second: Seeds, results: Results, when: When) -> tuple[Cell, Cell]:
    """First minus second over the seeds that both have, in per cent and in standard errors of that difference."""
    found = paired(accuracies(first, results, when), accuracies(second, results, when))
    if found is None:
        return None, None
    exceeds = None if found.exceeds is None else round(found.exceeds, 2)
    return found.difference.with_decimals(DECIMALS), exceeds


def comparisons(title: str, pairs: Mapping[str, tuple[Seeds, Seeds]], results: Results, note: str = "") -> Table:
    """A table of paired differences of test accuracies, at the best and at the last epoch."""
    columns = (
        "first minus second",
        "best epoch",
        "in standard errors",
        "last epoch",
        "last, in standard errors",
    )
    rows = tuple(
        (name, *comparison(*pair, results, "best"), *comparison(*pair, results, "last")) for name, pair in pairs.items()
    )
    runs = [row for pair in pairs.values() for row in pair]
    about = f"Points of test accuracy, paired by seed. {finished(runs, results)}"
    return Table(title, columns, rows, f"{about} {note}".strip())


def curve(name: str, runs: Seeds, results: Results, of: str = "test_accuracy", offset: int = 0) -> Curve | None:
    """Mean accuracy in per cent against the epoch; None without a finished run."""
    return seed_means.mean_curve(
        name,
        [
            {float(epoch["epoch"] + offset): 100 * epoch[of] for epoch in results[task]["epochs"] if of in epoch}
            for task in runs.values()
            if task in results
        ],
    )


def curves(named: Mapping[str, Seeds], results: Results, of: str = "test_accuracy") -> tuple[Curve, ...]:
    """The curves of all rows that have a finished run."""
    made = (curve(name, runs, results, of) for name, runs in named.items())
    return tuple(one for one in made if one is not None)
