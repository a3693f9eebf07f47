"""Compiled loops of the Winograd convolutions: images to points, points to images, and points to windows.

F(4 x 4, 3 x 3) cuts an image into tiles of STEP = 4 rows and columns of results. A tile reads 6 x 6 pixels and has
6 x 6 *points*; a transform along an axis is a small matrix with few entries, which acts on long runs of memory at once:

    image, 4 rows apart        tile (reads 6 x 6)         36 points of each tile
    +-------+-------+          +-------------+            out[point, image and tile and channel]
    |tile 0 |tile 1 |  ...     | 6 x 6 pixels|  ------>   one run of memory for each point, for all tiles of a row
    +-------+-------+          +-------------+            of tiles and all channels

To read such runs, each row of an image, (channel, x), is reordered: by x modulo 4, then by x, then by channel. For
2 channels a and b, and 8 columns without padding:

    read row:  | a0 b0 a4 b4 | a1 b1 a5 b5 | a2 b2 a6 b6 | a3 b3 a7 b7 |
                 x % 4 = 0      x % 4 = 1     x % 4 = 2     x % 4 = 3

Along y, whole rows are runs; along x, the entries that all tiles of a row read at the same offset are one run (the
group x % 4), for all channels. A compiler vectorizes only where few arrays could overlap, hence one result at a time.
"""

import numpy as np

from neuralpath._loops.compiled import compiled
from neuralpath._loops.instructions import SIDE, transpose

STEP = 4  # rows and columns of results in a tile
POINTS = 6  # points of a tile along an axis, and rows and columns of pixels that a tile reads
CHUNK = 1024  # entries of a gradient that are transformed at a time, in the first-level cache

FAST = {"contract", "nsz", "reassoc"}  # fused multiply-adds, sums in any order; NaN and infinity keep their meaning


@compiled()
def _copy(out, values):
    """The same as ``out[:] = values``, whose checks of shapes take seconds to compile."""
    for i in range(out.shape[0]):
        out[i] = values[i]


@compiled(fastmath=FAST)
def _sum_of_three(out, x, y, z, f):
    a, b, c = f[0], f[1], f[2]
    for i in range(out.shape[0]):
        out[i] = a * x[i] + b * y[i] + c * z[i]


@compiled(fastmath=FAST)
def _sum_of_four(out, x, y, z, w, f):
    a, b, c, d = f[0], f[1], f[2], f[3]
    for i in range(out.shape[0]):
        out[i] = a * x[i] + b * y[i] + c * z[i] + d * w[i]


@compiled(fastmath=FAST)
def _sum_of_five(out, x, y, z, w, v, f):
    a, b, c, d, e = f[0], f[1], f[2], f[3], f[4]
    for i in range(out.shape[0]):
        out[i] = a * x[i] + b * y[i] + c * z[i] + d * w[i] + e * v[i]


@compiled()
def _apply_row(out, values, starts, terms, factors):
    """One row of a small matrix: a sum of runs of ``values`` that begin at ``starts``.

    ``terms``: the number of entries of the row (1, 3, 4 or 5), then their columns; ``factors``: their values. The only
    entry of a row with one entry is 1.
    """
    n = out.shape[0]
    s0 = starts[terms[1]]
    if terms[0] == 1:
        _copy(out, values[s0 : s0 + n])
        return
    s1, s2 = starts[terms[2]], starts[terms[3]]
    x, y, z = values[s0 : s0 + n], values[s1 : s1 + n], values[s2 : s2 + n]
    if terms[0] == 3:
        _sum_of_three(out, x, y, z, factors)
        return
    s3 = starts[terms[4]]
    w = values[s3 : s3 + n]
    if terms[0] == 4:
        _sum_of_four(out, x, y, z, w, factors)
        return
    s4 = starts[terms[5]]
    _sum_of_five(out, x, y, z, w, values[s4 : s4 + n], factors)


