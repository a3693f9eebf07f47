"""Kernel matrices as the solvers read them: tile by tile, from a computed kernel, a store or an array.

A symmetric kernel in tiles yields only the tiles on and above the diagonal:

    +----+----+----+
    | 11 | 12 | 13 |      tile 12 stands for itself and for tile 21, its transpose,
    +----+----+----+      so a product with vectors adds both.
         | 22 | 23 |
         +----+----+
              | 33 |
              +----+
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from neuralpath.kernels import ROUNDING, StoredKernel, Tile, TiledKernel

TileValues = tuple[Tile, Float[Tensor, "_rows _columns"]]

ARRAY_TILE = 2**22  # entries per tile of an array: large enough for products, small compared with the array
_CHECKED_ROWS = 1024  # rows of a matrix that are checked together
_CACHED_ENTRIES = 2**20  # entries that stay in the CPU caches while they are used twice

_NOT_FINITE_HINT = "Check the inputs, or compute the kernel in float64 or normalized."


@dataclass(frozen=True, slots=True, eq=False)
class KernelMatrix:
    """A kernel matrix that can be read tile by tile, any number of times; ``tiles()`` starts a pass."""

    shape: tuple[int, int]
    symmetric: bool
    tiles: Callable[[], Iterable[TileValues]]
    origin: str  # human-readable: what a pass does
    itemsize: int  # bytes of an entry, as the tiles have it
    working_bytes: int  # memory of a pass
    cacheable: bool = True  # whether keeping the tiles in memory makes later passes cheaper

    @property
    def cached_bytes(self) -> int:
        """Memory that all tiles together take."""
        rows, columns = self.shape
        return self.itemsize * (rows * (rows + 1) // 2 if self.symmetric else rows * columns)


def as_kernel_matrix(
    kernel: TiledKernel | StoredKernel | Float[np.ndarray, "rows columns"], *, array_tile: int = ARRAY_TILE
) -> KernelMatrix:
    """A computed kernel, a stored kernel or an array, as a matrix to read tile by tile."""
    if isinstance(kernel, np.ndarray):
        tiles = partial(_array_tiles, kernel, array_tile)
        memory: Any = {"itemsize": kernel.itemsize, "working_bytes": 8 * array_tile, "cacheable": False}
        return KernelMatrix((kernel.shape[0], kernel.shape[1]), False, tiles, "an array in memory", **memory)
    plan, itemsize = kernel.plan, kernel.dtype.itemsize
    tile_bytes = plan.block1 * plan.block2 * (itemsize if itemsize == 8 else itemsize + 8)  # plus a float64 copy
    origin = "read from the store in each pass" if isinstance(kernel, StoredKernel) else "computed in each pass"
    working_bytes = plan.working_bytes + tile_bytes
    return KernelMatrix((plan.n1, plan.n2), plan.symmetric, lambda: kernel, origin, itemsize, working_bytes)


def cached(kernel: KernelMatrix) -> KernelMatrix:
    """The same matrix; the first complete pass keeps its tiles in memory for later passes."""
    cache: list[TileValues] = []

    def tiles() -> Iterator[TileValues]:
        if cache:
            yield from cache
            return
        passed = []
        for tile, values in kernel.tiles():
            passed.append((tile, values.clone()))  # `values` may be a view into a larger block
            yield tile, values
        cache.extend(passed)

    return replace(kernel, tiles=tiles, origin="kept in memory after the first pass")


def _array_tiles(array: Float[np.ndarray, "rows columns"], size: int) -> Iterator[TileValues]:
    """Blocks of whole rows."""
    rows, columns = array.shape
    step = max(1, size // max(columns, 1))
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        part = array[start:stop]
        # torch warns about read-only memory; a copy of a few rows is small.
        values = torch.from_numpy(part if part.flags.writeable else part.copy())
        yield Tile(slice(start, stop), slice(0, columns)), values


def kernel_times(
    kernel: KernelMatrix, vectors: Float64[np.ndarray, "_columns k"] | Float64[Tensor, "_columns k"]
) -> Float64[Tensor, "_rows k"]:
    """The kernel times k vectors, in one pass over its tiles; all sums are in float64."""
    # Everything is transposed: k rows times a block take a quarter of the time of the block times k columns.
    vectors_t = torch.as_tensor(vectors).T.contiguous()
    product_t = torch.zeros(len(vectors_t), kernel.shape[0], dtype=torch.float64)
    buffer = torch.empty(0, dtype=torch.float64)
    for tile, values in kernel.tiles():
        mirrored = kernel.symmetric and tile.rows != tile.columns
        start = tile.rows.start
        for part in torch.as_tensor(values).detach().split(max(1, _CACHED_ENTRIES // values.shape[1])):
            block = part
            if part.dtype != torch.float64 or part.device.type != "cpu":
                if buffer.numel() < part.numel():  # reused, because fresh pages cost more than copying
                    buffer = torch.empty(part.numel(), dtype=torch.float64)
                block = buffer[: part.numel()].view(part.shape).copy_(part)
            rows = slice(start, start + len(part))
            product_t[:, rows].addmm_(vectors_t[:, tile.columns], block.T)
            if mirrored:
                product_t[:, tile.columns].addmm_(vectors_t[:, rows], block)
            start = rows.stop
    product = product_t.T.contiguous()
    # NaN and infinity propagate into the product, even where they are multiplied by 0.
    if not bool(torch.isfinite(product.sum())):
        finite = torch.isfinite(product).all(1)
        if not bool(finite.all()):
            count, first = int((~finite).sum()), int(torch.nonzero(~finite)[0, 0])
            where = f"{count} of its {len(finite)} rows are affected, the first is {first}"
            raise ValueError(f"the kernel has NaN or infinity: {where}. {_NOT_FINITE_HINT}")
    return product


def dense_kernel(kernel: KernelMatrix) -> Float64[np.ndarray, "_rows _columns"]:
    """The whole kernel as a new float64 array. Raises: ValueError if it has NaN or infinity."""
    matrix = np.empty(kernel.shape)
    for tile, values in kernel.tiles():
        block = torch.as_tensor(values).detach().to("cpu", torch.float64).numpy()
        matrix[tile.rows, tile.columns] = block
        if kernel.symmetric and tile.rows != tile.columns:
            matrix[tile.columns, tile.rows] = block.T
    for start in range(0, len(matrix), _CHECKED_ROWS):
        part = matrix[start : start + _CHECKED_ROWS]
        if not np.isfinite(part).all():
            row, column = np.argwhere(~np.isfinite(part))[0]
            where = f"row {start + row}, column {column}"
            raise ValueError(f"the kernel has NaN or infinity, first at {where}. {_NOT_FINITE_HINT}")
    return matrix


def check_symmetric(matrix: Float[np.ndarray, "n n"], itemsize: int) -> None:
    """Refuse a matrix that differs from its transpose by more than the rounding of its entries; NaN passes."""
    largest = gap = 0.0
    for start in range(0, len(matrix), _CHECKED_ROWS):
        rows = slice(start, start + _CHECKED_ROWS)
        upper, lower = matrix[rows, start:], matrix[start:, rows].T
        with np.errstate(invalid="ignore"):  # infinity minus infinity
            largest, gap = max(largest, float(np.abs(upper).max())), max(gap, float(np.abs(upper - lower).max()))
    check_asymmetry(gap, largest, itemsize)


def check_asymmetry(gap: float, largest: float, itemsize: int) -> None:
    """Refuse a largest difference from the transpose beyond the rounding of numbers of this size in bytes."""
    tolerance = ROUNDING[torch.float32 if itemsize <= 4 else torch.float64]
    if gap > tolerance * largest:
        difference = f"{gap / largest:.1e} of its largest entry, more than {tolerance:.0e}"
        needed = "Training needs the kernel of one batch with itself"
        raise ValueError(f"the kernel is not symmetric, its transpose differs by up to {difference}. {needed}.")


def make_symmetric(matrix: Float64[np.ndarray, "n n"]) -> None:
    """Replace a matrix by its symmetric part, in place."""
    for start in range(0, len(matrix), _CHECKED_ROWS):
        rows = slice(start, start + _CHECKED_ROWS)
        mean = 0.5 * matrix[rows, start:] + 0.5 * matrix[start:, rows].T
        matrix[rows, start:], matrix[start:, rows] = mean, mean.T
