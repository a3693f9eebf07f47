"""M1 to M5: what each begins with, which labels it sees, and what the tables say."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from neuralpath.papers.experiments import label_noise
from neuralpath.papers.experiments.statistics import Spread
from neuralpath.papers.experiments.summary_items import Curves, Table
from neuralpath.papers.runs.run_directory import RunDirectory
from neuralpath.papers.runs.task import with_dependencies
from papers.experiments.serial import run_tasks

SMOKE, CPU, PAPER = (label_noise.EXPERIMENT.presets[name] for name in ("smoke", "cpu", "paper"))
(PART,) = SMOKE.parts


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("label-noise")
    return folder, run_tasks(label_noise.tasks(SMOKE), folder)


def weights(folder, task, which="last"):
    return load_file(folder / task.name / "weights" / f"{which}.safetensors")


def test_every_model_is_there_and_only_with_noise_m4_and_m5():
    assert set(label_noise.runs_of(PART, 0.0)) == {"M1", "M2", "M3 upstream", "M3"}
    assert set(label_noise.runs_of(PART, 0.5)) == set(label_noise.MODELS)
    tasks = label_noise.tasks(SMOKE)
    assert len(tasks) == 3 * (4 + 6)
    assert set(with_dependencies(tasks)) == set(tasks)


def test_each_model_sees_the_labels_it_should():
    found = label_noise.models(PART, 0.5, seed=1)
    true = found["M2"].data.load()
    assert all(found[model].data == found["M2"].data for model in ("M3", "M4", "M5"))
    noisy, random = found["M1"].data.load(), found["M3 upstream"].data.load()
    for other in (noisy, random):
        assert torch.equal(other.train.images, true.train.images)
        assert torch.equal(other.test.labels, true.test.labels)
    kept = float((noisy.train.labels == true.train.labels).float().mean())
    assert 0.5 <= kept < 0.65  # half are untouched, and a tenth of the others are right by chance
    assert float((random.train.labels == true.train.labels).float().mean()) < 0.2
    assert true.train.labels.bincount().tolist() == [40] * 10
    assert label_noise.models(PART, 0.0, seed=1)["M1"].data == found["M2"].data


def test_gates_come_from_where_the_paper_says_and_stay(finished):
    folder, _ = finished
    for seed in (0, 1, 2):
        found = label_noise.models(PART, 0.5, seed)
        m1, m4 = weights(folder, found["M1"]), weights(folder, found["M4"])
        for model, source in (("M2", m1), ("M3 upstream", m1), ("M3", m1), ("M5", m4)):
            trained = weights(folder, found[model])
            assert all(torch.equal(trained[f"feature.{name}"], tensor) for name, tensor in source.items())
        assert all(not torch.equal(m1[name], m4[name]) for name in m1)


def test_downstream_goes_on_where_upstream_ended(finished):
    folder, _ = finished
    directory = RunDirectory(folder, lambda task, which: folder / task.name / "weights" / f"{which}.safetensors")
    found = label_noise.models(PART, 0.5, seed=2)
    for later, earlier in (("M4", "M1"), ("M3", "M3 upstream")):
        start, end = found[later].make(directory).state_dict(), weights(folder, found[earlier])
        assert set(start) == set(end)
        assert all(torch.equal(start[name], end[name]) for name in start)


def test_upstream_may_be_measured_seldom(tmp_path):
    seldom = replace(PART, measured_every=3, noises=(0.5,), seeds=(0,), upstream_epochs=7, upstream_accuracy=1.0)
    often, found = (label_noise.models(part, 0.5, seed=0) for part in (PART, seldom))
    assert found["M1"].training.train_metrics == found["M3 upstream"].training.train_metrics == "running"
    assert often["M1"].training.train_metrics == "evaluated"
    assert found["M4"].training == often["M4"].training  # downstream is measured after each epoch
    (m1,) = run_tasks((found["M1"],), tmp_path).values()
    assert [epoch["epoch"] for epoch in m1["epochs"] if "test_accuracy" in epoch] == [3, 6, 7]
    config = label_noise.LabelNoiseConfig((seldom,))
    table = label_noise.summary(config, {found["M1"]: m1})[1]
    assert "Fitted in its own passes, tested every 3 epochs." in table.note
    with pytest.raises(ValueError, match="measured_every"):
        replace(PART, measured_every=0)


def test_upstream_ends_at_its_goal(finished):
    _, results = finished
    for noise, goal in ((0.0, 0.8), (0.5, 0.5)):
        for task in label_noise.runs_of(PART, noise)["M1"].values():
            result = results[task]
            assert all(epoch["train_accuracy"] < goal for epoch in result["epochs"][:-1])
            assert result["stopped_early"] == (result["last"]["train_accuracy"] >= goal)
            assert result["stopped_early"] or result["last"]["epoch"] == PART.upstream_epochs


def test_tables_show_best_and_last(finished):
    _, results = finished
    table, upstream, pairs, up, *down = label_noise.summary(SMOKE, results)
    assert [row[:2] for row in table.rows] == [
        ("0 %", "M1"), ("0 %", "M2"), ("0 %", "M3"),
        ("50 %", "M1"), ("50 %", "M2"), ("50 %", "M3"), ("50 %", "M4"), ("50 %", "M5"),
    ]  # fmt: skip
    m4 = label_noise.runs_of(PART, 0.5)["M4"].values()
    assert table.rows[6][2] == Spread.of([100 * results[task]["best"]["test_accuracy"] for task in m4])
    assert table.rows[6][5] == Spread.of([100 * results[task]["last"]["test_accuracy"] for task in m4])
    assert len(upstream.rows) == 4
    assert [row[0] for row in pairs.rows] == [
        "M3 - M2, noise 0 %", "M2 - M1, noise 0 %", "M3 - M2, noise 50 %", "M2 - M1, noise 50 %",
        "M5 - M4, noise 50 %", "M4, noise 50 % - M2, noise 0 %",
    ]  # fmt: skip
    assert len(up.curves) == 4
    assert [len(one.curves) for one in down] == [2, 4]
    assert "30 of 30 runs" in table.note


def test_shown_works_with_none_and_some_of_the_runs(finished):
    _, results = finished
    for part in ({}, dict(list(results.items())[:7])):
        assert [type(one) for one in label_noise.summary(SMOKE, part)] == [Table, Table, Table, Curves, Curves, Curves]


def test_presets_have_the_runs_that_are_asked_for():
    tasks = label_noise.tasks(CPU)
    mnist = [task for task in tasks if task.data.name == "mnist"]
    assert len(mnist) == 3 * (4 + 3 * 6)
    assert len(tasks) - len(mnist) == 4 + 6
    (cifar,) = (part for part in CPU.parts if part.data.name == "cifar10")
    assert cifar.data.shape == (3, 16, 16)
    assert cifar.upstream_accuracy == cifar.clean_accuracy == 0.95
    assert len(label_noise.tasks(PAPER)) == 2 * 5 * (4 + 3 * 6)
    assert label_noise.tasks(replace(CPU, only=("mnist-fc",))) == tuple(mnist)


def test_papers_figures_stand_beside_ours():
    table, other = (one for one in label_noise.summary(PAPER, {}) if one.title.startswith("Label noise:"))
    found = {row[:2]: (row[3], row[6]) for row in table.rows}
    assert found["25 %", "M1"] == ("76.10 ± 0.60", "63.10 ± 0.70")
    assert found["75 %", "M5"] == ("67.70 ± 0.60", None)
    assert all((row[3], row[6]) == (None, None) for row in other.rows)


def test_bad_noise_is_named():
    with pytest.raises(ValueError, match="`noises` are shares from 0 to 1"):
        replace(PART, noises=(25.0,))
    with pytest.raises(ValueError, match="`only` must be among digits-fc"):
        replace(SMOKE, only=("mnist",))
