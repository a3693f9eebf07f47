"""The fused kernels of convolutional chains, against neural-tangents and against the plain recursion."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from kernels.limit.reference_chains import image_chain
from neuralpath.kernels.limit.fused_chains import (
    ConvolutionStep,
    DenseStep,
    LimitChain,
    PoolStep,
    needed_displacements,
    segments_of,
)
from neuralpath.kernels.limit.fused_kernels import fused_image_kernels, prepare_images, workspace_bytes
from reference import cases
from reference.recursion import limit_kernels_by_recursion
from reference.values import NAMES, reference

F64 = torch.float64
CHAINS = [name for name in NAMES if name.startswith("images") and image_chain(reference(name).case.layers)]
OUTPUT = (DenseStep(2.0, slope=None),)
SAME = ConvolutionStep((3, 3), 2.0, before=(1, 1), after=(1, 1))


def assert_close(actual, expected, relative):
    assert torch.isfinite(actual).all()
    assert (actual.double() - expected).abs().max() <= relative * expected.abs().max()


@pytest.mark.parametrize("name", CHAINS)
def test_agrees_with_neural_tangents(name):
    case = reference(name)
    prepared = prepare_images(image_chain(case.case.layers), case.x)
    for kernels in (fused_image_kernels(prepared), fused_image_kernels(prepared, prepared)):
        assert_close(kernels.output, case.output, 1e-13)
        assert_close(kernels.tangent, case.tangent, 1e-12)


def test_reference_has_chains_of_all_kinds():
    for part in ("flatten", "pooled", "circular", "stride", "average_pool", "dense_head", "images12"):
        assert any(part in name for name in CHAINS)


@pytest.mark.parametrize(
    "name",
    [
        "images12_zero_pooled",
        "images8_stride_circular_pooled",
        "images8_dense_head",
        "images8_average_pool_zero_flatten",
        "images8_leaky_bias_pooled",
    ],
)
def test_single_precision(name):
    case = reference(name)
    kernels = fused_image_kernels(prepare_images(image_chain(case.case.layers), case.x.float()))
    assert kernels.tangent.dtype == torch.float32
    assert_close(kernels.output, case.output, 1e-6)
    assert_close(kernels.tangent, case.tangent, 1e-5)


@st.composite
def chains(draw):
    """Layers of the reference's kind, on images of 5 x 5 to 7 x 7, with every geometry that the chains know."""
    size = draw(st.integers(5, 7))
    layers, side = [], size
    slope, bias = draw(st.sampled_from([0.0, 0.2])), draw(st.sampled_from([0.0, 0.3]))
    for _ in range(draw(st.integers(1, 3))):
        window = draw(st.integers(1, min(4, side)))
        before, after = draw(st.integers(0, window - 1)), draw(st.integers(0, window - 1))
        layer = cases.Conv(1.5, window, draw(st.integers(1, 2)), before, after, draw(st.booleans()), bias)
        layers += [layer, cases.Activation("leaky", slope)]
        side = (side + before + after - window) // layer.stride + 1
        if side >= 2 and draw(st.booleans()):
            pool = cases.AveragePool(draw(st.integers(1, 2)), draw(st.integers(1, 2)))
            layers.append(pool)
            side = (side - pool.window) // pool.stride + 1
    end = draw(st.sampled_from([cases.Flatten(), cases.GlobalAverage()]))
    head = draw(st.sampled_from([(), (cases.Dense(1.2, bias), cases.Activation())]))
    return size, (*layers, end, *head, cases.Dense(2.0))


@given(chain=chains(), seed=st.integers(0, 2**31 - 1))
@settings(max_examples=60)
def test_any_geometry_agrees_with_the_recursion(chain, seed):
    size, layers = chain
    x = torch.randn(3, 2, size, size, dtype=F64, generator=torch.Generator().manual_seed(seed))
    output, tangent = limit_kernels_by_recursion(layers, x.numpy())
    prepared = prepare_images(image_chain(layers), x)
    kernels, cross = fused_image_kernels(prepared), fused_image_kernels(prepared[:1], prepared[1:])
    assert_close(kernels.output, torch.from_numpy(output), 1e-12)
    assert_close(cross.output, torch.from_numpy(output[:1, 1:]), 1e-12)
    # The angle of positions that see the same pixels is known to sqrt(eps) only, in the recursion or here.
    assert_close(kernels.tangent, torch.from_numpy(tangent), 1e-7)
    assert_close(cross.tangent, torch.from_numpy(tangent[:1, 1:]), 1e-7)


