r"""Compiled loops of the infinite-width kernels: activations, dense layers over tiles of pairs, images by displacement.

**Activations.** The closed form of the ReLU needs an arc cosine and a square root for each pair. With
:math:`u = |\cos\theta|`, :math:`w = 1 - u` and :math:`\vartheta = \arccos u`, both

.. math:: \vartheta / \sqrt w \qquad\text{and}\qquad (\sin\vartheta - \vartheta\cos\vartheta) / w^{3/2}

are analytic for :math:`w` in [0, 1], the nearest singularity being at 2. So one square root and two short polynomials
suffice, which a compiler turns into vector code. Relative error of the polynomials: below 2e-8 in single, 4e-17 in
double precision, each less than half a unit in the last place; the coefficients are minimax (Remez, 60 digits).

**Vectors.** A row of a tile of pairs goes through all layers at once:

    profile1, profile2  (layer, 2, example)    standard deviation of the pre-activation, and its inverse
    constants           (layer, 5)             weight variance, bias variance, and the three numbers of `bend_of`

**Images.** A convolution moves both positions of a pair together, so pairs (i, i') of one displacement i' - i meet only
each other. Values are one small image for each displacement (dy, dx); entry i is the value of the pair of i and
i' = i + (dy, dx), modulo the size of the image:

    displacement (0, 1), image of 3 columns          the second position of column 2 wraps around to column 0:
      i    0  1  2 | 3  4  5 | 6  7  8                pairs on the two sides of ``split`` = width - dx are not
      i'   1  2  0 | 4  5  3 | 7  8  6                neighbors, and with zero padding sums along x stop there
                ^ split

Layers that keep the size run on that image alone, which stays in the first-level cache: a window sum is a sum of
shifted copies, and an activation is a pass over one run of memory. Pooling and other convolutions mix displacements;
before them, all displacements that they need are stored:

    stores[s % 2]   (2, dy, dx, position)    covariance and tangent kernel of segment s, read by segment s + 1
    rolled          (row, 2 * positions)     channels and profiles of the second image, shifted by dx, each written
                                             twice, one after the other: a shift by dy is then a slice
    images          (3, margin + positions + margin)   covariance, tangent kernel and a spare of one displacement

All compiled functions are in this one file, because numba's cache on disk notices changes of a function's file only.
"""

import inspect
import math
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from neuralpath._loops.compiled import compiled

IMAGES, CONVOLUTION, POOL = 0, 1, 2  # the source of a segment
SUM, DIAGONAL, READ = 0, 1, 2  # the result: a sum over all pairs, over equal positions, or the last segment's input

FAST = {"contract", "nsz", "reassoc"}  # fused multiply-adds, sums in any order; NaN and infinity keep their meaning

# Cosines within this many units of rounding of 1 or -1 count as 1 or -1: their angle is only rounding error. The
# larger number in double precision allows for the error of twenty layers.
SNAP_SINGLE, SNAP_DOUBLE = 4, 32

# Arrays, not tuples: the compiler sees through their constant entries, and only then unrolls and vectorizes.
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
_SNAP_SINGLE = np.float32(SNAP_SINGLE * np.finfo(np.float32).eps)
_SNAP_DOUBLE = SNAP_DOUBLE * float(np.finfo(np.float64).eps)
_ONE_SINGLE, _ZERO_SINGLE = np.float32(1), np.float32(0)


def _arc(cosine):
    """The angle acos(abs(cosine)), and its sin - angle * cos. For compiled code only."""


def _arc_single(cosine):
    # Horner's rule, from the highest power down, in w = 1 - |cos|; every number is single, or the vectors widen.
    w = _ONE_SINGLE - abs(cosine)
    w = w if w > _SNAP_SINGLE else _ZERO_SINGLE
    angle, lift = _ANGLE_SINGLE[7], _LIFT_SINGLE[6]
    for k in range(6, -1, -1):
        angle = angle * w + _ANGLE_SINGLE[k]
    for k in range(5, -1, -1):
        lift = lift * w + _LIFT_SINGLE[k]
    root = np.sqrt(w)
    return root * angle, root * w * lift


