r"""Convolutions of 3 x 3 with a quarter of the multiplications (Winograd's minimal filtering, F(4 x 4, 3 x 3)).

Four neighboring results :math:`y_i = \sum_k w_k x_{i+k}` are coefficients of a product of polynomials, and that is
found from its values at six points: with :math:`V = B^T x`, :math:`U = G w`,

.. math:: y = A^T (U \odot V), \qquad \partial w = G^T (A \delta \odot V)

The columns of :math:`A^T` are the powers of a point p, the rows of :math:`G` are :math:`(1, p, p^2)` over
:math:`\prod_q (p - q)`, and those of :math:`B^T` the coefficients of :math:`\prod_q (x - q)`, both over the other
points. In two dimensions each matrix acts along both axes: 36 multiplications in place of 144 for a tile of 4 x 4
results. Between channels, each of the 36 points is one matrix product.

The points are 0, 5/8, -5/8, 3/2, -3/2 and infinity: among simple numbers they round least. In single precision the
results of 64 channels err by 8e-7 of their size (root mean squares), where the usual points 0, 1, -1, 2, -2 err by
1.6e-6 and tiles of 2 x 2 by 2e-7. All entries of :math:`A` and :math:`B` are exact in binary.

Reference: A. Lavin, S. Gray, Fast algorithms for convolutional neural networks, arXiv:1509.09308.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._loops import POINTS, STEP, from_points, one_thread, side_by_side, to_points, to_windows, use_bits
from neuralpath.kernels.tangent.geometry import Geometry, Pair
from neuralpath.kernels.tiling.workspace import large_empty

WINDOW = 3
DTYPES = (torch.float32, torch.float64)

BLOCK_BYTES = 5 * 2**19
"""Points of some examples that a thread holds at once: what stays in the caches between a transform and a product."""

TRANSFORM = 32
"""Multiplications between channels that the transforms of one point of one channel take as long as."""

SLOWER = 1.4
"""How much longer a multiplication takes in many small products than in torch's own convolution."""

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
    """A matrix for the loops: for each row how many entries it has and their columns, and the entries."""
    matrix = {"A": _A, "A.T": _A.T, "B": _B, "G.T": _G.T}[name]
    terms = np.zeros((len(matrix), 6), np.int64)
    factors = np.zeros((len(matrix), 5), torch.empty(0, dtype=dtype).numpy().dtype)
    for k, row in enumerate(matrix):
        (columns,) = row.nonzero()
        terms[k, : 1 + len(columns)] = len(columns), *columns
        factors[k, : len(columns)] = row[columns]
    return terms, factors


