"""Compiled loops over pairs of images: overlaps of gates between positions, window sums, and chains of both.

A window moves both positions of a pair together, so that y' - y, the lag, stays what it is (with a stride, it is
divided). Pair values of one lag meet those of no other, from the image to the sum at the end: a chain of
convolutions is done lag by lag, and what it needs at a time stays in the processor's cache. One pair of images is one
task of one thread.

Values of a pair of rows, all x, x', are a block. The masks of the channels are (y, word, x) where they are bits,
packed into unsigned 32-bit words; (y, channel, x) where they are numbers; and of bytes, without elements, where the
pair values are summed over channels already. Each of the three is compiled apart. Without ``has_pair`` the pair values
are one number, the shift. Arrays have one axis inside the loops, and places in it are counted by hand: views would cost
more than the work on a row.

``steps`` has the numbers of a convolution, those of `WindowSteps`; a row of ``layers`` has two more: where the gates
behind the convolution start, and how many words they have.

All loops, and the order of the numbers that they read, are in this one file, because numba's cache on disk notices
changes of the caller's file only.
"""

import inspect
import math
from typing import Any, NamedTuple

import numpy as np
from numba import get_thread_id, prange, types  # type: ignore[attr-defined]
from numba.extending import overload

from neuralpath._loops.blocks import LANES, ROWS, mix_block, weigh_block
from neuralpath._loops.compiled import compiled
from neuralpath._loops.popcount import popcount

SHORT_WORD = 32
"""Bits of a word: counts have as many bits as values, so that a register holds as many of the one as of the other."""


class WindowSteps(NamedTuple):
    """The numbers of a convolution as the compiled loops want them, all in one array."""

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

    @property
    def n_blocks(self) -> int:
        """Blocks that are needed at a time: of the rows of a window, their sum, and one to be written."""
        return (self.size - 1) * self.dilation + 3


HEIGHT, SIZE, STRIDE, DILATION, WIDTH, SIZE_X, N_ROWS, N_COLUMNS, SIDE, BLOCK = (
    WindowSteps._fields.index(name)
    for name in ("height", "size", "stride", "dilation", "width", "size_x", "rows", "columns", "side", "block")
)
START, WORDS = len(WindowSteps._fields), len(WindowSteps._fields) + 1
BITS = float(SHORT_WORD)

MEASURE_AFTER = 48.0
"""Bits by which values may be smaller than they are bounded by before their size is measured again: float32 has 126."""

SHIFT_MOST = 100
"""Largest power of two by which products of pixels are scaled; more, and the factor itself would pass float32."""


def _weigh(
    block: Any, to: Any, side: Any, source: Any, at: Any, pitch: Any, has_pair: Any, masks1: Any, start1: Any,
    masks2: Any, start2: Any, n_masks: Any, width: Any, factor: Any, shift: Any,
) -> Any:  # fmt: skip
    """``(pair * factor + shift) * sum over channels of mask * mask'`` for all x, x' of two rows.

    Row x of the block begins at ``to + x * side``, that of the pair values at ``at + x * pitch``; the masks of the rows
    begin at ``start1`` and ``start2``.
    """


def _weigh_none(
    block: Any, to: Any, side: Any, source: Any, at: Any, pitch: Any, has_pair: Any, masks1: Any, start1: Any,
    masks2: Any, start2: Any, n_masks: Any, width: Any, factor: Any, shift: Any,
) -> Any:  # fmt: skip
    for x in range(width):
        target = block[to + x * side : to + x * side + width]
        values = source[at + x * pitch : at + x * pitch + width]
        for x2 in range(width):
            target[x2] = values[x2] * factor


