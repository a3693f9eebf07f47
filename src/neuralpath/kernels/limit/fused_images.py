r"""Infinite-width kernels of chains of convolutions with ReLUs over pairs of images (CNTK), fused.

The recursion of `fused_dense.py` on all pairs of positions: :math:`\Sigma[i, i']` and :math:`\tilde K[i, i']`. A
convolution averages over its window, applied to both positions together; padding counts as 0, or wraps around. Average
pooling averages over window times window. At the end, global average pooling takes the mean over all i, i', flattening
the mean over i = i', and dense layers follow.

One pair of images after the other goes through all layers (`_loops/limit_loops.py`). The loops read, for each image:

    images    (batch, channel, w + h*w + w)     one margin row of zeros before and after the pixels, so that the image
                                                 shifted by dx is a slice
    profiles  (batch, 2, layer after layer)      for each layer and position the standard deviation and its inverse:
              | w | h*w of layer 1 | w | w | h'*w' of layer 2 | w | ...

A position whose variance is 0 has an angle of pi / 2 with every other. In single precision, angles below about 1e-3
are rounding error; the angle of a position with itself is exact. Flattened chains, which need few pairs, are computed
in double precision always.
"""

import queue
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from neuralpath._loops import in_threads, limit_loops as loops, n_threads
from neuralpath.kernels.limit.fused_dense import Combination, LimitKernels, apply_dense_steps, spreads
from neuralpath.kernels.limit.fused_program import (
    ConvolutionStep,
    Displacements,
    LimitChain,
    Segment,
    Size,
    needed_displacements,
    program_of,
    segments_of,
)
from neuralpath.kernels.tiling import Tile


class _Arrays(NamedTuple):
    """What the loops read of a batch; drawn above."""

    images: np.ndarray
    profiles: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class PreparedImages:
    """Images with the variances of all their positions in all layers, which every pair needs; computed once."""

    chain: LimitChain
    segments: tuple[Segment, ...]
    dtype: torch.dtype  # of the results
    arrays: _Arrays
    own: Float[Tensor, "2 batch"]  # A and C of each image with itself, before the dense layers

    def __len__(self) -> int:
        return len(self.arrays.images)

    def __getitem__(self, rows: slice) -> "PreparedImages":
        """A slice of the images."""
        images, profiles = self.arrays
        return replace(self, arrays=_Arrays(images[rows], profiles[rows]), own=self.own[:, rows])


def prepare_images(chain: LimitChain, x: Float[Tensor, "_batch _channel _height _width"]) -> PreparedImages:
    """Compute the variances of each position, layer by layer; after a pool they need pairs of nearby positions."""
    segments = segments_of(chain, (x.shape[2], x.shape[3]))
    dtype = x.dtype if chain.pooled else torch.float64
    images = _with_margin(x.detach().to(dtype))
    parts = [images.new_zeros((len(x), 2, 0))]
    variance = x.detach().double().square().sum(1)
    for index, segment in enumerate(segments):
        if index > 0:
            variance = _read_variances(segments[: index + 1], _Arrays(images.numpy(), torch.cat(parts, 2).numpy()))
        for step in segment.activated:
            variance = variance if step is segment.source else _window_sums(step, variance)
            variance = step.weight_variance / (step.window[0] * step.window[1]) * variance + step.bias_variance
            parts.append(_with_margin(spreads(variance).transpose(0, 1).to(dtype)))
            variance = (1 + step.slope**2) / 2 * variance
    arrays = _Arrays(images.numpy(), torch.cat(parts, 2).numpy())
    prepared = PreparedImages(chain, segments, x.dtype, arrays, torch.zeros(2, len(x), dtype=torch.float64))
    if len(chain.dense) == 1:  # a single dense layer has no angles
        return prepared
    own = _moments(prepared, prepared, _each_with_itself(len(x)), one_batch=True)
    return replace(prepared, own=torch.from_numpy(own.T))


def fused_image_kernels(rows: PreparedImages, columns: PreparedImages | None = None) -> LimitKernels:
    """Output and tangent kernel of a chain for two batches of prepared images, or for one with itself.

    Cost: for each pair of images one activation for each layer and pair of positions, of about 2 ns (single precision)
    or 4 ns (double) on one core with wide vectors; ``workspace_bytes`` of memory for each thread.
    """
    symmetric = columns is None
    others = rows if columns is None else columns
    n1, n2 = len(rows), len(others)
    upper = np.triu(np.ones((n1, n2), bool)) if symmetric else np.ones((n1, n2), bool)
    # Column by column, so that neighbors in the list share an image.
    pairs = np.argwhere(upper.T)[:, ::-1].astype(np.int64)
    moments = _moments(rows, others, np.ascontiguousarray(pairs), one_batch=symmetric)
    matrices = np.empty((2, n1, n2))
    matrices[:, pairs[:, 0], pairs[:, 1]] = moments.T
    if symmetric:
        matrices[:, pairs[:, 1], pairs[:, 0]] = moments.T
    covariance, tangent = torch.from_numpy(matrices)
    if symmetric:
        own = torch.from_numpy(matrices.diagonal(axis1=1, axis2=2).copy())
        kernels = apply_dense_steps(rows.chain.dense, covariance, tangent, own[0], tangent_diagonal=own[1])
    else:
        kernels = apply_dense_steps(rows.chain.dense, covariance, tangent, rows.own[0], others.own[0])
    return LimitKernels(kernels.output.to(rows.dtype), kernels.tangent.to(rows.dtype))


