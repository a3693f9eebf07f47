"""The fused kernels of dense chains, against neural-tangents and against the plain recursion."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from kernels.limit.reference_chains import dense_steps
from neuralpath import nets, trace
from neuralpath.kernels.limit.fused_chains import DenseStep
from neuralpath.kernels.limit.fused_kernels import (
    NEAR,
    OUTPUT,
    TANGENT,
    TILE,
    Combination,
    LimitKernels,
    can_fuse,
    dense_kernel,
    write_dense_kernel,
)
from neuralpath.kernels.limit.limit_kernel import LimitKernel, limit_output_kernel, limit_tangent_kernel
from reference import cases
from reference.recursion import limit_kernels_by_recursion
from reference.values import NAMES, reference

F64 = torch.float64
CHAINS = [name for name in NAMES if dense_steps(reference(name).case.layers)]
STEPS = (DenseStep(1.0, 0.1), DenseStep(2.0, 0.2), DenseStep(1.5, 0.3, slope=None))
RELUS = (DenseStep(1.0), DenseStep(2.0), DenseStep(2.0, slope=None))


def dense_kernels(steps, x1, x2=None):
    return LimitKernels(dense_kernel(steps, OUTPUT, x1, x2), dense_kernel(steps, TANGENT, x1, x2))


def assert_close(actual, expected, relative):
    """Errors are measured against the largest entry: the kernel of opposite vectors is 0 up to rounding."""
    assert torch.isfinite(actual).all()
    assert (actual.double() - expected).abs().max() <= relative * expected.abs().max()


@pytest.mark.parametrize("name", CHAINS)
def test_agrees_with_neural_tangents(name):
    case = reference(name)
    kernels = dense_kernels(dense_steps(case.case.layers), case.x)
    assert_close(kernels.output, case.output, 1e-13)
    assert_close(kernels.tangent, case.tangent, 1e-12)


def test_reference_has_chains_of_all_depths():
    assert {f"dense_relu_{depth}" for depth in range(2, 9)} <= set(CHAINS)


@given(
    gains=st.lists(st.floats(0.2, 3.0), min_size=2, max_size=5),
    slope=st.sampled_from([0.0, 0.25, 1.0, -0.5]),
    bias=st.sampled_from([0.0, 0.4]),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=25)
def test_agrees_with_the_recursion(gains, slope, bias, seed):
    x = torch.randn(4, 3, dtype=F64, generator=torch.Generator().manual_seed(seed))
    activation = cases.Activation("leaky", slope)
    layers = [layer for gain in gains for layer in (cases.Dense(gain, bias), activation)][:-1]
    output, tangent = limit_kernels_by_recursion(tuple(layers), x.numpy())
    kernels = dense_kernels(dense_steps(layers), x)
    assert_close(kernels.output, torch.from_numpy(output), 1e-12)
    assert_close(kernels.tangent, torch.from_numpy(tangent), 1e-6)  # nearly parallel inputs: sqrt(eps)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_tiles_cross_kernels_and_symmetric_kernels_agree(dtype):
    n = 2 * TILE + 5
    x = torch.randn(n, 6, dtype=dtype, generator=torch.Generator().manual_seed(0))
    whole = dense_kernels(RELUS, x)
    for kernel in (whole.output, whole.tangent):
        assert kernel.dtype == dtype
        assert torch.equal(kernel, kernel.T)
    rows, columns = slice(3, TILE + 20), slice(100, n)
    block = dense_kernels(RELUS, x[rows], x[columns])
    off = torch.arange(n)[rows, None] != torch.arange(n)[None, columns]
    eps = torch.finfo(dtype).eps
    for whole_kernel, part in ((whole.output, block.output), (whole.tangent, block.tangent)):
        difference = (whole_kernel[rows, columns] - part).abs()[off].max()
        assert difference <= 64 * eps * whole_kernel.max()


def test_single_precision_keeps_its_digits_between_similar_inputs():
    case = reference("dense_relu_8")  # one input is another moved by a hundredth
    kernels = dense_kernels(dense_steps(case.case.layers), case.x.float())
    assert_close(kernels.output, case.output, 1e-6)
    assert_close(kernels.tangent, case.tangent, 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_duplicates_and_zeros_are_finite(dtype):
    x = torch.randn(5, 3, dtype=dtype, generator=torch.Generator().manual_seed(1))
    x[1], x[2], x[4] = x[0], 0, 3 * x[0]
    kernels = dense_kernels(RELUS, x)
    for kernel in (kernels.output, kernels.tangent):
        assert torch.isfinite(kernel).all()
        assert (kernel[2] == 0).all()
        resolution = math.sqrt(64 * torch.finfo(dtype).eps)  # of an angle
        torch.testing.assert_close(kernel[0, 1], kernel[0, 0], rtol=resolution, atol=0)
        torch.testing.assert_close(kernel[0, 4], 3 * kernel[0, 0], rtol=resolution, atol=0)
    biased = dense_kernels([DenseStep(1.0, 0.5), DenseStep(2.0, 0.5), DenseStep(2.0, 0.5, None)], x)
    assert torch.isfinite(biased.tangent).all()
    assert biased.output[2, 2] == 1.5  # 0.5, passed on by each ReLU, plus 0.5 at each layer


def test_two_layers_by_hand():
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=F64)
    kernels = dense_kernels([DenseStep(1.0), DenseStep(2.0, slope=None)], x)
    # At a right angle E[f f'] is |x||x'| / 2 pi, and K~ = Sigma^(1) * 1/2 + 2 E[f f'] with Sigma^(1) = 0.
    across = 2 * 2 / (2 * math.pi)
    expected = torch.tensor([[1.0, across], [across, 4.0]], dtype=F64)
    torch.testing.assert_close(kernels.output, expected)
    torch.testing.assert_close(kernels.tangent, expected + torch.diag(torch.tensor([1.0, 4.0], dtype=F64)))


def test_without_numba_nothing_is_fused(monkeypatch):
    x = torch.ones(2, 3)
    assert can_fuse(x)
    assert not can_fuse(x.half())
    monkeypatch.setenv("NEURALPATH_NUMBA", "0")
    assert not can_fuse(x)


def inputs(n, dtype=F64):
    return torch.randn(n, 5, dtype=dtype, generator=torch.Generator().manual_seed(0))


def test_combinations_are_sums_of_both_kernels():
    x, combination = inputs(9), Combination(output=0.75, tangent=-2.0, constant=0.5)
    for batches in ((x,), (x, inputs(4))):
        both = LimitKernels(dense_kernel(STEPS, OUTPUT, *batches), dense_kernel(STEPS, TANGENT, *batches))
        expected = 0.75 * both.output - 2 * both.tangent + 0.5
        assert combination.of(both).equal(expected)
        torch.testing.assert_close(dense_kernel(STEPS, combination, *batches), expected, rtol=1e-14, atol=1e-14)
        assert OUTPUT.of(both) is both.output
        assert TANGENT.of(both) is both.tangent


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_stripes_equal_the_whole_and_count_all_pairs(dtype):
    x = inputs(2 * TILE + 40, dtype)
    whole, cross = dense_kernel(STEPS, TANGENT, x), dense_kernel(STEPS, TANGENT, x, x[:50])
    for expected, x2, n_pairs in ((whole, None, len(x) * (len(x) + 1) // 2), (cross, x[:50], 50 * len(x))):
        out, done = torch.full_like(expected, math.nan), []
        write_dense_kernel(out, STEPS, TANGENT, x, x2, done.append, stripe_pairs=1)  # a row of tiles at a time
        torch.testing.assert_close(out, expected, rtol=64 * torch.finfo(dtype).eps, atol=0)
        assert len(done) == 3
        assert sum(done) == n_pairs
        if x2 is None:
            assert torch.equal(out, out.T)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("n_layers", [2, 10])
def test_an_example_is_at_no_angle_with_its_copy(dtype, n_layers):
    """Inner products by a matrix product have an error that would be an angle of its square root."""
    steps = (*(DenseStep(2.0),) * (n_layers - 1), DenseStep(2.0, slope=None))
    x = torch.rand(150, 784, dtype=dtype, generator=torch.Generator().manual_seed(0))
    own = dense_kernel(steps, TANGENT, x)
    other = dense_kernel(steps, TANGENT, x, x.clone())
    torch.testing.assert_close(other.diagonal(), own.diagonal(), rtol=64 * torch.finfo(F64).eps, atol=0)
    opposite = dense_kernel(steps[-2:], OUTPUT, x, -x)  # the gates of opposite inputs have nothing in common
    assert torch.equal(opposite.diagonal(), torch.zeros(150, dtype=dtype))


def test_near_copies_in_single_precision():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(40, 784, generator=generator)
    near = x + torch.logspace(-6, -1, 40)[:, None] * torch.rand(40, 784, generator=generator)
    single, double = (dense_kernel(STEPS, TANGENT, x.to(t), near.to(t)) for t in (torch.float32, F64))
    # Beyond NEAR, inner products are sums in double precision. Below, a cosine is off by a few roundings, and an angle
    # by that divided by its sine: how many depends on the order in which the matrix product sums.
    eps, cosine = torch.finfo(torch.float32).eps, torch.cosine_similarity(x.double()[:, None], near.double()[None], -1)
    bound = torch.where(cosine > NEAR, 8 * eps, 4 * eps / (1 - cosine.square()).sqrt())
    assert bool((cosine.diagonal() > NEAR).any())
    assert bool((cosine.diagonal() < NEAR).any())
    assert bool(((single.double() - double).abs() <= bound * double).all())


@pytest.mark.parametrize("variance", ["equal", "half", 3.0])
@pytest.mark.parametrize("kernel", [limit_tangent_kernel, limit_output_kernel])
def test_public_kernels_equal_the_general_recursion(monkeypatch, kernel, variance):
    x = inputs(7)
    graph = trace(nets.FC(5, width=4, depth=4, bias=True).double(), x[:1])
    options = {"output_variance": variance, "bias_variance": 0.2}
    fused = kernel(graph, x, **options), kernel(graph, x, x[2:5], **options)
    assert torch.equal(fused[0], fused[0].T)
    monkeypatch.setenv("NEURALPATH_NUMBA", "0")
    general = kernel(graph, x, **options), kernel(graph, x, x[2:5], **options)
    for actual, expected in zip(fused, general, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-7, atol=0)  # an angle is known to sqrt(eps)


def test_the_whole_equals_its_tiles():
    x = inputs(20)
    tiles = LimitKernel(nets.FC(5, width=4, depth=3).double()).tiles(x, memory=2000)
    whole = tiles.filled()
    parts = list(tiles)
    assert len(parts) > 3
    for tile, values in parts:
        torch.testing.assert_close(values, whole[tile.rows, tile.columns], rtol=1e-12, atol=0)
    torch.testing.assert_close(tiles.times(2.0).filled(), 2 * whole, rtol=1e-12, atol=0)
