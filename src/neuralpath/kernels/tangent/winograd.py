r"""3 x 3 convolutions with a quarter of the multiplications (Winograd's minimal filtering, F(4 x 4, 3 x 3)).

Four neighboring results :math:`y_i = \sum_k w_k x_{i+k}` are coefficients of a product of polynomials, which is known
from its values at six points: with :math:`V = B^T x`, :math:`U = G w`,

.. math:: y = A^T (U \odot V), \qquad \partial w = G^T (A \delta \odot V)

The columns of :math:`A^T` are the powers of a point p, the rows of :math:`G` are :math:`(1, p, p^2)` over
:math:`\prod_q (p - q)`, and those of :math:`B^T` the coefficients of :math:`\prod_q (x - q)`, both over the other
points. In two dimensions each matrix acts along both axes: 36 multiplications in place of 144 for a tile of 4 x 4
results. Between channels, each of the 36 points is one matrix product.

The points are 0, 5/8, -5/8, 3/2, -3/2 and infinity: among simple numbers they round least. In single precision the
results of 64 channels err by 8e-7 of their size (root mean squares), where the usual points 0, 1, -1, 2, -2 err by
1.6e-6 and tiles of 2 x 2 by 2e-7. All entries of :math:`A` and :math:`B` are exact in binary.

Reference: A. Lavin, S. Gray, Fast algorithms for convolutional neural networks, arXiv:1509.09308.

Memory: the points of a block of examples are one array, and a product over channels finds each point in one piece::

    image (batch, channel, y, x)            points (36, image and tile, channel)

    +----+----+---                          point 0:   image 0: tile 0 | tile 1 | ... | image 1: tile 0 | ...
    |tile|tile|     4 x 4 results each,     point 1:   ...             each tile is a row of d_in numbers
    +----+----+---  reads 6 x 6 signals     ...
    |tile|tile|     (they overlap by 2)     point 35:  V[k] (tiles x d_in)  @  U[k] (d_in x d_out)

All 36 products are one ``torch.bmm``. The gradient by the weight sums over the tiles of one example, so its products
have an example as a further axis of the batch, and the points of both factors stay as they are::

    convolution         (36, image and tile, d_in)   @   (36, d_in, d_out)            ->  (36, image and tile, d_out)
    weight gradient     (36 * image, tile, d_out)^T  @   (36 * image, tile, d_in)     ->  (36 * image, d_out, d_in)

Blocks of examples are small enough that the points stay in the cache between a transform and a product, and each thread
uses its buffers again for its next block.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil, prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from neuralpath._loops import POINTS, STEP, from_points, one_thread, side_by_side, to_points, to_windows, use_bits
from neuralpath.kernels.tiling import large_empty

WINDOW = 3

BLOCK_BYTES = 5 * 2**19
"""Bytes of the points that a thread works on at once: they stay in the cache between a transform and a product."""

TRANSFORM = 32
"""The transforms of one point of one channel take as long as this many multiplications between channels."""

SLOWER = 1.4
"""A multiplication in many small products takes this much longer than in torch's own convolution."""

Padding = tuple[int, ...]
Images = Float[Tensor, "batch _channels _y _x"]
Filters = Float[Tensor, "d_out d_in 3 3"]
Points = Float[Tensor, "point tile channel"]

_NODES = (0.0, 0.625, -0.625, 1.5, -1.5)