def _arc_double(cosine):
    w = 1.0 - abs(cosine)
    w = w if w > _SNAP_DOUBLE else 0.0
    angle, lift = _ANGLE_DOUBLE[18], _LIFT_DOUBLE[16]
    for k in range(17, -1, -1):
        angle = angle * w + _ANGLE_DOUBLE[k]
    for k in range(15, -1, -1):
        lift = lift * w + _LIFT_DOUBLE[k]
    root = np.sqrt(w)
    return root * angle, root * w * lift


@overload(_arc, inline="always", jit_options={"fastmath": FAST})
def _arc_of_type(cosine):
    """Polynomials as long as the precision of the number needs; unwrapped as in ``compiled``."""
    return inspect.unwrap(_arc_single if cosine == types.float32 else _arc_double)


def bend_of(slope: float) -> tuple[float, float, float]:
    """The constants of a leaky ReLU of slope a for ``_moments``: (1 - a)^2 / 2 pi, (1 - a)^2 / 4, (1 - a)^2 / 4 + a.

    >>> bend_of(1.0)  # the identity: no bend
    (0.0, 0.0, 1.0)
    """
    bend = (1 - slope) ** 2
    return bend / (2 * math.pi), bend / 4, bend / 4 + slope


@compiled(inline="always", fastmath=FAST)
def _moments(cosine, bend, level, mean):
    r"""E[f(q) f(q')] and E[f'(q) f'(q')] of a leaky ReLU f, for normal q, q' of variance 1 with a correlation.

    With the slope a and the angle theta: ((1-a)^2 (sin + (pi - theta) cos) + 2 pi a cos) / 2 pi, and
    ((1-a)^2 (pi - theta) + 2 pi a) / 2 pi; the constants come from ``bend_of``.
    """
    # With t = acos|cos|, theta is t for cos >= 0 and pi - t below: a choice of sign, not a branch. `level` is
    # bend * pi / 2, so `half` is bend * (pi / 2 - t), the part of the slopes that changes sign with the cosine.
    angle, lift = _arc(cosine)
    half = level - bend * angle
    return (bend * lift + mean * cosine + level * abs(cosine), mean + (half if cosine >= 0 else -half))


class Program(NamedTuple):
    """A chain as arrays. A segment starts where displacements mix: at the pixels, a resizing convolution or a pool.

    ``segments`` (segment, 16), pairs of numbers are (y, x):

        | 0      | 1 2  | 3 4         | 5 6    | 7 8    | 9 10    | 11       | 12    | 13       | 14 15         |
        | source | size | source size | window | stride | padding | circular | first | n layers | displacements |
        |        of the segment       |        of the step at its start      | of its layers    | how many      |

    ``layers`` (layer, 6): ``first`` counts here; ``n layers`` leaves out the convolution at the segment's start, which
    has a row too, the first one.

        | 0 1    | 2 3     | 4        | 5                                            |
        | window | padding | circular | where its profile starts, margin row included |

    ``constants`` (layer, 5): weight variance over window size, bias variance, and the three numbers of ``bend_of``.
    ``needed`` (segment, 2, slot): the displacements of a segment, along y and x.
    ``slots`` (segment, 2, displacement modulo size): where a displacement is stored, the inverse of ``needed``.
    ``columns`` (segment, position): the x of a position, in the dtype of the values.
    """

    segments: Any
    layers: Any
    constants: Any
    needed: Any
    slots: Any
    columns: Any


class Memory(NamedTuple):
    """The buffers of one thread, drawn above."""

    images: Any
    rolled: Any
    stores: Any


@compiled()
def _copy(out, values):
    """The same as ``out[:] = values``, whose checks of shapes take seconds to compile."""
    for i in range(out.shape[0]):
        out[i] = values[i]


