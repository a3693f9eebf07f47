"""How the tiles of a store are computed: from the blocks of a tiled kernel, alike on every machine."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numba
import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._memory import memory_budget
from neuralpath.kernels.storage.fingerprint import Fingerprint
from neuralpath.kernels.tiling.fill import fill
from neuralpath.kernels.tiling.plan import Plan, Tile
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel, refuse_overflow

STORED_SIDE = 256
"""Rows of a stored tile, at least: fewer make too many files, and of many more much is lost when work is stopped."""

MOST_THREADS = 1024
"""More than a machine has processors; the system ends programs that start many more."""

WAY_OUT = "normalize the path kernel, or compute in float64"


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How a kernel is made under a memory budget, here or on another machine, and what tells it from others.

    ``make`` takes ``memory`` by name; it is pickled where tiles are computed elsewhere, with the model and the data.
    """

    make: Callable[..., TiledKernel]
    fingerprint: Fingerprint


@runtime_checkable
class Engine(Protocol):
    """Where tiles are computed."""

    def memory(self) -> int:
        """Memory budget of a tile, unless one is given."""

    def threads(self) -> int:
        """Threads of a tile, unless a number is given."""

    def __str__(self) -> str:
        """Where, in words."""

    def computed(
        self, recipe: Recipe, kernel: TiledKernel, tiles: Iterable[Tile], memory: int, threads: int
    ) -> Iterator[tuple[Tile, Float[Tensor, "_rows _columns"]]]:
        """Each tile with its values, in any order; ``kernel`` is what the recipe makes here."""


class ThisMachine:
    """Tiles one after the other in this process, each on several threads."""

    def memory(self) -> int:
        """Half of what is free."""
        return memory_budget()

    def threads(self) -> int:
        """As many as torch uses."""
        return torch.get_num_threads()

    def __str__(self) -> str:
        return "on this machine"

    def computed(
        self, recipe: Recipe, kernel: TiledKernel, tiles: Iterable[Tile], memory: int, threads: int
    ) -> Iterator[tuple[Tile, Float[Tensor, "_rows _columns"]]]:
        """Each tile with its values, in order."""
        for tile in tiles:
            with pinned_threads(threads):
                yield tile, stored_tile(kernel, tile)


def stored_plan(plan: Plan, itemsize: int) -> Plan:
    """The tiles of a store: several blocks of the computation each where those are small."""
    block1, block2 = (min(_multiple(block), n) for block, n in ((plan.block1, plan.n1), (plan.block2, plan.n2)))
    return replace(plan, block1=block1, block2=block2, tile_bytes=block1 * block2 * itemsize, kept_bytes=0)


def _multiple(block: int) -> int:
    return block * max(1, -(-STORED_SIDE // block))


def stored_tile(kernel: TiledKernel, tile: Tile) -> Float[Tensor, "rows columns"]:
    """A tile of a store, block by block as the kernel's own plan has them, and so with the same rounding.

    Raises: OverflowError if it is not finite.
    """
    plan, (rows, columns) = kernel.plan, tile.shape
    symmetric = plan.symmetric and tile.rows == tile.columns
    if rows <= plan.block1 and columns <= plan.block2:
        values = kernel.values(tile)
    else:
        values = torch.empty(rows, columns, dtype=kernel.dtype)
        inner = Plan(rows, columns, plan.block1, plan.block2, symmetric, 0)
        fill(values, inner, lambda part: kernel.values(_moved(part, tile)), show=False)
    refuse_overflow(values, kernel.what, WAY_OUT)
    return values.cpu()


def _moved(part: Tile, tile: Tile) -> Tile:
    first, second = tile.rows.start, tile.columns.start
    return Tile(
        slice(part.rows.start + first, part.rows.stop + first),
        slice(part.columns.start + second, part.columns.stop + second),
    )


def check_threads(count: int, name: str = "`threads`") -> None:
    """Refuse a number of threads that no machine has. Raises: ValueError."""
    if not 1 <= count <= MOST_THREADS:
        raise ValueError(f"{name} must be from 1 to {MOST_THREADS}, got {count}; one for each processor is best.")


@contextmanager
def pinned_threads(count: int) -> Iterator[None]:
    """Torch and the compiled loops on so many threads: the rounding of some kernels depends on it."""
    before = torch.get_num_threads()
    numba.get_num_threads()  # the first call starts numba's threads, and sets torch's count to theirs
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
