"""DavidNet in the regimes: gates, pools and batch norm of the feature network, and what the weights see."""

import pytest
import torch
from safetensors.torch import load_file

from neuralpath.papers.experiments import residual
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.papers.experiments.summary_items import Curves, Table
from neuralpath.papers.runs.run_directory import RunDirectory
from neuralpath.papers.runs.task import with_dependencies
from papers.experiments.serial import run_tasks

SMOKE, CPU, PAPER = (residual.EXPERIMENT.presets[name] for name in ("smoke", "cpu", "paper"))
ROWS = residual.rows_of(SMOKE)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("residual")
    return folder, run_tasks(residual.tasks(SMOKE), folder)


def test_digits_are_enlarged_by_repeating_pixels():
    large, small = SMOKE.data.load().test.images, DataSpec("digits", n_train=60, n_test=50).load().test.images
    assert large.shape[1:] == (1, 32, 32)
    assert torch.equal(large, small.repeat_interleave(4, 2).repeat_interleave(4, 3))
    with pytest.raises(ValueError, match=r"`size` must divide the side 8 .* or be a multiple of it; got 20"):
        DataSpec("digits", size=20)


def test_fixed_gates_stay_with_all_statistics_of_batch_norm(finished):
    folder, _ = finished
    for (regime, _), runs in ROWS.items():
        for task in runs.values():
            if regime == "ReLU":
                continue
            trained = load_file(folder / task.name / "weights" / "last.safetensors")
            directory = RunDirectory(
                folder, lambda task, which: folder / task.name / "weights" / f"{which}.safetensors"
            )
            start = task.make(directory).state_dict()
            same = [torch.equal(trained[name], start[name]) for name in start if name.startswith("feature")]
            assert all(same) == (regime != "DL")
            assert not torch.equal(trained["value.prep.conv.weight"], start["value.prep.conv.weight"])
            assert not torch.equal(trained["value.prep.norm.running_mean"], start["value.prep.norm.running_mean"])
            if regime == "FL":
                source = load_file(folder / task.gates.task.name / "weights" / "best.safetensors")
                assert all(torch.equal(trained[f"feature.{name}"], tensor) for name, tensor in source.items())


def test_max_pools_read_where_the_feature_network_picks():
    network = ROWS["FR-II", "image"][0].make().eval()
    layers = tuple(network.gates(SMOKE.data.load().test.images[:3]).layers.values())
    assert [layer.dtype for layer in layers].count(torch.int64) == 4
    assert [layer.dtype for layer in layers].count(torch.bool) == 8


def test_ones_hide_the_image_from_the_weights():
    network = ROWS["FR-II", "ones"][0].make().eval()
    x = SMOKE.data.load().test.images[:3]
    gates = network.gates(x)
    assert torch.equal(network.value_output(x, gates), network.value_output(torch.rand_like(x), gates))


def test_tables_with_all_some_and_none_of_the_runs(finished):
    _, results = finished
    assert set(results) == set(with_dependencies(residual.tasks(SMOKE)))
    for part in (results, {}, dict(list(results.items())[:8])):
        shown = residual.summary(SMOKE, part)
        assert [type(one) for one in shown] == [Table, Table, Curves]
        assert f"{len(part)} of 27 runs" in shown[0].note
        assert [row[:2] for row in shown[0].rows] == list(ROWS)
    assert [row[0] for row in residual.summary(SMOKE, {})[1].rows][:2] == [
        "FL ones - FL image",
        "FR-II ones - FR-II image",
    ]


def test_presets():
    assert len(residual.tasks(CPU)) == 1 + 4 * 2
    assert {task.net.width for task in residual.tasks(CPU)} == {16}
    assert len(residual.tasks(PAPER)) == 5 * (1 + 4 * 2)
    assert {task.training.batch_size for task in residual.tasks(PAPER)} == {256}