@compiled(fastmath=FAST)
def _run_row(covariance, tangent, row, first, profile1, profile2, constants):
    """One row of a tile, in place; ``first`` is the column of its first entry."""
    n, last = covariance.shape[0], constants.shape[0] - 1
    # Layers outside, columns inside: a row of TILE pairs stays in the first-level cache, and the columns are vectors.
    for layer in range(last):
        gain, bias, bend, level, mean = constants[layer]
        deviation, inverse = profile1[layer, 0, row], profile1[layer, 1, row]
        deviations = profile2[layer, 0, first : first + n]
        inverses = profile2[layer, 1, first : first + n]
        for j in range(n):
            sigma = covariance[j] * gain + bias
            signals, slopes = _moments(sigma * inverse * inverses[j], bend, level, mean)
            value = deviation * deviations[j] * signals
            tangent[j] = value + (tangent[j] * gain + bias) * slopes
            covariance[j] = value
    gain, bias = constants[last, 0], constants[last, 1]
    for j in range(n):
        covariance[j] = covariance[j] * gain + bias
        tangent[j] = tangent[j] * gain + bias


@compiled(cache=True)
def run_tiles(output, result, covariance, tangent, profile1, profile2, constants, tiles, size, symmetric):
    """Take tiles (first row and column of each) through dense layers; fill the mirror images of a symmetric kernel."""
    n1, n2 = covariance.shape
    # Rows are copied: in double precision for inputs of either, and in the first-level cache for all layers.
    sigma, theta = np.empty(size), np.empty(size)
    for tile in range(tiles.shape[0]):
        top, left = tiles[tile, 0], tiles[tile, 1]
        bottom, right = min(top + size, n1), min(left + size, n2)
        n = right - left
        for i in range(top, bottom):
            _copy(sigma[:n], covariance[i, left:right])
            _copy(theta[:n], tangent[i, left:right])
            _run_row(sigma[:n], theta[:n], i, left, profile1, profile2, constants)
            _copy(output[i, left:right], sigma)
            _copy(result[i, left:right], theta)
        if symmetric:  # entries above the diagonal to their mirror images, also of the tile on the diagonal
            for j in range(left, right):
                for i in range(top, min(bottom, j)):
                    output[j, i] = output[i, j]
                    result[j, i] = result[i, j]


@compiled(fastmath=FAST)
def _inner_product(first, second):
    """The sum in double precision; the same, bit for bit, for a vector with itself and with its copy."""
    total = 0.0
    for k in range(first.shape[0]):
        total += np.float64(first[k]) * np.float64(second[k])
    return total


@compiled(cache=True)
def squared_lengths(out, rows):
    """The squared length of every row, summed as ``_sharpen`` sums inner products."""
    for i in range(rows.shape[0]):
        out[i] = _inner_product(rows[i], rows[i])


@compiled(fastmath=FAST)
def _sharpen(covariance, row, first, profile1, profile2, constants, rows, columns, near):
    """Sum the inner products of pairs whose cosine in the first layer exceeds ``near`` again, in double precision."""
    n, last = covariance.shape[0], constants.shape[0] - 1
    if last == 0:
        return
    gain, bias, inverse = constants[0, 0], constants[0, 1], profile1[0, 1, row]
    inverses = profile2[0, 1, first : first + n]
    nearest = 0.0  # a first pass that the compiler vectorizes: most rows have no such pair
    for j in range(n):
        nearest = max(nearest, abs((covariance[j] * gain + bias) * inverse * inverses[j]))
    if nearest <= near:
        return
    for j in range(n):
        if abs((covariance[j] * gain + bias) * inverse * inverses[j]) > near:
            covariance[j] = _inner_product(rows[row], columns[first + j])


@compiled(cache=True)
def run_tiles_in_place(values, rows, columns, near, profile1, profile2, constants, combination, tiles, size, symmetric):
    """The same for kernels that both start as one matrix, which is overwritten by a combination of them.

    ``rows`` and ``columns`` are the inputs, and the matrix has their inner products; for pairs beyond the cosine
    ``near`` they are summed again. ``combination``: factors of the output kernel, of the tangent kernel and of 1.
    """
    n1, n2 = values.shape
    # Rows are copied: in double precision for inputs of either, and in the first-level cache for all layers.
    sigma, theta = np.empty(size), np.empty(size)
    for tile in range(tiles.shape[0]):
        top, left = tiles[tile, 0], tiles[tile, 1]
        bottom, right = min(top + size, n1), min(left + size, n2)
        n = right - left
        for i in range(top, bottom):
            _copy(sigma[:n], values[i, left:right])
            _sharpen(sigma[:n], i, left, profile1, profile2, constants, rows, columns, near)
            _copy(theta[:n], sigma[:n])
            _run_row(sigma[:n], theta[:n], i, left, profile1, profile2, constants)
            _combine(values[i, left:right], sigma, theta, combination)
        if symmetric:
            for j in range(left, right):
                for i in range(top, min(bottom, j)):
                    values[j, i] = values[i, j]


