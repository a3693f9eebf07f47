"""Compiled loops over pairs of images: overlaps of gates between positions, window sums, and chains of both.

Pair matrices have their axes interleaved, (y, y', x, x'), so that all x, x' of two rows are one run of memory. One
pair of images is one task of one thread, and needs no memory beyond a few rows.

The masks of the channels are (y, word, x) where they are bits, packed into unsigned 64-bit words; (y, channel, x)
where they are numbers; and of bytes, without elements, where the pair values are summed over channels already. Each
of the three is compiled apart. Without ``has_pair`` the pair values are one number, the shift.

All loops are in this one file, because numba's cache on disk notices changes of the caller's file only.
"""

import inspect
import math
from typing import Any

import numpy as np
from numba import get_thread_id, prange, types  # type: ignore[attr-defined]
from numba.extending import overload

from neuralpath.bits.compiled import compiled
from neuralpath.bits.popcount import popcount


def _weigh(block: Any, margin: Any, pair: Any, has_pair: Any, masks1: Any, masks2: Any, factor: Any, shift: Any) -> Any:
    """``(pair * factor + shift) * sum over channels of mask * mask'`` for all x, x' of two rows.

    The block is written with a margin: ``block[margin + x, margin + x']``.
    """


def _weigh_none(
    block: Any, margin: Any, pair: Any, has_pair: Any, masks1: Any, masks2: Any, factor: Any, shift: Any
) -> Any:
    width = pair.shape[0]
    for x in range(width):
        target, source = block[margin + x, margin : margin + width], pair[x]
        for x2 in range(width):
            target[x2] = source[x2] * factor


def _weigh_numbers(
    block: Any, margin: Any, pair: Any, has_pair: Any, masks1: Any, masks2: Any, factor: Any, shift: Any
) -> Any:
    n_channels, width = masks1.shape
    for x in range(width):
        target = block[margin + x, margin : margin + width]
        for channel in range(n_channels):
            # Without pair values the shift is a factor of one mask.
            mask, row = masks1[channel, x] if has_pair else masks1[channel, x] * shift, masks2[channel]
            if channel == 0:
                for x2 in range(width):
                    target[x2] = mask * row[x2]
            else:
                for x2 in range(width):
                    target[x2] += mask * row[x2]
        if has_pair:
            source = pair[x]
            for x2 in range(width):
                target[x2] *= source[x2] * factor + shift


def _weigh_bits(
    block: Any, margin: Any, pair: Any, has_pair: Any, masks1: Any, masks2: Any, factor: Any, shift: Any
) -> Any:
    n_words, width = masks1.shape
    if n_words > 2 or not has_pair:
        _weigh_many_bits(block, margin, pair, has_pair, masks1, masks2, factor, shift)
        return
    if n_words == 1:
        for x in range(width):
            target, source = block[margin + x, margin : margin + width], pair[x]
            word, row = masks1[0, x], masks2[0]
            for x2 in range(width):
                target[x2] = (source[x2] * factor + shift) * _as_real(popcount(word & row[x2]), factor)
        return
    for x in range(width):
        target, source = block[margin + x, margin : margin + width], pair[x]
        word, row, word2, row2 = masks1[0, x], masks2[0], masks1[1, x], masks2[1]
        for x2 in range(width):
            count = popcount(word & row[x2]) + popcount(word2 & row2[x2])
            target[x2] = (source[x2] * factor + shift) * _as_real(count, factor)


@compiled()
def _weigh_many_bits(
    block: Any, margin: int, pair: Any, has_pair: bool, masks1: Any, masks2: Any, factor: Any, shift: Any
) -> None:
    n_words, width = masks1.shape
    counts = np.empty(width, np.uint64)
    for x in range(width):
        counts[:] = 0
        for word in range(n_words):
            bits, row = masks1[word, x], masks2[word]
            for x2 in range(width):
                counts[x2] += popcount(bits & row[x2])
        target = block[margin + x, margin : margin + width]
        if has_pair:
            source = pair[x]
            for x2 in range(width):
                target[x2] = (source[x2] * factor + shift) * _as_real(counts[x2], factor)
        else:
            for x2 in range(width):
                target[x2] = shift * _as_real(counts[x2], factor)


