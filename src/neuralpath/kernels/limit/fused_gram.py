"""One kernel of a chain of dense layers, written over the Gram matrix of the inputs: no memory but the result's own.

Work goes in stripes of rows. First the Gram matrix of a stripe, then all layers: the threads of the matrix product wait
actively for a while before they sleep, and would be in the way of the loops after each product.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._loops import in_threads, run_tiles_in_place
from neuralpath.kernels.limit.fused_dense import (
    TILE,
    DenseStep,
    LimitKernels,
    check_fusible,
    check_head,
    constants_of,
    diagonals,
    profiles,
    squares,
)

STRIPE_PAIRS = 2**23
"""Pairs of a stripe: some tenths of a second, after which a progress bar moves."""

GRAM_ROWS = 4 * TILE
"""Rows of a part of the Gram matrix: few enough to leave out most of its lower half, and enough for a fast product."""


NEAR = 0.999
"""A cosine beyond which inner products are summed anew in double precision, as the lengths are. An angle near 0 has
half of their digits only: in single precision an example would be at an angle of 5e-4 with its own copy."""


@dataclass(frozen=True, slots=True)
class Combination:
    """A sum of the output kernel, the tangent kernel and a constant, by their factors."""

    output: float = 0.0
    tangent: float = 0.0
    constant: float = 0.0

    def of(self, kernels: LimitKernels) -> Float[Tensor, "batch1 batch2"]:
        """The sum, for kernels that are there already."""
        if self == OUTPUT:
            return kernels.output
        if self == TANGENT:
            return kernels.tangent
        return self.output * kernels.output + self.tangent * kernels.tangent + self.constant


OUTPUT, TANGENT = Combination(output=1.0), Combination(tangent=1.0)


def dense_kernel(
    steps: Sequence[DenseStep],
    wanted: Combination,
    x1: Float[Tensor, "_batch1 unit"],
    x2: Float[Tensor, "_batch2 unit"] | None = None,
) -> Float[Tensor, "_batch1 _batch2"]:
    """Output kernel, tangent kernel or a sum of them of a dense chain, for two batches or for one with itself.

    Cost: the Gram matrix, then about 90 operations for each pair and layer.
    Raises: ValueError if a step but the last has no activation, or the last has one; TypeError where ``can_fuse`` says
    no.
    """
    out = torch.empty(len(x1), len(x1 if x2 is None else x2), dtype=x1.dtype)
    write_dense_kernel(out, steps, wanted, x1, x2)
    return out


def write_dense_kernel(
    out: Float[Tensor, "_batch1 _batch2"],
    steps: Sequence[DenseStep],
    wanted: Combination,
    x1: Float[Tensor, "_batch1 unit"],
    x2: Float[Tensor, "_batch2 unit"] | None = None,
    done: Callable[[int], None] | None = None,
) -> None:
    """Write a combination of both kernels of two batches, or of one with itself, into ``out``, which has rows in order.

    ``done`` is told of finished pairs. Cost and errors as for ``dense_kernel``.
    """
    check_fusible(x1, x1 if x2 is None else x2)
    check_head(steps)
    rows, symmetric = x1.detach(), x2 is None
    columns = rows if x2 is None else x2.detach()
    variances = squares(rows)
    profile1 = profiles(steps, variances)
    profile2 = profile1 if symmetric else profiles(steps, squares(columns))
    constants, values = constants_of(steps), out.numpy()
    inputs = rows.contiguous().numpy(), columns.contiguous().numpy()
    combination = wanted.output, wanted.tangent, wanted.constant
    n1, n2 = out.shape
    height = max(1, STRIPE_PAIRS // max(n2 * TILE, 1)) * TILE
    for top in range(0, n1, height):
        bottom = min(top + height, n1)
        _write_gram(out, rows, columns, top, bottom, symmetric)
        tiles = [(i, j) for i in range(top, bottom, TILE) for j in range(i if symmetric else 0, n2, TILE)]
        places = np.array(tiles, np.int64)

        def run(share: slice, places: np.ndarray = places) -> None:
            run_tiles_in_place(
                values, *inputs, NEAR, profile1, profile2, constants, combination, places[share], TILE, symmetric
            )

        in_threads(run, len(tiles))
        if done is not None:
            count = bottom - top
            done(count * (n1 - top) - count * (count - 1) // 2 if symmetric else count * n2)
    if symmetric:
        output, tangent = diagonals(steps, variances, variances)
        out.diagonal().copy_(wanted.output * output + wanted.tangent * tangent + wanted.constant)


def _write_gram(out: Tensor, rows: Tensor, columns: Tensor, top: int, bottom: int, symmetric: bool) -> None:
    """Inner products of a stripe's pairs; of a symmetric kernel those on and above the diagonal, roughly."""
    for start in range(top, bottom, GRAM_ROWS):
        part = slice(start, min(start + GRAM_ROWS, bottom))
        left = start if symmetric else 0
        torch.mm(rows[part], columns[left:].T, out=out[part, left:])