@compiled(fastmath=FAST)
def _combine(out, sigma, theta, combination):
    first, second, constant = combination
    for i in range(out.shape[0]):
        out[i] = first * sigma[i] + second * theta[i] + constant


@compiled(fastmath=FAST)
def _roll(out, padded, width, dx, columns):
    """Rotate the rows of an image by dx; written twice, one after the other, so that a rotation by rows is a slice.

    The image has a margin of one row before and after, so ``near`` and ``far`` are slices too. Both are always read,
    and one is selected: a branch would keep the compiler from vectorizing.

        padded, width 3:   . . . | a b c | d e f | . . .         dx = 1, split = 2
        near (ahead by dx)           b c   d e f   .             columns 0 and 1 of a row: near
        far  (a row before that)     . . a b c d                 column 2 wraps around to its own row's start: far
        rolled                       b c a | e f d
    """
    n = columns.shape[0]
    near, far, split = padded[width + dx : width + dx + n], padded[dx : dx + n], width - dx
    first, second = out[:n], out[n : 2 * n]
    for i in range(n):
        ahead, behind = near[i], far[i]
        value = ahead if columns[i] < split else behind
        first[i] = value
        second[i] = value


@compiled(fastmath=FAST)
def _add_to(out, values):
    for i in range(out.shape[0]):
        out[i] += values[i]


@compiled(fastmath=FAST)
def _sum_of_two(out, first, second):
    for i in range(out.shape[0]):
        out[i] = first[i] + second[i]


@compiled(fastmath=FAST)
def _sum_of_three(out, first, second, third):
    for i in range(out.shape[0]):
        out[i] = first[i] + second[i] + third[i]


@compiled()
def _sum_neighbors(out, values, width):
    """Each row plus those above and below it."""
    last = out.shape[0] - width
    if last <= 0:
        _copy(out, values)
        return
    for row, neighbor in ((0, width), (last, last - width)):
        _sum_of_two(out[row : row + width], values[row : row + width], values[neighbor : neighbor + width])
    _sum_of_three(out[width:last], values, values[width:], values[2 * width :])


@compiled()
def _sum_rows(out, values, shape, split, size, before, circular):
    """Sums over a window along y; at ``split`` the second positions wrap around.

    For height 4 and dy = 1, rows y and y' = (y + dy) mod 4 of one displacement:

        y    0  1  2 | 3         With zero padding a window must not reach across the split: the rows of the second
        y'   1  2  3 | 0         image on its two sides are not neighbors. Circular windows ignore it: both rows
             split = 3 ^         move on by the same step, and wrap around together or one after the other.
    """
    height, width = shape
    if size == 3 and before == 1 and not circular:  # the common window, in one pass
        for start, stop in ((0, split * width), (split * width, height * width)):
            _sum_neighbors(out[start:stop], values[start:stop], width)
        return
    for i in range(out.shape[0]):
        out[i] = 0
    for tap in range(size):
        shift = tap - before
        if circular:
            shift %= height
        for part in range(2):
            if circular:  # rows that stay inside, and rows that wrap around
                start, stop = (0, height - shift) if part == 0 else (height - shift, height)
                source = start + shift if part == 0 else 0
            else:  # rows on either side of the split, each with sources on the same side
                low, high = (0, split) if part == 0 else (split, height)
                start, stop = max(low, low - shift), min(high, high - shift)
                source = start + shift
            if start < stop:
                length = (stop - start) * width
                _add_to(out[start * width : stop * width], values[source * width : source * width + length])


