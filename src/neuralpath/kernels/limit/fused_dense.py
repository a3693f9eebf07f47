r"""Infinite-width kernels of a chain of dense layers with ReLUs, all layers in one pass over the pairs.

Pre-activations of two examples have a covariance :math:`\Sigma` and a tangent kernel :math:`\tilde K`. A dense layer of
weight variance g / fan-in and bias variance b gives :math:`\Sigma = g A + b`, :math:`\tilde K = g C + b`, and an
activation f gives :math:`A = E[f f']`, :math:`C = A + \tilde K E[f' f'']`. At the input of the first layer A and C are
the inner product of the examples, not divided by their length.

The result overwrites the Gram matrix of the inputs, so no other memory of its size is needed:

             0        TILE      2 TILE                    columns n2
           0 +---------+---------+---------+- - -+
             |  tile   |  tile   |  tile   |     |   stripe 1: STRIPE_PAIRS pairs. First torch.mm writes its part of the
        TILE +---------+---------+---------+- - -+   Gram matrix, then all layers run on its tiles, in threads.
             | (copied)|  tile   |  tile   |     |
             +---------+---------+---------+- - -+   stripe 2
      rows   | (copied)| (copied)|  tile   |     |   symmetric kernels: tiles on and above the diagonal are computed,
        n1   +---------+---------+---------+- - -+   and each is copied to its mirror image.

A row of a tile goes through all layers while it is in the cache. Layers are computed in double precision for inputs of
either precision: the angle between similar examples is the square root of a small difference, and its error would grow
with each layer. On the diagonal, where the angle is 0, the values are exact. An example whose variance is 0 (a zero
input, without biases) has an angle of pi / 2 with every other, so that its kernels are 0 and finite.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._loops import bend_of, in_threads, run_tiles, run_tiles_in_place, squared_lengths, use_bits
from neuralpath.kernels.tiling import Tile

TILE = 128
"""Rows and columns of a tile: its two values for each pair stay in the second-level cache."""

STRIPE_PAIRS = 2**23
"""Pairs of a stripe: some tenths of a second, after which a progress bar moves. Products and loops do not alternate
more often, because the threads of a matrix product spin for a while before they sleep and would slow down the loops."""

GRAM_ROWS = 4 * TILE
"""Rows of one matrix product: few enough to skip most of the lower half, and enough for a fast product."""

NEAR = 0.999
"""A cosine beyond which inner products are summed again in double precision, as the lengths are. An angle near 0 has
half of their digits only: in single precision an example would be at an angle of 5e-4 with its own copy."""

DTYPES = (torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class DenseStep:
    """A dense layer and the leaky ReLU after it: its slope for negative values, or None for the output layer."""

    weight_variance: float  # times fan-in; for the first layer of a network: of one weight
    bias_variance: float = 0.0
    slope: float | None = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class LimitKernels:
    """The output kernel (covariance of the outputs, NNGP) and the tangent kernel.

    With weight variances 1 in the first layer and 2 after each ReLU these are Sigma and K~; for an output layer of
    variance 1 / width where the others have 2 / width, the tangent kernel is their mean.
    """

    output: Float[Tensor, "batch1 batch2"]
    tangent: Float[Tensor, "batch1 batch2"]


@dataclass(frozen=True, slots=True)
class Combination:
    """A sum of the output kernel, the tangent kernel and a constant, by their factors."""

    output: float = 0.0
    tangent: float = 0.0
    constant: float = 0.0

    def of(self, kernels: LimitKernels) -> Float[Tensor, "batch1 batch2"]:
        """The sum for computed kernels."""
        if self == OUTPUT:
            return kernels.output
        if self == TANGENT:
            return kernels.tangent
        return self.output * kernels.output + self.tangent * kernels.tangent + self.constant


OUTPUT, TANGENT = Combination(output=1.0), Combination(tangent=1.0)


@dataclass(frozen=True, slots=True, eq=False)
class DenseTiles:
    """The kernel of a dense chain, tile by tile or all at once."""

    steps: tuple[DenseStep, ...]
    combination: Combination
    x1: Float[Tensor, "_batch1 unit"]
    x2: Float[Tensor, "_batch2 unit"] | None

    def tile(self, tile: Tile) -> Float[Tensor, "rows columns"]:
        """One tile; of one batch with itself, symmetric on the diagonal."""
        if self.x2 is None and tile.rows == tile.columns:
            return dense_kernel(self.steps, self.combination, self.x1[tile.rows])
        columns = (self.x1 if self.x2 is None else self.x2)[tile.columns]
        return dense_kernel(self.steps, self.combination, self.x1[tile.rows], columns)

    def write(self, out: Float[Tensor, "_batch1 _batch2"], progress: Callable[[int], None]) -> None:
        """Write the whole kernel into ``out``."""
        write_dense_kernel(out, self.steps, self.combination, self.x1, self.x2, progress)


def dense_kernel(
    steps: Sequence[DenseStep],
    combination: Combination,
    x1: Float[Tensor, "_batch1 unit"],
    x2: Float[Tensor, "_batch2 unit"] | None = None,
) -> Float[Tensor, "_batch1 _batch2"]:
    """Output kernel, tangent kernel or a sum of them of a dense chain, for two batches or for one with itself.

    Every step but the last has an activation, and ``can_fuse`` holds for the batches. Cost: the Gram matrix, then about
    90 operations for each pair and layer.
    """
    out = torch.empty(len(x1), len(x1 if x2 is None else x2), dtype=x1.dtype)
    write_dense_kernel(out, steps, combination, x1, x2)
    return out


def write_dense_kernel(
    out: Float[Tensor, "_batch1 _batch2"],
    steps: Sequence[DenseStep],
    combination: Combination,
    x1: Float[Tensor, "_batch1 unit"],
    x2: Float[Tensor, "_batch2 unit"] | None = None,
    progress: Callable[[int], None] | None = None,
    *,
    stripe_pairs: int = STRIPE_PAIRS,
) -> None:
    """Write a combination of both kernels of two batches, or of one with itself, into a contiguous ``out``.

    ``progress`` is called with the number of pairs of each finished stripe. Cost and conditions as above.
    """
    rows, symmetric = x1.detach(), x2 is None
    columns = rows if x2 is None else x2.detach()
    variances = _squared_lengths(rows)
    profile1 = _profiles(steps, variances)
    profile2 = profile1 if symmetric else _profiles(steps, _squared_lengths(columns))
    constants, values = _constants(steps), out.numpy()
    inputs = rows.contiguous().numpy(), columns.contiguous().numpy()
    factors = combination.output, combination.tangent, combination.constant
    n1, n2 = out.shape
    height = max(1, stripe_pairs // max(n2 * TILE, 1)) * TILE
    for top in range(0, n1, height):
        bottom = min(top + height, n1)
        _write_gram(out, rows, columns, top, bottom, symmetric)
        corners = _tile_corners(top, bottom, n2, symmetric)

        def run(share: slice, corners: np.ndarray = corners) -> None:
            run_tiles_in_place(
                values, *inputs, NEAR, profile1, profile2, constants, factors, corners[share], TILE, symmetric
            )

        in_threads(run, len(corners))
        if progress is not None:
            count = bottom - top
            progress(count * (n1 - top) - count * (count - 1) // 2 if symmetric else count * n2)
    if symmetric:
        output, tangent = _diagonals(steps, variances, variances)
        out.diagonal().copy_(combination.output * output + combination.tangent * tangent + combination.constant)


def _write_gram(out: Tensor, rows: Tensor, columns: Tensor, top: int, bottom: int, symmetric: bool) -> None:
    """Inner products of a stripe's pairs; of a symmetric kernel those on and above the diagonal, roughly."""
    for start in range(top, bottom, GRAM_ROWS):
        part = slice(start, min(start + GRAM_ROWS, bottom))
        left = start if symmetric else 0
        torch.mm(rows[part], columns[left:].T, out=out[part, left:])


