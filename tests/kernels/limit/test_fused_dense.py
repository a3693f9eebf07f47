"""The fused kernels of dense chains, against neural-tangents and against the plain recursion."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from kernels.limit.fused_chains import dense_steps
from neuralpath.kernels.limit import fused_dense
from neuralpath.kernels.limit.fused_dense import DenseStep, LimitKernels, can_fuse
from neuralpath.kernels.limit.fused_gram import OUTPUT, TANGENT, dense_kernel
from reference import cases
from reference.recursion import limit_kernels_by_recursion
from reference.values import NAMES, reference

F64 = torch.float64
CHAINS = [name for name in NAMES if dense_steps(reference(name).case.layers)]
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
    n = 2 * fused_dense.TILE + 5
    x = torch.randn(n, 6, dtype=dtype, generator=torch.Generator().manual_seed(0))
    whole = dense_kernels(RELUS, x)
    for kernel in (whole.output, whole.tangent):
        assert kernel.dtype == dtype
        assert torch.equal(kernel, kernel.T)
    rows, columns = slice(3, fused_dense.TILE + 20), slice(100, n)
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
    with pytest.raises(TypeError, match="use `limit_tangent_kernel` instead"):
        dense_kernels(RELUS, x)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DenseStep(0.0), "`weight_variance` must be positive"),
        (lambda: DenseStep(1.0, -0.1), "`bias_variance` not negative"),
        (lambda: DenseStep(1.0, slope=math.nan), "`slope` must be a finite number"),
        (lambda: dense_kernels(RELUS[:2], torch.ones(2, 3)), "the last, the output, slope=None"),
        (lambda: dense_kernels([], torch.ones(2, 3)), "the last, the output, slope=None"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_batches_of_two_dtypes_are_refused():
    with pytest.raises(TypeError, match="two batches of one dtype"):
        dense_kernels(RELUS, torch.ones(2, 3), torch.ones(2, 3, dtype=F64))