@compiled(fastmath=FAST)
def _sum_columns(out, values, margin, columns, width, split, size, before, circular):
    """Sums over a window along x of values with a margin on both sides; at ``split`` second positions wrap around.

    All rows are one run of memory, so the neighbor of the first column is the last entry of the row before: it is
    loaded, and then replaced by 0 or, for circular padding, by the entry at the row's other end, a width away. Loading
    and selecting are vector instructions, which a branch is not. The margin keeps such loads inside the buffer.
    """
    n, real = columns.shape[0], columns.dtype.type
    # Numbers in the dtype of the values, so that comparisons take as many vector lanes as sums.
    zero, one, edge, turn, last = real(0), real(1), real(width - 1), real(split), real(split - 1)
    middle = values[margin : margin + n]
    if size == 3 and before == 1:
        left, right = values[margin - 1 : margin - 1 + n], values[margin + 1 : margin + 1 + n]
        if circular:
            wrapped_left = values[margin - 1 + width : margin - 1 + width + n]
            wrapped_right = values[margin + 1 - width : margin + 1 - width + n]
            for i in range(n):
                at, previous, last_of_row = columns[i], left[i], wrapped_left[i]
                following, first_of_row = right[i], wrapped_right[i]
                before_it = previous if at >= one else last_of_row
                out[i] = middle[i] + before_it + (following if at < edge else first_of_row)
            return
        for i in range(n):
            at, previous, following = columns[i], left[i], right[i]
            from_left = previous if (at >= one) & (at != turn) else zero
            from_right = following if (at < edge) & (at != last) else zero
            out[i] = middle[i] + from_left + from_right
        return
    out[:] = zero
    for tap in range(size):
        shift = tap - before
        if circular:
            shift %= width
            ahead, behind, limit = values[margin + shift :], values[margin + shift - width :], real(width - shift)
            for i in range(n):
                inside, wrapped = ahead[i], behind[i]
                out[i] += inside if columns[i] < limit else wrapped
        elif abs(shift) < width:
            moved, by, wide = values[margin + shift :], real(shift), real(width)
            for i in range(n):
                value, at = moved[i], columns[i]
                to = at + by
                low, high = (zero, turn) if at < turn else (turn, wide)
                out[i] += value if (to >= low) & (to < high) else zero


@compiled(fastmath=FAST)
def _activate(covariance, tangent, deviations1, inverses1, deviations2, inverses2, constants):
    """Weights, bias and activation, in place, from the standard deviations of both images and their inverses."""
    scale, bias, bend, level, mean = constants
    for i in range(covariance.shape[0]):
        sigma = covariance[i] * scale + bias
        signals, slopes = _moments(sigma * inverses1[i] * inverses2[i], bend, level, mean)
        value = deviations1[i] * deviations2[i] * signals
        tangent[i] = value + (tangent[i] * scale + bias) * slopes
        covariance[i] = value


@compiled(fastmath=FAST)
def _activate_equal(covariance, tangent, constants):
    """``_activate`` for positions each with itself: the angle is exactly 0, and E[f f] a share of the variance."""
    scale, bias, level, mean = constants[0], constants[1], constants[3], constants[4]
    share = level + mean
    for i in range(covariance.shape[0]):
        value = (covariance[i] * scale + bias) * share
        tangent[i] = value + (tangent[i] * scale + bias) * share
        covariance[i] = value


@compiled(fastmath=FAST)
def _multiply_images(covariance, tangent, image1, rolled2, margin, start):
    """Products of the values of two images, summed over channels."""
    n = covariance.shape[0]
    covariance[:] = 0
    for channel in range(image1.shape[0]):
        first, second = image1[channel, margin : margin + n], rolled2[channel, start : start + n]
        for i in range(n):
            covariance[i] += first[i] * second[i]
    _copy(tangent, covariance)


