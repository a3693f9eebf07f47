"""Grids of runs: a task for each point and seed, results by point, means and curves over the seeds."""

from functools import partial

from neuralpath.papers.experiments.grids import counted, course, finished_runs, grid, part_of, tasks_of
from neuralpath.papers.experiments.random_labels import FitPair
from neuralpath.papers.experiments.seed_tables import mean_curves
from neuralpath.papers.experiments.statistics import Spread, means
from neuralpath.papers.experiments.summary_items import Table

TASK = partial(FitPair, n_steps_trained=5, bias=False)
POINTS = grid(TASK, (0, 1), width=(4, 8), depth=(2, 3))


def test_tasks_are_those_of_all_points_and_seeds_the_last_axis_innermost():
    assert list(POINTS) == [(4, 2), (4, 3), (8, 2), (8, 3)]
    assert POINTS[8, 2] == {seed: FitPair(8, 2, False, 5, seed) for seed in (0, 1)}
    assert tasks_of(POINTS)[:3] == (FitPair(4, 2, False, 5, 0), FitPair(4, 2, False, 5, 1), FitPair(4, 3, False, 5, 0))
    assert list(grid(partial(TASK, depth=2), (0,), width=(4, 8))) == [4, 8]


def test_results_are_found_by_point_and_missing_ones_are_left_out():
    results = {task: {"loss": float(task.width + task.seed)} for task in tasks_of(POINTS) if task.depth == 2}
    runs = finished_runs(POINTS, results)
    assert runs[4, 2] == {0: {"loss": 4.0}, 1: {"loss": 5.0}}
    assert runs[4, 3] == {}
    assert part_of(runs, 8) == {2: runs[8, 2], 3: {}}
    assert means(runs[4, 2], {"loss": lambda run: run["loss"]}) == {"loss": Spread.of([4.0, 5.0])}
    assert means(runs[4, 3], {"loss": lambda run: run["loss"]}) == {"loss": None}
    by_width = {width: runs[width, 2] for width in (4, 8)}
    (curve,) = mean_curves({"loss": course(by_width, lambda run: run["loss"])})
    assert (curve.x, curve.y) == ((4.0, 8.0), (4.5, 8.5))


def test_notes_end_with_the_number_of_finished_runs():
    results = {task: {} for task in tasks_of(POINTS)[:3]}
    items = counted((Table.of("none", []), Table.of("some", [{"x": 1}], "About x.")), tasks_of(POINTS), results)
    assert [item.note for item in items] == ["3 of 8 runs are finished.", "About x. 3 of 8 runs are finished."]
    assert items[0].columns == items[0].rows == ()
