r"""All compiled loops of the fused kernels, in one file: numba's cache looks for changes in a function's file only.

**Activations.** The closed form of the ReLU needs an arc cosine and a square root for each pair. With
:math:`u = |\cos\theta|`, :math:`w = 1 - u` and :math:`\vartheta = \arccos u`, both

.. math:: \vartheta / \sqrt w \qquad\text{and}\qquad (\sin\vartheta - \vartheta\cos\vartheta) / w^{3/2}

are analytic for :math:`w` in [0, 1], the nearest singularity being at 2, so one square root and two short polynomials
do, which a compiler turns into vector code. Relative error of the polynomials: below 2e-8 in single, 4e-17 in double
precision, each less than half a unit in the last place; the coefficients are minimax (Remez, 60 digits).

**Vectors.** A row of a tile of pairs goes through all layers at once.

**Images.** A convolution moves both positions of a pair alike, so that pairs (i, i') of one displacement i' - i meet
only each other. Values are therefore kept as one small image for each displacement (dy, dx): entry i stands for the
pair of i and i' = i + (dy, dx), taken modulo the size of the image. As many layers as keep the size are done on that
image alone, which stays in the first-level cache: the window sum is a sum of shifted copies, and an activation is a
pass over one run of memory. With zero padding, pairs whose second position went round the edge are no neighbors of the
others: sums along an axis stop there, at ``split``. Pooling and other convolutions mix displacements; in front of them,
all that they need are stored.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from neuralpath._loops.compiled import compiled

IMAGES, CONVOLUTION, POOL = 0, 1, 2  # what a segment reads
SUM, DIAGONAL, READ = 0, 1, 2  # what is done with the values of the last segment

FAST = {"contract", "nsz", "reassoc"}
"""What the loops allow the compiler: fused multiply-adds, and sums in any order. NaN and infinity keep their sense."""

SNAP_SINGLE, SNAP_DOUBLE = 4, 32
"""Cosines within so many units of rounding of 1 or -1 count as that: their angle is rounding error and nothing else.
In double precision room is left for what twenty layers add up."""

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


def _arc(cosine: Any) -> tuple[Any, Any]:
    """For u = abs(cosine): the angle acos(u), and sin - angle * cos of it. For use in compiled code only."""
    raise NotImplementedError("`_arc` has a meaning in compiled code only.")


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


@overload(_arc, inline="always", jit_options={"fastmath": FAST})
def _arc_of_type(cosine: Any) -> Callable[..., Any]:
    """Numbers of either precision get polynomials that are as long as it needs; unwrapped as in ``compiled``."""
    return inspect.unwrap(_arc_single if cosine == types.float32 else _arc_double)


def bend_of(slope: float) -> tuple[float, float, float]:
    """What ``_moments`` needs of a leaky ReLU: (1 - a)^2 / 2 pi, (1 - a)^2 / 4 and that plus a, for a slope a.

    >>> bend_of(1.0)  # the identity: no bend
    (0.0, 0.0, 1.0)
    """
    bend = (1 - slope) ** 2
    return bend / (2 * math.pi), bend / 4, bend / 4 + slope


@compiled(inline="always", fastmath=FAST)
def _moments(cosine: Any, bend: Any, level: Any, mean: Any) -> Any:
    r"""E[f(q) f(q')] and E[f'(q) f'(q')] of a leaky ReLU f, for normal q, q' of variance 1 with a correlation.

    With the slope a and the angle theta: ((1-a)^2 (sin + (pi - theta) cos) + 2 pi a cos) / 2 pi, and
    ((1-a)^2 (pi - theta) + 2 pi a) / 2 pi; ``bend_of`` makes the constants.
    """
    angle, lift = _arc(cosine)
    half = level - bend * angle
    return (
        bend * lift + mean * cosine + level * abs(cosine),
        mean + (half if cosine >= 0 else -half),
    )


@compiled(cache=True, fastmath=FAST)
def moments_of_many(out: Any, slopes: Any, cosines: Any, bend: Any, level: Any, mean: Any) -> None:
    """``_moments`` for an array of cosines."""
    for i in range(cosines.shape[0]):
        out[i], slopes[i] = _moments(cosines[i], bend, level, mean)


class Program(NamedTuple):
    """A chain as arrays; a segment is what follows a reading of images, of a resampling convolution or of a pool.

    ``segments``: kind, height, width, height and width of what is read, window, stride and start (y, x each), whether
    circular, the first of its layers and how many there are besides the one it reads, displacements needed (y, x).
    ``layers``: window and rows or columns before it (y, x each), whether circular, where its profile starts.
    ``constants``: for each layer the weight variance over the window, the bias variance, and those of its activation.
    ``needed``: (segment, 2, displacement); ``places``: (segment, 2, displacement modulo size), where one is stored.
    ``columns``: (segment, position), the x of a position, as numbers of the kind that the loops compute with.
    """

    segments: Any
    layers: Any
    constants: Any
    needed: Any
    places: Any
    columns: Any


class Memory(NamedTuple):
    """What a thread works in: images of one displacement, what belongs to the second image, and stored values."""

    work: Any
    rolled: Any
    stores: Any


@compiled()
def _copy(out: Any, values: Any) -> None:
    """As ``out[:] = values``, whose checks of shapes take seconds to compile."""
    for i in range(out.shape[0]):
        out[i] = values[i]


@compiled(fastmath=FAST)
def _run_row(covariance: Any, tangent: Any, row: int, first: int, profile1: Any, profile2: Any,
                        constants: Any) -> None:  # fmt: skip
    """One row of a tile, in place; ``first`` is the column of its first entry."""
    n = covariance.shape[0]
    last = constants.shape[0] - 1
    for layer in range(last):
        gain, bias, bend, level, mean = constants[layer]
        deviation, inverse = profile1[layer, 0, row], profile1[layer, 1, row]
        deviations = profile2[layer, 0, first : first + n]
        inverses = profile2[layer, 1, first : first + n]
        for j in range(n):
            sigma = covariance[j] * gain + bias
            both, slopes = _moments(sigma * inverse * inverses[j], bend, level, mean)
            value = deviation * deviations[j] * both
            tangent[j] = value + (tangent[j] * gain + bias) * slopes
            covariance[j] = value
    gain, bias = constants[last, 0], constants[last, 1]
    for j in range(n):
        covariance[j] = covariance[j] * gain + bias
        tangent[j] = tangent[j] * gain + bias


@compiled(cache=True)
def run_tiles(output: Any, result: Any, covariance: Any, tangent: Any, profile1: Any, profile2: Any, constants: Any,
              tiles: Any, size: int, symmetric: bool) -> None:  # fmt: skip
    """Some tiles (first row and column of each) through dense layers; of a symmetric kernel their mirror images too."""
    n1, n2 = covariance.shape
    here, there = np.empty(size), np.empty(size)
    for job in range(tiles.shape[0]):
        top, left = tiles[job, 0], tiles[job, 1]
        bottom, right = min(top + size, n1), min(left + size, n2)
        n = right - left
        for i in range(top, bottom):
            _copy(here[:n], covariance[i, left:right])
            _copy(there[:n], tangent[i, left:right])
            _run_row(here[:n], there[:n], i, left, profile1, profile2, constants)
            _copy(output[i, left:right], here)
            _copy(result[i, left:right], there)
        if symmetric:
            for j in range(left, right):
                for i in range(top, min(bottom, j)):
                    output[j, i] = output[i, j]
                    result[j, i] = result[i, j]


@compiled(fastmath=FAST)
def _inner_product(first: Any, second: Any) -> float:
    """The sum in double precision; the same, bit for bit, for a vector with itself and with its copy."""
    total = 0.0
    for k in range(first.shape[0]):
        total += np.float64(first[k]) * np.float64(second[k])
    return total


@compiled(cache=True)
def squared_lengths(out: Any, rows: Any) -> None:
    """Of every row, summed as ``_sharpen`` sums inner products."""
    for i in range(rows.shape[0]):
        out[i] = _inner_product(rows[i], rows[i])


@compiled(fastmath=FAST)
def _sharpen(covariance: Any, row: int, first: int, profile1: Any, profile2: Any, constants: Any, rows: Any,
             columns: Any, near: float) -> None:  # fmt: skip
    """Sum the inner products of pairs anew, in double precision, whose cosine in the first layer is beyond ``near``."""
    n, last = covariance.shape[0], constants.shape[0] - 1
    if last == 0:
        return
    gain, bias, inverse = constants[0, 0], constants[0, 1], profile1[0, 1, row]
    inverses = profile2[0, 1, first : first + n]
    nearest = 0.0
    for j in range(n):
        nearest = max(nearest, abs((covariance[j] * gain + bias) * inverse * inverses[j]))
    if nearest <= near:
        return
    for j in range(n):
        if abs((covariance[j] * gain + bias) * inverse * inverses[j]) > near:
            covariance[j] = _inner_product(rows[row], columns[first + j])


@compiled(cache=True)
def run_tiles_in_place(values: Any, rows: Any, columns: Any, near: float, profile1: Any, profile2: Any, constants: Any,
                       combination: Any, tiles: Any, size: int, symmetric: bool) -> None:  # fmt: skip
    """As ``run_tiles``, where both kernels start as one matrix: it is overwritten by a combination of them.

    ``rows`` and ``columns`` are the inputs, whose inner products the matrix holds: for pairs beyond the cosine ``near``
    they are summed anew. ``combination`` is what the output kernel, the tangent kernel and 1 are multiplied with.
    """
    n1, n2 = values.shape
    here, there = np.empty(size), np.empty(size)
    for job in range(tiles.shape[0]):
        top, left = tiles[job, 0], tiles[job, 1]
        bottom, right = min(top + size, n1), min(left + size, n2)
        n = right - left
        for i in range(top, bottom):
            _copy(here[:n], values[i, left:right])
            _sharpen(here[:n], i, left, profile1, profile2, constants, rows, columns, near)
            _copy(there[:n], here[:n])
            _run_row(here[:n], there[:n], i, left, profile1, profile2, constants)
            _combine(values[i, left:right], here, there, combination)
        if symmetric:
            for j in range(left, right):
                for i in range(top, min(bottom, j)):
                    values[j, i] = values[i, j]


@compiled(fastmath=FAST)
def _combine(out: Any, here: Any, there: Any, combination: Any) -> None:
    first, second, constant = combination
    for i in range(out.shape[0]):
        out[i] = first * here[i] + second * there[i] + constant


@compiled(fastmath=FAST)
def _roll(out: Any, padded: Any, width: int, dx: int, columns: Any) -> None:
    """Turn the rows of an image by dx; written twice, one after the other, so that a turn by rows is a slice.

    The image has a margin of one row in front and behind.
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
def _add_to(out: Any, values: Any) -> None:
    for i in range(out.shape[0]):
        out[i] += values[i]


