"""The compiled loops over pairs of images against products of matrices, where rows are long enough for registers."""

import itertools
from functools import partial

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

import neuralpath as npath
from neuralpath._loops.image_loops import PAGE, block_step
from neuralpath._loops.packed import n_short_words, pack_positions
from neuralpath.graph import Gates
from neuralpath.graph.nodes import Window

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def by_both(monkeypatch, compute):
    """A result by the compiled loops, and by products."""
    results = []
    for numba in ("1", "0"):
        monkeypatch.setenv("NEURALPATH_NUMBA", numba)
        results.append(compute())
    return results


def assert_equal(result, expected):
    largest = expected.abs().max()
    assert largest > 0
    assert (result - expected).abs().max() <= TOLERANCE[expected.dtype] * largest


@st.composite
def chains(draw):
    """Convolutions of any geometry, each with a gate, on images up to 40 positions wide, pooled or flattened."""
    channels, height, width = draw(st.sampled_from([1, 2, 3, 5])), draw(st.integers(1, 9)), draw(st.integers(1, 40))
    shape = (channels, height, width)
    layers, space = [], [height, width]
    bias = draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        windows = []
        for axis in range(2):
            size, dilation, before = draw(st.integers(1, 4)), draw(st.integers(1, 2)), draw(st.integers(0, 2))
            reach = (size - 1) * dilation + 1
            if reach > space[axis] + 2 * before:
                size, dilation = 1, 1
            windows.append(Window(size, draw(st.sampled_from([1, 1, 2])), dilation, before, before))
            space[axis] = windows[axis].n_out(space[axis])
        out = draw(st.sampled_from([1, 31, 33, 64, 65, 130, 300]))
        layers += [
            nn.Conv2d(
                channels,
                out,
                [w.size for w in windows],
                [w.stride for w in windows],
                [w.before for w in windows],
                [w.dilation for w in windows],
                bias=bias,
            ),
            nn.ReLU(),
        ]
        channels = out
    pooled = draw(st.booleans())
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()] if pooled else [nn.Flatten()]
    layers.append(nn.Linear(channels if pooled else channels * space[0] * space[1], 1))
    return nn.Sequential(*layers), shape, draw(st.sampled_from(list(TOLERANCE)))


@settings(deadline=None, max_examples=30)
@given(chains(), st.integers(0, 2**16))
def test_chains_of_any_geometry(drawn, seed):
    model, shape, dtype = drawn
    generator = torch.Generator().manual_seed(seed)
    npath.nets.initialize(model, "glorot", generator)
    model.to(dtype)
    x = torch.randn(2, *shape, generator=generator, dtype=dtype)
    graph = npath.trace(model, x[:1])
    with pytest.MonkeyPatch.context() as monkeypatch:
        kernels = by_both(monkeypatch, lambda: npath.path_kernel(graph, x))
    if kernels[1].any():
        assert_equal(*kernels)
    with pytest.MonkeyPatch.context() as monkeypatch:
        across = by_both(monkeypatch, lambda: npath.path_kernel(graph, x[:1], x[1:]))
    assert (across[0] - across[1]).abs().max() <= TOLERANCE[dtype] * kernels[1].abs().max()


class _Residual(nn.Module):
    """Pair values of whole images: a skip, a stride, biases, and float gates by batch norm."""

    def __init__(self, width, norm):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.inner = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width) if norm else nn.Identity()
        self.last = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        z = self.first(x).relu()
        z = z + self.norm(self.inner(z)).relu()
        return self.head(self.last(z).relu().mean((2, 3)))


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(("width", "norm", "columns"), [(40, False, 16), (130, False, 19), (12, True, 19)])
def test_graphs_with_skips(monkeypatch, dtype, width, norm, columns):
    torch.manual_seed(0)
    model = _Residual(width, norm).to(dtype).eval()
    if norm:
        model.norm.weight.data.uniform_(0.5, 1.5)
    x = torch.randn(2, 3, 6, columns, dtype=dtype)
    graph = npath.trace(model, x[:1])
    assert_equal(*by_both(monkeypatch, lambda: npath.path_kernel(graph, x)))
    assert_equal(*by_both(monkeypatch, lambda: npath.expected_tangent_kernel(graph, x, bias_variance=0.3)))


@pytest.mark.parametrize("bias", [False, True])
def test_deep_chains_are_measured_on_their_way(monkeypatch, bias):
    """Bounds alone would go below the range of float32 after some twenty layers; values are far smaller than these."""
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(3 if k == 0 else 4, 4, 3, padding=1, bias=bias) for k in range(40)]
    layers = [layer for convolution in convolutions for layer in (convolution, nn.ReLU())]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1, bias=bias))
    npath.nets.initialize(model, "glorot", torch.Generator().manual_seed(0))
    x = torch.randn(3, 3, 5, 17)
    graph = npath.trace(model, x[:1])
    own = graph.gates(x)
    sparse = Gates({name: torch.rand(layer.shape) < 0.1 for name, layer in own.layers.items()})
    for gates in (own, sparse):
        assert_equal(*by_both(monkeypatch, partial(npath.path_kernel, graph, x, gates1=gates, normalize=True)))


@pytest.mark.parametrize("size", [1e16, 1e-18])
def test_pixels_of_any_size(size):
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 8, 3, padding=1, bias=False)
    model = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 4 * 18, 1, bias=False))
    x = torch.randn(3, 3, 4, 18)
    graph = npath.trace(model, x[:1])
    kernel = npath.path_kernel(graph, size * x, gates1=graph.gates(x))
    assert_equal((kernel.double() / size**2).float(), npath.path_kernel(graph, x))


@pytest.mark.parametrize("n_channels", [1, 32, 33, 64, 65, 96, 129, 300])
def test_words_hold_the_gates_of_a_position(n_channels):
    gates = torch.rand(2, n_channels, 3 * 5, generator=torch.Generator().manual_seed(0)) < 0.5
    words = pack_positions(gates, 3)
    assert words.shape == (2, 3, n_short_words(n_channels), 5)
    assert n_short_words(n_channels) in (1, 2) or n_short_words(n_channels) % 4 == 0
    for image, y, x in itertools.product(range(2), range(3), range(5)):
        bits = [int(words[image, y, c // 32, x]) >> (c % 32) & 1 for c in range(32 * words.shape[2])]
        assert bits[:n_channels] == gates[image, :, 5 * y + x].int().tolist()
        assert not any(bits[n_channels:])


@pytest.mark.parametrize("itemsize", [4, 8])
def test_blocks_are_not_a_page_apart(itemsize):
    for side in range(1, 70):
        assert block_step(side, itemsize) >= side**2
        assert block_step(side, itemsize) * itemsize % PAGE >= PAGE // 16
