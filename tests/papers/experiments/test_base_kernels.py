"""Gate overlaps of random networks: equal to the library's base kernels, and near their limit."""

import math
from itertools import pairwise

import pytest
import torch

from neuralpath import nets
from neuralpath.gating.regimes import decouple
from neuralpath.graph.tracing import trace
from neuralpath.kernels.limit.limit_kernel import limit_path_kernel
from neuralpath.papers.experiments.base_kernels import EXPERIMENT, GateOverlaps, gates_and_inputs, summary, tasks
from neuralpath.papers.experiments.random_labels import cosines_of, overlaps_in_the_limit
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.papers.experiments.statistics import paired
from neuralpath.papers.experiments.summary_items import Curves, Table
from neuralpath.paths.gate_statistics import base_kernels
from papers.experiments.serial import run_tasks

SMOKE, CPU, PAPER = (EXPERIMENT.presets[name] for name in ("smoke", "cpu", "paper"))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run_tasks(tasks(SMOKE), tmp_path_factory.mktemp("base-kernels"))


@pytest.mark.parametrize("linear", [False, True])
def test_products_of_limit_overlaps_are_the_limit_path_kernel(linear):
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    graph = trace(nets.FC(7, 4, 5).double(), x[:1])
    kernel = limit_path_kernel(graph, x, linear_features=linear, progress=False)
    product = torch.stack(overlaps_in_the_limit(cosines_of(x), 4, linear=linear)).prod(0) * (x @ x.T) / 7
    # An angle near 0 is known from its cosine to the square root of the rounding only: the diagonal.
    off = ~torch.eye(5, dtype=torch.bool)
    assert torch.allclose(product[off], kernel[off], rtol=1e-12, atol=1e-12)
    assert torch.allclose(product, kernel, rtol=1e-6)


def test_gates_are_those_of_the_library():
    task = GateOverlaps(DataSpec("digits"), "relu", 10, 16, 3, seed=4)
    x = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    model = nets.FC((1, 8, 8), 16, 4)
    layers = task.make()
    model.layers.load_state_dict(layers.state_dict())
    kernels = base_kernels(trace(model, x[:1]), x)
    walked = gates_and_inputs(layers, x, False)
    for (gates, _), kernel in zip(walked, kernels.values(), strict=True):
        assert torch.equal(gates.float() @ gates.float().T / 16, kernel)
    linear = tuple(decouple(model, "FL", linear_feature=True).gates(x).layers.values())
    found = [gates for gates, _ in gates_and_inputs(layers, x, True)]
    assert all(torch.equal(one, two) for one, two in zip(found, linear, strict=True))
    assert torch.equal(walked[0][1].flatten(1), x.flatten(1))


def test_each_run_has_all_layers_and_consistent_means(results):
    assert len(results) == 2 * 2 * 3
    for task, result in results.items():
        assert len(result["layers"]) == SMOKE.n_layers
        first = result["layers"][0]
        assert first["product"] == pytest.approx(2 * first["overlap"], rel=1e-12)
        assert first["by_angle"] == pytest.approx(first["limit"], abs=1e-6)  # the inputs' angles are no estimate
        for layer in result["layers"]:
            assert 0 <= layer["least"] <= layer["overlap"] <= layer["opened"] <= 1
            if task.features == "linear":
                assert layer["limit"] == pytest.approx(first["limit"], rel=1e-12)


def test_wider_networks_are_nearer_the_limit(results):
    """C29: the distance from (π - θ) / 2π falls with the width, by more than 3 standard errors."""
    for features in SMOKE.features:
        narrow, wide = (
            {w.seed: r["layers"][0]["off_the_angle"] for w, r in results.items() if (w.width, w.features) == key}
            for key in ((32, features), (512, features))
        )
        found = paired(narrow, wide)
        assert found.exceeds > 3


def test_overlaps_in_the_limit_tend_to_a_half_and_their_product_falls_as_the_third_power():
    deep = overlaps_in_the_limit(torch.tensor([0.0, -0.5, 0.9], dtype=torch.float64), 4096)
    assert all(bool((after > before).all()) for before, after in pairwise(deep))
    assert bool((0.5 - deep[-1] < 5e-4).all())
    log = torch.stack(deep).mul(2).log().cumsum(0)
    power = (log[4095] - log[2047]) / math.log(2)
    assert bool((power + 3).abs().max() < 0.03)  # what is missing falls as log(l) / l
    earlier = (log[1023] - log[511]) / math.log(2)
    assert bool(((power + 3).abs() < 0.5 * (earlier + 3).abs()).all())


def test_tables_and_figures_from_any_part_of_the_runs(results):
    for some in ({}, dict(list(results.items())[:1]), results):
        parts = summary(SMOKE, some)
        assert f"{len(some)} of 12 runs" in parts[0].note
        assert [type(part) for part in parts] == [Table, Curves, Curves, Table, Curves, Curves, Table]
    assert all(part.curves for part in summary(SMOKE, results) if isinstance(part, Curves))


def test_presets_expand():
    assert [len(tasks(preset)) for preset in (CPU, PAPER)] == [2 * 3 * 5] * 2
