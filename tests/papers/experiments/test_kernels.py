"""Kernel regression against networks: shared networks, honest ridges, and networks that tend to their kernel."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge

from neuralpath.graph.tracing import trace
from neuralpath.kernels.path.path_kernel import path_kernel
from neuralpath.papers.experiments import kernels
from neuralpath.papers.experiments.kernel_tasks import ROWS, FitKernel, WidenValue
from neuralpath.papers.experiments.kernels import EXPERIMENT, summary, tasks
from neuralpath.papers.experiments.specs import NetSpec
from neuralpath.papers.experiments.statistics import Spread
from neuralpath.papers.experiments.summary_items import Curves, Table
from neuralpath.papers.experiments.trained import TrainNetwork
from neuralpath.papers.runs.run_directory import RunDirectory
from neuralpath.papers.runs.task import with_dependencies
from papers.experiments.serial import run_tasks

SMOKE, CPU, PAPER = (EXPERIMENT.presets[name] for name in ("smoke", "cpu", "paper"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    return folder, run_tasks(tasks(SMOKE), folder)


def test_learnt_gates_are_those_of_one_network_for_kernel_and_fl():
    for part in ("dense", "images"):
        for seed in SMOKE.seeds:
            network = kernels.network(SMOKE, part, seed)
            assert kernels.gated(SMOKE, part, "FL", seed).gates.task == network
            assert kernels.regression(SMOKE, part, "path-learnt", seed).gates.task == network
    trained = [task for task in with_dependencies(tasks(SMOKE)) if isinstance(task, TrainNetwork)]
    assert len(trained) == 3 * 3  # of each part and seed one


def test_predictions_are_those_of_kernel_ridge_regression(finished):
    """Against scikit-learn on a kernel that is computed in one piece, with the ridge that was chosen."""
    folder, results = finished
    for name in ("path-learnt", "linear"):
        task = kernels.regression(SMOKE, "dense", name, 1)
        result, examples = results[task], task.data.load()
        assert len(examples.train.labels) > ROWS  # more than one block
        x, x_test = examples.train.images.double(), examples.test.images.double()
        if name == "linear":
            own, cross = (z.flatten(1) @ x.flatten(1).T for z in (x, x_test))
        else:
            file = folder / task.gates.task.name / "weights" / "last.safetensors"
            model = task.make(RunDirectory(folder, lambda needed, which, file=file: file))
            graph = trace(model, x[:1])
            own, cross = path_kernel(graph, x, normalize=True), path_kernel(graph, x_test, x, normalize=True)
        scale = own.diagonal().mean()
        labels = torch.nn.functional.one_hot(examples.train.labels).double().numpy()
        ridge = KernelRidge(alpha=result["ridge"], kernel="precomputed").fit(own / scale, labels - labels.mean(0))
        predicted = (ridge.predict((cross / scale).numpy()) + labels.mean(0)).argmax(1)
        assert result["test_accuracy"] == (predicted == examples.test.labels.numpy()).mean()


def test_the_ridge_has_the_least_error_of_examples_left_out(finished):
    for task, result in finished[1].items():
        if isinstance(task, FitKernel):
            left_out = result["left_out"]
            assert result["ridge"] == left_out["ridges"][int(np.argmin(left_out["squared_errors"]))]
            assert result["converged"]
            assert 0 <= result["test_accuracy"] <= 1


def test_a_run_that_goes_on_computes_only_what_is_missing(finished, tmp_path):
    task = kernels.regression(SMOKE, "dense", "linear", 0)
    directory = RunDirectory(tmp_path, lambda needed, which: tmp_path)
    assert task.run(directory) == finished[1][task]
    blocks = sorted(directory.checkpoints.glob("*.safetensors"))
    assert len(blocks) == task.n_steps == 3
    times = {block: block.stat().st_mtime_ns for block in blocks}
    blocks[0].unlink()
    assert task.run(directory) == finished[1][task]
    assert all(block.stat().st_mtime_ns == times[block] for block in blocks[1:])


def test_learnt_gates_make_a_better_path_kernel_than_random_ones(finished):
    """C26 on digits, where the effect exceeds 3 standard errors."""
    learnt, random = (
        [finished[1][kernels.regression(SMOKE, "dense", name, seed)]["test_accuracy"] for seed in SMOKE.seeds]
        for name in ("path-learnt", "path-random")
    )
    found = Spread.of([one - two for one, two in zip(learnt, random, strict=True)])
    assert found.mean > 3 * found.error


def test_repeated_gates_leave_the_expected_kernel_as_it_is():
    task = kernels.widened(SMOKE, "random", 1, 0)
    x = task.data.load().train.images[:6]
    own, cross = task.expected(task.make(), x, x)
    wide = replace(task, repeats=8)
    again, _ = wide.expected(wide.make(), x, x)
    assert torch.equal(own, again)
    assert torch.equal(own, cross)
    # The path kernel of the wider value network, with its repeated gates, is the same up to the constant.
    network = wide.make()
    gates = network.gates(x)
    graph = trace(network.value.double(), x[:1].double())
    repeated = path_kernel(graph, x.double(), gates1=gates, progress=False)
    depth, width = task.net.depth, 8 * task.net.width
    assert torch.allclose(depth * (2 / width) ** (depth - 1) * repeated, own, rtol=1e-12)


def test_wide_value_networks_come_near_their_kernel(finished):
    """C37: the distance of test outputs falls with the width, by more than 3 standard errors."""
    for gates in ("random", "learnt"):
        runs = [
            [finished[1][kernels.widened(SMOKE, gates, repeats, seed)] for seed in SMOKE.seeds]
            for repeats in SMOKE.repeats
        ]
        assert not any(run["diverged"] for group in runs for run in group)
        falls = Spread.of([narrow["distance"] - wide["distance"] for narrow, wide in zip(*runs, strict=True)])
        assert falls.mean > 3 * falls.error
        kernel = [[run["kernel"] for run in group] for group in runs]
        assert kernel[0] == kernel[1]  # the same kernel, whatever the width of the network


def test_only_fully_connected_networks_without_biases_are_widened():
    with pytest.raises(ValueError, match="without biases"):
        WidenValue(SMOKE.wide_data, NetSpec("fc", bias=True), 2, 10, 0.5)


def test_tables_and_figures_from_any_part_of_the_runs(finished):
    results = finished[1]
    for some in ({}, dict(list(results.items())[:1]), results):
        kinds = [Table, Table, Table, Table, Table, Curves]
        assert [type(part) for part in summary(SMOKE, some)] == kinds
    assert "21 of 21 runs" in summary(SMOKE, results)[0].note
    assert "0 of 21 runs" in summary(SMOKE, {})[0].note


def test_presets_have_the_examples_that_are_asked_for():
    assert CPU.dense_data.n_train == 10_000
    assert (CPU.image_data.n_train, CPU.image_data.n_test, CPU.image_data.size) == (1000, 1000, 16)
    assert len(tasks(CPU)) == 3 * (3 + 5) + 3 * (3 + 4) + 2 * 6 * 3
    assert len(tasks(PAPER)) == 5 * (3 + 5) + 5 * (3 + 4) + 2 * 7 * 5
    assert len(tasks(replace(CPU, only=("widened",)))) == 36
