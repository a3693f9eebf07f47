"""Autocast around a call changes nothing: all quantities are computed in the precision of the inputs."""

import pytest
import torch
from torch import nn

import neuralpath as npath
from neuralpath import nets
from neuralpath._resources import without_autocast
from neuralpath.kernels.random_values import value_kernel
from neuralpath.paths.gate_statistics import base_kernels
from neuralpath.paths.sketch import sketched_kernel


def _with_biases():
    return nn.Sequential(nn.Linear(30, 64), nn.SiLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2))


NETWORKS = {
    "chain": (lambda: nets.FC(30, width=64, depth=3, n_outputs=2), (30,)),
    "biases": (_with_biases, (30,)),
    "images": (lambda: nets.GCONV((2, 16, 16), 2, channels=(8, 8), hidden=()), (2, 16, 16)),
}


def sketch(model, graph, x):
    features = npath.path_sketch(graph, x, 16, generator=torch.Generator().manual_seed(0))
    return torch.cat([features, sketched_kernel(features).kernel], 1)


QUANTITIES = {
    "path kernel": lambda model, graph, x: npath.path_kernel(graph, x),
    "expected tangent kernel": lambda model, graph, x: npath.expected_tangent_kernel(graph, x, weight_variance=0.1),
    "gates": lambda model, graph, x: torch.cat([g.flatten(1).float() for g in graph.gates(x).layers.values()], 1),
    "base kernels": lambda model, graph, x: torch.stack(list(base_kernels(graph, x).values())),
    "sketch": sketch,
    "active paths": lambda model, graph, x: npath.log_active_paths(graph, x, outputs=0),
    "path norm": lambda model, graph, x: npath.path_norm(graph),
    "output": lambda model, graph, x: npath.output(graph, x),
    "limit tangent kernel": lambda model, graph, x: npath.limit_tangent_kernel(graph, x),
    "limit path kernel": lambda model, graph, x: npath.limit_path_kernel(graph, x),
    "tangent kernel": lambda model, graph, x: npath.tangent_kernel(model, x),
    "tangent parts": lambda model, graph, x: torch.stack([
        getattr(npath.tangent_parts(model, x), part) for part in ("value", "feature", "cross")
    ]),
    "value kernel": lambda model, graph, x: value_kernel(graph, x),
    "trace": lambda model, graph, x: npath.output(npath.trace(model, x[:1]), x),
}  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_autocast_changes_no_number(quantity, network):
    make, shape = NETWORKS[network]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, x = make(), torch.randn(12, *shape)
    graph = npath.trace(model, x[:1])
    compute = QUANTITIES[quantity]
    expected = compute(model, graph, x).detach()
    with torch.autocast("cpu", torch.bfloat16):
        assert (x.flatten(1) @ x.flatten(1).T).dtype == torch.bfloat16  # it is on
        found = compute(model, graph, x).detach()
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


def test_tiles_are_exact_whenever_they_are_asked_for():
    x = torch.randn(9, 5)
    graph = npath.trace(nets.FC(5, width=16, depth=3), x[:1])
    tiles = npath.PathKernel(graph).tiles(x)
    expected = torch.cat([values for _, values in tiles])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(torch.cat([values for _, values in tiles]), expected)


def test_autocast_is_as_before_behind_it():
    with torch.autocast("cpu", torch.bfloat16):
        with without_autocast():
            assert not torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    with without_autocast():
        assert not torch.is_autocast_enabled("cpu")
