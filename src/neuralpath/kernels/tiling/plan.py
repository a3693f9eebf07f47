"""How a kernel matrix is cut into tiles."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from neuralpath._memory import format_memory


class BudgetTooSmall(MemoryError):
    """Not even one pair of examples fits the memory budget."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a tile of a kernel needs besides its result."""

    bytes_per_pair: int
    bytes_per_example: int  # inputs, gates and what else each row and column of a tile holds
    best_pairs: int  # more pairs at once than this bring nothing
    gates_per_example: int = 0  # bytes of one example's gates, if they are kept for all

    @property
    def smallest(self) -> int:
        """Bytes of a tile of one pair."""
        return self.bytes_per_pair + 2 * self.bytes_per_example


@dataclass(frozen=True, slots=True)
class Tile:
    """A block of rows and columns of the kernel."""

    rows: slice
    """Rows of the block."""
    columns: slice
    """Columns of the block."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    def shifted(self, rows: int, columns: int) -> "Tile":
        """The tile moved down by a number of rows and right by a number of columns."""
        return Tile(
            slice(self.rows.start + rows, self.rows.stop + rows),
            slice(self.columns.start + columns, self.columns.stop + columns),
        )

    def n_pairs(self, symmetric: bool) -> int:
        """Number of different pairs; on the diagonal of a symmetric kernel about half of the entries."""
        rows, columns = self.shape
        return rows * (rows + 1) // 2 if symmetric and self.rows == self.columns else rows * columns


@dataclass(frozen=True, slots=True)
class Plan:
    """Tiles of equal size over a kernel of ``n1`` times ``n2`` entries, the upper half only where it is symmetric."""

    n1: int
    n2: int
    block1: int
    block2: int
    symmetric: bool
    tile_bytes: int
    kept_bytes: int = 0  # for all tiles: gates, packed words, buffers

    def tiles(self) -> Iterator[Tile]:
        """The tiles, row by row."""
        for start1 in range(0, self.n1, self.block1):
            rows = slice(start1, min(start1 + self.block1, self.n1))
            for start2 in range(start1 if self.symmetric else 0, self.n2, self.block2):
                yield Tile(rows, slice(start2, min(start2 + self.block2, self.n2)))

    @property
    def working_bytes(self) -> int:
        """Memory of the work, without the result."""
        return self.tile_bytes + self.kept_bytes

    @property
    def n_pairs(self) -> int:
        """Number of different pairs of examples."""
        return self.n1 * (self.n1 + 1) // 2 if self.symmetric else self.n1 * self.n2

    def __str__(self) -> str:
        n_tiles = sum(1 for _ in self.tiles())
        return (
            f"{self.n_pairs:,} pairs in {n_tiles:,} tiles of {self.block1} x {self.block2}, "
            f"{format_memory(self.tile_bytes)} each"
        )


def make_plan(n1: int, n2: int, cost: Cost, budget: int, *, symmetric: bool, kept_bytes: int = 0) -> Plan:
    """Square tiles, as large as is useful and as the budget allows, ``kept_bytes`` of which are held for all tiles.

    Raises: BudgetTooSmall if one pair does not fit; the message names the smallest budget that works.
    """
    smallest = cost.smallest + kept_bytes
    if smallest > budget:
        raise BudgetTooSmall(
            f"one pair of examples needs {format_memory(smallest)}, but the memory budget is {format_memory(budget)}: "
            f"give at least memory={smallest}, or use `path_sketch`, which needs no pair matrices."
        )
    # side**2 * pair + 2 * side * example <= left
    pair, example, left = max(cost.bytes_per_pair, 1), cost.bytes_per_example, budget - kept_bytes
    side = int((math.sqrt(example**2 + pair * left) - example) / pair)
    side = max(1, min(side, math.isqrt(cost.best_pairs)))
    block1, block2 = min(side, n1), min(side, n2)
    if symmetric:
        block1 = block2 = min(side, n1)
    tile_bytes = block1 * block2 * pair + (block1 + block2) * example
    return Plan(n1, n2, block1, block2, symmetric, tile_bytes, kept_bytes)
