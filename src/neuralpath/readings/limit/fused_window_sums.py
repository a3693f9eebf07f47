"""Sums over the window of a convolution, of an image that stands for one displacement between two images.

Entry i is a pair of i and i' = i + (dy, dx) modulo the size; see fused_image_loops.py. With zero padding, pairs whose
second position went round the edge are no neighbours of the others: sums along an axis stop there, at ``split``.
"""

from typing import Any

from neuralpath.bits.compiled import compiled
from neuralpath.readings.limit.fused_arccosine import FAST


@compiled(fastmath=FAST)
def roll(out: Any, padded: Any, width: int, dx: int, columns: Any) -> None:
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


@compiled()
def copy(out: Any, values: Any) -> None:
    """As ``out[:] = values``, whose checks of shapes take seconds to compile."""
    for i in range(out.shape[0]):
        out[i] = values[i]


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
def _sum_neighbours(out: Any, values: Any, width: int) -> None:
    """Each row plus those above and below it."""
    last = out.shape[0] - width
    if last <= 0:
        copy(out, values)
        return
    for row, neighbour in ((0, width), (last, last - width)):
        _sum_of_two(out[row : row + width], values[row : row + width], values[neighbour : neighbour + width])
    _sum_of_three(out[width:last], values, values[width:], values[2 * width :])


@compiled()
def sum_rows(out: Any, values: Any, shape: tuple[int, int], split: int, size: int, before: int, circular: bool) -> None:
    """Sums over a window along y; at ``split`` the second positions go round the edge."""
    height, width = shape
    if size == 3 and before == 1 and not circular:  # the common window, in one pass
        for start, stop in ((0, split * width), (split * width, height * width)):
            _sum_neighbours(out[start:stop], values[start:stop], width)
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
def sum_columns(
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