@compiled()
def _read_convolution(covariance, tangent, store, segment, slots, dy, dx):
    """Window sums of a convolution that changes the size, for one displacement of its output.

    Output (y, x) and (y2, x2) read the inputs (i, j) and (i2, j2) with the same tap. Their displacement differs from
    output to output, so the value is looked up: slot of (i2 - i, j2 - j), entry (i, j).
    """
    height, width, rows, columns = segment[1], segment[2], segment[3], segment[4]
    circular = segment[11] != 0
    for y in range(height):
        y2 = (y + dy) % height
        for x in range(width):
            x2 = (x + dx) % width
            sigma, theta = 0.0, 0.0
            for tap in range(segment[5]):
                i, i2 = y * segment[7] + tap - segment[9], y2 * segment[7] + tap - segment[9]
                if circular:
                    i, i2 = i % rows, i2 % rows
                if min(i, i2) < 0 or max(i, i2) >= rows:
                    continue
                at_y = slots[0, (i2 - i) % rows]
                for tap_x in range(segment[6]):
                    j, j2 = x * segment[8] + tap_x - segment[10], x2 * segment[8] + tap_x - segment[10]
                    if circular:
                        j, j2 = j % columns, j2 % columns
                    if min(j, j2) < 0 or max(j, j2) >= columns:
                        continue
                    at_x = slots[1, (j2 - j) % columns]
                    sigma += store[0, at_y, at_x, i * columns + j]
                    theta += store[1, at_y, at_x, i * columns + j]
            covariance[y * width + x] = sigma
            tangent[y * width + x] = theta


@compiled()
def _read_pool(covariance, tangent, store, segment, slots, dy, dx):
    """Means over window times window of an average pool, for one displacement of its output.

    Unlike a convolution, a pool reads all pairs of positions of the two windows: i and i2, j and j2 move separately.
    """
    height, width, rows, columns = segment[1], segment[2], segment[3], segment[4]
    n = 1.0 / (segment[5] * segment[6]) ** 2
    for y in range(height):
        top, top2 = y * segment[7], (y + dy) % height * segment[7]
        for x in range(width):
            left, left2 = x * segment[8], (x + dx) % width * segment[8]
            sigma, theta = 0.0, 0.0
            for i in range(top, top + segment[5]):
                for i2 in range(top2, top2 + segment[5]):
                    at_y = slots[0, (i2 - i) % rows]
                    for j in range(left, left + segment[6]):
                        for j2 in range(left2, left2 + segment[6]):
                            at_x = slots[1, (j2 - j) % columns]
                            sigma += store[0, at_y, at_x, i * columns + j]
                            theta += store[1, at_y, at_x, i * columns + j]
            covariance[y * width + x] = sigma * n
            tangent[y * width + x] = theta * n


@compiled(fastmath=FAST)
def _total(values):
    total = 0.0
    for i in range(values.shape[0]):
        total += np.float64(values[i])
    return total


@compiled(inline="always")
def _convolve(covariance, tangent, spare, margin, layer, columns, shape, dy, dx):
    """Window sums of a convolution that keeps the size, in place."""
    n, circular = shape[0] * shape[1], layer[4] != 0
    # A window sum is a sum along y, into the spare image, and then along x, back into its place.
    for values in (covariance, tangent):
        inner = values[margin : margin + n]
        _sum_rows(spare[margin : margin + n], inner, shape, shape[0] - dy, layer[0], layer[2], circular)
        _sum_columns(inner, spare, margin, columns, shape[1], shape[1] - dx, layer[1], layer[3], circular)


@compiled(inline="always")
def _roll_all(rolled, image, profiles, program, s, dx):
    """Rotate the second image by dx: first its channels, then two rows for each layer's profile."""
    segment = program.segments[s]
    height, width = segment[1], segment[2]
    n, columns = height * width, program.columns[s, : height * width]
    n_channels = image.shape[0] if segment[0] == IMAGES else 0
    for channel in range(n_channels):
        _roll(rolled[channel], image[channel], width, dx, columns)
    n_layers = segment[13] + (1 if segment[0] == CONVOLUTION else 0)
    for k in range(n_layers):
        start = program.layers[segment[12] + k, 5]
        for which in range(2):
            padded = profiles[which, start : start + n + 2 * width]
            _roll(rolled[n_channels + 2 * k + which], padded, width, dx, columns)


