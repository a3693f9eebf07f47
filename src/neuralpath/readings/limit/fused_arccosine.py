r"""Moments of a ReLU under a bivariate normal law, by polynomials that a compiler turns into vector code.

The closed form needs an arc cosine and a square root for each pair. With :math:`u = |\cos\theta|`, :math:`w = 1 - u`
and :math:`\vartheta = \arccos u`, both

.. math:: \vartheta / \sqrt w \qquad\text{and}\qquad (\sin\vartheta - \vartheta\cos\vartheta) / w^{3/2}

are analytic for :math:`w` in [0, 1], the nearest singularity being at 2, so one square root and two short polynomials
do. Relative error of the polynomials: below 2e-8 in single, 4e-17 in double precision, each less than half a unit in
the last place; the coefficients are minimax (Remez, 60 digits).
"""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from neuralpath.bits.compiled import compiled

FAST = {"contract", "nsz", "reassoc"}
"""What the loops allow the compiler: fused multiply-adds, and sums in any order. NaN and infinity keep their sense."""

SNAP = 4
"""Cosines within so many units of rounding of 1 or -1 count as that: their angle is rounding error and nothing else."""

# Arrays, not tuples: the compiler sees through their constant entries, and only then unrolls and vectorises.
_ANGLE_SINGLE = np.array([
    1.4142135417837975737, 0.1178536307617026026, 0.026466918729791197489, 0.0082627947786721538352,
    0.0013456280433944457811, 0.0035358322118904856958, -0.0021354672868066158895, 0.0012534249034951608209,
], np.float32)  # fmt: skip
_LIFT_SINGLE = np.array([
    0.94280905528027858311, 0.04713918370222718816, 0.0075952209183930612107, 0.0016474613099156721608,
    0.00076335526909925372127, -0.00019511062591815908626, 0.00024081961685309533651,
], np.float32)  # fmt: skip
_ANGLE_DOUBLE = np.array([
    1.4142135623730950708, 0.11785113019774244032, 0.026516504296307611454, 0.0078918166702553505684,
    0.0026854119247711132309, 0.00098868844286654900966, 0.00038374803873780001776, 0.00015220229217762972911,
    0.000074279598471188532221, -0.000011999391495242419314, 0.0001210853038075875908, -0.00022910544973684919166,
    0.00038371210733598568385, -0.00046961781233596199446, 0.00043329519877776092018, -0.00028810484616562134685,
    0.00013196564710047365213, -0.000037254426056508196173, 5.0066292402165133966e-6,
])  # fmt: skip
_LIFT_DOUBLE = np.array([
    0.94280904158206340201, 0.047140452079082848232, 0.0075761440860381951388, 0.0017537369865157220155,
    0.00048825769717818455033, 0.00015209469016629515043, 0.000051249097977024151588, 0.000017494397908339440444,
    9.2325817084943785564e-6, -4.4594198750295035983e-6, 0.000015491260073729070962, -0.000021624957358210859107,
    0.000024635585976660080114, -0.000019297525967029853188, 0.000010424510724468575401, -3.4121179318166215485e-6,
    5.3946571868571767816e-7,
])  # fmt: skip
_SNAP_SINGLE = np.float32(SNAP * np.finfo(np.float32).eps)
_SNAP_DOUBLE = SNAP * float(np.finfo(np.float64).eps)
_ONE_SINGLE, _ZERO_SINGLE = np.float32(1), np.float32(0)


def arc(cosine: Any) -> tuple[Any, Any]:
    """For u = abs(cosine): the angle acos(u), and sin - angle * cos of it. For use in compiled code only."""
    raise NotImplementedError("`arc` has a meaning in compiled code only.")


def _arc_single(cosine: Any) -> tuple[Any, Any]:
    w = _ONE_SINGLE - abs(cosine)
    w = w if w > _SNAP_SINGLE else _ZERO_SINGLE
    angle, lift = _ANGLE_SINGLE[7], _LIFT_SINGLE[6]
    for k in range(6, -1, -1):
        angle = angle * w + _ANGLE_SINGLE[k]
    for k in range(5, -1, -1):
        lift = lift * w + _LIFT_SINGLE[k]
    root = np.sqrt(w)
    return root * angle, root * w * lift


def _arc_double(cosine: Any) -> tuple[Any, Any]:
    w = 1.0 - abs(cosine)
    w = w if w > _SNAP_DOUBLE else 0.0
    angle, lift = _ANGLE_DOUBLE[18], _LIFT_DOUBLE[16]
    for k in range(17, -1, -1):
        angle = angle * w + _ANGLE_DOUBLE[k]
    for k in range(15, -1, -1):
        lift = lift * w + _LIFT_DOUBLE[k]
    root = np.sqrt(w)
    return root * angle, root * w * lift


@overload(arc, inline="always", jit_options={"fastmath": FAST})
def _arc_of_type(cosine: Any) -> Callable[..., Any]:
    """Numbers of either precision get polynomials that are as long as it needs; unwrapped as in ``compiled``."""
    return inspect.unwrap(_arc_single if cosine == types.float32 else _arc_double)


def bend_of(slope: float) -> tuple[float, float, float]:
    """What ``moments`` needs of a leaky ReLU: (1 - a)^2 / 2 pi, (1 - a)^2 / 4 and that plus a, for a slope a.

    >>> bend_of(1.0)  # the identity: no bend
    (0.0, 0.0, 1.0)
    """
    bend = (1 - slope) ** 2
    return bend / (2 * math.pi), bend / 4, bend / 4 + slope


@compiled(inline="always", fastmath=FAST)
def moments(cosine: Any, bend: Any, level: Any, mean: Any) -> Any:
    r"""E[f(q) f(q')] and E[f'(q) f'(q')] of a leaky ReLU f, for normal q, q' of variance 1 with a correlation.

    With the slope a and the angle theta: ((1-a)^2 (sin + (pi - theta) cos) + 2 pi a cos) / 2 pi, and
    ((1-a)^2 (pi - theta) + 2 pi a) / 2 pi; ``bend_of`` makes the constants.
    """
    angle, lift = arc(cosine)
    half = level - bend * angle
    return (
        bend * lift + mean * cosine + level * abs(cosine),
        mean + (half if cosine >= 0 else -half),
    )


@compiled(fastmath=FAST)
def moments_of_many(out: Any, slopes: Any, cosines: Any, bend: Any, level: Any, mean: Any) -> None:
    """``moments`` for an array of cosines."""
    for i in range(cosines.shape[0]):
        out[i], slopes[i] = moments(cosines[i], bend, level, mean)
