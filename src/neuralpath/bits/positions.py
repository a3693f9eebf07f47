"""Overlaps of packed gates between positions of two images, and the window sums of a convolution.

Pair matrices have their axes interleaved, (y, y', x, x'), so that all x, x' of two rows are one run of memory: a
convolution's window moves both rows together, along the diagonals of (y, y'). One pair of images is one task of one
thread, and needs no memory beyond a block of two rows.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
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


@cache
def _weigh(n_words: int, real: Real) -> Callable[..., None]:
    """``(pair * factor + shift) * overlap`` for all x, x' of two rows; without words, ``pair * factor``."""
    if n_words == 0:

        @compiled()
        def copy(block: Any, pair: Any, bits1: Any, bits2: Any, factor: Any, shift: Any) -> None:
            for x in range(block.shape[0]):
                target, source = block[x], pair[x]
                for x2 in range(target.shape[0]):
                    target[x2] = source[x2] * factor

        return copy

    @compiled()
    def weigh(block: Any, pair: Any, bits1: Any, bits2: Any, factor: Any, shift: Any) -> None:
        for x in range(block.shape[0]):
            target, source, row = block[x], pair[x], bits1[:, x]
            for x2 in range(target.shape[0]):
                count = np.uint64(0)
                for word in range(n_words):
                    count += popcount(row[word] & bits2[word, x2])
                target[x2] = (source[x2] * factor + shift) * real(np.int64(count))

    return weigh


@compiled()
def _slide(window: Any, block: Any, size: int, stride: int, dilation: int, before: int) -> None:
    """Sum a block over the places of a window that moves x and x' together; beyond the edge is nothing."""
    n_in, n_out = block.shape[0], window.shape[0]
    window[:] = 0
    for place in range(size):
        offset = place * dilation - before
        low, high = 0, n_out
        while low < high and low * stride + offset < 0:
            low += 1
        while high > low and (high - 1) * stride + offset >= n_in:
            high -= 1
        for x in range(low, high):
            source, target = block[x * stride + offset], window[x]
            if stride == 1:
                shifted = source[low + offset : high + offset]
                inner = target[low:high]
                for x2 in range(inner.shape[0]):
                    inner[x2] += shifted[x2]
            else:
                for x2 in range(low, high):
                    target[x2] += source[x2 * stride + offset]


@compiled(fastmath=True)  # the largest of many needs no order
def _accumulate(target: Any, window: Any, largest: Any) -> Any:
    for x in range(target.shape[0]):
        to, by = target[x], window[x]
        for x2 in range(to.shape[0]):
            value = to[x2] + by[x2]
            to[x2] = value
            largest = max(largest, abs(value))
    return largest


@cache
def window_sums(n_words: int, real: Real) -> Callable[..., None]:
    """The kernel of a convolution: weigh pair values by overlaps, sum over the window, add to ``out``.

    Its arguments: ``out`` (order, batch1, batch2, y, y', x, x'), ``pair`` alike, the packed gates of both batches,
    ``factor`` (batch1, batch2), ``shift`` (order, batch1, batch2), ``steps`` (size, stride, dilation, before for y, and
    the same for x), ``largest`` (order, batch1, batch2) for the largest absolute value, and ``skip``: pairs with
    row > column + skip are left alone.
    """
    weigh = _weigh(n_words, real)

    @compiled(parallel=True)
    def kernel(
        out: Any, pair: Any, bits1: Any, bits2: Any, factor: Any, shift: Any, steps: Any, largest: Any, skip: int
    ) -> None:
        orders, n1, n2, height_out, _, width_out, _ = out.shape
        height, width = pair.shape[3], pair.shape[5]
        size, stride, dilation, before = steps[0], steps[1], steps[2], steps[3]
        for job in prange(orders * n1 * n2):
            order, a, b = job // (n1 * n2), (job // n2) % n1, job % n2
            if a > b + skip:
                continue
            block = np.empty((width, width), real)
            window = np.empty((width_out, width_out), real)
            most = largest[order, a, b]
            for diagonal in range(1 - height_out, height_out):
                for y in range(max(0, stride * diagonal), min(height, height + stride * diagonal)):
                    y2 = y - stride * diagonal
                    fresh = True
                    for place in range(size):
                        at = y + before - place * dilation
                        if at < 0 or at % stride != 0:
                            continue
                        row = at // stride
                        row2 = row - diagonal
                        if row >= height_out or row2 < 0 or row2 >= height_out:
                            continue
                        if fresh:
                            weigh(
                                block,
                                pair[order, a, b, y, y2],
                                bits1[a, y],
                                bits2[b, y2],
                                factor[a, b],
                                shift[order, a, b],
                            )
                            _slide(window, block, steps[4], steps[5], steps[6], steps[7])
                            fresh = False
                        most = _accumulate(out[order, a, b, row, row2], window, most)
            largest[order, a, b] = most

    return kernel


@cache
def total_sums(n_words: int, real: Real) -> Callable[..., None]:
    """The kernel of global pooling: the sum over all pairs of positions of pair values times overlaps."""
    weigh = _weigh(n_words, real)

    @compiled(parallel=True)
    def kernel(out: Any, pair: Any, bits1: Any, bits2: Any, factor: Any, shift: Any, skip: int) -> None:
        orders, n1, n2 = out.shape
        height, width = pair.shape[3], pair.shape[5]
        for job in prange(orders * n1 * n2):
            order, a, b = job // (n1 * n2), (job // n2) % n1, job % n2
            if a > b + skip:
                continue
            block = np.empty((width, width), real)
            total = 0.0
            for y in range(height):
                for y2 in range(height):
                    weigh(block, pair[order, a, b, y, y2], bits1[a, y], bits2[b, y2], factor[a, b], shift[order, a, b])
                    total += block.sum()
            out[order, a, b] += real(total)

    return kernel


def real_of(dtype: torch.dtype) -> Real:
    """The numpy type of a floating-point dtype that the kernels are compiled for."""
    return np.float32 if dtype == torch.float32 else np.float64
