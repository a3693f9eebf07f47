"""Networks that are read as chains for the compiled kernels: the same values as by the general reading."""

import os
from unittest import mock

import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from torch import nn

import neuralpath as npath
from neuralpath.kernels.limit.activations import Pair
from neuralpath.kernels.limit.fused_chains import chain_of
from neuralpath.kernels.limit.limit_network import limit_network

F64 = torch.float64


def network(size, layers, pooled):
    """Convolutions ("c", window, stride, padding) and average pools ("p", window, stride) on square images."""
    modules, channels = [], 1
    for kind, window, stride, *padding in layers:
        if kind == "c":
            modules += [nn.Conv2d(channels, 2, window, stride, *padding, bias=False), nn.ReLU()]
            channels = 2
        else:
            modules.append(nn.AvgPool2d(window, stride))
        size = (size + 2 * sum(padding) - window) // stride + 1
    modules += [nn.AdaptiveAvgPool2d(1), nn.Flatten()] if pooled else [nn.Flatten()]
    return nn.Sequential(*modules, nn.Linear(channels * (1 if pooled else size**2), 1, bias=False)).double()


@st.composite
def networks(draw):
    size = left = draw(st.integers(3, 7))
    layers = []
    for place in range(draw(st.integers(1, 4))):
        kind = "c" if place == 0 else draw(st.sampled_from("cp"))
        padding = (draw(st.integers(0, 1)),) if kind == "c" else ()
        window = draw(st.integers(1, min(3, left + 2 * sum(padding))))
        stride = draw(st.integers(1, 3))
        layers.append((kind, window, stride, *padding))
        left = (left + 2 * sum(padding) - window) // stride + 1
    return size, tuple(layers), draw(st.booleans())


# The pools of the examples leave rows unread behind their only window.
@given(networks())
@example((3, (("c", 1, 1, 0), ("p", 2, 2)), False))
@example((7, (("c", 3, 1, 1), ("p", 4, 4)), True))
@example((7, (("c", 3, 1, 1), ("p", 2, 2), ("c", 1, 1, 0), ("p", 2, 2)), False))
@settings(max_examples=8)
def test_chains_have_the_values_of_the_general_reading(drawn):
    model = network(*drawn)
    x = torch.randn(4, 1, drawn[0], drawn[0], dtype=F64, generator=torch.Generator().manual_seed(0))
    graph = npath.trace(model, x[:1])
    for kernel in (npath.limit_tangent_kernel, npath.limit_output_kernel):
        fused = kernel(graph, x)
        with mock.patch.dict(os.environ, {"NEURALPATH_NUMBA": "0"}):
            expected = kernel(graph, x)
        torch.testing.assert_close(fused, expected, rtol=1e-7, atol=1e-13 * float(expected.max()))


@pytest.mark.parametrize("pooled", [False, True])
def test_pools_whose_only_window_leaves_rows_unread_are_chains_too(pooled):
    x = torch.ones(2, 1, 3, 3, dtype=F64)
    x[1, :, 2] = 100  # a row that the network never reads
    model = network(3, (("c", 1, 1, 0), ("p", 2, 2)), pooled)
    graph = npath.trace(model, x[:1])
    assert chain_of(limit_network(graph, (Pair.SLOPES,))) is not None
    assert torch.equal(model(x[:1]), model(x[1:]))
    torch.testing.assert_close(npath.limit_output_kernel(graph, x), torch.ones(2, 2, dtype=F64))
    torch.testing.assert_close(npath.limit_tangent_kernel(graph, x), 2 * torch.ones(2, 2, dtype=F64))
