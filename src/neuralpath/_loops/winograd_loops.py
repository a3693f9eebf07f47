"""The compiled loops of winograd.py: images to points of their tiles, points to images, and points to windows.

A transform along an axis is a small matrix with few entries, which acts on long runs of memory at once. To that end
each row of an image, (channel, x), is put in another order when it is read: by x modulo 4, then by x, then by channel.
Along y, whole rows are runs; along x, what the tiles of a row read at the same place of each is one run, for all
channels.

A compiler puts vector instructions only where few arrays could overlap, hence one result at a time.
"""

from typing import Any

import numpy as np

from neuralpath._loops.compiled import compiled
from neuralpath._loops.transposed import SIDE, transpose

STEP = 4
"""Rows and columns of results in a tile."""

POINTS = 6
"""Points of a tile along an axis, and rows and columns that a tile of signals reads."""

CHUNK = 1024
"""Entries of a gradient that are transformed at a time, in the first-level cache."""

FAST = {"contract", "nsz", "reassoc"}
"""What the loops allow the compiler: fused multiply-adds, and sums in any order. NaN and infinity keep their sense."""


@compiled()
def _copy(out: Any, values: Any) -> None:
    """As ``out[:] = values``, whose checks of shapes take seconds to compile."""
    for i in range(out.shape[0]):
        out[i] = values[i]


@compiled(fastmath=FAST)
def _sum_of_three(out: Any, x: Any, y: Any, z: Any, f: Any) -> None:
    a, b, c = f[0], f[1], f[2]
    for i in range(out.shape[0]):
        out[i] = a * x[i] + b * y[i] + c * z[i]


@compiled(fastmath=FAST)
def _sum_of_four(out: Any, x: Any, y: Any, z: Any, w: Any, f: Any) -> None:
    a, b, c, d = f[0], f[1], f[2], f[3]
    for i in range(out.shape[0]):
        out[i] = a * x[i] + b * y[i] + c * z[i] + d * w[i]


@compiled(fastmath=FAST)
def _sum_of_five(out: Any, x: Any, y: Any, z: Any, w: Any, v: Any, f: Any) -> None:
    a, b, c, d, e = f[0], f[1], f[2], f[3], f[4]
    for i in range(out.shape[0]):
        out[i] = a * x[i] + b * y[i] + c * z[i] + d * w[i] + e * v[i]


