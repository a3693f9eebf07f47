"""A kernel as a machine reads it: tiles that can be run through again, wherever their values come from."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._checks import describe
from neuralpath.kernels import StoredKernel, Tile, TiledKernel

TileValues = tuple[Tile, Float[Tensor, "_rows _columns"]]

ARRAY_TILE = 2**22
"""Entries of a tile of an array: large enough for matrix products, small beside the array."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelTiles:
    """A kernel of ``shape`` whose ``tiles()`` can be run through any number of times.

    With ``symmetric``, only tiles on and above the diagonal come. ``origin`` says for people what each pass does.
    """

    shape: tuple[int, int]
    symmetric: bool
    tiles: Callable[[], Iterable[TileValues]]
    origin: str
    itemsize: int  # bytes of an entry, as the tiles have it
    working_bytes: int  # memory of a pass
    holdable: bool = True  # whether keeping the tiles saves later passes their work

    @property
    def held_bytes(self) -> int:
        """Memory that all tiles together would take."""
        rows, columns = self.shape
        return self.itemsize * (rows * (rows + 1) // 2 if self.symmetric else rows * columns)


def is_tiles(kernel: object) -> bool:
    """Whether this is a kernel in tiles, computed or stored, and not an array."""
    return isinstance(kernel, TiledKernel | StoredKernel)


def as_kernel_tiles(kernel: TiledKernel | StoredKernel | Float[np.ndarray, "rows columns"]) -> KernelTiles:
    """The tiles of a kernel that is computed, stored, or an array.

    Raises: TypeError for anything else.
    """
    if isinstance(kernel, np.ndarray):
        return KernelTiles(
            (kernel.shape[0], kernel.shape[1]), False, lambda: _array_tiles(kernel), "an array in memory",
            kernel.itemsize, 8 * ARRAY_TILE, holdable=False,
        )  # fmt: skip
    if not isinstance(kernel, TiledKernel | StoredKernel):
        raise TypeError(f"a kernel must be an array, a `TiledKernel` or a `StoredKernel`, got {describe(kernel)}.")
    plan, itemsize = kernel.plan, kernel.dtype.itemsize
    origin = "read from the store in each pass" if isinstance(kernel, StoredKernel) else "computed anew in each pass"
    values = plan.block1 * plan.block2 * (itemsize if itemsize == 8 else itemsize + 8)  # and in float64
    return KernelTiles(
        (plan.n1, plan.n2), plan.symmetric, lambda: kernel, origin, itemsize, plan.working_bytes + values
    )


def held(kernel: KernelTiles) -> KernelTiles:
    """The same kernel with the tiles of the first whole pass kept in memory for those after it."""
    kept: list[TileValues] = []

    def tiles() -> Iterator[TileValues]:
        if kept:
            yield from kept
            return
        passed = []
        for tile, values in kernel.tiles():
            passed.append((tile, values.clone()))  # the tile itself may lie in a larger block of memory
            yield tile, values
        kept.extend(passed)

    return replace(kernel, tiles=tiles, origin="kept in memory after the first pass")


def _array_tiles(array: Float[np.ndarray, "rows columns"]) -> Iterator[TileValues]:
    """Whole rows, some at a time."""
    rows, columns = array.shape
    step = max(1, ARRAY_TILE // max(columns, 1))
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        part = array[start:stop]
        # torch warns of memory that it may not write; a copy of some rows is small.
        values = torch.from_numpy(part if part.flags.writeable else part.copy())
        yield Tile(slice(start, stop), slice(0, columns)), values