def _tile_corners(top: int, bottom: int, n2: int, symmetric: bool) -> np.ndarray:
    """First row and column of each tile that is computed; a list of them gives each thread an equal share."""
    corners = [(i, j) for i in range(top, bottom, TILE) for j in range(i if symmetric else 0, n2, TILE)]
    return np.array(corners, np.int64)


def apply_dense_steps(
    steps: Sequence[DenseStep],
    covariance: Float[Tensor, "batch1 batch2"],
    tangent: Float[Tensor, "batch1 batch2"],
    variance1: Float[Tensor, " batch1"],
    variance2: Float[Tensor, " batch2"] | None = None,
    tangent_diagonal: Float[Tensor, " batch1"] | None = None,
) -> LimitKernels:
    """Take A and C of all pairs, and A of each example with itself, through a chain of dense layers.

    Without ``variance2`` the kernel of one batch with itself, which is symmetric; ``tangent_diagonal`` is then C of
    each example with itself, where that is not A. The variances are in double precision.
    """
    symmetric = variance2 is None
    diagonal = variance1 if tangent_diagonal is None else tangent_diagonal
    output_diagonal, diagonal = _diagonals(steps, variance1, diagonal)
    profile1 = _profiles(steps, variance1)
    profile2 = profile1 if variance2 is None else _profiles(steps, variance2)
    output, result = torch.empty_like(covariance), torch.empty_like(covariance)
    arrays = output.numpy(), result.numpy(), covariance.contiguous().numpy(), tangent.contiguous().numpy()
    constants, corners = _constants(steps), _tile_corners(0, covariance.shape[0], covariance.shape[1], symmetric)

    def run(share: slice) -> None:
        run_tiles(*arrays, profile1, profile2, constants, corners[share], TILE, symmetric)

    in_threads(run, len(corners))
    if symmetric:
        output.diagonal().copy_(output_diagonal)
        result.diagonal().copy_(diagonal)
    return LimitKernels(output, result)


