"""Draws of the value tangent kernel: nearer their expectation and limits with width; what changes in training."""

import math

import pytest
import torch

from neuralpath.papers.experiments.kernel_draws import ApproachLimits, DrawKernels, TrainLazily
from neuralpath.papers.experiments.statistics import Spread, paired
from neuralpath.papers.experiments.summary_items import Curves, Table
from neuralpath.papers.experiments.theorem import EXPERIMENT, law_of, summary, tasks
from papers.experiments.serial import run_tasks

SMOKE, CPU, PAPER = (EXPERIMENT.presets[name] for name in ("smoke", "cpu", "paper"))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_tasks(tasks(SMOKE), tmp_path_factory.mktemp("theorem"))


def chosen(results, kind, **wanted):
    return {
        task.seed: result
        for task, result in results.items()
        if isinstance(task, kind) and all(getattr(task, name) == value for name, value in wanted.items())
    }


@pytest.mark.parametrize("family", SMOKE.families)
def test_the_mean_of_the_draws_is_the_expectation(results, family):
    """C4, C22: half of the entries are within 0.67 standard errors where the expectation is exact."""
    runs = chosen(results, DrawKernels, family=family, width=64)
    assert set(runs) == {0, 1, 2}
    assert all(run["mean_off_in_errors"] < 3 for run in runs.values())


def test_wide_draws_are_nearer_their_expectation(results):
    """C4: the relative distance falls with the width, by more than 3 standard errors."""
    narrow, wide = (chosen(results, DrawKernels, family="fc", width=width) for width in (8, 64))
    assert set(narrow) == set(wide) == {0, 1, 2}
    samples = [[d for run in runs.values() for d in run["distances"]] for runs in (narrow, wide)]
    first, second = (Spread.of(sample) for sample in samples)
    assert first.mean - second.mean > 3 * math.hypot(first.error, second.error)
    for run in (*narrow.values(), *wide.values()):
        squares = [distance**2 for distance in run["distances"]]
        assert run["distance"] == pytest.approx(math.sqrt(sum(squares) / len(squares)), rel=1e-5)


def test_the_variance_grows_with_depth_and_passes_the_printed_bound(results):
    """C4 and erratum E13: with open gates the relative variance is far above the bound for deep networks."""
    shallow, deep = (chosen(results, DrawKernels, family="open", depth=depth) for depth in (2, 8))
    found = paired(
        {s: r["distance"] ** 2 for s, r in deep.items()}, {s: r["distance"] ** 2 for s, r in shallow.items()}
    )
    assert found.exceeds > 3
    bound = 1 / SMOKE.deep_width  # in units of the squared expectation
    spread = Spread.of([run["distance"] ** 2 for run in deep.values()])
    assert spread.mean - bound > 2 * spread.error


def test_each_kind_of_weights_tends_to_its_own_limit(results):
    """C35, C17: wide kernels are nearer their own limit than the other's, which lie apart."""
    for result in chosen(results, ApproachLimits, width=64).values():
        assert result["between_limits"] > 0.1
        assert set(result["distances"]) == {"dependent", "independent"}
    for kind, other in (("dependent", "independent"), ("independent", "dependent")):
        runs = chosen(results, ApproachLimits, width=64)
        own = {seed: run["distance"][kind][kind] for seed, run in runs.items()}
        wrong = {seed: run["distance"][kind][other] for seed, run in runs.items()}
        assert paired(wrong, own).exceeds > 3


def test_gates_and_kernel_change_less_in_wide_networks(results):
    """C36 with the first layer's variance 2 / fan-in: shares, and falling with the width."""
    narrow, wide = (chosen(results, TrainLazily, width=width) for width in (16, 256))
    for name in ("flips", "kernel"):
        samples = [[value for run in runs.values() for value in run[name]] for runs in (narrow, wide)]
        assert all(len(sample) == 3 * SMOKE.lazy_seeds for sample in samples)
        first, second = (Spread.of(sample) for sample in samples)
        assert first.mean - second.mean > 3 * math.hypot(first.error, second.error)
    for run in wide.values():
        assert all(0 <= share <= 1 for share in run["flips"])
        assert all(loss < 1 for loss in run["loss"])


def test_a_law_is_found_from_samples_and_zeros_count_as_the_least():
    sizes = (16, 64, 256)
    exponent, error = law_of({size: [2 / size, 2.2 / size] for size in sizes})
    assert exponent == pytest.approx(-1, abs=1e-12)
    assert error < 0.1
    exponent, _ = law_of({16: [1.0, 1.0], 64: [0.5, 0.0]})
    assert exponent == pytest.approx(-0.5, abs=1e-12)
    assert law_of({16: [1.0, 2.0]}) == (None, None)


def test_equal_works_give_equal_results(results, tmp_path):
    some = (tasks(SMOKE)[0], tasks(SMOKE)[-1])
    assert run_tasks(some, tmp_path) == {task: results[task] for task in some}


def test_open_networks_have_no_gates_and_inputs_of_one_kind():
    task = DrawKernels("open", 32, 4, 4, 10)
    assert not any(isinstance(part, torch.nn.ReLU) for part in task.network().modules())
    assert torch.equal(task.inputs(), torch.ones(1, 16))


def test_tables_and_figures_from_any_part_of_the_runs(results):
    for some in ({}, dict(list(results.items())[:1]), results):
        parts = summary(SMOKE, some)
        assert f"{len(some)} of 27 runs" in parts[0].note
        kinds = [Table, Table, Curves, Table, Curves, Table, Curves, Table, Table, Curves]
        assert [type(part) for part in parts] == kinds
    assert all(part.curves for part in summary(SMOKE, results) if isinstance(part, Curves))


def test_presets_expand():
    assert CPU == PAPER
    assert len(tasks(PAPER)) == 5 * (3 * 9 + 4 * 6 + 9 + 2 * 7)
    assert (CPU.widths[0], CPU.widths[-1]) == (16, 4096)
