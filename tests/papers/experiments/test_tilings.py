"""Rotated and tiled masks: what reaches the weights, and what is compared."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from neuralpath.papers.experiments import gate_orders, tilings
from neuralpath.papers.experiments.seed_tables import accuracies
from neuralpath.papers.experiments.statistics import Spread
from neuralpath.papers.experiments.summary_items import Curves, Table
from neuralpath.papers.runs.run_directory import RunDirectory
from neuralpath.papers.runs.task import with_dependencies
from papers.experiments.serial import run_tasks

SMOKE, CPU, PAPER = (tilings.EXPERIMENT.presets[name] for name in ("smoke", "cpu", "paper"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tilings")
    return folder, run_tasks(tilings.tasks(SMOKE), folder)


def directory(folder):
    return RunDirectory(folder, lambda task, which: folder / task.name / "weights" / f"{which}.safetensors")


def test_masks_are_rotated_by_each_layers_number_and_repeated(finished):
    folder, _ = finished
    x = SMOKE.data.load().test.images[:7]
    still = tuple(tilings.gated(SMOKE, "FL", (0,), 1)[1].make(directory(folder)).gates(x).layers.values())
    rotated = tuple(tilings.gated(SMOKE, "FL", (1, 3), 1)[1].make(directory(folder)).gates(x).layers.values())
    tiled = tuple(tilings.gated(SMOKE, "FL", (1, 3), 2)[1].make(directory(folder)).gates(x).layers.values())
    for layer, shift in enumerate((1, 3)):
        expected = torch.stack([mask.roll((shift, shift), (-2, -1)) for mask in still[layer]])
        assert torch.equal(rotated[layer], expected)
        assert torch.equal(tiled[layer], torch.cat([expected, expected], dim=1))
        assert not torch.equal(rotated[layer], still[layer])
    common = tuple(tilings.gated(SMOKE, "FL", (2,), 1)[1].make(directory(folder)).gates(x).layers.values())
    assert all(torch.equal(mask, before.roll((2, 2), (2, 3))) for mask, before in zip(common, still, strict=True))


def test_gates_are_shared_and_do_not_move(finished):
    folder, results = finished
    tasks = tilings.tasks(SMOKE)
    assert len(tasks) == len(with_dependencies(tasks)) == len(results) == 3 * (2 + 4)
    for shift in SMOKE.shifts:
        for tile in SMOKE.tiles:
            for seed, task in tilings.gated(SMOKE, "FL", shift, tile).items():
                assert task.gates.task == tilings.relu_network(SMOKE, seed)
                trained = load_file(folder / task.name / "weights" / "last.safetensors")
                source = load_file(folder / task.gates.task.name / "weights" / "best.safetensors")
                assert all(torch.equal(trained[f"feature.{name}"], tensor) for name, tensor in source.items())
                assert trained["value.convolutions.conv1.weight"].shape[0] == 6 * tile


def test_tables(finished):
    _, results = finished
    table, compared, curves = tilings.summary(SMOKE, results)
    values = list(accuracies(tilings.gated(SMOKE, "FL", (1, 3), 2), results).values())
    (row,) = (row for row in table.rows if row[:3] == ("FL", 2, "1-3"))
    assert row[3] == Spread.of(values)
    assert len(compared.rows) == 4
    assert len(curves.curves) == 4
    assert "18 of 18 runs" in table.note


def test_shown_works_with_none_and_some_of_the_runs(finished):
    _, results = finished
    for part in ({}, dict(list(results.items())[:8])):
        assert [type(one) for one in tilings.summary(SMOKE, part)] == [Table, Table, Curves]


def test_presets():
    tasks = tilings.tasks(CPU)
    assert len(tasks) == 2 + 2 * 2 * 4
    assert {task.data.n_train for task in tasks} == {10_000}
    assert len(tilings.tasks(PAPER)) == 5 * (3 + 2 * 3 * 5)
    # The network and the masks as they are belong to `gate-orders` too, and are run once.
    assert len(set(tasks) & set(gate_orders.tasks(gate_orders.EXPERIMENT.presets["cpu"]))) == 3


def test_bad_fields_are_named():
    with pytest.raises(ValueError, match="`shifts` must have one number or 2"):
        replace(SMOKE, shifts=((1, 2, 3),))
    with pytest.raises(ValueError, match="`tiles` must be integers of at least 1"):
        replace(SMOKE, tiles=(0,))
    with pytest.raises(ValueError, match="`net` must be convolutions"):
        replace(SMOKE, net=replace(SMOKE.net, family="fc"))
