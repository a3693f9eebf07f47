"""Parts of the tangent kernel: learnt gates have a feature part, fixed ones have none."""

import pytest
import torch

from neuralpath.kernels.tangent.tangent_kernel import tangent_kernel
from neuralpath.papers.experiments.kernel_parts import EXPERIMENT, summary, tasks
from neuralpath.papers.experiments.statistics import Spread
from neuralpath.papers.experiments.summary_items import Curves, Table
from papers.experiments.serial import run_tasks

SMOKE, CPU, PAPER = (EXPERIMENT.presets[name] for name in ("smoke", "cpu", "paper"))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_tasks(tasks(SMOKE), tmp_path_factory.mktemp("kernel-parts"))


def runs(results, regime):
    return {task.seed: result for task, result in results.items() if task.regime == regime}


def test_learnt_gates_have_a_feature_part_and_fixed_gates_have_none(results):
    for regime, is_positive in (("DL", True), ("FR-II", False)):
        found = runs(results, regime)
        assert set(found) == {0, 1, 2}
        for result in found.values():
            assert [point["epoch"] for point in result["measured"]] == [0, 1, 2, 3]
            for point in result["measured"]:
                for size in ("trace", "frobenius"):
                    assert point["value"][size] > 0
                    assert (point["feature"][size] > 0) is is_positive
                    assert point["feature"][size] >= 0
                    assert point["cross"][size] == 0  # gates and weights have no parameter in common


def test_the_parts_before_training_sum_to_the_tangent_kernel_of_the_logits(results):
    task = next(task for task in results if task.regime == "DL")
    x = task.measured()
    kernel = tangent_kernel(task.trained().make().eval(), x, progress=False)
    first = results[task]["measured"][0]
    total = first["value"]["trace"] + first["feature"]["trace"]
    # A float32 sum over all parameters, whose terms on the diagonal are positive.
    assert total == pytest.approx(float(kernel.trace()), rel=1e-4)


def test_training_moves_both_parts(results):
    for result in runs(results, "DL").values():
        first, last = result["measured"][0], result["measured"][-1]
        assert all(first[part]["trace"] != last[part]["trace"] for part in ("value", "feature"))


def test_the_parts_of_decoupled_learning_are_of_one_scale(results):
    """C13 on digits: within a factor of 10 at every epoch, by more than 3 standard errors."""
    for size in ("trace", "frobenius"):
        ratios = [
            [torch.log10(torch.tensor(p["feature"][size] / p["value"][size])) for p in result["measured"]]
            for result in runs(results, "DL").values()
        ]
        for epoch in zip(*ratios, strict=True):
            spread = Spread.of([float(ratio) for ratio in epoch])
            assert abs(spread.mean) + 3 * spread.error < 1


def test_tables_and_figures_from_any_part_of_the_runs(results):
    for some in ({}, dict(list(results.items())[:1]), results):
        parts = summary(SMOKE, some)
        assert f"{len(some)} of 6 runs" in parts[0].note
        assert [type(part) for part in parts] == [Table, Curves, Curves, Table]
        assert all(bool(part.curves) == bool(some) for part in parts if isinstance(part, Curves))


def test_presets_have_the_runs_of_the_papers():
    assert [len(tasks(preset)) for preset in (CPU, PAPER)] == [2 * 5] * 2
    for preset in (CPU, PAPER):
        assert (preset.net.width, preset.net.depth, preset.data.name) == (128, 6, "mnist")
        assert (preset.training.epochs, preset.training.batch_size, preset.training.optimizer.lr) == (60, 32, 1e-2)
