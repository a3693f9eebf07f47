"""Compiled loops over pairs of images: overlaps of gates between positions, window sums, and chains of both.

A window moves both positions of a pair together, so it keeps the lag y' - y (with a stride, it divides it). Pair values
of one lag meet no others, from the pixels to the sum at the end: a chain of convolutions runs lag by lag, and its
values stay in the cache. One pair of images is one task of one thread.

Values of one pair of rows (y, y'), all x and x', are a *block*. A lag is a list of blocks:

    lag 1:  (y, y') = (0, 1)  (1, 2)  (2, 3) ...       a block has `side` x `side` entries:

                                                                 x' ->
    The margin of zeros is the padding of the next              +-----------+
    convolution. A window moves x and x' together,           x  | 0 0 0 0 0 |
    along the diagonal: its tap t reads the same             |  | 0 v v v 0 |     v: value of the pair of
    block t * (side + 1) entries later. So a window          v  | 0 v v v 0 |        positions (y, x), (y', x')
    sum adds shifted copies of one run of memory.               | 0 v v v 0 |
                                                                | 0 0 0 0 0 |
                                                                +-----------+

A convolution needs the blocks of the rows that one window sees. They are in a ring, `block` entries apart
(`ring` = (size - 1) * dilation + 1):

    blocks:  | row y % ring = 0 | ... | y % ring = ring - 1 | sum over the window's rows | output |

The memory of one thread (`buffers[thread]`): the values of a lag before and after a layer, then every layer's blocks:

    | values: half | result: half | blocks of layer 0 | blocks of layer 1 | ... |

The masks of the channels come in three types, each compiled separately. Bits, packed into unsigned 32-bit words:
(y, word, x). Numbers: (y, channel, x). Bytes, an empty array: the pair values are already summed over channels.
Without ``paired`` the pair values are one number, the shift. Inside the loops arrays have one axis, and indices are
computed by hand: views would cost more than the work on a row.

``steps`` has the numbers of a convolution, those of `WindowSteps`; a row of ``layers`` has two more: where the gates
after the convolution start, and how many words they have.

All loops, and the order of the numbers that they read, are in this one file, because numba's cache on disk notices
changes of the caller's file only.
"""

import inspect
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import get_thread_id, prange, types  # type: ignore[attr-defined]
from numba.extending import overload

from neuralpath._loops.compiled import compiled
from neuralpath._loops.instructions import LANES, ROWS, mix_block, popcount, weigh_block

SHORT_WORD = 32  # bits of a word, and of a count: a register holds as many counts as float32 values
PAGE = 4096  # bytes; accesses to addresses nearly a multiple of this apart delay each other


class WindowSteps(NamedTuple):
    """The numbers of a convolution as the compiled loops read them, all in one array."""

    height: int
    size: int
    stride: int
    dilation: int
    before: int  # padding
    width: int
    size_x: int
    stride_x: int
    dilation_x: int
    before_x: int
    rows: int  # of the output
    columns: int
    side: int  # of a block: all x, x' of two rows, with the margin
    block: int  # entries from one block to the next: `block_step`

    @classmethod
    def of(cls, windows: Sequence[Any], in_space: Sequence[int], itemsize: int) -> "WindowSteps":
        """The numbers for the windows of a `LinearNode`, one for each axis of space."""
        (y, x), (height, width) = windows, in_space
        rows, columns = y.n_out(height), x.n_out(width)
        # A block has the padding in front, and reaches to the last position that the last window reads.
        side = max(x.before + width, (columns - 1) * x.stride + (x.size - 1) * x.dilation + 1)
        rule_y, rule_x = ((w.size, w.stride, w.dilation, w.before) for w in windows)
        return cls(height, *rule_y, width, *rule_x, rows, columns, side, block_step(side, itemsize))

    @property
    def n_blocks(self) -> int:
        """Blocks of one layer: the rows of a window, their sum, and the output."""
        return (self.size - 1) * self.dilation + 3