def _weigh_numbers(
    block: Any, to: Any, side: Any, source: Any, at: Any, pitch: Any, has_pair: Any, masks1: Any, start1: Any,
    masks2: Any, start2: Any, n_masks: Any, width: Any, factor: Any, shift: Any,
) -> Any:  # fmt: skip
    if n_masks == 3 and width >= LANES and not has_pair:  # colors
        for k in range(0, width, LANES):
            b = start2 + min(k, width - LANES)
            for x in range(0, width, ROWS):
                first = min(x, width - ROWS)
                a = start1 + first
                mix_block(
                    block, to + first * side + b - start2, side,
                    masks1, (a, a + width, a + 2 * width), masks2, (b, b + width, b + 2 * width), shift,
                )  # fmt: skip
        return
    for x in range(width):
        target = block[to + x * side : to + x * side + width]
        for channel in range(n_masks):
            # Without pair values the shift is a factor of one mask.
            mask = masks1[start1 + channel * width + x]
            mask = mask if has_pair else mask * shift
            row = masks2[start2 + channel * width : start2 + (channel + 1) * width]
            if channel == 0:
                for x2 in range(width):
                    target[x2] = mask * row[x2]
            else:
                for x2 in range(width):
                    target[x2] += mask * row[x2]
        if has_pair:
            values = source[at + x * pitch : at + x * pitch + width]
            for x2 in range(width):
                target[x2] *= values[x2] * factor + shift


def _weigh_bits(
    block: Any, to: Any, side: Any, source: Any, at: Any, pitch: Any, has_pair: Any, masks1: Any, start1: Any,
    masks2: Any, start2: Any, n_masks: Any, width: Any, factor: Any, shift: Any,
) -> Any:  # fmt: skip
    if not has_pair or width < LANES or n_masks not in (1, 2, 4):
        _weigh_any_bits(
            block, to, side, source, at, pitch, has_pair, masks1, start1, masks2, start2, n_masks, width, factor, shift
        )
        return
    # Where the width is no multiple, the last blocks begin earlier: what is done twice is the same.
    for k in range(0, width, LANES):
        b = start2 + min(k, width - LANES)
        for x in range(0, width, ROWS):
            first = min(x, width - ROWS)
            a = start1 + first
            here, there = to + first * side + b - start2, at + first * pitch + b - start2
            if n_masks == 1:
                weigh_block(block, here, side, source, there, pitch, masks1, (a,), masks2, (b,), factor, shift)
            elif n_masks == 2:
                weigh_block(
                    block, here, side, source, there, pitch,
                    masks1, (a, a + width), masks2, (b, b + width), factor, shift,
                )  # fmt: skip
            else:
                weigh_block(
                    block, here, side, source, there, pitch,
                    masks1, (a, a + width, a + 2 * width, a + 3 * width),
                    masks2, (b, b + width, b + 2 * width, b + 3 * width), factor, shift,
                )  # fmt: skip


@compiled()
def _weigh_any_bits(
    block: Any, to: int, side: int, source: Any, at: int, pitch: int, has_pair: bool, masks1: Any, start1: int,
    masks2: Any, start2: int, n_masks: int, width: int, factor: Any, shift: Any,
) -> None:  # fmt: skip
    counts = np.empty(width, np.uint32)
    for x in range(width):
        counts[:] = 0
        for word in range(n_masks):
            bits = masks1[start1 + word * width + x]
            row = masks2[start2 + word * width : start2 + (word + 1) * width]
            for x2 in range(width):
                counts[x2] += popcount(bits & row[x2])
        target = block[to + x * side : to + x * side + width]
        if has_pair:
            values = source[at + x * pitch : at + x * pitch + width]
            for x2 in range(width):
                target[x2] = (values[x2] * factor + shift) * _as_real(counts[x2], factor)
        else:
            for x2 in range(width):
                target[x2] = shift * _as_real(counts[x2], factor)


def _as_real(count: Any, like: Any) -> Any:
    """A count in the dtype of the values: mixed with wider numbers, loops over float32 would run in float64."""


def _as_real_by_type(count: Any, like: Any) -> Any:
    return inspect.unwrap(_as_float32 if like == types.float32 else _as_float64)


def _as_float32(count: Any, like: Any) -> Any:
    return np.float32(np.int32(count))


