"""Checking a stored kernel: checksums of all tiles, and values of some."""

from dataclasses import dataclass
from pathlib import Path

import torch

from neuralpath._progress import progress_bar
from neuralpath.kernels.storage.same_kernel import ROUNDING, refuse_other_kernel, relative_gap
from neuralpath.kernels.storage.store import StoredKernel, StoreError
from neuralpath.kernels.storage.stored_tiles import Recipe, pinned_threads, stored_tile
from neuralpath.kernels.tiling.plan import Tile


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found in a stored kernel; tiles by their files."""

    n_tiles: int
    n_missing: int
    n_recomputed: int
    damaged: tuple[Path, ...]
    """Tiles whose bytes are not those that were written."""
    wrong: dict[Path, float]
    """Tiles that differ from what is computed now, by more than rounding; with the share of the largest entry."""
    rounded: dict[Path, float]
    """Tiles that differ by rounding only, as another kind of processor or another number of threads makes it."""

    @property
    def complete(self) -> bool:
        """Whether every tile is there."""
        return self.n_missing == 0

    @property
    def good(self) -> bool:
        """Whether every tile that is there has its bytes, and every one that was computed again its values."""
        return not self.damaged and not self.wrong

    def __str__(self) -> str:
        there = self.n_tiles - self.n_missing
        lines = [
            f"{there:,} of {self.n_tiles:,} tiles are there; {there - len(self.damaged):,} have the right checksum"
        ]
        if not self.complete:
            lines.append("The store is not complete: run the command that began it, which goes on from these tiles.")
        equal = self.n_recomputed - len(self.wrong) - len(self.rounded)
        lines.append(f"{self.n_recomputed:,} computed again: {equal:,} equal bit for bit")
        if self.rounded:
            gap = max(self.rounded.values())
            lines.append(f"{len(self.rounded):,} differ by rounding ({gap:.1e}): another kind of processor wrote them")
        lines += [f"damaged: {file}" for file in self.damaged]
        lines += [f"wrong by {gap:.1e} of its largest entry: {file}" for file, gap in self.wrong.items()]
        if not self.good:
            lines.append(
                "To repair, remove these files and run the command that made the store; it computes them anew."
            )
        return "\n".join(lines)


def verify(
    kernel: StoredKernel,
    recipe: Recipe,
    *,
    n_tiles: int,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> Verification:
    """Read every tile that is there, and compute so many of them again, drawn at random.

    Raises: StoreError if the store was computed from anything else; ValueError for a negative number.
    """
    if n_tiles < 0:
        raise ValueError(f"`n_tiles` must be 0 or more, got {n_tiles}.")
    refuse_other_kernel(kernel, recipe)
    missing = set(map(kernel.file_of, kernel.missing()))
    there = [tile for tile in kernel.plan.tiles() if kernel.file_of(tile) not in missing]
    damaged = {kernel.file_of(tile) for tile in there if not _readable(kernel, tile)}
    sound = [tile for tile in there if kernel.file_of(tile) not in damaged]
    chosen = [sound[i] for i in torch.randperm(len(sound), generator=generator)[:n_tiles].tolist()]
    wrong: dict[Path, float] = {}
    rounded: dict[Path, float] = {}
    own = kernel.description
    with pinned_threads(own.threads), progress_bar(len(chosen), "tiles computed again", progress) as step:
        tiled = recipe.make(memory=own.memory) if chosen else None
        for tile in chosen:
            assert tiled is not None
            gap = relative_gap(kernel.values(tile), stored_tile(tiled, tile))
            if gap > 0:
                (wrong if gap > ROUNDING[kernel.dtype] else rounded)[kernel.file_of(tile)] = gap
            step(1)
    return Verification(kernel.n_tiles, len(missing), len(chosen), tuple(sorted(damaged)), wrong, rounded)


def _readable(kernel: StoredKernel, tile: Tile) -> bool:
    try:
        return bool(torch.isfinite(kernel.values(tile)).all())
    except StoreError:
        return False
