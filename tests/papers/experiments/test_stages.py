"""Gates of several epochs of one network: it is trained once, and each stage has its own gates."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from neuralpath.papers.experiments import regimes, stages
from neuralpath.papers.experiments.seed_tables import accuracies
from neuralpath.papers.experiments.statistics import Spread, paired
from neuralpath.papers.experiments.summary_items import Curves, Table
from neuralpath.papers.runs.task import with_dependencies
from papers.experiments.serial import run_tasks

SMOKE, CPU, PAPER = (stages.EXPERIMENT.presets[name] for name in ("smoke", "cpu", "paper"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stages")
    return folder, run_tasks(stages.tasks(SMOKE), folder)


def test_each_stage_has_the_gates_of_its_epoch(finished):
    folder, results = finished
    assert len(results) == 3 * (1 + 3)
    for stage in SMOKE.stages:
        for seed, task in stages.gated(SMOKE, stage).items():
            source = stages.network(SMOKE, seed)
            kept = load_file(folder / source.name / "weights" / f"epoch-{stage}.safetensors")
            trained = load_file(folder / task.name / "weights" / "last.safetensors")
            assert all(torch.equal(trained[f"feature.{name}"], tensor) for name, tensor in kept.items())
            if stage == 0:
                start = source.make().state_dict()
                assert all(torch.equal(kept[name], tensor) for name, tensor in start.items())
            if stage == SMOKE.recipe.epochs:
                last = load_file(folder / source.name / "weights" / "last.safetensors")
                assert all(torch.equal(kept[name], tensor) for name, tensor in last.items())


def test_table_says_what_the_network_and_the_gates_reached(finished):
    _, results = finished
    table, steps, against, each = stages.summary(SMOKE, results)
    assert [row[0] for row in table.rows] == [0, 1, 6]
    assert table.rows[0][1] is None  # the untrained network is not measured
    own = [100 * results[stages.network(SMOKE, seed)]["epochs"][5]["test_accuracy"] for seed in (0, 1, 2)]
    assert table.rows[2][1] == Spread.of(own)
    assert table.rows[1][2] == Spread.of(list(accuracies(stages.gated(SMOKE, 1), results).values()))
    assert len(steps.rows) == 2
    assert [curve.x for curve in against.curves] == [(0.0, 1.0, 6.0), (0.0, 1.0, 6.0), (1.0, 6.0)]
    assert len(each.curves) == 3
    assert "of 2 steps" in table.note
    assert "12 of 12 runs" in table.note


def test_learnt_gates_beat_those_before_training_where_the_effect_is_clear(finished):
    _, results = finished
    found = paired(accuracies(stages.gated(SMOKE, 6), results), accuracies(stages.gated(SMOKE, 0), results))
    assert found.seeds == (0, 1, 2)
    assert found.exceeds > 3


def test_shown_works_with_none_and_some_of_the_runs(finished):
    _, results = finished
    for part in ({}, dict(list(results.items())[:5])):
        assert [type(one) for one in stages.summary(SMOKE, part)] == [Table, Table, Curves, Curves]
    assert "0 of 12 runs" in stages.summary(SMOKE, {})[0].note


@pytest.mark.parametrize(("preset", "n_seeds", "n_stages", "epochs"), [("cpu", 1, 6, 10), ("paper", 5, 6, 80)])
def test_presets_share_the_network_with_regimes(preset, n_seeds, n_stages, epochs):
    config = stages.EXPERIMENT.presets[preset]
    tasks = stages.tasks(config)
    assert len(tasks) == len(with_dependencies(tasks)) == n_seeds * (1 + n_stages)
    assert set(tasks[:n_seeds]) <= set(regimes.tasks(regimes.EXPERIMENT.presets[preset]))
    assert {task.training.epochs for task in tasks[n_seeds:]} == {epochs}


def test_cntk_lines():
    assert stages.summary(CPU, {})[2].lines == {"CNTK, papers (50,000 images)": 77.43}
    assert stages.summary(replace(CPU, cntk=60.0), {})[2].lines["CNTK, ours"] == 60.0
    assert stages.summary(SMOKE, {})[2].lines is None
    assert stages.summary(PAPER, {})[0].rows[0][3] == "72.00"
    assert stages.summary(PAPER, {})[0].rows[5][3] == "79.68"
    assert [row[3] for row in stages.summary(CPU, {})[0].rows] == [None] * 6  # other epochs than the papers'


def test_bad_stages_are_named():
    with pytest.raises(ValueError, match="`stages` must be epochs from 0 to 6 in rising order"):
        replace(SMOKE, stages=(1, 7))
    with pytest.raises(ValueError, match="`stages` must be epochs from 0 to 6 in rising order"):
        replace(SMOKE, stages=(2, 1))