@compiled(fastmath=FAST)
def _sum_of_two(out: Any, first: Any, second: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = first[i] + second[i]


@compiled(fastmath=FAST)
def _sum_of_three(out: Any, first: Any, second: Any, third: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = first[i] + second[i] + third[i]


@compiled()
def _sum_neighbors(out: Any, values: Any, width: int) -> None:
    """Each row plus those above and below it."""
    last = out.shape[0] - width
    if last <= 0:
        _copy(out, values)
        return
    for row, neighbor in ((0, width), (last, last - width)):
        _sum_of_two(out[row : row + width], values[row : row + width], values[neighbor : neighbor + width])
    _sum_of_three(out[width:last], values, values[width:], values[2 * width :])


@compiled()
def _sum_rows(
    out: Any, values: Any, shape: tuple[int, int], split: int, size: int, before: int, circular: bool
) -> None:
    """Sums over a window along y; at ``split`` the second positions go round the edge."""
    height, width = shape
    if size == 3 and before == 1 and not circular:  # the common window, in one pass
        for start, stop in ((0, split * width), (split * width, height * width)):
            _sum_neighbors(out[start:stop], values[start:stop], width)
        return
    for i in range(out.shape[0]):
        out[i] = 0
    for place in range(size):
        shift = place - before
        if circular:
            shift %= height
        for part in range(2):
            if circular:  # rows that stay inside, and rows that go round the edge
                start, stop = (0, height - shift) if part == 0 else (height - shift, height)
                source = start + shift if part == 0 else 0
            else:  # rows on either side of the split, each with sources on its own
                low, high = (0, split) if part == 0 else (split, height)
                start, stop = max(low, low - shift), min(high, high - shift)
                source = start + shift
            if start < stop:
                length = (stop - start) * width
                _add_to(out[start * width : stop * width], values[source * width : source * width + length])


@compiled(fastmath=FAST)
def _sum_columns(
    out: Any, values: Any, margin: int, columns: Any, width: int, split: int, size: int, before: int, circular: bool
) -> None:
    """Sums over a window along x of values with a margin on both sides; at ``split`` second positions go round."""
    n, real = columns.shape[0], columns.dtype.type
    # Numbers of the kind of the values, so that comparisons take as many lanes as sums.
    zero, one, edge, turn, last = real(0), real(1), real(width - 1), real(split), real(split - 1)
    middle = values[margin : margin + n]
    if size == 3 and before == 1:
        left, right = values[margin - 1 : margin - 1 + n], values[margin + 1 : margin + 1 + n]
        if circular:
            round_left = values[margin - 1 + width : margin - 1 + width + n]
            round_right = values[margin + 1 - width : margin + 1 - width + n]
            for i in range(n):
                at, here, there, after, back = columns[i], left[i], round_left[i], right[i], round_right[i]
                out[i] = middle[i] + (here if at >= one else there) + (after if at < edge else back)
            return
        for i in range(n):
            at, here, after = columns[i], left[i], right[i]
            from_left = here if (at >= one) & (at != turn) else zero
            from_right = after if (at < edge) & (at != last) else zero
            out[i] = middle[i] + from_left + from_right
        return
    out[:] = zero
    for place in range(size):
        shift = place - before
        if circular:
            shift %= width
            ahead, behind, room = values[margin + shift :], values[margin + shift - width :], real(width - shift)
            for i in range(n):
                here, there = ahead[i], behind[i]
                out[i] += here if columns[i] < room else there
        elif abs(shift) < width:
            moved, by, wide = values[margin + shift :], real(shift), real(width)
            for i in range(n):
                value, at = moved[i], columns[i]
                to = at + by
                low, high = (zero, turn) if at < turn else (turn, wide)
                out[i] += value if (to >= low) & (to < high) else zero


@compiled(fastmath=FAST)
def _activate(covariance: Any, tangent: Any, deviations1: Any, inverses1: Any, deviations2: Any, inverses2: Any,
              constants: Any) -> None:  # fmt: skip
    """Weights, bias and activation, in place; given are the standard deviations, and one over them, of both images."""
    scale, bias, bend, level, mean = constants
    for i in range(covariance.shape[0]):
        sigma = covariance[i] * scale + bias
        both, slopes = _moments(sigma * inverses1[i] * inverses2[i], bend, level, mean)
        value = deviations1[i] * deviations2[i] * both
        tangent[i] = value + (tangent[i] * scale + bias) * slopes
        covariance[i] = value


@compiled(fastmath=FAST)
def _activate_equal(covariance: Any, tangent: Any, constants: Any) -> None:
    """As ``_activate`` for positions each with itself: the angle is 0 exactly, and E[f f] a share of the variance."""
    scale, bias, level, mean = constants[0], constants[1], constants[3], constants[4]
    share = level + mean
    for i in range(covariance.shape[0]):
        value = (covariance[i] * scale + bias) * share
        tangent[i] = value + (tangent[i] * scale + bias) * share
        covariance[i] = value


@compiled(fastmath=FAST)
def _multiply_images(covariance: Any, tangent: Any, image1: Any, rolled2: Any, margin: int, start: int) -> None:
    """Products of the values of two images, summed over channels."""
    n = covariance.shape[0]
    covariance[:] = 0
    for channel in range(image1.shape[0]):
        one, two = image1[channel, margin : margin + n], rolled2[channel, start : start + n]
        for i in range(n):
            covariance[i] += one[i] * two[i]
    _copy(tangent, covariance)


@compiled()
def _read_convolution(covariance: Any, tangent: Any, store: Any, segment: Any, places: Any, dy: int, dx: int) -> None:
    """Window sums of a convolution that changes the size, for one displacement of its output."""
    height, width, rows, columns = segment[1], segment[2], segment[3], segment[4]
    circular = segment[11] != 0
    for y in range(height):
        y2 = (y + dy) % height
        for x in range(width):
            x2 = (x + dx) % width
            both, other = 0.0, 0.0
            for place in range(segment[5]):
                i, i2 = y * segment[7] + place - segment[9], y2 * segment[7] + place - segment[9]
                if circular:
                    i, i2 = i % rows, i2 % rows
                if min(i, i2) < 0 or max(i, i2) >= rows:
                    continue
                at_y = places[0, (i2 - i) % rows]
                for place_x in range(segment[6]):
                    j, j2 = x * segment[8] + place_x - segment[10], x2 * segment[8] + place_x - segment[10]
                    if circular:
                        j, j2 = j % columns, j2 % columns
                    if min(j, j2) < 0 or max(j, j2) >= columns:
                        continue
                    at_x = places[1, (j2 - j) % columns]
                    both += store[0, at_y, at_x, i * columns + j]
                    other += store[1, at_y, at_x, i * columns + j]
            covariance[y * width + x] = both
            tangent[y * width + x] = other


@compiled()
def _read_pool(covariance: Any, tangent: Any, store: Any, segment: Any, places: Any, dy: int, dx: int) -> None:
    """Means over window times window of an average pool, for one displacement of its output."""
    height, width, rows, columns = segment[1], segment[2], segment[3], segment[4]
    n = 1.0 / (segment[5] * segment[6]) ** 2
    for y in range(height):
        top, top2 = y * segment[7], (y + dy) % height * segment[7]
        for x in range(width):
            left, left2 = x * segment[8], (x + dx) % width * segment[8]
            both, other = 0.0, 0.0
            for i in range(top, top + segment[5]):
                for i2 in range(top2, top2 + segment[5]):
                    at_y = places[0, (i2 - i) % rows]
                    for j in range(left, left + segment[6]):
                        for j2 in range(left2, left2 + segment[6]):
                            at_x = places[1, (j2 - j) % columns]
                            both += store[0, at_y, at_x, i * columns + j]
                            other += store[1, at_y, at_x, i * columns + j]
            covariance[y * width + x] = both * n
            tangent[y * width + x] = other * n


@compiled(fastmath=FAST)
def _total(values: Any) -> float:
    total = 0.0
    for i in range(values.shape[0]):
        total += np.float64(values[i])
    return total


@compiled(inline="always")
def _convolve(covariance: Any, tangent: Any, spare: Any, margin: int, layer: Any, columns: Any, shape: tuple[int, int],
              dy: int, dx: int) -> None:  # fmt: skip
    """Window sums of a convolution that keeps the size, in place."""
    n, circular = shape[0] * shape[1], layer[4] != 0
    for values in (covariance, tangent):
        inner = values[margin : margin + n]
        _sum_rows(spare[margin : margin + n], inner, shape, shape[0] - dy, layer[0], layer[2], circular)
        _sum_columns(inner, spare, margin, columns, shape[1], shape[1] - dx, layer[1], layer[3], circular)


@compiled(inline="always")
def _roll_all(rolled: Any, image: Any, profiles: Any, program: Any, s: int, dx: int) -> None:
    """What belongs to the second image, turned by dx: first its channels, then two rows for each layer's profile."""
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
def _run_layers(covariance: Any, tangent: Any, spare: Any, margin: int, profiles: Any, rolled: Any, program: Any,
                s: int, dy: int, dx: int, same: bool) -> None:  # fmt: skip
    """All layers of a segment for one displacement; ``rolled`` has two rows for each of them."""
    segment = program.segments[s]
    height, width = segment[1], segment[2]
    n, columns = height * width, program.columns[s, : height * width]
    inner, other = covariance[margin : margin + n], tangent[margin : margin + n]
    has_read = 1 if segment[0] == CONVOLUTION else 0
    for k in range(has_read + segment[13]):
        layer = program.layers[segment[12] + k]
        constants = program.constants[segment[12] + k]
        if k >= has_read:
            _convolve(covariance, tangent, spare, margin, layer, columns, (height, width), dy, dx)
        if same and dy == 0 and dx == 0:
            _activate_equal(inner, other, constants)
            continue
        # Slices of single rows: only of those does the compiler know that they are runs of memory.
        start, turned = layer[5] + width, dy * width
        _activate(
            inner, other, profiles[0, start : start + n], profiles[1, start : start + n],
            rolled[2 * k, turned : turned + n], rolled[2 * k + 1, turned : turned + n], constants,
        )  # fmt: skip


@compiled(inline="always")
def _run_pair(result: Any, image1: Any, image2: Any, profiles1: Any, profiles2: Any, program: Any, memory: Any,
              margin: int, same: bool, end: int) -> None:  # fmt: skip
    """One pair of images through all segments; ``result`` gets two numbers or, at the end READ, an image."""
    last = program.segments.shape[0] - 1
    covariance, tangent, spare = memory.work[0], memory.work[1], memory.work[2]
    rolled, stores = memory.rolled, memory.stores
    before = stores[0, :0].reshape(2, 0, 1, 1)
    for s in range(last + 1):
        segment = program.segments[s]
        height, width, n_y, n_x = segment[1], segment[2], segment[14], segment[15]
        n = height * width
        inner, other = covariance[margin : margin + n], tangent[margin : margin + n]
        n_channels = image1.shape[0] if segment[0] == IMAGES else 0
        kept = stores[s % 2, : 2 * n_y * n_x * n if s < last else 0].reshape(2, n_y if s < last else 0, n_x, n)
        for at_x in range(n_x):
            dx = program.needed[s, 1, at_x]
            _roll_all(rolled, image2, profiles2, program, s, dx)
            for at_y in range(n_y):
                dy = program.needed[s, 0, at_y]
                if segment[0] == IMAGES:
                    _multiply_images(inner, other, image1, rolled, width, dy * width)
                elif segment[0] == CONVOLUTION:
                    _read_convolution(inner, other, before, segment, program.places[s - 1], dy, dx)
                else:
                    _read_pool(inner, other, before, segment, program.places[s - 1], dy, dx)
                if end == READ and s == last:
                    _copy(result[:n], inner)
                    continue
                _run_layers(
                    covariance, tangent, spare, margin, profiles1, rolled[n_channels:], program, s, dy, dx, same
                )
                if s < last:
                    _copy(kept[0, at_y, at_x], inner)
                    _copy(kept[1, at_y, at_x], other)
                else:
                    result[0] += _total(inner)
                    result[1] += _total(other)
        before = kept
    if end != READ:
        n_terms = n * n if end == SUM else n
        result[0] /= n_terms
        result[1] /= n_terms


@compiled(cache=True)
def run_pairs(results: Any, pairs: Any, images1: Any, images2: Any, profiles1: Any, profiles2: Any, program: Any,
              memory: Any, margin: int, one_batch: bool, end: int) -> None:  # fmt: skip
    """Some pairs (row and column of each), one after the other; threads are the caller's.

    ``results``: for each pair two numbers, or an image, all 0 before; ``images``: (batch, channel, position),
    ``profiles``: (batch, 2, position of all layers), both with a margin of one row around each image; ``one_batch``:
    the images are the same, and a pair of equal indices is an image with itself.
    """
    for job in range(pairs.shape[0]):
        a, b = pairs[job, 0], pairs[job, 1]
        _run_pair(
            results[job], images1[a], images2[b], profiles1[a], profiles2[b], program, memory, margin,
            one_batch and a == b, end,
        )  # fmt: skip
