"""The polynomials behind the closed form of the ReLU, against extended precision."""

import numpy as np
import pytest

from neuralpath._loops.compiled import compiled
from neuralpath._loops.limit_loops import FAST, SNAP_DOUBLE, SNAP_SINGLE, _moments, bend_of

SNAPS = {np.float32: SNAP_SINGLE, np.float64: SNAP_DOUBLE}
PI = np.longdouble("3.14159265358979323846264338327950288")


@compiled(fastmath=FAST)
def moments_of_many(out, slopes, cosines, bend, level, mean):
    for i in range(cosines.shape[0]):
        out[i], slopes[i] = _moments(cosines[i], bend, level, mean)


def cosines(dtype):
    """The whole range, and both its ends, where the square root matters."""
    ends = np.geomspace(1e-15, 1e-1, 20_000)
    return np.concatenate([np.linspace(-1, 1, 100_001), 1 - ends, ends - 1]).astype(dtype)


def exact(cosine, slope, snapped):
    """Both moments in extended precision; cosines next to 1 and -1 count as that in the angle."""
    cosine, slope = cosine.astype(np.longdouble), np.longdouble(slope)
    angle = np.arccos(np.where(snapped, np.sign(cosine), cosine))
    bend = (1 - slope) ** 2
    lift = np.sin(angle) + (PI - angle) * cosine
    return (bend * lift + 2 * PI * slope * cosine) / (2 * PI), (bend * (PI - angle) + 2 * PI * slope) / (2 * PI)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("slope", [0.0, 0.3, -1.0])
def test_moments_are_exact_to_rounding(dtype, slope):
    cosine, eps = cosines(dtype), np.finfo(dtype).eps
    both, slopes = np.empty_like(cosine), np.empty_like(cosine)
    moments_of_many(both, slopes, cosine, *(dtype(c) for c in bend_of(slope)))
    expected, expected_slopes = exact(cosine, slope, 1 - np.abs(cosine) <= SNAPS[dtype] * eps)
    scale = (1 + slope**2) / 2  # the largest value of either
    assert np.abs(both - expected).max() <= 2 * eps * scale
    assert np.abs(slopes - expected_slopes).max() <= 2 * eps * scale


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_snapping_errs_by_no_more_than_the_angle_it_drops(dtype):
    cosine = cosines(dtype)
    both, slopes = np.empty_like(cosine), np.empty_like(cosine)
    moments_of_many(both, slopes, cosine, *(dtype(c) for c in bend_of(0.0)))
    _, expected = exact(cosine, 0.0, np.zeros(len(cosine), bool))
    dropped = np.arccos(1 - np.longdouble(SNAPS[dtype] * np.finfo(dtype).eps))
    assert np.abs(slopes - expected).max() <= dropped / (2 * PI) + 2 * np.finfo(dtype).eps


def test_ends_and_middle_are_the_known_values():
    cosine = np.array([-1.0, 0.0, 1.0])
    both, slopes = np.empty(3), np.empty(3)
    moments_of_many(both, slopes, cosine, *bend_of(0.0))
    np.testing.assert_allclose(both, [0, 1 / (2 * np.pi), 1 / 2], rtol=1e-15, atol=1e-16)
    np.testing.assert_allclose(slopes, [0, 1 / 4, 1 / 2], rtol=1e-15, atol=1e-16)