def _matrices() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B and G, each with a row for each of the six points; the last is infinity, that of the highest powers."""
    a, b, g = np.zeros((POINTS, STEP)), np.zeros((POINTS, POINTS)), np.zeros((POINTS, WINDOW))
    for k, p in enumerate(_NODES):
        others = [q for q in _NODES if q != p]
        a[k] = [p**i for i in range(STEP)]
        g[k] = [p**i / np.prod([p - q for q in others]) for i in range(WINDOW)]
        b[k, :-1] = np.poly(others)[::-1]
    a[-1, -1] = g[-1, -1] = 1
    b[-1] = np.poly(_NODES)[::-1]
    return a, b, g


_A, _B, _G = _matrices()


@cache
def _sparse_rows(name: str, dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
    """A matrix for the compiled loops: (count, columns of the nonzero entries ...) for each row, and these entries."""
    matrix = {"A": _A, "A.T": _A.T, "B": _B, "G.T": _G.T}[name]
    terms = np.zeros((len(matrix), 6), np.int64)
    factors = np.zeros((len(matrix), 5), torch.empty(0, dtype=dtype).numpy().dtype)
    for k, row in enumerate(matrix):
        (columns,) = row.nonzero()
        terms[k, : 1 + len(columns)] = len(columns), *columns
        factors[k, : len(columns)] = row[columns]
    return terms, factors


@dataclass(frozen=True, slots=True)
class _TileGrid:
    """The tiles of 4 x 4 results that cover an image of results."""

    height: int
    width: int

    @property
    def sides(self) -> tuple[int, int]:
        """Numbers of tiles down and across."""
        return ceil(self.height / STEP), ceil(self.width / STEP)

    @property
    def count(self) -> int:
        return prod(self.sides)

    def cost(self, d_in: int, d_out: int) -> int:
        """Multiplications for an example; the transforms count as the multiplications that take as long."""
        return POINTS**2 * self.count * (d_in * d_out + TRANSFORM * (d_in + d_out))

    def points(self, images: Tensor, buffer: "_Buffer", padding: Padding | None = None) -> Points:
        """The points of signals, 6 x 6 for each tile from ``padding`` outside of the image on, or of deltas, 4 x 4."""
        reach, name = (STEP, "A") if padding is None else (POINTS, "B")
        out = _shaped(buffer.points, POINTS**2, len(images) * self.count, images.shape[1])
        to_points(
            out.flatten(1).numpy(), images.numpy(), buffer.image.numpy(), reach, *(padding or (0, 0)),
            *self.sides, *_sparse_rows(name, images.dtype),
        )  # fmt: skip
        return out

    def buffer(self, n_examples: int, channels: int, like: Tensor) -> "_Buffer":
        """Memory for a transform of some examples."""
        down, across = self.sides
        pixels = (POINTS + STEP * (down - 1)) * STEP * (across + 1)
        n_points = POINTS**2 * n_examples * self.count
        return _Buffer(like.new_empty(n_points * channels), like.new_zeros(pixels * channels))

    def block_size(self, block_bytes: int, channels: int, dtype: torch.dtype, weights: int = 0) -> int:
        """Examples in a block, whose points have this many channels and products of channels in all."""
        return max(1, block_bytes // (POINTS**2 * (self.count * channels + weights) * dtype.itemsize))


@dataclass(frozen=True, slots=True, eq=False)
class _Buffer:
    """Memory for one transform, reused for each block: fresh pages cost more than the transform."""

    points: Float[Tensor, " number"]  # of all examples of a block
    image: Float[Tensor, " entry"]  # what all tiles of one image read or write


def _shaped(memory: Float[Tensor, " number"], *shape: int) -> Tensor:
    """The front of a buffer in some shape; the last block may have fewer examples than the others."""
    return memory[: torch.Size(shape).numel()].view(shape)


def _result_grid(signal: Tensor, padding: Padding) -> _TileGrid:
    height, width = (size + 2 * pad - WINDOW + 1 for size, pad in zip(signal.shape[2:], padding, strict=True))
    return _TileGrid(height, width)


def is_faster(signal: Tensor, d_out: int, padding: Padding) -> bool:
    """Whether this module can compute a 3 x 3 convolution of stride 1, and is expected to be faster than torch."""
    if max(padding) >= WINDOW or signal.device.type != "cpu" or signal.dtype not in (torch.float32, torch.float64):
        return False
    grid = _result_grid(signal, padding)
    return min(grid.height, grid.width) >= 1 and _is_cheaper(grid, signal.shape[1], d_out) and use_bits()


def _is_cheaper(grid: _TileGrid, d_in: int, d_out: int) -> bool:
    return SLOWER * grid.cost(d_in, d_out) < WINDOW**2 * grid.height * grid.width * d_in * d_out


def weight_gradient_cost(signal: Tensor, d_out: int, padding: Padding) -> int:
    """Multiplications of ``weight_gradients`` for one example."""
    return _result_grid(signal, padding).cost(signal.shape[1], d_out)


class _Convolution(torch.autograd.Function):
    """A convolution with a gradient by its signal, and none by its weight."""

    @staticmethod
    def forward(ctx: Any, signal: Tensor, weight: Tensor, padding: Padding) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.padding = padding
        return convolved(signal, weight, padding)

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # a network that differentiates itself: torch's own can be differentiated again
            return F.conv_transpose2d(delta, weight, padding=ctx.padding), None, None
        return signal_gradients(delta, weight, ctx.padding), None, None


def convolution(signal: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    """The convolution of a batch, for autograd, with a gradient by ``signal`` alone."""
    out: Tensor = _Convolution.apply(signal, weight, padding)
    return out


def convolved(signal: Images, weight: Filters, padding: Padding, *, block_bytes: int = BLOCK_BYTES) -> Images:
    """The convolution of a batch, by 9/4 multiplications for each result and input channel if all tiles are whole."""
    grid = _result_grid(signal, padding)
    d_out, d_in = weight.shape[:2]
    with one_thread():
        filters = _filter_points(weight.detach()).to(signal.dtype)
    images = signal.detach().contiguous()
    out = large_empty((len(images), d_out, grid.height, grid.width), images.dtype, images.device)
    step = min(len(images), grid.block_size(block_bytes, d_in + d_out, signal.dtype))

    def buffers() -> tuple[_Buffer, ...]:
        return tuple(grid.buffer(step, channels, images) for channels in (d_in, d_out))

    def run(block: slice, signals: _Buffer, results: _Buffer) -> None:
        points = grid.points(images[block], signals, padding)
        products = _shaped(results.points, POINTS**2, points.shape[1], d_out)
        torch.bmm(points, filters, out=products)
        flat, image, matrix = products.flatten(1).numpy(), results.image.numpy(), _sparse_rows("A.T", out.dtype)
        from_points(out[block].numpy(), flat, image, *grid.sides, *matrix)

    side_by_side(run, len(images), step, buffers)
    return out


def _filter_points(weight: Filters) -> Float[Tensor, "point d_in d_out"]:
    """U, in double precision: an error here would appear in all results."""
    windows = weight.double().permute(2, 3, 1, 0)
    return (torch.from_numpy(np.kron(_G, _G)) @ windows.reshape(WINDOW**2, -1)).unflatten(1, windows.shape[2:])


def signal_gradients(delta: Images, weight: Filters, padding: Padding) -> Images:
    """The gradient by the signal: another convolution, with the window rotated by 180 degrees."""
    rotated = weight.flip(2, 3).transpose(0, 1)
    return convolved(delta, rotated, tuple(WINDOW - 1 - pad for pad in padding))


def weight_gradients(
    signal: Images, delta: Float[Tensor, "batch output d_out y x"], padding: Padding, *, block_bytes: int = BLOCK_BYTES
) -> Float[Tensor, "batch output entry"]:
    """Each example's gradients by the weight, with the entries in the order (window, d_out, d_in)."""
    n, n_outputs, d_out = delta.shape[:3]
    grid, d_in = _TileGrid(*delta.shape[3:]), signal.shape[1]
    out = large_empty((n_outputs, n, WINDOW**2, d_out * d_in), delta.dtype, delta.device)
    step = min(n, grid.block_size(block_bytes, d_in + d_out, signal.dtype, d_in * d_out))
    images = signal.detach().contiguous()

    def buffers() -> tuple[_Buffer, _Buffer, Tensor]:
        signals, deltas = (grid.buffer(step, channels, images) for channels in (d_in, d_out))
        return signals, deltas, images.new_empty(POINTS**2 * step * d_out * d_in)

    def run(block: slice, signals: _Buffer, deltas: _Buffer, memory: Tensor) -> None:
        v = grid.points(images[block], signals, padding).view(-1, grid.count, d_in)
        products = _shaped(memory, len(v), d_out, d_in)
        for o in range(n_outputs):
            points = grid.points(delta[block, o].contiguous(), deltas).view(-1, grid.count, d_out)
            torch.bmm(points.mT, v, out=products)
            by_point = products.view(POINTS**2, -1, d_out * d_in)
            to_windows(out[o, block].numpy(), by_point.numpy(), *_sparse_rows("G.T", signal.dtype))

    side_by_side(run, n, step, buffers)
    return out.transpose(0, 1).flatten(2)
