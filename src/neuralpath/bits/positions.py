"""Overlaps of packed gates between positions of two images, and the window sums of a convolution.

Pair matrices have their axes interleaved, (y, y', x, x'), so that all x, x' of two rows are one run of memory. One
pair of images is one task of one thread, and needs no memory beyond a few rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numba import prange
from torch import Tensor

from neuralpath.bits.compiled import compiled
from neuralpath.bits.packed import Words, pack
from neuralpath.bits.popcount import popcount

Real = Any  # numpy's float32 or float64, called to convert inside compiled code


def pack_positions(gates: Bool[Tensor, "batch channel position"], height: int) -> Words:
    """Gates with the channels packed, in the layout (batch, y, word, x)."""
    words = pack(gates.transpose(1, 2).contiguous())
    batch, n_positions, n_words = words.shape
    return np.ascontiguousarray(words.reshape(batch, height, n_positions // height, n_words).swapaxes(2, 3))


def arrange_positions(masks: Float[Tensor, "batch channel position"], height: int) -> np.ndarray:
    """Masks that are no bits, in the layout (batch, y, channel, x)."""
    batch, channels, n_positions = masks.shape
    return masks.reshape(batch, channels, height, n_positions // height).transpose(1, 2).contiguous().numpy()


@dataclass(frozen=True, slots=True)
class Weighing:
    """How the channels of a term are summed; each combination is compiled once.

    ``masks`` says what the masks are: "bits" packed into ``n_words`` words (0: as many as there are), "floats", or
    "none" where the pair values are summed already. Without ``has_pair`` the pair values are one number, the shift.
    """

    masks: str
    n_words: int = 0
    has_pair: bool = True


@cache
def _weigh(how: Weighing, real: Real) -> Callable[..., None]:
    """``(pair * factor + shift) * sum over channels of mask * mask'`` for all x, x' of two rows.

    The block is written with a margin: ``block[margin + x, margin + x']``.
    """
    n_words, has_pair = how.n_words, how.has_pair
    if how.masks == "none":

        @compiled()
        def copy(block: Any, margin: int, pair: Any, masks1: Any, masks2: Any, factor: Any, shift: Any) -> None:
            width = pair.shape[0]
            for x in range(width):
                target, source = block[margin + x, margin : margin + width], pair[x]
                for x2 in range(width):
                    target[x2] = source[x2] * factor

        return copy
    if how.masks == "floats":

        @compiled()
        def weigh(block: Any, margin: int, pair: Any, masks1: Any, masks2: Any, factor: Any, shift: Any) -> None:
            n_channels, width = masks1.shape
            lone = real(1) if has_pair else shift  # without pair values the shift is a factor of one mask
            for x in range(width):
                target = block[margin + x, margin : margin + width]
                for channel in range(n_channels):
                    mask, row = masks1[channel, x] * lone, masks2[channel]
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

        return weigh

    if n_words == 0:
        return _weigh_any_words(real)

    @compiled()
    def count(block: Any, margin: int, pair: Any, masks1: Any, masks2: Any, factor: Any, shift: Any) -> None:
        width = masks1.shape[1]
        for x in range(width):
            target, words = block[margin + x, margin : margin + width], masks1[:, x]
            if has_pair:
                source = pair[x]
                for x2 in range(width):
                    total = np.uint64(0)
                    for word in range(n_words):
                        total += popcount(words[word] & masks2[word, x2])
                    target[x2] = (source[x2] * factor + shift) * real(np.int64(total))
            else:
                for x2 in range(width):
                    total = np.uint64(0)
                    for word in range(n_words):
                        total += popcount(words[word] & masks2[word, x2])
                    target[x2] = shift * real(np.int64(total))

    return count


def _weigh_any_words(real: Real) -> Callable[..., None]:
    """As ``_weigh`` for bits, with the number of words known only when it runs; one and two have loops of their own."""
    one, two = _weigh(Weighing("bits", 1), real), _weigh(Weighing("bits", 2), real)

    @compiled()
    def count(block: Any, margin: int, pair: Any, masks1: Any, masks2: Any, factor: Any, shift: Any) -> None:
        n_words, width = masks1.shape
        if n_words == 1:
            one(block, margin, pair, masks1, masks2, factor, shift)
            return
        if n_words == 2:
            two(block, margin, pair, masks1, masks2, factor, shift)
            return
        counts = np.empty(width, np.uint64)
        for x in range(width):
            counts[:] = 0
            for word in range(n_words):
                bits, row = masks1[word, x], masks2[word]
                for x2 in range(width):
                    counts[x2] += popcount(bits & row[x2])
            target, source = block[margin + x, margin : margin + width], pair[x]
            for x2 in range(width):
                target[x2] = (source[x2] * factor + shift) * real(np.int64(counts[x2]))

    return count


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
def _largest(values: Any, so_far: Any) -> Any:
    flat = values.reshape(-1)
    for i in range(flat.shape[0]):
        size = abs(flat[i])
        so_far = size if size > so_far else so_far
    return so_far


@cache
def window_sums(how: Weighing, real: Real) -> Callable[..., None]:
    """The kernel of a convolution: weigh pair values by overlaps and sum over the window.

    Its arguments: ``out`` (order, batch1, batch2, y, y', x, x'), ``pair`` alike, the masks of both batches (batch, y,
    word or channel, x), ``factor`` (batch1, batch2), ``shift`` (order, batch1, batch2), ``steps`` (positions, size,
    stride, dilation, before for y, and the same for x), ``largest`` (order, batch1, batch2) for the size of the
    values, ``add`` (to what ``out`` holds, or instead of it), ``skip``: pairs with row > column + skip are left alone.
    """
    convolve, has_pair = convolve_pair(how, real), how.has_pair

    @compiled(parallel=True)
    def kernel(
        out: Any, pair: Any, masks1: Any, masks2: Any, factor: Any, shift: Any, steps: Any, largest: Any, add: bool,
        skip: int,
    ) -> None:  # fmt: skip
        orders, n1, n2 = out.shape[:3]
        for job in prange(orders * n1 * n2):
            order, a, b = job // (n1 * n2), (job // n2) % n1, job % n2
            if a > b + skip:
                continue
            source = pair[order, a, b] if has_pair else pair[0, 0, 0]
            largest[order, a, b] = convolve(
                out[order, a, b], source, masks1[a], masks2[b], factor[a, b], shift[order, a, b], steps, add
            )

    return kernel


@cache
def convolve_pair(how: Weighing, real: Real) -> Callable[..., Any]:
    """One step for one pair of images: weigh, sum over the window, write; returns the size of the result.

    Pair values are read, and results written, in the order in which they lie in memory; the sums over x of the last
    few rows y, for all y', are kept in a ring, so that each is made once.
    """
    weigh, has_pair = _weigh(how, real), how.has_pair

    @compiled()
    def convolve(out: Any, pair: Any, masks1: Any, masks2: Any, factor: Any, shift: Any, steps: Any, add: bool) -> Any:
        height_out, width_out = out.shape[0], out.shape[2]
        height, size, stride, dilation, before = steps[0], steps[1], steps[2], steps[3], steps[4]
        width, margin = steps[5], steps[9]
        side = max(margin + width, (width_out - 1) * steps[7] + (steps[6] - 1) * steps[8] + 1)
        ring = (size - 1) * dilation + 1
        block = np.zeros((side, side), real)  # the margin stays 0
        windows = np.empty((ring, height, side, side), real)
        total = np.empty((side, side), real)
        most, ahead = real(0), 0  # rows before `ahead` have their windows
        for row in range(height_out):
            top = row * stride - before
            for y in range(max(ahead, top), min(height, top + ring)):
                for y2 in range(y % stride, height, stride):  # others meet in no window
                    source = pair[y, y2] if has_pair else pair[0, 0]
                    weigh(block, margin, source, masks1[y], masks2[y2], factor, shift)
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
            most = _largest(out[row, row], most)
        # The size of equal rows stands for all: it only sets an exponent. Where they are all 0, look at the rest.
        for row in range(height_out if most == 0 else 0):
            for row2 in range(height_out):
                most = _largest(out[row, row2], most)
        return most

    return convolve


@compiled()
def _collect(total: Any, window: Any, fresh: bool) -> None:
    target, source = total.reshape(-1), window.reshape(-1)
    if fresh:
        target[:] = source
    else:
        for i in range(target.shape[0]):
            target[i] += source[i]


@cache
def total_sums(how: Weighing, real: Real) -> Callable[..., None]:
    """The kernel of global pooling: the sum over all pairs of positions of pair values times overlaps."""
    total_of, has_pair = total_of_pair(how, real), how.has_pair

    @compiled(parallel=True)
    def kernel(out: Any, pair: Any, masks1: Any, masks2: Any, factor: Any, shift: Any, skip: int) -> None:
        orders, n1, n2 = out.shape
        for job in prange(orders * n1 * n2):
            order, a, b = job // (n1 * n2), (job // n2) % n1, job % n2
            if a > b + skip:
                continue
            source = pair[order, a, b] if has_pair else pair[0, 0, 0]
            out[order, a, b] += real(total_of(source, masks1[a], masks2[b], factor[a, b], shift[order, a, b]))

    return kernel


@cache
def total_of_pair(how: Weighing, real: Real) -> Callable[..., Any]:
    """The sum over all pairs of positions, for one pair of images."""
    weigh, has_pair = _weigh(how, real), how.has_pair

    @compiled()
    def total_of(pair: Any, masks1: Any, masks2: Any, factor: Any, shift: Any) -> float:
        height, width = masks1.shape[0], masks1.shape[2]
        block, row = np.empty((width, width), real), np.empty((width, width), real)
        total = 0.0
        for y in range(height):
            for y2 in range(height):
                source = pair[y, y2] if has_pair else pair[0, 0]
                weigh(block, 0, source, masks1[y], masks2[y2], factor, shift)
                _collect(row, block, y2 == 0)
            for value in row.flat:
                total += np.float64(value)
        return total

    return total_of


def real_of(dtype: torch.dtype) -> Real:
    """The numpy type of a floating-point dtype that the kernels are compiled for."""
    return np.float32 if dtype == torch.float32 else np.float64
