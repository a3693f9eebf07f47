"""Kernels of dense chains written over their Gram matrix: combinations, stripes, and the public functions on top."""

import math

import pytest
import torch

from neuralpath import nets, trace
from neuralpath.kernels.limit import fused_gram
from neuralpath.kernels.limit.fused_dense import TILE, DenseStep, LimitKernels
from neuralpath.kernels.limit.fused_gram import OUTPUT, TANGENT, Combination, dense_kernel, write_dense_kernel
from neuralpath.kernels.limit.limit_kernel import limit_output_kernel, limit_tangent_kernel, limit_tangent_kernel_tiles
from neuralpath.kernels.tiling import estimate

F64 = torch.float64
STEPS = (DenseStep(1.0, 0.1), DenseStep(2.0, 0.2), DenseStep(1.5, 0.3, slope=None))


def inputs(n, dtype=F64):
    return torch.randn(n, 5, dtype=dtype, generator=torch.Generator().manual_seed(0))


def test_combinations_are_sums_of_both_kernels():
    x, wanted = inputs(9), Combination(output=0.75, tangent=-2.0, constant=0.5)
    for batches in ((x,), (x, inputs(4))):
        both = LimitKernels(dense_kernel(STEPS, OUTPUT, *batches), dense_kernel(STEPS, TANGENT, *batches))
        expected = 0.75 * both.output - 2 * both.tangent + 0.5
        assert wanted.of(both).equal(expected)
        torch.testing.assert_close(dense_kernel(STEPS, wanted, *batches), expected, rtol=1e-14, atol=1e-14)
        assert OUTPUT.of(both) is both.output
        assert TANGENT.of(both) is both.tangent


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_stripes_equal_the_whole_and_count_all_pairs(monkeypatch, dtype):
    x = inputs(2 * TILE + 40, dtype)
    whole, cross = dense_kernel(STEPS, TANGENT, x), dense_kernel(STEPS, TANGENT, x, x[:50])
    monkeypatch.setattr(fused_gram, "STRIPE_PAIRS", 1)  # a row of tiles at a time
    for expected, x2, n_pairs in ((whole, None, len(x) * (len(x) + 1) // 2), (cross, x[:50], 50 * len(x))):
        out, done = torch.full_like(expected, math.nan), []
        write_dense_kernel(out, STEPS, TANGENT, x, x2, done.append)
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
    torch.testing.assert_close(single.double(), double, rtol=1e-6, atol=0)


@pytest.mark.parametrize("variance", ["equal", "half", 3.0])
@pytest.mark.parametrize("kernel", [limit_tangent_kernel, limit_output_kernel])
def test_public_kernels_equal_the_general_way(monkeypatch, kernel, variance):
    x = inputs(7)
    graph = trace(nets.FC(5, width=4, depth=4, bias=True).double(), x[:1])
    options = {"output_variance": variance, "bias_variance": 0.2}
    fused = kernel(graph, x, **options), kernel(graph, x, x[2:5], **options)
    assert torch.equal(fused[0], fused[0].T)
    monkeypatch.setenv("NEURALPATH_NUMBA", "0")
    for found, expected in zip(fused, (kernel(graph, x, **options), kernel(graph, x, x[2:5], **options)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=0)  # an angle is known to sqrt(eps)


def test_the_whole_equals_its_tiles():
    x = inputs(20)
    tiles = limit_tangent_kernel_tiles(trace(nets.FC(5, width=4, depth=3).double(), x[:1]), x, memory=2000)
    whole = tiles.filled()
    found = list(tiles)
    assert len(found) > 3
    for tile, values in found:
        torch.testing.assert_close(values, whole[tile.rows, tile.columns], rtol=1e-12, atol=0)
    torch.testing.assert_close(tiles.times(2.0).filled(), 2 * whole, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("per_pair", "is_long"), [(1e-6, False), (1e-2, True)])
def test_a_slow_call_is_no_long_work(monkeypatch, per_pair, is_long):
    """A call that takes a millisecond of its own, times all pairs, looks long; more pairs at once tell the truth."""
    now, pairs = [0.0], [0]
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: now[0])

    def compute(tile):
        count = math.prod(tile.shape)
        now[0] += 1e-3 + count * per_pair
        pairs[0] += count

    x = inputs(2000)
    plan = limit_tangent_kernel_tiles(trace(nets.FC(5, width=4, depth=3).double(), x[:1]), x).plan
    assert estimate.may_be_long(plan, compute) is is_long
    assert pairs[0] < 1e-2 * plan.n_pairs