def _as_float64(count: Any, like: Any) -> Any:
    return np.float64(np.int32(count))


def _weigh_by_type(
    block: Any, to: Any, side: Any, source: Any, at: Any, pitch: Any, has_pair: Any, masks1: Any, start1: Any,
    masks2: Any, start2: Any, n_masks: Any, width: Any, factor: Any, shift: Any,
) -> Any:  # fmt: skip
    if masks1.dtype == types.uint32:
        return inspect.unwrap(_weigh_bits)
    return inspect.unwrap(_weigh_none if masks1.dtype == types.uint8 else _weigh_numbers)


# Unwrapped for the same reason as in `compiled`.
overload(_weigh)(inspect.unwrap(_weigh_by_type))
overload(_as_real)(inspect.unwrap(_as_real_by_type))


@compiled()
def _total_of_diagonal(
    source: Any, at: int, step: int, pitch: int, has_pair: bool, masks1: Any, masks2: Any, n_masks: int, height: int,
    width: int, factor: Any, shift: Any, lag: int,
) -> float:  # fmt: skip
    """The sum over all pairs of positions of one lag; rows of the pair values begin at ``at + y * step``."""
    block, sums = np.empty(width * width, source.dtype), np.zeros(width * width, source.dtype)
    for y in range(max(0, -lag), min(height, height - lag)):
        _weigh(
            block, 0, width, source, at + y * step, pitch, has_pair, masks1, y * n_masks * width,
            masks2, (y + lag) * n_masks * width, n_masks, width, factor, shift,
        )  # fmt: skip
        for i in range(width * width):
            sums[i] += block[i]
    return sums.astype(np.float64).sum()


