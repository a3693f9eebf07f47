"""Fixed random gates: what the two kernels say of training, entries against their limit, the pair without biases."""

import math

import pytest
import torch

from neuralpath.papers.experiments import memorization
from neuralpath.papers.experiments.memorization import EXPERIMENT, summary, tasks
from neuralpath.papers.experiments.random_labels import FitPair, Memorize
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.papers.experiments.statistics import Spread
from neuralpath.papers.experiments.summary_items import Curves, Table
from neuralpath.papers.runs.run_directory import RunDirectory
from papers.experiments.serial import run_tasks

SMOKE, CPU, PAPER = (EXPERIMENT.presets[name] for name in ("smoke", "cpu", "paper"))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_tasks(tasks(SMOKE), tmp_path_factory.mktemp("memorization"))


def chosen(results, kind, **wanted):
    return {
        task.seed: result
        for task, result in results.items()
        if isinstance(task, kind) and all(getattr(task, name) == value for name, value in wanted.items())
    }


def test_without_biases_the_pair_cannot_be_memorized(results):
    """C2: f(x / 2) = f(x) / 2 exactly, so the sum of squares is at least 1.8; with biases it is fitted."""
    for result in chosen(results, FitPair, bias=False).values():
        whole, half = result["outputs"]
        assert half == whole / 2  # a factor of 2 loses no bit
        assert result["loss"] >= 1.8 * (1 - 1e-6)
    with_biases = chosen(results, FitPair, bias=True)
    assert len(with_biases) == 3
    assert all(result["loss"] < 0.1 for result in with_biases.values())


def test_first_step_of_training_is_what_the_drawn_kernel_says(results):
    """C5: e' = (I - rate K) e up to second order in the rate."""
    for result in chosen(results, Memorize, width=64, depth=2).values():
        step = result["moments"].index(1)
        fallen, told = 1 - result["errors"][step], 1 - result["predicted_by"]["drawn"][step]
        assert fallen == pytest.approx(told, rel=0.1)
        assert result["errors"][0] == result["predicted_by"]["drawn"][0] == result["predicted_by"]["expected"][0] == 1


def test_small_steps_follow_the_drawn_kernel(tmp_path):
    """With steps a hundred times smaller the second order is a hundred times smaller too."""
    task = Memorize(DataSpec("digits"), "sphere", 10, 64, 3, n_steps_trained=5, lr=1e-3)
    result = task.run(RunDirectory(tmp_path, lambda needed, which: tmp_path))
    falls = [(1 - e, 1 - t) for e, t in zip(result["errors"], result["predicted_by"]["drawn"], strict=True)][1:]
    assert all(fallen == pytest.approx(told, rel=0.03) for fallen, told in falls)


def test_entries_tend_to_their_limit_and_depth_suppresses_what_is_off_the_diagonal(results):
    """C16, on digits: the suppression in the limit is exact; that of drawn gates is near it and falls with depth."""
    for seed in (0, 1, 2):
        shallow, deep = (chosen(results, Memorize, width=64, depth=d)[seed]["entries"] for d in (2, 6))
        assert deep["suppression_in_the_limit"] < shallow["suppression_in_the_limit"] < 1
    for depth in (2, 6):
        runs = chosen(results, Memorize, width=64, depth=depth).values()
        ratios = [run["entries"]["suppression"] / run["entries"]["suppression_in_the_limit"] for run in runs]
        spread = Spread.of([math.log(ratio) for ratio in ratios])
        assert abs(spread.mean) < 5 * spread.error
    falls = [
        chosen(results, Memorize, width=64, depth=2)[seed]["entries"]["suppression"]
        - chosen(results, Memorize, width=64, depth=6)[seed]["entries"]["suppression"]
        for seed in (0, 1, 2)
    ]
    spread = Spread.of(falls)
    assert spread.mean > 3 * spread.error


def test_spectra_are_of_positive_semidefinite_kernels_with_the_trace_of_the_diagonal(results):
    for result in chosen(results, Memorize).values():
        for values in result["spectrum"].values():
            assert len(values) == SMOKE.n_examples
            assert values == sorted(values, reverse=True)
            assert values[-1] > -1e-6 * values[0]
        trace = SMOKE.n_examples * result["entries"]["diagonal_mean"]
        assert sum(result["spectrum"]["expected"]) == pytest.approx(trace, rel=1e-5)


def test_a_run_that_diverges_says_so(tmp_path):
    task = Memorize(DataSpec("digits"), "sphere", 10, 8, 3, n_steps_trained=200, lr=50.0)
    result = task.run(RunDirectory(tmp_path, lambda needed, which: tmp_path))
    assert result["diverged"]
    assert result["errors"][-1] is None
    summary(SMOKE, {tasks(SMOKE)[0]: result})


def test_equal_works_give_equal_results(results, tmp_path):
    task = tasks(SMOKE)[-1]
    again = tasks(SMOKE)[0]
    assert run_tasks((task, again), tmp_path) == {task: results[task], again: results[again]}


def test_tables_and_figures_from_any_part_of_the_runs(results):
    total = len(tasks(SMOKE))
    for some in ({}, dict(list(results.items())[:1]), results):
        parts = summary(SMOKE, some)
        assert f"{len(some)} of {total} runs" in parts[0].note
        assert [type(part) for part in parts] == [Table, Table, *[Curves] * (3 + 2 + 2), Table]
    assert all(part.curves for part in summary(SMOKE, results) if isinstance(part, Curves))


def test_steps_to_both_shares_are_told_with_the_runs_that_never_got_there(results):
    table, _, steps = summary(SMOKE, results)[:3]
    assert table.columns[2:6] == (
        "steps to 50 % of the error", "runs that never got to 50 %", "steps to 10 % of the error",
        "runs that never got to 10 %",
    )  # fmt: skip
    for row in table.rows:
        runs = chosen(results, Memorize, width=row[0], depth=row[1]).values()
        for column, share in ((2, "0.5"), (4, "0.1")):
            known = [count for run in runs if (count := run["reached"][share]) is not None]
            assert row[column] == (Spread.of(known) if known else None)
            assert row[column + 1] == len(runs) - len(known)
    assert steps.title == "Steps to 10 % of the error (images)"
    for curve, width in zip(steps.curves, SMOKE.widths, strict=True):
        for depth, mean in zip(curve.x, curve.y, strict=True):
            runs = chosen(results, Memorize, width=width, depth=int(depth)).values()
            assert mean == pytest.approx(sum(run["reached"]["0.1"] or SMOKE.n_steps for run in runs) / len(runs))


def test_presets_expand_and_inputs_have_length_one(tmp_path):
    assert len(tasks(SMOKE)) == 2 * 2 * 3 + 2 * 3
    assert CPU == PAPER
    assert len(tasks(PAPER)) == 2 * 3 * 8 * 5 + 2 * 5
    points = tasks(SMOKE)[0].points()
    assert torch.allclose(points.flatten(1).norm(dim=1), torch.ones(SMOKE.n_examples))


def test_no_figure_has_more_curves_than_can_be_told_apart():
    runs = {(100, depth): {0: {"moments": [1, 2], "errors": [1.0, 0.5]}} for depth in PAPER.depths}
    figure = memorization._courses(PAPER, "images", 100, runs)
    assert [curve.name for curve in figure.curves] == ["d = 2", "d = 4", "d = 12", "d = 20"]
    assert memorization._few((5,)) == (5,)
    assert memorization._few((8, 2, 2)) == (2, 8)
