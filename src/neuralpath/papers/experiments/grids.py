"""Experiments over a grid of settings and seeds: their tasks, and means over the seeds at each point of the grid."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from neuralpath.papers.experiments.experiment import Results
from neuralpath.papers.experiments.seed_tables import Seeds, finished, mean_curves, results_by_seed
from neuralpath.papers.experiments.statistics import Read, Runs
from neuralpath.papers.experiments.summary_items import Curves, SummaryItem
from neuralpath.papers.runs import Task

Grid = dict[Any, Seeds]  # tasks by point and seed; a point is a setting, or a tuple if there are several
Course = list[dict[float, float | None]]  # points of a mean curve: y by x, for each run


def grid(task: Callable[..., Task], seeds: Sequence[int], **axes: Iterable[Any]) -> Grid:
    """The tasks of all points and seeds; ``task`` is called with a value of each axis and ``seed``, by keyword."""
    points: Grid = {}
    for values in product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        points[values if len(axes) > 1 else values[0]] = {seed: task(**settings, seed=seed) for seed in seeds}
    return points


def tasks_of(*grids: Grid) -> tuple[Task, ...]:
    """All tasks of grids."""
    return tuple(task for points in grids for runs in points.values() for task in runs.values())


def finished_runs(points: Grid, results: Results) -> dict[Any, Runs]:
    """The results so far at each point of a grid."""
    return {point: results_by_seed(runs, results) for point, runs in points.items()}


def part_of(groups: Mapping[Any, Runs], first: Any) -> dict[Any, Runs]:
    """The points whose first setting is this one, by their other settings."""
    parts = {tuple(rest): runs for (setting, *rest), runs in groups.items() if setting == first}
    return {rest[0] if len(rest) == 1 else rest: runs for rest, runs in parts.items()}


def course(groups: Mapping[Any, Runs], read: Read) -> Course:
    """Points of a mean curve from the runs at each x.

    >>> course({16: {0: {"loss": 0.5}, 1: {"loss": 0.7}}, 32: {0: {"loss": 0.1}}}, lambda run: run["loss"])
    [{16.0: 0.5}, {16.0: 0.7}, {32.0: 0.1}]
    """
    return [{float(x): read(run)} for x, runs in groups.items() for run in runs.values()]


def course_of_epochs(runs: Runs, read: Read) -> Course:
    """Points of a mean curve against the epoch, read from each entry of the runs' ``measured``."""
    return [{float(entry["epoch"]): read(entry) for entry in run["measured"]} for run in runs.values()]


def figure(title: str, x_label: str, y_label: str, courses: Mapping[str, Course], **options: Any) -> Curves:
    """The mean curve of each course that has a finished run; the options are those of `Curves`."""
    return Curves(title, x_label, y_label, mean_curves(courses), **options)


def counted(items: Iterable[SummaryItem], tasks: Iterable[Task], results: Results) -> tuple[SummaryItem, ...]:
    """The items, with the number of finished tasks at the end of their notes."""
    count = finished(tasks, results)
    return tuple(replace(item, note=f"{item.note} {count}".strip()) for item in items)
