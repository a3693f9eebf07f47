"""Orders of gates: what is run, the exact equality of the fully connected path kernel, and the tables."""

from dataclasses import replace
from itertools import permutations

import pytest
import torch
from safetensors.torch import load_file

from neuralpath.papers.experiments import gate_orders
from neuralpath.papers.experiments.seed_tables import accuracies
from neuralpath.papers.experiments.statistics import Spread, paired
from neuralpath.papers.experiments.summary_items import Distribution, Table
from neuralpath.papers.runs.run_directory import RunDirectory
from neuralpath.papers.runs.task import with_dependencies
from papers.experiments.serial import run_tasks

SMOKE, CPU, PAPER = (gate_orders.EXPERIMENT.presets[name] for name in ("smoke", "cpu", "paper"))
FC, CNN = SMOKE.parts


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate-orders")
    return folder, run_tasks(gate_orders.tasks(SMOKE), folder)


def directory(folder):
    return RunDirectory(folder, lambda task, which: folder / task.name / "weights" / f"{which}.safetensors")


def overlaps(network, x):
    """Product over the layers of how many gates two examples share: the path kernel without the input's part."""
    product = torch.ones(len(x), len(x), dtype=torch.float64)
    for layer in network.gates(x).layers.values():
        flat = layer.flatten(1).double()
        product = product * (flat @ flat.T)
    return product


def test_orders_are_different_and_begin_with_own_and_reversed():
    orders = gate_orders.gate_orders(4, 24, seed=0)
    assert set(orders) == set(permutations(range(4)))
    assert orders[:2] == ((0, 1, 2, 3), (3, 2, 1, 0))
    assert gate_orders.gate_orders(4, 6, seed=0) == orders[:6]
    assert gate_orders.gate_orders(4, 6, seed=1) != orders[:6]
    assert gate_orders.gate_orders(1, 1, seed=0) == ((0,),)


def test_path_kernel_of_fc_is_the_same_for_all_orders_and_gates_are_permuted(finished):
    folder, _ = finished
    x = FC.data.load().test.images[:40]
    every = replace(FC, n_orders=6)
    runs = gate_orders.by_order(SMOKE, every, "FL", "image")
    own = runs[0].make(directory(folder))
    for index, order in enumerate(gate_orders.gate_orders(every.n_gates, 6, SMOKE.order_seed)):
        network = runs[index].make(directory(folder))
        assert torch.equal(overlaps(network, x), overlaps(own, x))  # products of integers below 2^53: exact
        for layer, source in enumerate(order):
            assert torch.equal(network.gates(x)[layer], own.gates(x)[source])
    assert len(runs) == 6


def test_path_kernel_of_a_cnn_depends_on_the_order(finished):
    from neuralpath import path_kernel, trace

    folder, _ = finished
    x = CNN.data.load().test.images[:6]
    kernels = []
    for task in gate_orders.by_order(SMOKE, CNN, "FL", "image").values():
        network = task.make(directory(folder)).eval()
        graph = trace(network.value, x[:1])
        kernels.append(path_kernel(graph, x, gates1=network.gates(x)))
    assert not torch.allclose(kernels[0], kernels[1], rtol=1e-3)


def test_every_order_has_the_same_fixed_gates_and_starts(finished):
    folder, results = finished
    assert set(results) == set(with_dependencies(gate_orders.tasks(SMOKE)))
    runs = gate_orders.by_order(SMOKE, FC, "FL", "ones")
    trained = [load_file(folder / task.name / "weights" / "last.safetensors") for task in runs.values()]
    starts = [task.make().state_dict() for task in runs.values()]
    for one, start in zip(trained, starts, strict=True):
        assert all(torch.equal(one[name], trained[0][name]) for name in one if name.startswith("feature"))
        assert all(torch.equal(start[name], starts[0][name]) for name in start if name.startswith("value"))
    assert not torch.equal(trained[0]["value.layers.linear1.weight"], trained[1]["value.layers.linear1.weight"])


def test_weights_that_see_ones_get_no_gradient_from_the_image():
    network = gate_orders.by_order(SMOKE, FC, "FR-II", "ones")[1].make().eval()
    x = FC.data.load().test.images[:5]
    gates = network.gates(x)
    assert torch.equal(network.value_output(x, gates), network.value_output(torch.rand_like(x), gates))


