"""Label energy during training: exact sums, the same examples for all seeds, pictures by class."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from neuralpath.graph.tracing import trace
from neuralpath.kernels.diagnostics import label_energy
from neuralpath.kernels.path.path_kernel import path_kernel
from neuralpath.papers.experiments.label_energy import EXPERIMENT, LEADING, summary, tasks
from neuralpath.papers.experiments.summary_items import Curves, HeatMaps, Table
from papers.experiments.serial import run_tasks

SMOKE, CPU, PAPER = (EXPERIMENT.presets[name] for name in ("smoke", "cpu", "paper"))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_tasks(tasks(SMOKE), tmp_path_factory.mktemp("label-energy"))


def test_it_measures_before_training_every_second_epoch_and_at_the_end(results):
    assert {task.seed for task in results} == {0, 1, 2}
    for result in results.values():
        assert [point["epoch"] for point in result["measured"]] == [0, 2, 4, 6, 8]
        assert len(result["epochs"]) == SMOKE.training.epochs
        assert all(point["energy"] > 0 for point in result["measured"])


def test_the_first_energy_is_that_of_the_path_kernel_before_training(results):
    task = tasks(SMOKE)[0]
    examples = task.measured()
    model = task.make().double()
    x, y = examples.images.double(), examples.labels.double()
    assert sorted(y.tolist()) == [-1.0] * SMOKE.n_per_class + [1.0] * SMOKE.n_per_class
    kernel = path_kernel(trace(model, x[:1]), x)
    expected = float(label_energy(kernel, y))
    # The condition number of the kernel, times the rounding of its entries.
    values = torch.linalg.eigvalsh(kernel)
    error = 100 * float(values[-1] / values[0]) * torch.finfo(torch.float64).eps
    assert results[task]["measured"][0]["energy"] == pytest.approx(expected, rel=error)


def test_the_split_over_eigenvectors_sums_to_the_energy(results):
    for result in results.values():
        for when, index in (("before", 0), ("after", -1)):
            eigenvalues, projections = (np.array(result[when][key]) for key in ("eigenvalues", "projections"))
            n = 2 * SMOKE.n_per_class
            assert len(eigenvalues) == len(projections) == n
            assert (np.diff(eigenvalues) <= 0).all()
            assert eigenvalues.sum() == pytest.approx(1, abs=n * 1e-6)  # six digits of each are kept
            assert projections.sum() == pytest.approx(n, rel=1e-5)
            energy = result["measured"][index]["energy"]
            assert (projections / eigenvalues).sum() == pytest.approx(energy, rel=1e-5)
            shares = result["measured"][index]["leading"]
            for count in (count for count in LEADING if count <= n):
                assert shares[str(count)] == pytest.approx(projections[:count].sum() / n, abs=1e-5)


def test_pictures_are_cosines_sorted_by_class(results):
    for result in results.values():
        assert result["classes"] == [-1] * (SMOKE.n_mapped // 2) + [1] * (SMOKE.n_mapped // 2)
        for when in ("before", "after"):
            cosines = np.array(result[when]["map"])
            assert cosines.shape == (SMOKE.n_mapped, SMOKE.n_mapped)
            assert (np.diagonal(cosines) == 1).all()
            assert (cosines == cosines.T).all()
            assert (np.abs(cosines) <= 1).all()


def test_training_changes_the_kernel(results):
    for result in results.values():
        assert result["before"]["map"] != result["after"]["map"]


def test_equal_works_give_equal_results(results, tmp_path):
    task = tasks(SMOKE)[1]
    assert run_tasks((task,), tmp_path)[task] == results[task]


def test_tables_and_figures_from_any_part_of_the_runs(results):
    for some in ({}, dict(list(results.items())[:1]), results):
        parts = summary(SMOKE, some)
        assert isinstance(parts[0], Table)
        assert f"{len(some)} of 3 runs" in parts[0].note
        figures = [part for part in parts if isinstance(part, Curves)]
        assert len(figures) == 3
        assert all(bool(part.curves) == bool(some) for part in figures)
        assert len([part for part in parts if isinstance(part, HeatMaps)]) == (1 if some else 0)


def test_presets_have_the_runs_of_the_papers():
    assert [len(tasks(preset)) for preset in (CPU, PAPER)] == [2 * 5] * 2
    for preset in (CPU, PAPER):
        assert (preset.net.width, preset.depths, preset.net.bias, preset.net.init) == (
            100,
            (5, 6),
            False,
            "random-sign",
        )
        assert (preset.training.epochs, preset.training.batch_size, preset.training.loss) == (50, 64, "squared")
        assert (preset.every, preset.n_per_class, preset.data.classes) == (2, 100, (4, 7))
    assert replace(CPU, seeds=PAPER.seeds) == PAPER