def test_oblong_images_and_windows():
    """A convolution along one axis of an image of one row is one of the other axis of the image turned."""
    x = torch.randn(3, 2, 4, 7, dtype=F64, generator=torch.Generator().manual_seed(0))
    steps = (
        ConvolutionStep((2, 3), 1.0, before=(0, 1), after=(1, 1)),
        PoolStep((1, 2), (1, 2)),
        ConvolutionStep((3, 2), 2.0, stride=(2, 1), before=(1, 1), after=(0, 0), circular=True),
    )
    turned = (
        ConvolutionStep((3, 2), 1.0, before=(1, 0), after=(1, 1)),
        PoolStep((2, 1), (2, 1)),
        ConvolutionStep((2, 3), 2.0, stride=(1, 2), before=(1, 1), after=(0, 0), circular=True),
    )
    for pooled in (True, False):
        upright = fused_image_kernels(prepare_images(LimitChain(steps, pooled, OUTPUT), x))
        across = fused_image_kernels(prepare_images(LimitChain(turned, pooled, OUTPUT), x.transpose(2, 3).contiguous()))
        assert_close(upright.tangent, across.tangent, 1e-13)


def test_circular_padding_with_pooling_ignores_rotations():
    x = torch.randn(2, 3, 6, 6, dtype=F64, generator=torch.Generator().manual_seed(0))
    moved = torch.stack([x[0].roll((2, 3), (1, 2)), x[1]])
    around = ConvolutionStep((3, 3), 2.0, before=(1, 1), after=(1, 1), circular=True)
    chain = LimitChain((around, around), True, OUTPUT)
    kernels = [fused_image_kernels(prepare_images(chain, images)).tangent for images in (x, moved)]
    assert_close(kernels[0], kernels[1], 1e-13)
    zero = LimitChain((SAME, SAME), True, OUTPUT)
    other = [fused_image_kernels(prepare_images(zero, images)).tangent for images in (x, moved)]
    assert (other[0] - other[1]).abs().max() > 1e-3 * other[0].max()


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_duplicates_and_zeros_are_finite(pooled, dtype):
    x = torch.randn(4, 2, 5, 5, dtype=dtype, generator=torch.Generator().manual_seed(1))
    x[1], x[2], x[3, :, :3] = x[0], 0, 0
    kernels = fused_image_kernels(prepare_images(LimitChain((SAME, SAME), pooled, OUTPUT), x))
    for kernel in (kernels.output, kernels.tangent):
        assert torch.isfinite(kernel).all()
        assert (kernel[2] == 0).all()
        torch.testing.assert_close(kernel[0, 1], kernel[0, 0], rtol=math.sqrt(64 * torch.finfo(dtype).eps), atol=0)
        assert torch.equal(kernel, kernel.T)


def test_threads_and_slices_change_nothing():
    x = torch.randn(7, 2, 6, 6, dtype=F64, generator=torch.Generator().manual_seed(1))
    prepared = prepare_images(LimitChain((SAME, PoolStep((2, 2), (2, 2)), SAME), True, OUTPUT), x)
    whole = fused_image_kernels(prepared).tangent
    before = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            assert torch.equal(fused_image_kernels(prepared).tangent, whole)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(fused_image_kernels(prepared[:3], prepared[3:]).tangent, whole[:3, 3:])
    assert len(prepared[2:5].images) == 3


def position_pairs(chain, size):
    """Activations of pairs of positions for one pair of images: the measure of its cost."""
    segments = segments_of(chain, size)
    needed = needed_displacements(segments, chain.pooled)
    return sum(
        len(segment.activated) * len(ys) * len(xs) * segment.positions
        for segment, (ys, xs) in zip(segments, needed, strict=True)
    )


def test_cost_counts_activations():
    chain = LimitChain((SAME, SAME, SAME, SAME), True, OUTPUT)
    assert position_pairs(chain, (32, 32)) == 4 * 1024**2
    flat = LimitChain((SAME, SAME), False, OUTPUT)
    assert position_pairs(flat, (32, 32)) == 2 * 1024
    halved = LimitChain((SAME, ConvolutionStep((3, 3), 2.0, (2, 2), (1, 1), (1, 1))), True, OUTPUT)
    # The stride meets displacements that are even, before and behind the turn round the edge.
    assert position_pairs(halved, (8, 8)) == 16 * 64 + 16 * 16
    pooled = LimitChain((SAME, PoolStep((2, 2), (2, 2)), SAME), False, OUTPUT)
    assert position_pairs(pooled, (8, 8)) == 9 * 64 + 16
    small, large = (workspace_bytes(chain, (3, side, side), torch.float32) for side in (16, 32))
    assert 3 * small < large < 200_000


def test_memory_of_stored_displacements_is_counted():
    pooled = LimitChain((SAME, PoolStep((2, 2), (2, 2)), SAME), True, OUTPUT)
    stored = 2 * 64 * 64  # both values for all pairs of positions in front of the pool
    assert workspace_bytes(pooled, (1, 8, 8), F64) >= stored * np.dtype(np.float64).itemsize
