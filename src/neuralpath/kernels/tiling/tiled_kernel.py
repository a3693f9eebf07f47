"""A kernel that is computed tile by tile."""

import logging
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from rich.console import Console
from torch import Tensor

from neuralpath._memory import available_memory, format_memory
from neuralpath._precision import without_autocast
from neuralpath._progress import Step, progress_bar
from neuralpath.kernels.tiling.estimate import Estimate, may_be_long, sampled_seconds
from neuralpath.kernels.tiling.fill import fill
from neuralpath.kernels.tiling.plan import Plan, Tile
from neuralpath.kernels.tiling.workspace import large_empty

_log = logging.getLogger("neuralpath")


@dataclass(frozen=True, slots=True, eq=False)
class TiledKernel:
    """A kernel as a plan and a function that computes any block of it; iterate to get each tile and its values.

    With a symmetric plan only tiles on and above the diagonal are there. Several kernels that are computed together
    stand in axes in front of rows and columns.
    """

    what: str
    plan: Plan
    compute: Callable[[Tile], Float[Tensor, "*kernels _rows _columns"]]
    dtype: torch.dtype
    device: torch.device
    write: Callable[[Float[Tensor, "rows columns"], Step], None] | None = field(default=None, kw_only=True)
    """Writes the whole kernel into a given tensor, where that is better than putting tiles together."""
    kernels: tuple[int, ...] = field(default=(), kw_only=True)
    """Sizes of the axes in front."""
    diagonal_block: int = field(default=16, kw_only=True)
    """Examples whose kernel is computed together for their diagonal entries: fewer calls against unused pairs."""
    overflow_hint: str | None = field(default=None, kw_only=True)
    """Advice for a matrix that exceeds the range of its dtype; None: the caller checks."""

    def __iter__(self) -> Iterator[tuple[Tile, Float[Tensor, "*kernels _rows _columns"]]]:
        for tile in self.plan.tiles():
            yield tile, self.values(tile)

    @without_autocast()
    def values(self, tile: Tile) -> Float[Tensor, "*kernels _rows _columns"]:
        """One tile; on the diagonal of a symmetric kernel exactly symmetric, its upper half the computed one."""
        values = self.compute(tile)
        if self.plan.symmetric and tile.rows == tile.columns:
            return torch.triu(values) + torch.triu(values, 1).mT
        return values

    @without_autocast()
    def diagonal(self) -> Float[Tensor, "*kernels batch"]:
        """The diagonal of a symmetric kernel, from small blocks on it."""
        step = min(self.diagonal_block, self.plan.block1)
        blocks = (slice(start, min(start + step, self.plan.n1)) for start in range(0, self.plan.n1, step))
        parts = [self.compute(Tile(block, block)).diagonal(dim1=-2, dim2=-1).clone() for block in blocks]
        entries = torch.cat(parts, dim=-1)
        if self.overflow_hint is not None:
            refuse_overflow(entries[..., None], self.what, self.overflow_hint)
        return entries

    def times(self, gain: float) -> "TiledKernel":
        """The same kernel with every entry multiplied."""
        return replace(self, compute=lambda tile: self.compute(tile).mul_(gain), write=None)

    @without_autocast()
    def estimate(self) -> Estimate:
        """What the whole will cost, from a sample of at most about half a second (compilation comes on top, once)."""
        return Estimate(sampled_seconds(self.plan, self.compute), self.plan.working_bytes, self._result_bytes)

    @without_autocast()
    def filled(self, progress: bool | None = None) -> Float[Tensor, "*kernels batch1 batch2"]:
        """The whole kernel in memory; long work is announced on a terminal, and in the log `neuralpath`.

        Raises: MemoryError if the result alone is more than what is free.
        """
        if self.device.type == "cpu" and self._result_bytes > available_memory():
            raise MemoryError(
                f"the {self.what} of {self.plan.n1:,} x {self.plan.n2:,} examples takes "
                f"{format_memory(self._result_bytes)}, more than the {format_memory(available_memory())} that are "
                f"free: use its tiles, `neuralpath kernel` to a file, or `path_sketch`."
            )
        if may_be_long(self.plan, self.compute) and (estimate := self.estimate()).long:
            self._announce(f"{self.what}: {estimate}", progress)
        out = large_empty((*self.kernels, self.plan.n1, self.plan.n2), self.dtype, self.device)
        if self.write is None:
            fill(out, self.plan, self.values, what=self.what, show=progress)
        else:
            with progress_bar(self.plan.n_pairs, self.what, progress) as step:
                self.write(out, step)
        if self.overflow_hint is not None:
            refuse_overflow(out, self.what, self.overflow_hint)
        return out

    @property
    def _result_bytes(self) -> int:
        return math.prod(self.kernels) * self.plan.n1 * self.plan.n2 * self.dtype.itemsize

    @staticmethod
    def _announce(message: str, progress: bool | None) -> None:
        _log.info(message)
        if progress or (progress is None and sys.stderr.isatty()):
            Console(stderr=True).print(message, highlight=False)


def refuse_overflow(kernel: Float[Tensor, "*kernels batch1 batch2"], what: str, way_out: str) -> None:
    """Refuse a kernel with entries that are not finite, naming a way out.

    Raises: OverflowError.
    """
    # A sum is cheap, and finite only if its terms are; only one that is not needs the closer look.
    if not bool(torch.isfinite(kernel.sum())) and not bool(torch.isfinite(kernel).all()):
        name = str(kernel.dtype).removeprefix("torch.")
        raise OverflowError(f"the {what} passes the range of {name}: {way_out}.")