def test_tables_show_the_distribution_over_orders(finished):
    _, results = finished
    shown = gate_orders.summary(SMOKE, results)
    assert [type(one) for one in shown] == [Table, Table, Table, Distribution, Table, Distribution]
    table, inputs, own_order, distribution = shown[:4]
    runs = gate_orders.by_order(SMOKE, FC, "FR-II", "ones")
    values = list(accuracies(runs, results).values())
    (row,) = (row for row in table.rows if row[:2] == ("FR-II", "ones"))
    assert row[2] == Spread.of(values)
    assert row[3:5] == (round(min(values), 2), round(max(values), 2))
    assert row[5] == values[0]
    assert row[6].n == 3
    assert distribution.groups["FR-II ones"] == tuple(values)
    assert set(distribution.lines) == {"ReLU network"}
    expected = paired(accuracies(runs, results), accuracies(gate_orders.by_order(SMOKE, FC, "FR-II", "image"), results))
    (compared,) = (row for row in inputs.rows if row[0] == "FR-II: ones - image")
    assert compared[1] == expected.difference
    by_seed = [accuracies(gate_orders.by_seed(SMOKE, FC, "FR-II", seen), results) for seen in ("ones", "image")]
    (compared,) = (row for row in own_order.rows if row[0] == "FR-II: ones - image")
    assert compared[1] == paired(*by_seed).difference
    assert compared[1].n == 3


def test_the_mean_over_both_inputs_has_a_row_of_its_own(finished):
    _, results = finished
    rows = {row[:2]: row for row in gate_orders.summary(SMOKE, results)[0].rows}
    values = [
        value
        for seen in ("image", "ones")
        for value in accuracies(gate_orders.by_order(SMOKE, FC, "FR-II", seen), results).values()
    ]
    assert len(values) == 6
    assert rows["FR-II", "both"][2] == Spread.of(values)
    assert rows["FR-II", "both"][3:5] == (round(min(values), 2), round(max(values), 2))
    cnn = gate_orders.summary(SMOKE, results)[4]
    assert {row[1] for row in cnn.rows} == {"image"}  # one input has no mean of two
    missing = gate_orders.by_order(SMOKE, FC, "FR-II", "ones")[1]
    some = {task: result for task, result in results.items() if task != missing}
    (row,) = (row for row in gate_orders.summary(SMOKE, some)[0].rows if row[:2] == ("FR-II", "both"))
    assert row[2] is None


def test_shown_works_with_none_and_some_of_the_runs(finished):
    _, results = finished
    for part in ({}, dict(list(results.items())[:9])):
        assert len(gate_orders.summary(SMOKE, part)) == 6
    empty = gate_orders.summary(SMOKE, {})
    assert "0 of 33 runs" in empty[0].note
    assert empty[3].groups == {}


def test_presets_have_the_runs_that_are_asked_for():
    tasks = gate_orders.tasks(CPU)
    of_fc = [task for task in tasks if task.net.family == "fc"]
    fixed = 24 * 2 * 2
    more = 6 * 2 * 2
    more_seeds = 2 * 2 * 4
    assert len(of_fc) == 1 + fixed + more + more_seeds
    assert len(tasks) - len(of_fc) == 1 + 12 * 2 * 2 + 2 * 2 * 2
    assert {task.training.epochs for task in tasks if task.label.find("relu") < 0} == {10}
    assert {task.data.n_train for task in tasks if task.net.family == "gconv"} == {10_000}
    assert len(gate_orders.tasks(PAPER)) == 2 * (1 + 24 * 2 * 4)
    assert len(gate_orders.tasks(replace(CPU, only=("cnn",)))) == len(tasks) - len(of_fc)


def test_papers_figures_stand_beside_ours():
    table = gate_orders.summary(PAPER, {})[0]
    # The papers' figures of the regimes are means over both inputs, and stand beside nothing else.
    assert {row[:2]: row[7] for row in table.rows if row[7]} == {
        ("ReLU", "image"): "98.50", ("FL", "both"): "98.60", ("FR-II", "both"): "94.10", ("FR-DI", "both"): "94.10",
        ("DL", "both"): "98.10",
    }  # fmt: skip
    assert gate_orders.summary(PAPER, {})[4].rows[0][7] == "80.40"


def test_bad_parts_are_named():
    with pytest.raises(ValueError, match="`n_orders` must be from 1 to 6, the orders of 3 layers"):
        replace(FC, n_orders=7)
    with pytest.raises(ValueError, match=r"`net` must be fc, or convolutions of equal width .* got gconv-4-8"):
        replace(CNN, net=replace(CNN.net, channels=(4, 8)))
    with pytest.raises(ValueError, match="without dense hidden layers"):
        replace(CNN, net=replace(CNN.net, hidden=(4,)))
    with pytest.raises(ValueError, match="`only` must be among fc, cnn"):
        replace(SMOKE, only=("dense",))