@compiled()
def _order(count, pad, columns, channels):
    """The start of each column of an image in a reordered row that begins ``pad`` columns before the image."""
    order = np.empty(count, np.int64)
    for x in range(count):
        order[x] = ((x + pad) % STEP * columns + (x + pad) // STEP) * channels
    return order


@compiled()
def _read_line(out, image, planes, first, begin, order):
    """Reorder one row of ``SIDE`` channels, from channel ``first`` on; 8 x 8 blocks are transposed in registers."""
    count, last = order.shape[0], min(first + SIDE, planes.shape[0])
    whole = count // SIDE * SIDE if last == first + SIDE else 0
    for x in range(0, whole, SIDE):
        transpose(out, 0, order, x, image, begin + x, planes, first)
    for c in range(first, last):
        for x in range(whole, count):
            out[order[x] + c - first] = image[planes[c] + begin + x]


@compiled()
def _write_line(image, planes, first, begin, values, order):
    """The inverse of ``_read_line``."""
    count, last = order.shape[0], min(first + SIDE, planes.shape[0])
    whole = count // SIDE * SIDE if last == first + SIDE else 0
    for x in range(0, whole, SIDE):
        transpose(image, begin + x, planes, first, values, 0, order, x)
    for c in range(first, last):
        for x in range(whole, count):
            image[planes[c] + begin + x] = values[order[x] + c - first]


@compiled(cache=True)
def to_points(out, images, read, reach, pad_y, pad_x, down, across, terms, factors):
    """The 36 points of each tile, (point, image and tile and channel), of tiles that begin 4 rows and columns apart.

    There are ``down`` times ``across`` tiles in an image. Each reads ``reach`` rows and columns, the first one starts
    ``pad_y`` rows and ``pad_x`` columns outside the image, where pixels are 0. ``read`` is a buffer for the reordered
    rows of one image; it is 0 at first, and stays 0 outside the image.
    """
    _, channels, height, width = images.shape
    columns = across + (reach - 1) // STEP  # groups of 4 columns: one per tile, and those that the last one reads
    length, run, n_rows = STEP * columns * channels, across * channels, STEP * (down - 1) + reach
    # `half`: transformed along y only. `rows`, `starts`: where the runs of the two transforms start.
    half, rows, starts = np.empty(POINTS * length, images.dtype), np.empty(reach, np.int64), np.empty(reach, np.int64)
    inside = min(width, STEP * columns - pad_x)
    order, planes = _order(inside, pad_x, columns, channels), np.arange(channels) * (height * width)
    for task in range(images.shape[0] * down):
        below = task % down
        if below == 0:
            image = images[task // down].reshape(-1)
            for c in range(0, channels, SIDE):  # the outer loop, so that memory is read in order
                for y in range(min(height, n_rows - pad_y)):
                    _read_line(read[(pad_y + y) * length + c :], image, planes, c, y * width, order)
        for i in range(reach):
            rows[i] = (STEP * below + i) * length
        for r in range(POINTS):
            _apply_row(half[r * length : (r + 1) * length], read, rows, terms[r], factors[r])
        for r in range(POINTS):
            for k in range(reach):
                starts[k] = r * length + ((k % STEP) * columns + k // STEP) * channels
            for s in range(POINTS):
                _apply_row(out[POINTS * r + s, task * run : (task + 1) * run], half, starts, terms[s], factors[s])


@compiled(cache=True)
def from_points(images, points, results, down, across, terms, factors):
    """The 4 x 4 results of each tile from its points, written into the images.

    ``results`` is a buffer for the reordered rows of one image.
    """
    _, channels, height, width = images.shape
    run, stride, values = across * channels, points.shape[1], points.reshape(-1)
    length = STEP * run
    half, rows, starts = np.empty(POINTS * length, images.dtype), np.arange(POINTS) * length, np.empty(POINTS, np.int64)
    order, planes = _order(width, 0, across, channels), np.arange(channels) * (height * width)
    for task in range(images.shape[0] * down):
        below = task % down
        for r in range(POINTS):
            for s in range(POINTS):
                starts[s] = (POINTS * r + s) * stride + task * run
            for k in range(STEP):
                start = r * length + k * run
                _apply_row(half[start : start + run], values, starts, terms[k], factors[k])
        for i in range(STEP):
            start = (STEP * below + i) * length
            _apply_row(results[start : start + length], half, rows, terms[i], factors[i])
        if below == down - 1:
            image = images[task // down].reshape(-1)
            for c in range(0, channels, SIDE):
                for y in range(height):
                    _write_line(image, planes, c, y * width, results[y * length + c :], order)


@compiled(cache=True)
def to_windows(out, points, terms, factors):
    """The 3 x 3 windows, (example, window, entry), of points, (point, example, entry)."""
    _, count, entries = points.shape
    values, parts = points.reshape(-1), (entries + CHUNK - 1) // CHUNK
    half, starts = np.empty(3 * POINTS * CHUNK, points.dtype), np.empty(POINTS, np.int64)
    for task in range(count * parts):
        k, start = task // parts, task % parts * CHUNK
        n = min(CHUNK, entries - start)
        for r in range(POINTS):
            for s in range(POINTS):
                starts[s] = ((POINTS * r + s) * count + k) * entries + start
            for j in range(3):
                at = (3 * r + j) * CHUNK
                _apply_row(half[at : at + n], values, starts, terms[j], factors[j])
        for j in range(3):
            for r in range(POINTS):
                starts[r] = (3 * r + j) * CHUNK
            for i in range(3):
                _apply_row(out[k, 3 * i + j, start : start + n], half, starts, terms[i], factors[i])
