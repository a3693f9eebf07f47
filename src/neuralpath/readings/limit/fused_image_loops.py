"""The compiled loops of fused_images.py: one pair of images through all convolutions, displacement by displacement.

A convolution moves both positions of a pair alike, so that pairs (i, i') of one displacement i' - i meet only each
other. Values are therefore kept as one small image for each displacement (dy, dx): entry i stands for the pair of i and
i' = i + (dy, dx), taken modulo the size of the image. As many layers as keep the size are done on that image alone,
which stays in the first-level cache: the window sum is a sum of shifted copies, and an activation is a pass over one
run of memory. Pooling and other convolutions mix displacements; in front of them, all that they need are stored.
"""

from typing import Any, NamedTuple

import numpy as np

from neuralpath.bits.compiled import compiled
from neuralpath.readings.limit.fused_arccosine import FAST, moments
from neuralpath.readings.limit.fused_window_sums import copy, roll, sum_columns, sum_rows

IMAGES, CONVOLUTION, POOL = 0, 1, 2  # what a segment reads
SUM, DIAGONAL, READ = 0, 1, 2  # what is done with the values of the last segment


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


@compiled(fastmath=FAST)
def _activate(covariance: Any, tangent: Any, deviations1: Any, inverses1: Any, deviations2: Any, inverses2: Any,
              constants: Any) -> None:  # fmt: skip
    """Weights, bias and activation, in place; given are the standard deviations, and one over them, of both images."""
    scale, bias, bend, level, mean = constants
    for i in range(covariance.shape[0]):
        sigma = covariance[i] * scale + bias
        both, slopes = moments(sigma * inverses1[i] * inverses2[i], bend, level, mean)
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
    copy(tangent, covariance)


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
        sum_rows(spare[margin : margin + n], inner, shape, shape[0] - dy, layer[0], layer[2], circular)
        sum_columns(inner, spare, margin, columns, shape[1], shape[1] - dx, layer[1], layer[3], circular)


@compiled(inline="always")
def _roll_all(rolled: Any, image: Any, profiles: Any, program: Any, s: int, dx: int) -> None:
    """What belongs to the second image, turned by dx: first its channels, then two rows for each layer's profile."""
    segment = program.segments[s]
    height, width = segment[1], segment[2]
    n, columns = height * width, program.columns[s, : height * width]
    n_channels = image.shape[0] if segment[0] == IMAGES else 0
    for channel in range(n_channels):
        roll(rolled[channel], image[channel], width, dx, columns)
    n_layers = segment[13] + (1 if segment[0] == CONVOLUTION else 0)
    for k in range(n_layers):
        start = program.layers[segment[12] + k, 5]
        for which in range(2):
            padded = profiles[which, start : start + n + 2 * width]
            roll(rolled[n_channels + 2 * k + which], padded, width, dx, columns)


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
                    copy(result[:n], inner)
                    continue
                _run_layers(
                    covariance, tangent, spare, margin, profiles1, rolled[n_channels:], program, s, dy, dx, same
                )
                if s < last:
                    copy(kept[0, at_y, at_x], inner)
                    copy(kept[1, at_y, at_x], other)
                else:
                    result[0] += _total(inner)
                    result[1] += _total(other)
        before = kept
    if end != READ:
        n_terms = n * n if end == SUM else n
        result[0] /= n_terms
        result[1] /= n_terms


@compiled()
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