def _as_real(count: Any, like: Any) -> Any:
    """A count in the dtype of the values: mixed with wider numbers, loops over float32 would run in float64."""


def _as_real_by_type(count: Any, like: Any) -> Any:
    return inspect.unwrap(_as_float32 if like == types.float32 else _as_float64)


def _as_float32(count: Any, like: Any) -> Any:
    return np.float32(np.int64(count))


def _as_float64(count: Any, like: Any) -> Any:
    return np.float64(np.int64(count))


def _weigh_by_type(
    block: Any, margin: Any, pair: Any, has_pair: Any, masks1: Any, masks2: Any, factor: Any, shift: Any
) -> Any:
    if masks1.dtype == types.uint64:
        return inspect.unwrap(_weigh_bits)
    return inspect.unwrap(_weigh_none if masks1.dtype == types.uint8 else _weigh_numbers)


# Unwrapped for the same reason as in `compiled`.
overload(_weigh)(inspect.unwrap(_weigh_by_type))
overload(_as_real)(inspect.unwrap(_as_real_by_type))


@compiled()
def _slide(window: Any, block: Any, n_out: int, size: int, stride: int, dilation: int) -> None:
    """Sum a block, with its margin, over the places of a window that moves x and x' together.

    With stride 1 a place is one shift of the flattened block along its diagonal; entries of ``window`` beyond
    ``n_out`` in a row are then meaningless.
    """
    side = block.shape[0]
    if stride == 1:
        flat, source = window.reshape(-1), block.reshape(-1)
        length = (n_out - 1) * side + n_out
        target = flat[:length]
        step = dilation * (side + 1)
        if size == 3:  # the common window, in one pass
            second, third = source[step : step + length], source[2 * step : 2 * step + length]
            for i in range(length):
                target[i] = source[i] + second[i] + third[i]
            return
        target[:] = source[:length]
        for place in range(1, size):
            moved = source[place * step : place * step + length]
            for i in range(length):
                target[i] += moved[i]
        return
    for x in range(n_out):
        for x2 in range(n_out):
            total = block[x * stride, x2 * stride]
            for place in range(1, size):
                total += block[x * stride + place * dilation, x2 * stride + place * dilation]
            window[x, x2] = total


@compiled()
def _store(target: Any, total: Any, add: bool) -> None:
    """Write, or add, the part of ``total`` that means something."""
    width = target.shape[0]
    for x in range(width):
        to, by = target[x], total[x, :width]
        if add:
            for x2 in range(width):
                to[x2] += by[x2]
        else:
            for x2 in range(width):
                to[x2] = by[x2]


@compiled()
def _store_three(target: Any, first: Any, second: Any, third: Any) -> None:
    """Write the sum of three windows, the common case away from the edge, in one pass."""
    width = target.shape[0]
    for x in range(width):
        to, one, two, three = target[x], first[x, :width], second[x, :width], third[x, :width]
        for x2 in range(width):
            to[x2] = one[x2] + two[x2] + three[x2]


@compiled(fastmath=True)  # the largest of many needs no order
def _largest(values: Any) -> Any:
    flat = values.reshape(-1)
    largest = abs(flat[0])
    for i in range(flat.shape[0]):
        size = abs(flat[i])
        largest = size if size > largest else largest
    return largest


@compiled()
def _collect(total: Any, window: Any, fresh: bool) -> None:
    target, source = total.reshape(-1), window.reshape(-1)
    if fresh:
        target[:] = source
    else:
        for i in range(target.shape[0]):
            target[i] += source[i]


