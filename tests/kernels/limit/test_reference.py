"""The limits against stored values of neural-tangents, by the general reading and by the fused kernels."""

import functools

import pytest
import torch

import neuralpath as npath
from kernels.limit.networks import torch_network, weighted
from neuralpath.graph import nodes as n
from neuralpath.kernels.limit.activations import Pair
from neuralpath.kernels.limit.fused_chains import chain_of
from neuralpath.kernels.limit.limit_kernel import limit_output_kernel, limit_tangent_kernel
from neuralpath.kernels.limit.limit_network import limit_network
from reference.values import NAMES, reference

BY_RULE = 1e-9  # accuracy of quadrature


@functools.cache
def _traced(name):
    case = reference(name)
    size = case.x.shape[-1] if case.x.ndim == 4 else 1
    graph = npath.trace(torch_network(case.case.layers, case.x.shape[1], size), case.x[:1])
    biases = [node.name for node in graph.nodes if isinstance(node, n.BiasNode)]
    variances = [layer.bias for layer in weighted(case.case.layers) if layer.bias > 0]
    return graph, case, dict(zip(biases, variances, strict=True))


def _is_chain(name):
    graph, _, biases = _traced(name)
    return chain_of(limit_network(graph, (Pair.SLOPES,), bias_variance=biases)) is not None


def _assert_as_stored(name):
    graph, case, biases = _traced(name)
    tangent = limit_tangent_kernel(graph, case.x, bias_variance=biases)
    output = limit_output_kernel(graph, case.x, bias_variance=biases)
    bound = BY_RULE if "erf" in name else 1e-12
    for kernel, stored in ((tangent, case.tangent), (output, case.output)):
        assert torch.equal(kernel, kernel.T)
        assert float((kernel - stored).abs().max()) <= bound * float(stored.abs().max())
        # Each entry by itself, where it is not 0 (opposite inputs of a network of two layers).
        assert bool(((kernel - stored).abs() <= 1e-10 * stored.abs() + 1e-16).all())


# One network for each rule; further depths, sizes and paddings, most of whose time is tracing, are slow.
QUICK = [
    *(f"dense_relu_{depth}" for depth in range(2, 9)),
    "dense_leaky_5",
    "dense_relu_bias_5",
    "dense_leaky_bias_4",
    "dense_erf_2",
    "dense_gelu_4",
    "dense_residual",
    "images8_zero_flatten",
    "images8_zero_pooled",
    "images8_circular_flatten",
    "images8_circular_pooled",
    "images12_zero_flatten",
    "images12_circular_pooled",
    "images8_stride_circular_pooled",
    "images8_stride_odd_pooled",
    "images8_average_pool_zero_flatten",
    "images8_overlapping_pool",
    "images8_even_window_flatten",
    "images8_dense_head",
    "images8_leaky_bias_pooled",
    "images8_residual_flatten",
    "images8_residual_pooled",
    "images8_gelu_pooled",
]
SLOW = [name for name in NAMES if name not in QUICK]


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_the_general_reading_gives_the_stored_values(name, monkeypatch):
    monkeypatch.setenv("NEURALPATH_NUMBA", "0")
    _assert_as_stored(name)


FUSED = [
    "dense_relu_5",
    "dense_leaky_bias_4",
    "images8_zero_pooled",
    "images8_circular_flatten",
    "images8_even_window_flatten",
    "images8_stride_circular_pooled",
    "images8_stride_odd_pooled",
    "images8_average_pool_zero_flatten",
    "images8_overlapping_pool",
    "images8_dense_head",
    "images8_leaky_bias_pooled",
]


@pytest.mark.parametrize("name", FUSED)
def test_the_fused_kernels_give_the_stored_values(name):
    assert _is_chain(name)
    _assert_as_stored(name)


def test_what_is_a_chain_and_what_is_not():
    others = ("erf", "gelu", "residual")
    assert {name: _is_chain(name) for name in QUICK} == {
        name: not any(kind in name for kind in others) for name in QUICK
    }


@pytest.mark.parametrize("name", ["dense_relu_4", "dense_leaky_bias_4", "images8_zero_pooled", "images8_gelu_pooled"])
@pytest.mark.parametrize("numba", ["0", "1"])
def test_both_conventions_in_terms_of_the_stored_values(name, numba, monkeypatch):
    monkeypatch.setenv("NEURALPATH_NUMBA", numba)
    graph, case, biases = _traced(name)
    half = limit_tangent_kernel(graph, case.x, bias_variance=biases, output_variance="half")
    last_bias = list(biases.values())[-1] if biases else 0.0
    # The bias of the output layer is no part of what is halved, and counted once.
    torch.testing.assert_close(half, (case.tangent + case.output) / 2, rtol=1e-10, atol=1e-14)
    output = limit_output_kernel(graph, case.x, bias_variance=biases, output_variance="half")
    torch.testing.assert_close(output, (case.output - last_bias) / 2 + last_bias, rtol=1e-10, atol=1e-14)