# Indices into the array of numbers: compiled code cannot read the fields of a row of `layers` by name.
HEIGHT, SIZE, STRIDE, DILATION, WIDTH, SIZE_X, N_ROWS, N_COLUMNS, SIDE, BLOCK = (
    WindowSteps._fields.index(name)
    for name in ("height", "size", "stride", "dilation", "width", "size_x", "rows", "columns", "side", "block")
)
START, WORDS = len(WindowSteps._fields), len(WindowSteps._fields) + 1
BITS = float(SHORT_WORD)

MEASURE_AFTER = 48.0  # bits by which values may fall below their bound before they are measured again: float32 has 126
SHIFT_MOST = 100  # largest power of two that scales products of pixels; a larger factor would exceed float32


def block_step(side: int, itemsize: int) -> int:
    """Entries from the start of one block to the start of the next, for values of ``itemsize`` bytes."""
    # Whole vectors, so that equal entries of two blocks have equal alignment, and never close to whole pages.
    step = -(-side * side // LANES) * LANES
    while step * itemsize % PAGE < PAGE // 16:
        step += LANES
    return step


def _weigh(block, to, side, source, at, pitch, paired, masks1, at1, masks2, at2, n_masks, width, factor, shift):
    """``(pair * factor + shift) * sum over channels of mask * mask'`` for all x, x' of two rows.

    Row x of the block starts at ``to + x * side``, row x of the pair values at ``at + x * pitch``; the masks of the
    two rows start at ``at1`` and ``at2``. Compiled code gets one of the three functions below.
    """


def _weigh_none(block, to, side, source, at, pitch, paired, masks1, at1, masks2, at2, n_masks, width, factor, shift):
    for x in range(width):
        target = block[to + x * side : to + x * side + width]
        values = source[at + x * pitch : at + x * pitch + width]
        for x2 in range(width):
            target[x2] = values[x2] * factor


def _weigh_numbers(block, to, side, source, at, pitch, paired, masks1, at1, masks2, at2, n_masks, width, factor, shift):
    if n_masks == 3 and width >= LANES and not paired:  # colors
        # Columns x' outside, rows x inside: the vectors of the second image are loaded once for all rows. The last
        # tiles overlap the ones before, as in `_weigh_bits`.
        for k in range(0, width, LANES):
            b = at2 + min(k, width - LANES)
            for x in range(0, width, ROWS):
                first = min(x, width - ROWS)
                a, target = at1 + first, to + first * side + b - at2
                starts1, starts2 = (a, a + width, a + 2 * width), (b, b + width, b + 2 * width)
                mix_block(block, target, side, masks1, starts1, masks2, starts2, shift)
        return
    for x in range(width):
        target = block[to + x * side : to + x * side + width]
        for channel in range(n_masks):
            # Without pair values the shift is a factor of the first mask.
            mask = masks1[at1 + channel * width + x]
            mask = mask if paired else mask * shift
            row = masks2[at2 + channel * width : at2 + (channel + 1) * width]
            if channel == 0:
                for x2 in range(width):
                    target[x2] = mask * row[x2]
            else:
                for x2 in range(width):
                    target[x2] += mask * row[x2]
        if paired:
            values = source[at + x * pitch : at + x * pitch + width]
            for x2 in range(width):
                target[x2] *= values[x2] * factor + shift


def _weigh_bits(block, to, side, source, at, pitch, paired, masks1, at1, masks2, at2, n_masks, width, factor, shift):
    if not paired or width < LANES or n_masks not in (1, 2, 4):
        _weigh_words(
            block, to, side, source, at, pitch, paired, masks1, at1, masks2, at2, n_masks, width, factor, shift
        )
        return
    # If the width is no multiple of LANES, the last tiles overlap the ones before: both write the same values.
    for k in range(0, width, LANES):
        b = at2 + min(k, width - LANES)
        for x in range(0, width, ROWS):
            first = min(x, width - ROWS)
            a = at1 + first
            target, origin = to + first * side + b - at2, at + first * pitch + b - at2
            # Tuples of one, two or four words: their length is part of the type, so each has its own instructions.
            if n_masks == 1:
                weigh_block(block, target, side, source, origin, pitch, masks1, (a,), masks2, (b,), factor, shift)
            elif n_masks == 2:
                a2, b2 = (a, a + width), (b, b + width)
                weigh_block(block, target, side, source, origin, pitch, masks1, a2, masks2, b2, factor, shift)
            else:
                a4 = (a, a + width, a + 2 * width, a + 3 * width)
                b4 = (b, b + width, b + 2 * width, b + 3 * width)
                weigh_block(block, target, side, source, origin, pitch, masks1, a4, masks2, b4, factor, shift)


@compiled()
def _weigh_words(block, to, side, source, at, pitch, paired, masks1, at1, masks2, at2, n_masks, width, factor, shift):
    # For rows shorter than a vector, and any number of words: the compiler's own vectors, along x'.
    counts = np.empty(width, np.uint32)
    for x in range(width):
        counts[:] = 0
        for word in range(n_masks):
            bits = masks1[at1 + word * width + x]
            row = masks2[at2 + word * width : at2 + (word + 1) * width]
            for x2 in range(width):
                counts[x2] += popcount(bits & row[x2])
        target = block[to + x * side : to + x * side + width]
        if paired:
            values = source[at + x * pitch : at + x * pitch + width]
            for x2 in range(width):
                target[x2] = (values[x2] * factor + shift) * _as_real(counts[x2], factor)
        else:
            for x2 in range(width):
                target[x2] = shift * _as_real(counts[x2], factor)


def _as_real(count, like):
    """A count in the dtype of the values: a wider number would make loops over float32 run in float64."""


def _as_float32(count, like):
    return np.float32(np.int32(count))


def _as_float64(count, like):
    return np.float64(np.int32(count))


def _weigh_by_type(block, to, side, source, at, pitch, paired, masks1, at1, masks2, at2, n_masks, width, factor, shift):
    if masks1.dtype == types.uint32:
        return inspect.unwrap(_weigh_bits)
    return inspect.unwrap(_weigh_none if masks1.dtype == types.uint8 else _weigh_numbers)


# Unwrapped for the same reason as in `compiled`.
overload(_weigh)(inspect.unwrap(_weigh_by_type))
overload(_as_real)(lambda count, like: inspect.unwrap(_as_float32 if like == types.float32 else _as_float64))


@compiled()
def _total_of_diagonal(source, at, step, pitch, paired, masks1, masks2, n_masks, height, width, factor, shift, lag):
    """The sum over all pairs of positions of one lag; row y of the pair values starts at ``at + y * step``."""
    # Summed over y entry by entry, in vectors; only the final sum, over x and x', is in double precision.
    block, sums = np.empty(width * width, source.dtype), np.zeros(width * width, source.dtype)
    for y in range(max(0, -lag), min(height, height - lag)):
        at1, at2, row = y * n_masks * width, (y + lag) * n_masks * width, at + y * step
        _weigh(block, 0, width, source, row, pitch, paired, masks1, at1, masks2, at2, n_masks, width, factor, shift)
        for i in range(width * width):
            sums[i] += block[i]
    return sums.astype(np.float64).sum()


@compiled()
def _slide(out, to, pitch, block, at, side, n_out, size, stride, dilation):
    """Sum a block, with its margin, over the taps of a window that moves x and x' together.

        tap 0  tap 1  tap 2         side = 5: entry (x, x') of tap t is t * (side + 1) = 0, 6, 12 entries further on,
        a....  .....  .....         one row down and one column to the right. With dilation d the taps are d such
        .....  .b...  .....         steps apart.
        .....  .....  ..c..         out = a + b + c

    With stride 1 a tap is one shift of the whole block along its diagonal, and ``pitch`` must be ``side``. The shift
    also moves entries across the ends of rows, so the output between the ``n_out`` entries of the rows is meaningless.
    """
    if stride == 1:
        length, step = (n_out - 1) * side + n_out, dilation * (side + 1)
        target, source = out[to : to + length], block[at : at + length]
        if size == 3:  # the common window, in one pass
            second, third = block[at + step : at + step + length], block[at + 2 * step : at + 2 * step + length]
            for i in range(length):
                target[i] = source[i] + second[i] + third[i]
            return
        target[:] = source
        for tap in range(1, size):
            moved = block[at + tap * step : at + tap * step + length]
            for i in range(length):
                target[i] += moved[i]
        return
    for x in range(n_out):
        for x2 in range(n_out):
            begin = at + x * stride * side + x2 * stride
            total = block[begin]
            for tap in range(1, size):
                total += block[begin + tap * dilation * (side + 1)]
            out[to + x * pitch + x2] = total


@compiled()
def _add_rows(total, blocks, first, size, step, ring, low, high, n):
    """The sum of the blocks of the rows that a window sees: ``first``, ``first + step``, and so on, within bounds.

    The block of row y starts at ``y % ring * n`` in ``blocks``. Rows outside the bounds are padding: their blocks are
    not in the ring, whose places hold other rows, so they are left out of the sum.
    """
    length = total.shape[0]
    if size == 3 and low <= first and first + ring <= high:  # the common window, in one pass
        y = first % ring * n, (first + step) % ring * n, (first + 2 * step) % ring * n
        above, middle, below = blocks[y[0] : y[0] + length], blocks[y[1] : y[1] + length], blocks[y[2] : y[2] + length]
        for i in range(length):
            total[i] = above[i] + middle[i] + below[i]
        return
    empty = True
    for tap in range(size):
        row = first + tap * step
        if not low <= row < high:
            continue
        begin = row % ring * n
        block = blocks[begin : begin + length]
        if empty:
            total[:] = block
        else:
            for i in range(length):
                total[i] += block[i]
        empty = False
    if empty:
        total[:] = 0


@compiled()
def _n_blocks(steps):
    """As `WindowSteps.n_blocks`."""
    return (steps[SIZE] - 1) * steps[DILATION] + 3


@compiled()
def _convolve_diagonal(
    out, out_at, out_step, out_pitch, add, source, at, step, pitch, paired, masks1, masks2, n_masks,
    factor, shift, steps, lag, blocks,
):  # fmt: skip
    """One convolution for the rows (y, y + lag) of its output: weigh, sum over the window, write.

    Row y starts at ``out_at + y * out_step``, row y of the pair values at ``at + y * step``. ``blocks`` is the ring
    drawn above; the margins of its blocks must be 0.

        source, row y  --_weigh-->  ring[y % ring]  --_add_rows-->  total  --_slide-->  out, row of the output
        (y, y + lag_in)             with its margin                 one block           (row, row + lag)

    Everything between source and out is a few blocks of one lag, which stay in the cache.
    """
    height, size, stride, dilation, before, width, size_x, stride_x, dilation_x, before_x = steps[:10]
    rows, columns, side, length = steps[N_ROWS], steps[N_COLUMNS], steps[SIDE], steps[BLOCK]
    lag_in = lag * stride  # a stride multiplies both rows, and so their difference
    # Rows y for which both y and y + lag_in are inside the image; the others are padding.
    low, high = max(0, -lag_in), min(height, height - lag_in)
    ring = (size - 1) * dilation + 1
    total = blocks[ring * length : ring * length + side * side]
    window = blocks[(ring + 1) * length : (ring + 2) * length]
    ahead = low  # the next row to weigh: each row is weighed once, although several windows see it
    for row in range(max(0, -lag), min(rows, rows - lag)):
        top = row * stride - before
        for y in range(max(ahead, top), min(high, top + ring)):
            to, row_at = y % ring * length + before_x * (side + 1), at + y * step
            at1, at2 = y * n_masks * width, (y + lag_in) * n_masks * width
            _weigh(
                blocks, to, side, source, row_at, pitch, paired, masks1, at1, masks2, at2, n_masks, width,
                factor, shift,
            )  # fmt: skip
        ahead = max(ahead, min(high, top + ring))
        _add_rows(total, blocks, top, size, dilation, ring, low, high, length)
        to = out_at + row * out_step
        # Straight into the output where its rows are as far apart as the block's, else through `window`.
        if not add and (out_pitch == side or stride_x != 1):
            _slide(out, to, out_pitch, total, 0, side, columns, size_x, stride_x, dilation_x)
            continue
        _slide(window, 0, side, total, 0, side, columns, size_x, stride_x, dilation_x)
        for x in range(columns):
            target, values = out[to + x * out_pitch : to + x * out_pitch + columns], window[x * side :]
            if add:
                for x2 in range(columns):
                    target[x2] += values[x2]
            else:
                for x2 in range(columns):
                    target[x2] = values[x2]


@compiled(fastmath=True)  # a maximum does not depend on the order
def _largest(values):
    largest = abs(values[0])
    for i in range(values.shape[0]):
        size = abs(values[i])
        largest = size if size > largest else largest
    return np.float64(largest)


@compiled()
def _convolve(out, pair, paired, masks1, masks2, n_masks, factor, shift, steps, add):
    """One convolution for one pair of images, all pair values in memory; returns the size of the result."""
    height, width, rows, columns = steps[HEIGHT], steps[WIDTH], steps[N_ROWS], steps[N_COLUMNS]
    n_in, n_out = width * width, columns * columns
    blocks = np.zeros(_n_blocks(steps) * steps[BLOCK], out.dtype)
    # Blocks are (y, y', x, x'): from the block (y, y') to (y + 1, y' + 1) it is a row of blocks and one block more.
    #
    #     y' ->  0   1   2   3
    #   y = 0    .   a   .   .        lag 1: blocks a, b, c start at out_at = 1 block and are
    #       1    .   .   b   .        rows + 1 = 5 blocks apart. A negative lag starts below the
    #       2    .   .   .   c        diagonal: `out_at` is negative, and the first row is -lag.
    #       3    .   .   .   .
    out_step, step = (rows + 1) * n_out, (height + 1) * n_in if paired else 0
    for lag in range(1 - rows, rows):
        out_at, at = lag * n_out, lag * steps[STRIDE] * n_in if paired else 0
        _convolve_diagonal(
            out, out_at, out_step, columns, add, pair, at, step, width,
            paired, masks1, masks2, n_masks, factor, shift, steps, lag, blocks,
        )  # fmt: skip
    # The size of equal rows is enough: it only sets an exponent. If they are all 0, measure the rest.
    most = 0.0
    for row in range(rows):
        begin = row * (rows + 1) * n_out
        most = max(most, _largest(out[begin : begin + n_out]))
    return most if most > 0 else _largest(out)


@compiled(parallel=True, cache=True)
def window_sums(out, pair, paired, masks1, masks2, factor, shift, steps, largest, add, skip):
    """The step of a convolution: weigh pair values by overlaps and sum over the window.

    ``out`` is (order, batch1, batch2, y, y', x, x'), ``pair`` alike, the masks of both batches (batch, y, word or
    channel, x), ``factor`` (batch1, batch2), ``shift`` (order, batch1, batch2); ``largest`` (order, batch1, batch2)
    gets the size of the values; ``add`` to the values of ``out``, or overwrite them; pairs with row > column + ``skip``
    are skipped.
    """
    orders, n1, n2 = out.shape[:3]
    # One pair of images of one order is one job: jobs write to different memory, and share none of their blocks.
    for job in prange(orders * n1 * n2):
        order, a, b = job // (n1 * n2), (job // n2) % n1, job % n2
        if a > b + skip:
            continue
        source = pair[order, a, b] if paired else pair[0, 0, 0]
        target, values = out[order, a, b].reshape(-1), source.reshape(-1)
        gates1, gates2 = masks1[a].reshape(-1), masks2[b].reshape(-1)
        n_masks, scale, constant = masks1.shape[2], factor[a, b], shift[order, a, b]
        largest[order, a, b] = _convolve(target, values, paired, gates1, gates2, n_masks, scale, constant, steps, add)


@compiled(parallel=True, cache=True)
def total_sums(out, pair, paired, masks1, masks2, factor, shift, skip):
    """Global pooling: the sum over all pairs of positions of pair values times overlaps; arguments as above."""
    orders, n1, n2 = out.shape
    height, n_masks, width = masks1.shape[1:]
    for job in prange(orders * n1 * n2):
        order, a, b = job // (n1 * n2), (job // n2) % n1, job % n2
        if a > b + skip:
            continue
        source = (pair[order, a, b] if paired else pair[0, 0, 0]).reshape(-1)
        step = (height + 1) * width * width if paired else 0
        total = 0.0
        for lag in range(1 - height, height):
            at = lag * width * width if paired else 0
            gates1, gates2 = masks1[a].reshape(-1), masks2[b].reshape(-1)
            scale, constant = factor[a, b], shift[order, a, b]
            total += _total_of_diagonal(
                source, at, step, width, paired, gates1, gates2, n_masks, height, width, scale, constant, lag
            )
        out[order, a, b] += total


@compiled()
def _scale(most, exponent, gain, bias):
    """A common exponent of values and bias, and the factor and shift that scale both to it.

    The true values are ``gain * 2**exponent`` times the stored ones, of which ``most`` is the largest.
    """
    if most == 0:
        return 1, 0.0, bias / 2  # only the bias is left; exponent 1 doubles the half
    _, magnitude = math.frexp(most)
    common = exponent + magnitude
    if bias > 0:
        common = max(common, 1)  # at a smaller exponent the shift could exceed the range of the dtype
    return common, math.ldexp(gain, exponent - common), bias * math.ldexp(1.0, -common)


@compiled()
def _largest_of_rows(values, n_rows, side, columns):
    """The largest entry of consecutive blocks, without the entries between their rows."""
    most = 0.0
    for row in range(n_rows):
        for x in range(columns):
            begin = (row * side + x) * side
            most = max(most, _largest(values[begin : begin + columns]))
    return most


@compiled()
def _sum_of_equal_positions(values, side, masks1, masks2, n_masks, height, width, factor, shift):
    """The sum over positions, each with itself, for a dense layer on flattened images."""
    total = 0.0
    for y in range(height):
        for x in range(width):
            count = np.int64(0)
            for word in range(n_masks):
                at = (y * n_masks + word) * width + x
                count += np.int64(popcount(masks1[at] & masks2[at]))
            total += (values[(y * side + x) * side + x] * factor + shift) * count
    return total


@compiled()
def _chain_of_diagonal(
    lag, pooled, image1, image2, size, n_channels, gates1, gates2, layers, gains, biases, buffer, half
):
    """A chain of convolutions for one lag of its last rows: the sum at the end, and its exponent.

    Values are scaled by a bound, without reading them: each layer multiplies them by at most the number of gates in a
    window. ``size`` bounds the product of two pixels.
    """
    values, result, blocks = buffer[:half], buffer[half : 2 * half], buffer[2 * half :]
    weights = np.empty(2, buffer.dtype)  # factor and shift in the dtype of the values, which keeps loops narrow
    # The lag of every layer's output, from the last to the first: a layer's input has its lag times its stride.
    lags = np.empty(layers.shape[0], np.int64)
    lags[-1] = lag
    for layer in range(layers.shape[0] - 1, 0, -1):
        lags[layer - 1] = lags[layer] * layers[layer, STRIDE]
    # `doubt`: bits by which the true values may be below `bound`. `used`: entries of the blocks of earlier layers.
    bound, doubt, used = size * n_channels * layers[0, SIZE] * layers[0, SIZE_X], 0.0, 0
    # The true values are 2**exponent times the stored ones, so that the stored ones are at most about 1.
    exponent = min(max(math.frexp(bound)[1], -SHIFT_MOST), SHIFT_MOST)
    shift = math.ldexp(1.0, -exponent)
    bound *= shift
    weights[0], weights[1] = 0, shift
    at = pitch = 0
    # `values` and `result` are the two halves of the buffer: each layer reads one, writes the other, and they swap.
    for layer in range(layers.shape[0]):
        steps = layers[layer]
        side = steps[SIDE]
        first = max(0, -lags[layer])
        n_own = _n_blocks(steps) * steps[BLOCK]
        own = blocks[used : used + n_own]
        used += n_own
        out_at, area = -first * side * side, side * side  # the first block of the lag is at the start of the buffer
        if layer == 0:
            _convolve_diagonal(
                result, out_at, area, side, False, values, 0, 0, 0, False, image1, image2, n_channels,
                weights[0], weights[1], steps, lags[layer], own,
            )  # fmt: skip
        else:
            before = layers[layer - 1]  # its gates are the masks of this layer's input
            exponent, factor, shift = _scale(bound, exponent, gains[layer - 1], biases[layer - 1])
            weights[0], weights[1] = factor, shift
            grows = BITS * before[WORDS] * steps[SIZE] * steps[SIZE_X]
            bound = (factor * bound + shift) * grows
            doubt += math.log2(grows)  # all gates may be closed: the bound grows, the values need not
            masks1, masks2 = gates1[before[START] :], gates2[before[START] :]
            _convolve_diagonal(
                result, out_at, area, side, False, values, at, pitch * pitch, pitch, True, masks1, masks2,
                before[WORDS], weights[0], weights[1], steps, lags[layer], own,
            )  # fmt: skip
            if doubt > MEASURE_AFTER:
                bound, doubt = _largest_of_rows(result, steps[N_ROWS] - abs(lags[layer]), side, steps[N_COLUMNS]), 0.0
        at, pitch = out_at, side
        values, result = result, values
    last = layers[-1]
    exponent, factor, shift = _scale(bound, exponent, gains[-1], biases[-1])
    weights[0], weights[1] = factor, shift
    masks1, masks2 = gates1[last[START] :], gates2[last[START] :]
    n_words, height, width = last[WORDS], last[N_ROWS], last[N_COLUMNS]
    if pooled:
        area = pitch * pitch
        total = _total_of_diagonal(
            values, at, area, pitch, True, masks1, masks2, n_words, height, width, weights[0], weights[1], lag
        )
    else:
        total = _sum_of_equal_positions(values, pitch, masks1, masks2, n_words, height, width, factor, shift)
    return total, exponent


@compiled(parallel=True, cache=True)
def image_chains(
    out, exponents, pairs, images1, images2, sizes1, sizes2, gates1, gates2, layers, gains, biases, buffers, half,
    pooled,
):  # fmt: skip
    """A chain of convolutions, from images to the sum that the first dense layer reads, pair by pair.

    ``out`` and ``exponents`` are (batch1, batch2); ``pairs`` has row and column of each pair to compute, so that
    threads get equal shares; images are (batch, y, channel, x), their largest entries ``sizes1`` and ``sizes2``; the
    packed gates of all layers (batch, words); ``layers`` has a row for each convolution; ``gains`` and ``biases`` are
    the variance of each layer's weights and of its bias (0: none); ``buffers`` is (thread, entries), drawn above;
    ``pooled``: all pairs of positions are summed, or each position with itself.
    """
    for job in prange(pairs.shape[0]):
        a, b = pairs[job, 0], pairs[job, 1]
        buffer = buffers[get_thread_id()]
        buffer[2 * half :] = 0  # the margins of the blocks, which the loops never write
        most = layers[-1, N_ROWS] if pooled else 1  # flattening joins equal positions only: lag 0
        total, top = 0.0, np.int64(0)
        for lag in range(1 - most, most):
            image1, image2, size = images1[a].reshape(-1), images2[b].reshape(-1), sizes1[a] * sizes2[b]
            value, exponent = _chain_of_diagonal(
                lag, pooled, image1, image2, size, images1.shape[2],
                gates1[a], gates2[b], layers, gains, biases, buffer, half,
            )  # fmt: skip
            if value == 0:
                continue
            # Sums of different lags have exponents of their own: the largest so far is the common one.
            if total == 0 or exponent > top:
                total, top = math.ldexp(total, top - exponent), exponent
            total += math.ldexp(value, exponent - top)
        out[a, b] = total
        exponents[a, b] = top