def can_fuse(*tensors: Tensor) -> bool:
    """Whether the fused kernels apply: single or double precision on the CPU, with numba on."""
    return use_bits() and all(t.device.type == "cpu" and t.dtype in DTYPES for t in tensors)


def spreads(variances: Float[Tensor, "*shape"]) -> Float[Tensor, "2 *shape"]:
    """Standard deviations and their inverses; 0 where the variance is 0, which makes the angle pi / 2."""
    deviation = variances.sqrt()
    return torch.stack([deviation, torch.where(deviation > 0, 1 / deviation, 0.0)])


def _squared_lengths(x: Float[Tensor, "batch unit"]) -> Float[Tensor, " batch"]:
    """Squared lengths in double precision, without torch, which would wake its threads for so little work."""
    lengths = np.empty(len(x))
    squared_lengths(lengths, x.contiguous().numpy())
    return torch.from_numpy(lengths)


def _diagonals(
    steps: Sequence[DenseStep], variance: Float[Tensor, " batch"], tangent: Float[Tensor, " batch"]
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """Both kernels of each example with itself."""
    for step in steps:
        variance = step.weight_variance * variance + step.bias_variance
        tangent = step.weight_variance * tangent + step.bias_variance
        if step.slope is not None:
            share = (1 + step.slope**2) / 2
            variance, tangent = share * variance, share * (variance + tangent)
    return variance, tangent


def _profiles(steps: Sequence[DenseStep], variance: Float[Tensor, " batch"]) -> np.ndarray:
    """``spreads`` of the pre-activations of each layer but the output, in the layout (layer, 2, batch)."""
    layers = []
    for step in steps[:-1]:
        variance = step.weight_variance * variance + step.bias_variance
        layers.append(spreads(variance))
        assert step.slope is not None
        variance = (1 + step.slope**2) / 2 * variance
    empty = variance.new_empty((0, 2, len(variance)))
    return (torch.stack(layers) if layers else empty).numpy()


def _constants(steps: Sequence[DenseStep]) -> np.ndarray:
    """For each layer: weight variance, bias variance, and the constants of its activation (unused without one)."""
    return np.array([(s.weight_variance, s.bias_variance, *bend_of(s.slope or 0.0)) for s in steps])