@compiled(inline="always")
def _run_layers(covariance, tangent, spare, margin, profiles, rolled, program, s, dy, dx, same):
    """All layers of a segment for one displacement; ``rolled`` has two rows for each of them."""
    segment = program.segments[s]
    height, width = segment[1], segment[2]
    n, columns = height * width, program.columns[s, : height * width]
    inner, other = covariance[margin : margin + n], tangent[margin : margin + n]
    has_source = 1 if segment[0] == CONVOLUTION else 0
    for k in range(has_source + segment[13]):
        layer = program.layers[segment[12] + k]
        constants = program.constants[segment[12] + k]
        if k >= has_source:
            _convolve(covariance, tangent, spare, margin, layer, columns, (height, width), dy, dx)
        if same and dy == 0 and dx == 0:
            _activate_equal(inner, other, constants)
            continue
        # Slices of single rows: only for these does the compiler know that they are runs of memory.
        start, shift = layer[5] + width, dy * width
        deviations1, inverses1 = profiles[0, start : start + n], profiles[1, start : start + n]
        deviations2, inverses2 = rolled[2 * k, shift : shift + n], rolled[2 * k + 1, shift : shift + n]
        _activate(inner, other, deviations1, inverses1, deviations2, inverses2, constants)


@compiled(inline="always")
def _run_pair(result, image1, image2, profiles1, profiles2, program, memory, margin, same, end):
    """Take one pair of images through all segments; ``result`` gets two numbers or, for READ, an image.

        for each segment:                                    memory that is read            memory that is written
          for each dx: rotate the second image               images2, profiles2             rolled
            for each dy:
              values of the displacement (dy, dx)            image1 and rolled, or before   images[0], images[1]
              all layers of the segment                      profiles1, rolled              images (in place)
              store them, or add their sum to the result     images[0], images[1]           stores[s % 2], or result

    ``before`` is the store of the segment before; two stores take turns.
    """
    last = program.segments.shape[0] - 1
    covariance, tangent, spare = memory.images[0], memory.images[1], memory.images[2]
    rolled, stores = memory.rolled, memory.stores
    before = stores[0, :0].reshape(2, 0, 1, 1)  # the first segment has none; it gives the compiler the type
    for s in range(last + 1):
        segment = program.segments[s]
        height, width, n_y, n_x = segment[1], segment[2], segment[14], segment[15]
        n = height * width
        inner, other = covariance[margin : margin + n], tangent[margin : margin + n]
        n_channels = image1.shape[0] if segment[0] == IMAGES else 0
        # The last segment stores nothing, so its part of the store is empty.
        stored = stores[s % 2, : 2 * n_y * n_x * n if s < last else 0].reshape(2, n_y if s < last else 0, n_x, n)
        for at_x in range(n_x):
            dx = program.needed[s, 1, at_x]
            _roll_all(rolled, image2, profiles2, program, s, dx)
            for at_y in range(n_y):
                dy = program.needed[s, 0, at_y]
                if segment[0] == IMAGES:
                    _multiply_images(inner, other, image1, rolled, width, dy * width)
                elif segment[0] == CONVOLUTION:
                    _read_convolution(inner, other, before, segment, program.slots[s - 1], dy, dx)
                else:
                    _read_pool(inner, other, before, segment, program.slots[s - 1], dy, dx)
                if end == READ and s == last:  # the only displacement is (0, 0)
                    _copy(result[:n], inner)
                    continue
                _run_layers(
                    covariance, tangent, spare, margin, profiles1, rolled[n_channels:], program, s, dy, dx, same
                )
                if s < last:
                    _copy(stored[0, at_y, at_x], inner)
                    _copy(stored[1, at_y, at_x], other)
                else:
                    result[0] += _total(inner)
                    result[1] += _total(other)
        before = stored
    if end != READ:
        n_terms = n * n if end == SUM else n
        result[0] /= n_terms
        result[1] /= n_terms


@compiled(cache=True)
def run_pairs(results, pairs, images1, images2, profiles1, profiles2, program, memory, margin, one_batch, end):
    """Take pairs (row and column of each) through a chain, one after the other; the caller provides the threads.

    ``results``: for each pair two numbers, or an image, initially 0; ``images``: (batch, channel, position),
    ``profiles``: (batch, 2, position of all layers), both with a margin of one row around each image; ``one_batch``:
    both batches are the same, and a pair of equal indices is an image with itself.
    """
    for pair in range(pairs.shape[0]):
        a, b = pairs[pair, 0], pairs[pair, 1]
        image1, image2, profile1, profile2 = images1[a], images2[b], profiles1[a], profiles2[b]
        same = one_batch and a == b
        _run_pair(results[pair], image1, image2, profile1, profile2, program, memory, margin, same, end)