@compiled()
def _slide(
    out: Any, to: int, pitch: int, block: Any, at: int, side: int, n_out: int, size: int, stride: int, dilation: int
) -> None:
    """Sum a block, with its margin, over the places of a window that moves x and x' together.

    With stride 1 a place is one shift of the block along its diagonal, and ``pitch`` must be ``side``: what is between
    the ``n_out`` entries of the rows is then meaningless.
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
        for place in range(1, size):
            moved = block[at + place * step : at + place * step + length]
            for i in range(length):
                target[i] += moved[i]
        return
    for x in range(n_out):
        for x2 in range(n_out):
            begin = at + x * stride * side + x2 * stride
            total = block[begin]
            for place in range(1, size):
                total += block[begin + place * dilation * (side + 1)]
            out[to + x * pitch + x2] = total


@compiled()
def _add_rows(total: Any, room: Any, first: int, size: int, step: int, ring: int, low: int, high: int, n: int) -> None:
    """The sum of the blocks of the rows that a window sees: ``first``, ``first + step``, and so on, within bounds.

    A row's block lies in ``room`` at its number modulo ``ring``; ``n`` is the length of a block there.
    """
    length = total.shape[0]
    if size == 3 and low <= first and first + ring <= high:  # the common window, in one pass
        y = first % ring * n, (first + step) % ring * n, (first + 2 * step) % ring * n
        one, two, three = room[y[0] : y[0] + length], room[y[1] : y[1] + length], room[y[2] : y[2] + length]
        for i in range(length):
            total[i] = one[i] + two[i] + three[i]
        return
    fresh = True
    for place in range(size):
        y_place = first + place * step
        if not low <= y_place < high:
            continue
        begin = y_place % ring * n
        block = room[begin : begin + length]
        if fresh:
            total[:] = block
        else:
            for i in range(length):
                total[i] += block[i]
        fresh = False
    if fresh:
        total[:] = 0


@compiled()
def _n_blocks(steps: Any) -> int:
    """As `WindowSteps.n_blocks`."""
    return (steps[SIZE] - 1) * steps[DILATION] + 3


@compiled()
def _convolve_diagonal(
    out: Any, out_at: int, out_step: int, out_pitch: int, add: bool, source: Any, at: int, step: int, pitch: int,
    has_pair: bool, masks1: Any, masks2: Any, n_masks: int, factor: Any, shift: Any, steps: Any, lag: int, room: Any,
) -> None:  # fmt: skip
    """One convolution for the rows (y, y + lag) of its output: weigh, sum over the window, write.

    The rows begin at ``out_at + y * out_step``, those of the pair values at ``at + y * step``. ``room`` holds the
    blocks of the last rows, whose margins must be 0, their sum, and a block that is to be written.
    """
    height, size, stride, dilation, before, width, size_x, stride_x, dilation_x, before_x = steps[:10]
    rows, columns, side, length = steps[N_ROWS], steps[N_COLUMNS], steps[SIDE], steps[BLOCK]
    lag_in = lag * stride
    low, high = max(0, -lag_in), min(height, height - lag_in)
    ring = (size - 1) * dilation + 1
    total = room[ring * length : ring * length + side * side]
    window = room[(ring + 1) * length : (ring + 2) * length]
    ahead = low  # rows before it have been weighed
    for row in range(max(0, -lag), min(rows, rows - lag)):
        top = row * stride - before
        for y in range(max(ahead, top), min(high, top + ring)):
            _weigh(
                room, y % ring * length + before_x * (side + 1), side, source, at + y * step, pitch, has_pair,
                masks1, y * n_masks * width, masks2, (y + lag_in) * n_masks * width, n_masks, width, factor, shift,
            )  # fmt: skip
        ahead = max(ahead, min(high, top + ring))
        _add_rows(total, room, top, size, dilation, ring, low, high, length)
        to = out_at + row * out_step
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


@compiled(fastmath=True)  # the largest of many needs no order
def _largest(values: Any) -> float:
    largest = abs(values[0])
    for i in range(values.shape[0]):
        size = abs(values[i])
        largest = size if size > largest else largest
    return np.float64(largest)


@compiled()
def _convolve(
    out: Any, pair: Any, has_pair: bool, masks1: Any, masks2: Any, n_masks: int, factor: Any, shift: Any, steps: Any,
    add: bool,
) -> float:  # fmt: skip
    """One convolution for one pair of images, all pair values in memory; returns the size of the result."""
    height, width, rows, columns = steps[HEIGHT], steps[WIDTH], steps[N_ROWS], steps[N_COLUMNS]
    n_in, n_out = width * width, columns * columns
    room = np.zeros(_n_blocks(steps) * steps[BLOCK], out.dtype)
    for lag in range(1 - rows, rows):
        _convolve_diagonal(
            out, lag * n_out, (rows + 1) * n_out, columns, add,
            pair, lag * steps[STRIDE] * n_in if has_pair else 0, (height + 1) * n_in if has_pair else 0, width,
            has_pair, masks1, masks2, n_masks, factor, shift, steps, lag, room,
        )  # fmt: skip
    # The size of equal rows stands for all: it only sets an exponent. Where they are all 0, look at the rest.
    most = 0.0
    for row in range(rows):
        begin = row * (rows + 1) * n_out
        most = max(most, _largest(out[begin : begin + n_out]))
    return most if most > 0 else _largest(out)


@compiled(parallel=True, cache=True)
def window_sums(
    out: Any, pair: Any, has_pair: bool, masks1: Any, masks2: Any, factor: Any, shift: Any, steps: Any, largest: Any,
    add: bool, skip: int,
) -> None:  # fmt: skip
    """The step of a convolution: weigh pair values by overlaps and sum over the window.

    ``out`` is (order, batch1, batch2, y, y', x, x'), ``pair`` alike, the masks of both batches (batch, y, word or
    channel, x), ``factor`` (batch1, batch2), ``shift`` (order, batch1, batch2); ``largest`` (order, batch1, batch2)
    gets the size of the values; ``add`` to what ``out`` holds, or instead of it; pairs with row > column + ``skip`` are
    left alone.
    """
    orders, n1, n2 = out.shape[:3]
    for job in prange(orders * n1 * n2):
        order, a, b = job // (n1 * n2), (job // n2) % n1, job % n2
        if a > b + skip:
            continue
        source = pair[order, a, b] if has_pair else pair[0, 0, 0]
        largest[order, a, b] = _convolve(
            out[order, a, b].reshape(-1), source.reshape(-1), has_pair, masks1[a].reshape(-1), masks2[b].reshape(-1),
            masks1.shape[2], factor[a, b], shift[order, a, b], steps, add,
        )  # fmt: skip


@compiled(parallel=True, cache=True)
def total_sums(
    out: Any, pair: Any, has_pair: bool, masks1: Any, masks2: Any, factor: Any, shift: Any, skip: int
) -> None:
    """Global pooling: the sum over all pairs of positions of pair values times overlaps; arguments as above."""
    orders, n1, n2 = out.shape
    height, n_masks, width = masks1.shape[1:]
    for job in prange(orders * n1 * n2):
        order, a, b = job // (n1 * n2), (job // n2) % n1, job % n2
        if a > b + skip:
            continue
        source = (pair[order, a, b] if has_pair else pair[0, 0, 0]).reshape(-1)
        step = (height + 1) * width * width if has_pair else 0
        total = 0.0
        for lag in range(1 - height, height):
            total += _total_of_diagonal(
                source, lag * width * width if has_pair else 0, step, width, has_pair,
                masks1[a].reshape(-1), masks2[b].reshape(-1), n_masks, height, width,
                factor[a, b], shift[order, a, b], lag,
            )  # fmt: skip
        out[order, a, b] += total


@compiled()
def _scale(most: float, exponent: int, gain: float, bias: float) -> Any:
    """Common exponent of values and bias, and what both are multiplied with to stand there.

    Values are ``gain * 2**exponent`` times what is stored, of which ``most`` is the largest.
    """
    if most == 0:
        return 1, 0.0, bias / 2
    _, magnitude = math.frexp(most)
    common = exponent + magnitude
    if bias > 0:
        common = max(common, 1)
    return common, math.ldexp(gain, exponent - common), bias * math.ldexp(1.0, -common)


@compiled()
def _largest_of_rows(values: Any, n_rows: int, side: int, columns: int) -> float:
    """The largest of blocks that lie one after the other, what is between their rows left out."""
    most = 0.0
    for row in range(n_rows):
        for x in range(columns):
            begin = (row * side + x) * side
            most = max(most, _largest(values[begin : begin + columns]))
    return most


@compiled()
def _sum_of_equal_positions(
    values: Any, side: int, masks1: Any, masks2: Any, n_masks: int, height: int, width: int, factor: float, shift: float
) -> float:
    """The sum over positions, each with itself, as a dense layer on flattened images needs it."""
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
    lag: int, pooled: bool, image1: Any, image2: Any, size: float, n_channels: int, gates1: Any, gates2: Any,
    layers: Any, gains: Any, biases: Any, buffer: Any, half: int,
) -> Any:  # fmt: skip
    """A chain of convolutions for one lag of its last rows: the sum at the end, and its exponent.

    Values are scaled by what bounds them, which needs no look at them: each layer multiplies them by at most as many
    as there are gates in a window. ``size`` bounds the product of two pixels.
    """
    here, there, room = buffer[:half], buffer[half : 2 * half], buffer[2 * half :]
    weights = np.empty(2, buffer.dtype)  # factor and shift in the dtype of the values, which keeps loops narrow
    lags = np.empty(layers.shape[0], np.int64)
    lags[-1] = lag
    for layer in range(layers.shape[0] - 1, 0, -1):
        lags[layer - 1] = lags[layer] * layers[layer, STRIDE]
    bound, doubt, used = size * n_channels * layers[0, SIZE] * layers[0, SIZE_X], 0.0, 0
    exponent = min(max(math.frexp(bound)[1], -SHIFT_MOST), SHIFT_MOST)
    shift = math.ldexp(1.0, -exponent)
    bound *= shift
    weights[0], weights[1] = 0, shift
    at = pitch = 0
    for layer in range(layers.shape[0]):
        steps = layers[layer]
        side = steps[SIDE]
        first = max(0, -lags[layer])
        n_room = _n_blocks(steps) * steps[BLOCK]
        rest = room[used : used + n_room]
        used += n_room
        if layer == 0:
            _convolve_diagonal(
                there, -first * side * side, side * side, side, False, here, 0, 0, 0, False, image1, image2, n_channels,
                weights[0], weights[1], steps, lags[layer], rest,
            )  # fmt: skip
        else:
            before = layers[layer - 1]
            exponent, factor, shift = _scale(bound, exponent, gains[layer - 1], biases[layer - 1])
            weights[0], weights[1] = factor, shift
            grows = BITS * before[WORDS] * steps[SIZE] * steps[SIZE_X]
            bound = (factor * bound + shift) * grows
            doubt += math.log2(grows)
            _convolve_diagonal(
                there, -first * side * side, side * side, side, False, here, at, pitch * pitch, pitch, True,
                gates1[before[START] :], gates2[before[START] :], before[WORDS], weights[0], weights[1], steps,
                lags[layer], rest,
            )  # fmt: skip
            if doubt > MEASURE_AFTER:
                bound, doubt = _largest_of_rows(there, steps[N_ROWS] - abs(lags[layer]), side, steps[N_COLUMNS]), 0.0
        at, pitch = -first * side * side, side
        here, there = there, here
    last = layers[-1]
    exponent, factor, shift = _scale(bound, exponent, gains[-1], biases[-1])
    weights[0], weights[1] = factor, shift
    masks1, masks2 = gates1[last[START] :], gates2[last[START] :]
    n_words, height, width = last[WORDS], last[N_ROWS], last[N_COLUMNS]
    if pooled:
        total = _total_of_diagonal(
            here, at, pitch * pitch, pitch, True, masks1, masks2, n_words, height, width, weights[0], weights[1], lag
        )  # fmt: skip
    else:
        total = _sum_of_equal_positions(here, pitch, masks1, masks2, n_words, height, width, factor, shift)
    return total, exponent


@compiled(parallel=True, cache=True)
def image_chains(
    out: Any, exponents: Any, pairs: Any, images1: Any, images2: Any, sizes1: Any, sizes2: Any, gates1: Any,
    gates2: Any, layers: Any, gains: Any, biases: Any, buffers: Any, half: int, pooled: bool,
) -> None:  # fmt: skip
    """A chain of convolutions, from images to the sum that the first dense layer reads, pair by pair.

    ``out`` and ``exponents`` are (batch1, batch2); ``pairs`` has row and column of each pair that is wanted, so that
    threads get equal shares; images are (batch, y, channel, x), their largest entries ``sizes1`` and ``sizes2``; the
    packed gates of all layers (batch, words); ``layers`` has a row for each convolution; ``gains`` and ``biases`` are
    the variance of each layer's weights and of its bias (0: none); ``buffers`` (thread, twice ``half`` for the values
    of a lag, then room for each layer's blocks); ``pooled`` tells whether all positions are summed, or each with
    itself.
    """
    for job in prange(pairs.shape[0]):
        a, b = pairs[job, 0], pairs[job, 1]
        buffer = buffers[get_thread_id()]
        buffer[2 * half :] = 0  # the margins
        most = layers[-1, N_ROWS] if pooled else 1
        total, top = 0.0, np.int64(0)
        for lag in range(1 - most, most):
            value, exponent = _chain_of_diagonal(
                lag, pooled, images1[a].reshape(-1), images2[b].reshape(-1), sizes1[a] * sizes2[b], images1.shape[2],
                gates1[a], gates2[b], layers, gains, biases, buffer, half,
            )  # fmt: skip
            if value == 0:
                continue
            if total == 0 or exponent > top:
                total, top = math.ldexp(total, top - exponent), exponent
            total += math.ldexp(value, exponent - top)
        out[a, b] = total
        exponents[a, b] = top
