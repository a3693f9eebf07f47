"""Large kernel matrices in tiles, under a memory budget: the plan, and the matrix that is computed tile by tile."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._progress import Step, progress_bar
from neuralpath._resources import available_memory, format_memory, without_autocast

Block = Float[Tensor, "*kernels _rows _columns"]


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
        moved = ((self.rows, rows), (self.columns, columns))
        return Tile(*(slice(part.start + by, part.stop + by) for part, by in moved))

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
        size = f"{self.block1} x {self.block2}, {format_memory(self.tile_bytes)} each"
        return f"{self.n_pairs:,} pairs in {n_tiles:,} tiles of {size}"


def make_plan(n1: int, n2: int, cost: Cost, budget: int, *, symmetric: bool, kept_bytes: int = 0) -> Plan:
    """Square tiles, as large as is useful and as the budget allows, ``kept_bytes`` of which are held for all tiles."""
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
    tile_bytes = block1 * block2 * pair + (block1 + block2) * example
    return Plan(n1, n2, block1, block2, symmetric, tile_bytes, kept_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class TiledKernel:
    """A kernel matrix as a plan of tiles and a function that computes any block; iterate over (tile, values) pairs.

    A symmetric plan has only the tiles on and above the diagonal. Several kernels that are computed together have
    axes of their own in front of rows and columns. It can be iterated any number of times.
    """

    name: str
    """Name of the kernel, for messages."""
    plan: Plan
    """How the matrix is cut into tiles."""
    compute: Callable[[Tile], Block]
    """Computes a block; below the diagonal of a symmetric block its values need not be right."""
    dtype: torch.dtype
    """Dtype of the entries."""
    device: torch.device
    """Device of the entries."""
    write: Callable[[Float[Tensor, "rows columns"], Step], None] | None = field(default=None, kw_only=True)
    """Writes the whole matrix into a tensor, if that is faster than tile by tile."""
    kernels: tuple[int, ...] = field(default=(), kw_only=True)
    """Sizes of the axes in front."""
    diagonal_block: int = field(default=16, kw_only=True)
    """Examples whose kernel is computed together for their diagonal entries: fewer calls against unused pairs."""
    overflow_hint: str | None = field(default=None, kw_only=True)
    """Advice for a matrix that exceeds the range of its dtype; None: the caller checks."""

    def __iter__(self) -> Iterator[tuple[Tile, Block]]:
        for tile in self.plan.tiles():
            yield tile, self.values(tile)

    @without_autocast()
    def values(self, tile: Tile) -> Block:
        """One block; on the diagonal of a symmetric kernel exactly symmetric, a copy of its upper half.

        Args:
            tile: Rows and columns of the block.
        """
        values = self.compute(tile)
        if self.plan.symmetric and tile.rows == tile.columns:
            return torch.triu(values) + torch.triu(values, 1).mT
        return values

    def assembled(self, tile: Tile) -> Float[Tensor, "rows columns"]:
        """A block of any size, put together from blocks of the plan's size: each entry has the rounding of the plan.

        Args:
            tile: Rows and columns of the block; they start at a block of the plan.

        Raises:
            OverflowError: An entry exceeds the range of the dtype.
        """
        plan, (rows, columns) = self.plan, tile.shape
        if rows <= plan.block1 and columns <= plan.block2:
            values = self.values(tile)
        else:
            values = torch.empty(rows, columns, dtype=self.dtype, device=self.device)
            symmetric = plan.symmetric and tile.rows == tile.columns
            inner = Plan(rows, columns, plan.block1, plan.block2, symmetric, 0)
            fill(values, inner, lambda part: self.values(part.shifted(tile.rows.start, tile.columns.start)))
        refuse_overflow(values, self.name, self.overflow_hint or "give the inputs in float64")
        return values

    @without_autocast()
    def diagonal(self) -> Float[Tensor, "*kernels batch"]:
        """The diagonal of a symmetric kernel, from small blocks on it."""
        step = min(self.diagonal_block, self.plan.block1)
        blocks = (slice(start, min(start + step, self.plan.n1)) for start in range(0, self.plan.n1, step))
        parts = [self.compute(Tile(block, block)).diagonal(dim1=-2, dim2=-1).clone() for block in blocks]
        entries = torch.cat(parts, dim=-1)
        if self.overflow_hint is not None:
            refuse_overflow(entries[..., None], self.name, self.overflow_hint)
        return entries

    def times(self, factor: float) -> "TiledKernel":
        """The same kernel with every entry multiplied.

        Args:
            factor: The factor.
        """
        return replace(self, compute=lambda tile: self.compute(tile).mul_(factor), write=None)

    @without_autocast()
    def filled(self, progress: bool | None = None) -> Float[Tensor, "*kernels batch1 batch2"]:
        """The whole kernel matrix in memory.

        Args:
            progress: Whether to show a progress bar; None: on a terminal, for long computations.

        Raises:
            MemoryError: The matrix alone exceeds the free memory.
            OverflowError: An entry exceeds the range of the dtype.
        """
        shape = (*self.kernels, self.plan.n1, self.plan.n2)
        refuse_large_result(self.name, shape, self.dtype, self.device, "use its tiles, `store`, or `path_sketch`")
        out = large_empty(shape, self.dtype, self.device)
        with progress_bar(self.plan.n_pairs, self.name, progress) as step:
            if self.write is None:
                fill(out, self.plan, self.values, step)
            else:
                self.write(out, step)
        if self.overflow_hint is not None:
            refuse_overflow(out, self.name, self.overflow_hint)
        return out


def fill(out: Block, plan: Plan, compute: Callable[[Tile], Block], step: Step = lambda n_pairs: None) -> None:
    """Compute every tile of a plan into a tensor; the lower half of a symmetric kernel is a copy of the upper half."""
    for tile in plan.tiles():
        values = compute(tile)
        if plan.symmetric and tile.rows != tile.columns:
            out[..., tile.columns, tile.rows] = values.mT
        out[..., tile.rows, tile.columns] = values
        step(tile.n_pairs(plan.symmetric))


def large_empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """An uninitialized tensor; on the CPU allocated by numpy, whose huge pages make the first writes fast."""
    if device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.empty(math.prod(shape) * dtype.itemsize, np.uint8)).view(dtype).reshape(shape)


def refuse_large_result(name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, hint: str) -> None:
    """Refuse a matrix in memory that exceeds the free memory."""
    size, free = math.prod(shape) * dtype.itemsize, available_memory()
    if device.type == "cpu" and size > free:
        raise MemoryError(
            f"the {name} of {shape[-2]:,} x {shape[-1]:,} examples takes {format_memory(size)}, but only "
            f"{format_memory(free)} are free: {hint}."
        )


def refuse_overflow(kernel: Float[Tensor, "*kernels batch1 batch2"], name: str, hint: str) -> None:
    """Refuse a kernel with entries that are not finite."""
    # A sum is cheap, and finite only if its terms are; only an infinite sum needs a closer look.
    if not bool(torch.isfinite(kernel.sum())) and not bool(torch.isfinite(kernel).all()):
        dtype = str(kernel.dtype).removeprefix("torch.")
        raise OverflowError(f"the {name} exceeds the range of {dtype}: {hint}.")