@dataclass(frozen=True, slots=True)
class _Tiles:
    """The tiles of a convolution's results."""

    height: int
    width: int

    @property
    def down(self) -> int:
        return ceil(self.height / STEP)

    @property
    def across(self) -> int:
        return ceil(self.width / STEP)

    @property
    def count(self) -> int:
        return self.down * self.across

    def signals(self, images: Tensor, padding: Pair, room: "_Room") -> Float[Tensor, "point tile channel"]:
        """V of what went in."""
        return self._points(images, POINTS, padding, "B", room)

    def deltas(self, images: Tensor, room: "_Room") -> Float[Tensor, "point tile channel"]:
        """The points of what came back."""
        return self._points(images, STEP, (0, 0), "A", room)

    def _points(self, images: Tensor, reach: int, padding: Pair, name: str, room: "_Room") -> Tensor:
        out = room.shaped(len(images) * self.count, images.shape[1])
        to_points(
            out.flatten(1).numpy(), images.numpy(), room.image.numpy(), reach, *padding, self.down, self.across,
            *_sparse_rows(name, images.dtype),
        )  # fmt: skip
        return out

    def results(self, images: Tensor, points: Float[Tensor, "point tile channel"], room: "_Room") -> None:
        """Put the results that belong to some points into images."""
        from_points(
            images.numpy(), points.flatten(1).numpy(), room.image.numpy(), self.down, self.across,
            *_sparse_rows("A.T", images.dtype),
        )  # fmt: skip

    def room(self, n_examples: int, channels: int, like: Tensor) -> "_Room":
        """Room for so many examples."""
        image = POINTS + STEP * (self.down - 1), STEP * (self.across + 1) * channels
        return _Room(
            like.new_empty(POINTS**2 * n_examples * self.count * channels), like.new_zeros(torch.Size(image).numel())
        )

    def at_once(self, channels: int, dtype: torch.dtype, entries: int = 0) -> int:
        """Examples whose points, with so many channels in all, and points of weights are held at once."""
        return max(1, BLOCK_BYTES // (POINTS**2 * (self.count * channels + entries) * dtype.itemsize))


@dataclass(frozen=True, slots=True, eq=False)
class _Room:
    """Memory for one transform: used again and again, since fresh pages cost more than transforms."""

    points: Float[Tensor, " number"]  # of some examples
    image: Float[Tensor, " entry"]  # what all tiles of an image read or give

    def shaped(self, *shape: int) -> Float[Tensor, "point ..."]:
        """The points of fewer examples too."""
        return _shaped(self.points, POINTS**2, *shape)


def _result_tiles(signal: Tensor, padding: Pair) -> _Tiles:
    height, width = (size + 2 * pad - WINDOW + 1 for size, pad in zip(signal.shape[2:], padding, strict=True))
    return _Tiles(height, width)


def serves(signal: Tensor, d_out: int, geometry: Geometry) -> bool:
    """Whether this module takes a convolution, and is expected to be faster than torch.

    Single or double precision in main memory, with numba on; stride, dilation and groups of 1.
    """
    g = geometry
    plain = g.window == (WINDOW, WINDOW) and g.stride == g.dilation == (1, 1) and g.groups == 1
    if not plain or max(g.padding) >= WINDOW or signal.device.type != "cpu" or signal.dtype not in DTYPES:
        return False
    tiles = _result_tiles(signal, g.padding)
    return use_bits() and min(tiles.height, tiles.width) >= 1 and _is_cheaper(tiles, signal.shape[1], d_out)


def _is_cheaper(tiles: _Tiles, d_in: int, d_out: int) -> bool:
    plain = WINDOW**2 * tiles.height * tiles.width * d_in * d_out
    return SLOWER * _cost(tiles.count, d_in, d_out) < plain


def _cost(n_tiles: int, d_in: int, d_out: int) -> int:
    """Multiplications for an example, or as many as its transforms take as long as."""
    return POINTS**2 * n_tiles * (d_in * d_out + TRANSFORM * (d_in + d_out))


def weight_gradient_cost(signal: Tensor, d_out: int, geometry: Geometry) -> int:
    """Multiplications of ``weight_gradients`` for one example."""
    return _cost(_result_tiles(signal, geometry.padding).count, signal.shape[1], d_out)


def convolved(
    signal: Float[Tensor, "batch d_in _y _x"], weight: Float[Tensor, "d_out d_in 3 3"], padding: Pair
) -> Float[Tensor, "batch d_out _v _u"]:
    """The convolution of a batch.

    Cost: 9/4 multiplications for each result and input channel, where 4 divides height and width.
    """
    tiles = _result_tiles(signal, padding)
    d_out, d_in = weight.shape[:2]
    with one_thread():
        filters = _filters(weight.detach()).to(signal.dtype)
    images = signal.detach().contiguous()
    out = large_empty((len(images), d_out, tiles.height, tiles.width), images.dtype, images.device)
    step = min(len(images), tiles.at_once(d_in + d_out, signal.dtype))

    def rooms() -> tuple[_Room, ...]:
        return tuple(tiles.room(step, channels, images) for channels in (d_in, d_out))

    def run(some: slice, into: _Room, back: _Room) -> None:
        points = tiles.signals(images[some], padding, into)
        products = back.shaped(points.shape[1], d_out)
        torch.bmm(points, filters, out=products)
        tiles.results(out[some], products, back)

    side_by_side(run, len(images), step, rooms)
    return out


def _filters(weight: Float[Tensor, "d_out d_in 3 3"]) -> Float[Tensor, "point d_in d_out"]:
    """U, in double precision: what is rounded here would be seen in all results."""
    windows = weight.double().permute(2, 3, 1, 0)
    return (torch.from_numpy(np.kron(_G, _G)) @ windows.reshape(WINDOW**2, -1)).unflatten(1, windows.shape[2:])


def signal_gradients(
    delta: Float[Tensor, "batch d_out _v _u"], weight: Float[Tensor, "d_out d_in 3 3"], padding: Pair
) -> Float[Tensor, "batch d_in _y _x"]:
    """What comes back through a convolution: another one, with the window turned round."""
    turned = weight.flip(2, 3).transpose(0, 1)
    return convolved(delta, turned, tuple(WINDOW - 1 - pad for pad in padding))


def weight_gradients(
    signal: Float[Tensor, "batch d_in _y _x"], delta: Float[Tensor, "batch output d_out _v _u"], padding: Pair
) -> Float[Tensor, "batch output entry"]:
    """Each example's gradients by the weight, for what went in and what came back; entries by (window, out, in)."""
    n, n_outputs, d_out = delta.shape[:3]
    tiles, d_in = _Tiles(*delta.shape[3:]), signal.shape[1]
    out = large_empty((n_outputs, n, WINDOW**2, d_out * d_in), delta.dtype, delta.device)
    step = min(n, tiles.at_once(d_in + d_out, signal.dtype, d_in * d_out))
    images = signal.detach().contiguous()

    def rooms() -> tuple[_Room, _Room, Tensor]:
        signals, deltas = (tiles.room(step, channels, images) for channels in (d_in, d_out))
        return signals, deltas, images.new_empty(POINTS**2 * step * d_out * d_in)

    def run(some: slice, signals: _Room, deltas: _Room, product_room: Tensor) -> None:
        into = tiles.signals(images[some], padding, signals).view(-1, tiles.count, d_in)
        products = _shaped(product_room, len(into), d_out, d_in)
        for o in range(n_outputs):
            back = tiles.deltas(delta[some, o].contiguous(), deltas).view(-1, tiles.count, d_out)
            torch.bmm(back.mT, into, out=products)
            by_point = products.view(POINTS**2, -1, d_out * d_in)
            to_windows(out[o, some].numpy(), by_point.numpy(), *_sparse_rows("G.T", signal.dtype))

    side_by_side(run, n, step, rooms)
    return out.transpose(0, 1).flatten(2)


def _shaped(memory: Float[Tensor, " number"], *shape: int) -> Tensor:
    """The front of a run of memory in some shape."""
    return memory[: torch.Size(shape).numel()].view(shape)
