"""A chain of convolutions with hard gates, for one pair of images after the other, all layers in one go.

The pair values of a layer are then still in the cache when the next layer reads them, and no more than two layers of
one pair for each thread are ever held.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import get_thread_id, prange  # type: ignore[attr-defined]

from neuralpath.bits.compiled import compiled
from neuralpath.bits.popcount import popcount
from neuralpath.bits.positions import Real, Weighing, convolve_pair, total_of_pair


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


@cache
def image_chain_kernel(real: Real) -> Callable[..., None]:
    """The kernel of a chain of convolutions, from images to the sum that the first dense layer reads.

    Its arguments: ``out`` and ``exponents`` (batch1, batch2); ``pairs`` (row and column of each pair that is wanted, so
    that threads get equal shares); images (batch, y, channel, x); the packed gates of all layers (batch, words);
    ``layers`` with a row for each convolution: the ten steps of ``window_sums``, then rows and columns of its output,
    where its gates start, and how many words they have; ``gains`` and ``biases``, the variance of each layer's weights
    and of its bias (0: none); ``buffers`` (thread, 2, pair values); whether positions are ``pooled``, or summed each
    with itself.
    """
    first = convolve_pair(Weighing("floats", 0, has_pair=False), real)
    following = convolve_pair(Weighing("bits", 0), real)
    total_of = total_of_pair(Weighing("bits", 0), real)

    @compiled(parallel=True)
    def kernel(
        out: Any, exponents: Any, pairs: Any, images1: Any, images2: Any, gates1: Any, gates2: Any, layers: Any,
        gains: Any, biases: Any, buffers: Any, pooled: bool,
    ) -> None:  # fmt: skip
        for job in prange(pairs.shape[0]):
            a, b = pairs[job, 0], pairs[job, 1]
            here, there = buffers[get_thread_id(), 0], buffers[get_thread_id(), 1]
            rows, columns = layers[0, 10], layers[0, 11]
            values = here[: rows * rows * columns * columns].reshape(rows, rows, columns, columns)
            most = first(values, values, images1[a], images2[b], real(0), real(1), layers[0], False)
            exponent = 0
            for layer in range(1, layers.shape[0]):
                exponent, factor, shift = _scale(most, exponent, gains[layer - 1], biases[layer - 1])
                start, n_words = layers[layer - 1, 12], layers[layer - 1, 13]
                stop = start + rows * n_words * columns
                masks1 = gates1[a, start:stop].reshape(rows, n_words, columns)
                masks2 = gates2[b, start:stop].reshape(rows, n_words, columns)
                rows, columns = layers[layer, 10], layers[layer, 11]
                result = there[: rows * rows * columns * columns].reshape(rows, rows, columns, columns)
                most = following(result, values, masks1, masks2, real(factor), real(shift), layers[layer], False)
                values = result
                here, there = there, here
            last = layers.shape[0] - 1
            exponent, factor, shift = _scale(most, exponent, gains[last], biases[last])
            start, n_words = layers[last, 12], layers[last, 13]
            stop = start + rows * n_words * columns
            masks1 = gates1[a, start:stop].reshape(rows, n_words, columns)
            masks2 = gates2[b, start:stop].reshape(rows, n_words, columns)
            if pooled:
                out[a, b] = total_of(values, masks1, masks2, real(factor), real(shift))
            else:
                out[a, b] = _sum_of_equal_positions(values, masks1, masks2, factor, shift)
            exponents[a, b] = exponent

    return kernel