@dataclass(frozen=True, slots=True, eq=False)
class ImageTiles:
    """The kernel of a chain of convolutions, tile by tile."""

    chain: LimitChain
    combination: Combination
    x1: Tensor
    x2: Tensor | None
    rows: PreparedImages | None = None  # all examples, prepared once where they fit into memory
    columns: PreparedImages | None = None

    def prepared(self) -> "ImageTiles":
        """The same tiles with the variances of all examples computed once."""
        rows = prepare_images(self.chain, self.x1)
        columns = rows if self.x2 is None else prepare_images(self.chain, self.x2)
        return replace(self, rows=rows, columns=columns)

    def tile(self, tile: Tile) -> Float[Tensor, "rows columns"]:
        """One tile; of one batch with itself, symmetric on the diagonal."""
        rows = prepare_images(self.chain, self.x1[tile.rows]) if self.rows is None else self.rows[tile.rows]
        if self.x2 is None and tile.rows == tile.columns:
            return self.combination.of(fused_image_kernels(rows))
        x2 = self.x1 if self.x2 is None else self.x2
        columns = prepare_images(self.chain, x2[tile.columns]) if self.columns is None else self.columns[tile.columns]
        return self.combination.of(fused_image_kernels(rows, columns))


def image_bytes(chain: LimitChain, shape: tuple[int, int, int]) -> int:
    """Memory of a prepared image, at most: itself, two numbers for each position of each layer, and the margins."""
    channels, height, width = shape
    numbers = channels * (height + 2) * width
    for segment in segments_of(chain, (height, width)):
        numbers += 2 * (segment.positions + 2 * segment.size[1]) * len(segment.activated)
    return 8 * numbers


def workspace_bytes(chain: LimitChain, shape: tuple[int, int, int], dtype: torch.dtype) -> int:
    """Memory of one thread for images of a shape (channels, height, width), independent of their number."""
    segments = segments_of(chain, (shape[1], shape[2]))
    shapes = _workspace(segments, needed_displacements(segments, chain.pooled), shape[0])
    return sum(a * b for a, b in shapes) * (dtype if chain.pooled else torch.float64).itemsize


def _workspace(
    segments: Sequence[Segment], needed: Sequence[Displacements], n_channels: int
) -> tuple[Size, Size, Size]:
    """Shapes of the buffers of one thread: see ``loops.Memory``."""
    most = max(s.positions for s in segments)
    stored = [2 * len(ys) * len(xs) * s.positions for s, (ys, xs) in zip(segments[:-1], needed[:-1], strict=True)]
    rows = max((n_channels if s.source is None else 0) + 2 * len(s.activated) for s in segments)
    return (3, most + 2 * _margin(segments)), (rows, 2 * most), (2, max(stored, default=0))


def _margin(segments: Sequence[Segment]) -> int:
    """Entries beside the values of an image that the sums along x may read."""
    return max(s.size[1] + max((step.window[1] for step in s.layers), default=0) for s in segments)


def _moments(rows: PreparedImages, columns: PreparedImages, pairs: np.ndarray, *, one_batch: bool) -> np.ndarray:
    """A and C before the dense layers, for a list of pairs."""
    end = loops.SUM if rows.chain.pooled else loops.DIAGONAL
    needed = needed_displacements(rows.segments, rows.chain.pooled)
    results = np.zeros((len(pairs), 2))
    _run(results, pairs, rows.arrays, columns.arrays, rows.segments, needed, one_batch, end)
    return results


def _run(
    results: np.ndarray,
    pairs: np.ndarray,
    rows: _Arrays,
    columns: _Arrays,
    segments: Sequence[Segment],
    needed: Sequence[Displacements],
    one_batch: bool,
    end: int,
) -> None:
    """Divide pairs among threads; each has its own memory."""
    images = rows.images
    program = program_of(segments, needed, torch.from_numpy(images).dtype)
    shapes, margin = _workspace(segments, needed, images.shape[1]), _margin(segments)
    free: queue.SimpleQueue[loops.Memory] = queue.SimpleQueue()
    for _ in range(n_threads()):
        free.put(loops.Memory(*(np.zeros(shape, images.dtype) for shape in shapes)))

    def run(share: slice) -> None:
        memory = free.get()
        try:
            sides = images, columns.images, rows.profiles, columns.profiles
            loops.run_pairs(results[share], pairs[share], *sides, program, memory, margin, one_batch, end)
        finally:
            free.put(memory)

    in_threads(run, len(pairs))


def _read_variances(segments: Sequence[Segment], arrays: _Arrays) -> Float[Tensor, "_batch _height _width"]:
    """The values that the last segment reads, for each position with itself, from the profiles of earlier layers."""
    last = Segment(segments[-1].source, segments[-1].source_size, segments[-1].size)
    segments = (*segments[:-1], last)
    batch = len(arrays.images)
    results = np.zeros((batch, last.positions))
    needed = needed_displacements(segments, False)
    _run(results, _each_with_itself(batch), arrays, arrays, segments, needed, True, loops.READ)
    return torch.from_numpy(results).reshape(batch, *last.size)


def _each_with_itself(batch: int) -> np.ndarray:
    """The pairs of equal indices."""
    return np.repeat(np.arange(batch, dtype=np.int64)[:, None], 2, axis=1)


def _window_sums(step: ConvolutionStep, values: Float[Tensor, "batch h w"]) -> Float[Tensor, "batch h w"]:
    """Sums over the window of a convolution that keeps the size, position by position."""
    sides = ((0, 0), *zip(step.before, step.after, strict=True))
    padded = np.pad(values.numpy(), sides, mode="wrap" if step.circular else "constant")
    (height, width), total = values.shape[1:], np.zeros(values.shape)
    for y, x in np.ndindex(step.window):
        total += padded[:, y : y + height, x : x + width]
    return torch.from_numpy(total)


def _with_margin(images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch channel _padded"]:
    """Flat images with a row of zeros before and after."""
    return functional.pad(images.flatten(2), (images.shape[3], images.shape[3])).contiguous()
