"""What a machine does with the tiles of a kernel: multiply by vectors, or put them together."""

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from neuralpath.estimators.kernel_tiles import KernelTiles
from neuralpath.kernels import ROUNDING

MEND = "Mend the inputs, or compute it in float64 or normalized."

_ROWS = 1024  # rows of a matrix that are looked at together
_CACHED = 2**20  # entries that are used twice while they are in the caches


def kernel_times(
    kernel: KernelTiles, vectors: Float64[np.ndarray, "_columns k"] | Float64[Tensor, "_columns k"]
) -> Float64[Tensor, "_rows k"]:
    """The kernel times some vectors, in one pass over its tiles, all sums in float64.

    Cost: rows * columns * k multiplications; memory for the result and for a part of a tile in float64.
    Raises: ValueError if the kernel has NaN or infinity.
    """
    # By rows: a few rows times a block take a quarter of the time of the block's transpose times a few columns.
    lying = torch.as_tensor(vectors).T.contiguous()
    lying_product = torch.zeros(len(lying), kernel.shape[0], dtype=torch.float64)
    room = torch.empty(0, dtype=torch.float64)
    for tile, values in kernel.tiles():
        mirrored = kernel.symmetric and tile.rows != tile.columns
        start = tile.rows.start
        for part in torch.as_tensor(values).detach().split(max(1, _CACHED // values.shape[1])):
            block, room = _in_float64(part, room)
            rows = slice(start, start + len(part))
            lying_product[:, rows].addmm_(lying[:, tile.columns], block.T)
            if mirrored:
                lying_product[:, tile.columns].addmm_(lying[:, rows], block)
            start = rows.stop
    product = lying_product.T.contiguous()
    # An entry that is not finite shows in the product, even where it meets a 0.
    if not bool(torch.isfinite(product.sum())):
        finite = torch.isfinite(product).all(1)
        if not bool(finite.all()):
            raise ValueError(
                f"the kernel has NaN or infinity: {int((~finite).sum())} of its {len(finite)} rows are touched, the "
                f"first is {int(torch.nonzero(~finite)[0, 0])}. {MEND}"
            )
    return product


def _in_float64(
    values: Float[Tensor, "_rows _columns"], room: Float64[Tensor, " _room"]
) -> tuple[Float64[Tensor, "_rows _columns"], Float64[Tensor, " _room"]]:
    """A block in float64, and the memory that it may lie in, for the next one: fresh pages cost more than copying."""
    if values.dtype == torch.float64 and values.device.type == "cpu":
        return values, room
    if room.numel() < values.numel():
        room = torch.empty(values.numel(), dtype=torch.float64)
    return room[: values.numel()].view(values.shape).copy_(values), room


def dense_kernel(kernel: KernelTiles) -> Float64[np.ndarray, "_rows _columns"]:
    """The whole kernel as a new float64 array. Raises: ValueError if it has NaN or infinity."""
    matrix = np.empty(kernel.shape)
    for tile, values in kernel.tiles():
        block = torch.as_tensor(values).detach().to("cpu", torch.float64).numpy()
        matrix[tile.rows, tile.columns] = block
        if kernel.symmetric and tile.rows != tile.columns:
            matrix[tile.columns, tile.rows] = block.T
    for start in range(0, len(matrix), _ROWS):
        part = matrix[start : start + _ROWS]
        if not np.isfinite(part).all():
            row, column = np.argwhere(~np.isfinite(part))[0]
            raise ValueError(f"the kernel has NaN or infinity, first at row {start + row}, column {column}. {MEND}")
    return matrix


def check_symmetric(matrix: Float[np.ndarray, "n n"], tolerance: float) -> None:
    """Refuse a kernel that differs from its transpose by more than a share of its largest entry; NaN is let pass.

    Raises: ValueError.
    """
    largest = gap = 0.0
    for start in range(0, len(matrix), _ROWS):
        upper, lower = matrix[start : start + _ROWS, start:], matrix[start:, start : start + _ROWS].T
        with np.errstate(invalid="ignore"):  # of infinities
            largest, gap = max(largest, float(np.abs(upper).max())), max(gap, float(np.abs(upper - lower).max()))
    if gap > tolerance * largest:
        raise ValueError(not_symmetric(gap / largest, tolerance))


def make_symmetric(matrix: Float64[np.ndarray, "n n"]) -> None:
    """Replace a matrix by its symmetric part, in place."""
    for start in range(0, len(matrix), _ROWS):
        rows = slice(start, start + _ROWS)
        mean = 0.5 * matrix[rows, start:] + 0.5 * matrix[start:, rows].T
        matrix[rows, start:], matrix[start:, rows] = mean, mean.T


def rounding(itemsize: int) -> float:
    """By how much a kernel of numbers of so many bytes may differ from its transpose, relative to its largest entry."""
    return ROUNDING[torch.float32 if itemsize <= 4 else torch.float64]


def not_symmetric(gap: float, tolerance: float) -> str:
    """The message for a kernel that is not symmetric."""
    return (
        f"the kernel is not symmetric: entries differ from those across the diagonal by up to {gap:.1e} of the "
        f"largest, more than {tolerance:.0e}. Training takes the kernel of one batch with itself."
    )