@compiled()
def _convolve(
    out: Any, pair: Any, has_pair: bool, masks1: Any, masks2: Any, factor: Any, shift: Any, steps: Any, add: bool
) -> float:
    """One step for one pair of images: weigh, sum over the window, write; returns the size of the result.

    Pair values are read, and results written, in the order in which they lie in memory; the sums over x of the last
    few rows y, for all y', are kept in a ring, so that each is made once.
    """
    height_out, width_out = out.shape[0], out.shape[2]
    height, size, stride, dilation, before = steps[0], steps[1], steps[2], steps[3], steps[4]
    width, margin = steps[5], steps[9]
    side = max(margin + width, (width_out - 1) * steps[7] + (steps[6] - 1) * steps[8] + 1)
    ring = (size - 1) * dilation + 1
    block = np.zeros((side, side), out.dtype)  # the margin stays 0
    windows = np.empty((ring, height, side, side), out.dtype)
    total = np.empty((side, side), out.dtype)
    most, ahead = 0.0, 0  # rows before `ahead` have their windows
    for row in range(height_out):
        top = row * stride - before
        for y in range(max(ahead, top), min(height, top + ring)):
            for y2 in range(y % stride, height, stride):  # others meet in no window
                source = pair[y, y2] if has_pair else pair[0, 0]
                _weigh(block, margin, source, has_pair, masks1[y], masks2[y2], factor, shift)
                _slide(windows[y % ring, y2], block, width_out, steps[6], steps[7], steps[8])
        ahead = max(ahead, min(height, top + ring))
        for row2 in range(height_out):
            top2 = row2 * stride - before
            if size == 3 and not add and min(top, top2) >= 0 and max(top, top2) + ring <= height:
                _store_three(
                    out[row, row2], windows[top % ring, top2], windows[(top + dilation) % ring, top2 + dilation],
                    windows[(top + 2 * dilation) % ring, top2 + 2 * dilation],
                )  # fmt: skip
                continue
            fresh = True
            for place in range(size):
                y, y2 = top + place * dilation, top2 + place * dilation
                if 0 <= y < height and 0 <= y2 < height:
                    _collect(total, windows[y % ring, y2], fresh)
                    fresh = False
            if fresh:
                total[:] = 0
            _store(out[row, row2], total, add)
        most = max(most, np.float64(_largest(out[row, row])))
    # The size of equal rows stands for all: it only sets an exponent. Where they are all 0, look at the rest.
    for row in range(height_out if most == 0 else 0):
        for row2 in range(height_out):
            most = max(most, np.float64(_largest(out[row, row2])))
    return most


@compiled()
def _total_of_pair(pair: Any, has_pair: bool, masks1: Any, masks2: Any, factor: Any, shift: Any) -> float:
    """The sum over all pairs of positions, for one pair of images."""
    height, width = masks1.shape[0], masks1.shape[2]
    block, row = np.empty((width, width), pair.dtype), np.empty((width, width), pair.dtype)
    total = 0.0
    for y in range(height):
        for y2 in range(height):
            source = pair[y, y2] if has_pair else pair[0, 0]
            _weigh(block, 0, source, has_pair, masks1[y], masks2[y2], factor, shift)
            _collect(row, block, y2 == 0)
        for value in row.flat:
            total += np.float64(value)
    return total


@compiled(parallel=True, cache=True)
def window_sums(
    out: Any, pair: Any, has_pair: bool, masks1: Any, masks2: Any, factor: Any, shift: Any, steps: Any, largest: Any,
    add: bool, skip: int,
) -> None:  # fmt: skip
    """The step of a convolution: weigh pair values by overlaps and sum over the window.

    ``out`` is (order, batch1, batch2, y, y', x, x'), ``pair`` alike, the masks of both batches (batch, y, word or
    channel, x), ``factor`` (batch1, batch2), ``shift`` (order, batch1, batch2), ``steps`` (positions, size, stride,
    dilation, before for y, and the same for x); ``largest`` (order, batch1, batch2) gets the size of the values;
    ``add`` to what ``out`` holds, or instead of it; pairs with row > column + ``skip`` are left alone.
    """
    orders, n1, n2 = out.shape[:3]
    for job in prange(orders * n1 * n2):
        order, a, b = job // (n1 * n2), (job // n2) % n1, job % n2
        if a > b + skip:
            continue
        source = pair[order, a, b] if has_pair else pair[0, 0, 0]
        largest[order, a, b] = _convolve(
            out[order, a, b], source, has_pair, masks1[a], masks2[b], factor[a, b], shift[order, a, b], steps, add
        )