@compiled()
def _apply_row(out: Any, values: Any, starts: Any, terms: Any, factors: Any) -> None:
    """One row of a small matrix: a sum of runs of ``values``, which begin at ``starts``; ``sparse_rows`` has the rest.

    A row of one entry has a 1 there.
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
def _order(count: int, pad: int, columns: int, channels: int) -> Any:
    """Where the columns of an image are put, beginning ``pad`` columns behind the first."""
    order = np.empty(count, np.int64)
    for x in range(count):
        order[x] = ((x + pad) % STEP * columns + (x + pad) // STEP) * channels
    return order


@compiled()
def _read_line(out: Any, image: Any, planes: Any, first: int, begin: int, order: Any) -> None:
    """A line of some channels, the first ``SIDE`` from ``first`` on, in the order of the tiles."""
    count, last = order.shape[0], min(first + SIDE, planes.shape[0])
    whole = count // SIDE * SIDE if last == first + SIDE else 0
    for x in range(0, whole, SIDE):
        transpose(out, 0, order, x, image, begin + x, planes, first)
    for c in range(first, last):
        for x in range(whole, count):
            out[order[x] + c - first] = image[planes[c] + begin + x]


@compiled()
def _write_line(image: Any, planes: Any, first: int, begin: int, values: Any, order: Any) -> None:
    """The other way round."""
    count, last = order.shape[0], min(first + SIDE, planes.shape[0])
    whole = count // SIDE * SIDE if last == first + SIDE else 0
    for x in range(0, whole, SIDE):
        transpose(image, begin + x, planes, first, values, 0, order, x)
    for c in range(first, last):
        for x in range(whole, count):
            image[planes[c] + begin + x] = values[order[x] + c - first]


@compiled(cache=True)
def to_points(out: Any, images: Any, read: Any, reach: int, pad_y: int, pad_x: int, down: int, across: int, terms: Any,
              factors: Any) -> None:  # fmt: skip
    """The 36 points of each tile, (point, image and tile and channel), of tiles that begin 4 rows and columns apart.

    There are ``down`` times ``across`` tiles in an image, each reads ``reach`` rows and columns, the first begins
    ``pad_y`` rows and ``pad_x`` columns outside the image, and what is outside is 0. ``read`` is room for all that the
    tiles of an image read, in rows as above; it is 0 at first, and stays so outside.
    """
    _, channels, height, width = images.shape
    columns = across + (reach - 1) // STEP  # of tiles, and what the last of them reads beyond itself
    length, run, n_rows = STEP * columns * channels, across * channels, STEP * (down - 1) + reach
    half, rows, places = np.empty(POINTS * length, images.dtype), np.empty(reach, np.int64), np.empty(reach, np.int64)
    inside = min(width, STEP * columns - pad_x)
    order, planes = _order(inside, pad_x, columns, channels), np.arange(channels) * (height * width)
    for job in range(images.shape[0] * down):
        below = job % down
        if below == 0:
            image = images[job // down].reshape(-1)
            for c in range(0, channels, SIDE):  # first: memory is read from its beginning to its end
                for y in range(min(height, n_rows - pad_y)):
                    _read_line(read[(pad_y + y) * length + c :], image, planes, c, y * width, order)
        for i in range(reach):
            rows[i] = (STEP * below + i) * length
        for r in range(POINTS):
            _apply_row(half[r * length : (r + 1) * length], read, rows, terms[r], factors[r])
        for r in range(POINTS):
            for k in range(reach):
                places[k] = r * length + ((k % STEP) * columns + k // STEP) * channels
            for s in range(POINTS):
                _apply_row(out[POINTS * r + s, job * run : (job + 1) * run], half, places, terms[s], factors[s])


@compiled(cache=True)
def from_points(images: Any, points: Any, results: Any, down: int, across: int, terms: Any, factors: Any) -> None:
    """The 4 x 4 results of each tile from its points, in their places of the images.

    ``results`` is room for those of one image, in rows as above.
    """
    _, channels, height, width = images.shape
    run, stride, values = across * channels, points.shape[1], points.reshape(-1)
    length = STEP * run
    half, rows, places = np.empty(POINTS * length, images.dtype), np.arange(POINTS) * length, np.empty(POINTS, np.int64)
    order, planes = _order(width, 0, across, channels), np.arange(channels) * (height * width)
    for job in range(images.shape[0] * down):
        below = job % down
        for r in range(POINTS):
            for s in range(POINTS):
                places[s] = (POINTS * r + s) * stride + job * run
            for k in range(STEP):
                start = r * length + k * run
                _apply_row(half[start : start + run], values, places, terms[k], factors[k])
        for i in range(STEP):
            start = (STEP * below + i) * length
            _apply_row(results[start : start + length], half, rows, terms[i], factors[i])
        if below == down - 1:
            image = images[job // down].reshape(-1)
            for c in range(0, channels, SIDE):
                for y in range(height):
                    _write_line(image, planes, c, y * width, results[y * length + c :], order)


@compiled(cache=True)
def to_windows(out: Any, points: Any, terms: Any, factors: Any) -> None:
    """The 3 x 3 windows, (example, window, entry), that belong to some points, (point, example, entry)."""
    _, count, entries = points.shape
    values, parts = points.reshape(-1), (entries + CHUNK - 1) // CHUNK
    half, places = np.empty(3 * POINTS * CHUNK, points.dtype), np.empty(POINTS, np.int64)
    for job in range(count * parts):
        k, start = job // parts, job % parts * CHUNK
        n = min(CHUNK, entries - start)
        for r in range(POINTS):
            for s in range(POINTS):
                places[s] = ((POINTS * r + s) * count + k) * entries + start
            for j in range(3):
                at = (3 * r + j) * CHUNK
                _apply_row(half[at : at + n], values, places, terms[j], factors[j])
        for j in range(3):
            for r in range(POINTS):
                places[r] = (3 * r + j) * CHUNK
            for i in range(3):
                _apply_row(out[k, 3 * i + j, start : start + n], half, places, terms[i], factors[i])
