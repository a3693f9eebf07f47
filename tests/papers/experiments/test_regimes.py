"""The regimes at the smallest scale: shared networks, which weights move, and what the tables say."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from neuralpath.papers.experiments import regimes
from neuralpath.papers.experiments.seed_tables import accuracies
from neuralpath.papers.experiments.specs import NetSpec
from neuralpath.papers.experiments.statistics import Spread, paired
from neuralpath.papers.experiments.summary_items import Curves, Table
from neuralpath.papers.experiments.trained import TrainGated, TrainNetwork
from neuralpath.papers.runs.task import with_dependencies
from papers.experiments.serial import run_tasks

SMOKE = regimes.EXPERIMENT.presets["smoke"]
CPU = regimes.EXPERIMENT.presets["cpu"]
PAPER = regimes.EXPERIMENT.presets["paper"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("regimes")
    return folder, run_tasks(regimes.tasks(SMOKE), folder)


def last_weights(folder, task, which="last"):
    return load_file(folder / task.name / "weights" / f"{which}.safetensors")


def rows(part=0):
    chosen = SMOKE.parts[part]
    return regimes.rows_of(SMOKE, chosen, chosen.nets[0])


def test_every_network_is_one_run(finished):
    tasks = regimes.tasks(SMOKE)
    assert len(set(tasks)) == len(tasks) == 28
    assert set(with_dependencies(tasks)) == set(tasks)
    for seed, task in rows()["FL"].items():
        assert task.gates.task == rows()["ReLU"][seed]
        assert task.gates.which == "best"
    assert set(finished[1]) == set(tasks)


def test_fixed_gates_are_those_of_the_network_they_come_from_and_never_move(finished):
    folder, _ = finished
    names = ("FL", "FL random labels", "FL random pixels")
    for task in [rows()[name][seed] for name in names for seed in (0, 1, 2)]:
        source = last_weights(folder, task.gates.task, task.gates.which)
        trained = last_weights(folder, task)
        for name, tensor in source.items():
            assert torch.equal(trained[f"feature.{name}"], tensor)
            assert not torch.equal(trained[f"value.{name}"], tensor)


@pytest.mark.parametrize(("regime", "moves"), [("FR-II", False), ("FR-DI", False), ("DL", True)])
def test_gates_are_trained_in_dl_alone(finished, regime, moves):
    folder, _ = finished
    task = rows()[regime][1]
    before, after = task.make().state_dict(), last_weights(folder, task)
    moved = [not torch.equal(before[name], after[name]) for name in before if name.startswith("feature")]
    moved = moved[:-2]  # the feature network's output layer plays no part
    assert moved == [moves] * len(moved)
    assert all(not torch.equal(before[name], after[name]) for name in before if name.startswith("value"))


def test_values_begin_as_features_in_fr_di_alone():
    for regime, equal in (("FR-DI", True), ("FR-II", False)):
        start = rows()[regime][0].make().state_dict()
        weights = [name for name in start if name.startswith("value") and name.endswith("weight")]
        assert all(torch.equal(start[name], start[name.replace("value", "feature")]) == equal for name in weights)


def test_variants_change_the_training_data_of_the_source_only(finished):
    task = rows()["FL random labels"][2]
    noisy, true = task.gates.task.data.load(), task.data.load()
    assert torch.equal(noisy.train.images, true.train.images)
    assert torch.equal(noisy.test.labels, true.test.labels)
    assert 0.02 < float((noisy.train.labels == true.train.labels).float().mean()) < 0.25
    assert task.gates.which == "last"
    assert task.gates.task.training.train_metrics == "evaluated"
    pixels = rows()["FL random pixels"][2].gates.task.data.load()
    assert torch.equal(pixels.train.labels, true.train.labels)
    assert torch.equal(pixels.train.images.flatten(1).sort().values, true.train.images.flatten(1).sort().values)
    assert not torch.equal(pixels.train.images, true.train.images)


def test_random_gates_are_behind_learnt_ones_where_the_effect_is_clear(finished):
    _, results = finished
    found = paired(accuracies(rows()["FR-II"], results), accuracies(rows()["DL"], results))
    assert found.seeds == (0, 1, 2)
    assert found.exceeds < -3


def test_accuracy_table_has_means_over_seeds_and_both_epochs(finished):
    _, results = finished
    table = regimes.summary(SMOKE, results)[0]
    (row,) = (row for row in table.rows if row[2:4] == ("Adam", "FL"))
    best = [100 * max(e["test_accuracy"] for e in results[task]["epochs"]) for task in rows()["FL"].values()]
    last = [100 * results[task]["epochs"][-1]["test_accuracy"] for task in rows()["FL"].values()]
    assert row[table.columns.index("best epoch %")] == Spread.of(best)
    assert row[table.columns.index("last epoch %")] == Spread.of(last)
    assert "22 of 22 runs" in table.note


def test_shown_works_with_none_and_some_of_the_runs(finished):
    _, results = finished
    for part in ({}, dict(list(results.items())[:7])):
        shown = regimes.summary(SMOKE, part)
        assert [type(one) for one in shown] == [Table, Table, Curves, Curves, Table]
    empty = regimes.summary(SMOKE, {})
    assert all(cell is None for row in empty[0].rows for cell in row[4:])
    assert "0 of 22 runs" in empty[0].note
    assert empty[2].curves == ()


def test_gates_that_were_not_learnt_count_as_not_tested(finished):
    _, results = finished
    table = regimes.summary(SMOKE, results)[-1]
    assert [row[-1] for row in table.rows] == ["not tested (0 of 3 seeds reached it)"] * 2
    assert "C14" in table.note
    low = replace(SMOKE, source_accuracy=0.05)
    learnt = {
        task: {"last": {"train_accuracy": 0.06, "epoch": 1}} for task in regimes.tasks(low) if task in low_sources(low)
    }
    assert [row[-1] for row in regimes.summary(low, {**learnt})[-1].rows] == ["learned"] * 2


def low_sources(config):
    part = config.parts[0]
    return {task for runs in regimes.sources_of(config, part, part.nets[0]).values() for task in runs.values()}


def test_sources_stop_when_they_have_fitted(tmp_path):
    part = replace(SMOKE.parts[0], seeds=(0,), sources=("random-pixels",), regimes=("FL",))
    easy = replace(SMOKE, parts=(part,), source_accuracy=0.2)
    (task,) = low_sources(easy)
    result = run_tasks((task,), tmp_path)[task]
    assert result["stopped_early"]
    assert result["last"]["train_accuracy"] >= 0.2
    assert all(epoch["train_accuracy"] < 0.2 for epoch in result["epochs"][:-1])


def test_presets_have_the_runs_that_are_asked_for():
    cpu = regimes.tasks(CPU)
    adam = [task for task in cpu if task.data.name == "mnist" and task.net == NetSpec("fc", 128, 6)]
    assert len(adam) == 2 * 3 * 9  # optimizers, seeds, regimes with three sources of gates and two more networks
    assert {task.training.epochs for task in adam} == {40, 200}
    cifar = [task for task in cpu if task.data.name == "cifar10"]
    assert len(cifar) == 5 + 3
    assert {task.training.epochs for task in cifar} == {30}
    sizes = ("fc-w128-d10", "fc-w256-d6", "fc-w256-d10")
    assert len([task for task in cpu if task.net.label in sizes]) == 3 * 7 + 2 * 3  # random labels with three seeds
    assert len(cpu) == 83 + 2 * 3
    paper = regimes.tasks(PAPER)
    assert len(paper) == 2 * 4 * 5 * 9 + 4 * 5 * 5
    assert {task.training.epochs for task in paper if task.net.family == "gconv"} == {100, 200}
    assert all(isinstance(task, TrainNetwork | TrainGated) for task in paper)


def test_only_chooses_parts():
    chosen = replace(CPU, only=("cifar10-gconv",))
    assert len(regimes.tasks(chosen)) == 5
    assert set(regimes.tasks(chosen)) < set(regimes.tasks(CPU))
    with pytest.raises(ValueError, match=r"`only` must be among mnist-fc-adam.*got 'cifar'"):
        replace(CPU, only=("cifar",))


@pytest.mark.usefixtures("without_type_checks")
def test_unknown_names_are_answered_with_the_known():
    with pytest.raises(ValueError, match="`regimes` must be among ReLU"):
        replace(SMOKE.parts[0], regimes=("relu",))
    with pytest.raises(ValueError, match="`optimizer` must be adam or sgd"):
        replace(SMOKE.parts[0].recipe, optimizer="adagrad")


def test_bad_numbers_are_named():
    with pytest.raises(ValueError, match="`keep` must be epochs from 0 to 5"):
        replace(SMOKE.parts[0], keep=(6,))
    with pytest.raises(ValueError, match="`lr` must be a finite number"):
        replace(SMOKE.parts[0].recipe, lr=-1.0)


def test_papers_figures_stand_beside_ours():
    table = regimes.summary(CPU, {})[0]
    found = {row[:4]: row[table.columns.index("paper %")] for row in table.rows}
    assert found["mnist", "fc-w128-d6", "Adam", "FL"] == "97.82 ± 0.02"
    assert found["mnist", "fc-w128-d6", "SGD", "ReLU"] == "97.85 ± 0.09"
    assert found["mnist", "fc-w128-d10", "Adam", "FL random labels"] == "93.40 ± 0.10"
    assert found["cifar10", "gconv-16-16-32-32", "Adam", "DL"] == "77.12 ± 0.19"
    assert found["cifar10", "vconv-16-16-32-32", "Adam", "FR-II"] == "64.86 ± 1.18"