@compiled(parallel=True, cache=True)
def total_sums(
    out: Any, pair: Any, has_pair: bool, masks1: Any, masks2: Any, factor: Any, shift: Any, skip: int
) -> None:
    """Global pooling: the sum over all pairs of positions of pair values times overlaps; arguments as above."""
    orders, n1, n2 = out.shape
    for job in prange(orders * n1 * n2):
        order, a, b = job // (n1 * n2), (job // n2) % n1, job % n2
        if a > b + skip:
            continue
        source = pair[order, a, b] if has_pair else pair[0, 0, 0]
        out[order, a, b] += _total_of_pair(source, has_pair, masks1[a], masks2[b], factor[a, b], shift[order, a, b])


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
def _sum_of_equal_positions(pair: Any, masks1: Any, masks2: Any, factor: float, shift: float) -> float:
    """The sum over positions, each with itself, as a dense layer on flattened images needs it."""
    height, n_words, width = masks1.shape
    total = 0.0
    for y in range(height):
        for x in range(width):
            count = np.int64(0)
            for word in range(n_words):
                count += np.int64(popcount(masks1[y, word, x] & masks2[y, word, x]))
            total += (pair[y, y, x, x] * factor + shift) * count
    return total


@compiled(parallel=True, cache=True)
def image_chains(
    out: Any, exponents: Any, pairs: Any, images1: Any, images2: Any, gates1: Any, gates2: Any, layers: Any,
    gains: Any, biases: Any, buffers: Any, pooled: bool,
) -> None:  # fmt: skip
    """A chain of convolutions, from images to the sum that the first dense layer reads, pair by pair.

    ``out`` and ``exponents`` are (batch1, batch2); ``pairs`` has row and column of each pair that is wanted, so that
    threads get equal shares; images are (batch, y, channel, x); the packed gates of all layers (batch, words);
    ``layers`` has a row for each convolution: the ten steps of ``window_sums``, then rows and columns of its output,
    where its gates start, and how many words they have; ``gains`` and ``biases`` are the variance of each layer's
    weights and of its bias (0: none); ``buffers`` (thread, 2, pair values); ``pooled`` tells whether all positions
    are summed, or each with itself.
    """
    for job in prange(pairs.shape[0]):
        a, b = pairs[job, 0], pairs[job, 1]
        here, there = buffers[get_thread_id(), 0], buffers[get_thread_id(), 1]
        rows, columns = layers[0, 10], layers[0, 11]
        values = here[: rows * rows * columns * columns].reshape(rows, rows, columns, columns)
        weights = np.empty(2, buffers.dtype)  # factor and shift in the dtype of the values, which keeps loops narrow
        weights[0], weights[1] = 0, 1
        most = _convolve(values, values, False, images1[a], images2[b], weights[0], weights[1], layers[0], False)
        exponent = 0
        for layer in range(1, layers.shape[0]):
            exponent, factor, shift = _scale(most, exponent, gains[layer - 1], biases[layer - 1])
            start, n_words = layers[layer - 1, 12], layers[layer - 1, 13]
            stop = start + rows * n_words * columns
            masks1 = gates1[a, start:stop].reshape(rows, n_words, columns)
            masks2 = gates2[b, start:stop].reshape(rows, n_words, columns)
            rows, columns = layers[layer, 10], layers[layer, 11]
            result = there[: rows * rows * columns * columns].reshape(rows, rows, columns, columns)
            weights[0], weights[1] = factor, shift
            most = _convolve(result, values, True, masks1, masks2, weights[0], weights[1], layers[layer], False)
            values = result
            here, there = there, here
        last = layers.shape[0] - 1
        exponent, factor, shift = _scale(most, exponent, gains[last], biases[last])
        start, n_words = layers[last, 12], layers[last, 13]
        stop = start + rows * n_words * columns
        masks1 = gates1[a, start:stop].reshape(rows, n_words, columns)
        masks2 = gates2[b, start:stop].reshape(rows, n_words, columns)
        if pooled:
            weights[0], weights[1] = factor, shift
            out[a, b] = _total_of_pair(values, True, masks1, masks2, weights[0], weights[1])
        else:
            out[a, b] = _sum_of_equal_positions(values, masks1, masks2, factor, shift)
        exponents[a, b] = exponent
