"""Comparing a store with the kernel that is asked for: what it was computed from, its checksums, and its values."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._progress import progress_bar
from neuralpath.kernels.storage.stored_kernel import Parts, StoredKernel, StoreError
from neuralpath.kernels.tiling import Tile, TiledKernel

ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-10}
"""Largest difference between processors of different kinds, relative to the largest entry of a tile."""

CORNER = 8
"""Rows and columns of a complete kernel that are computed again: few, as nothing else is left to compute."""

LISTED = 3
"""Names of changed tensors that a message lists."""


def differences(before: Parts, now: Parts) -> list[str]:
    """What differs between two descriptions of a kernel, a phrase for each part.

    >>> differences({"kernel": "a", "weights": {"w": "1", "b": "2"}}, {"kernel": "c", "weights": {"w": "1", "b": "3"}})
    ['kernel (was a, is c)', 'weights (b)']
    """
    phrases = []
    for name in [*before, *(name for name in now if name not in before)]:
        old, new = before.get(name, {}), now.get(name, {})
        if old == new:
            continue
        if isinstance(old, str) and isinstance(new, str):
            phrases.append(f"{name} (was {old}, is {new})")
            continue
        old, new = (dict(part) if isinstance(part, Mapping) else {"": part} for part in (old, new))
        changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        more = f", and {len(changed) - LISTED} more" if len(changed) > LISTED else ""
        phrases.append(f"{name} ({', '.join(changed[:LISTED])}{more})")
    return phrases


def refuse_other_kernel(stored: StoredKernel, fingerprint: Parts) -> None:
    """Refuse a store that was computed from anything else, and say what differs."""
    phrases = differences(stored.description.fingerprint, fingerprint)
    if phrases:
        raise StoreError(
            f"{stored.folder} holds another kernel. These differ: {'; '.join(phrases)}. Use the arguments that it was "
            "begun with, or another folder."
        )


def refuse_other_values(stored: StoredKernel, kernel: TiledKernel, on_message: Callable[[str], None]) -> None:
    """Compare a part of a store with what is computed now: its corners if it is complete, else a finished block."""
    if stored.complete:
        refuse_other_corners(stored, kernel)
        return
    finished = next((tile for tile in stored.plan.tiles() if stored.file_of(tile).is_file()), None)
    if finished is None:
        return
    block1, block2 = stored.description.block
    if (kernel.plan.block1, kernel.plan.block2) != (block1, block2):
        blocks = f"{block1} x {block2}, now {kernel.plan.block1} x {kernel.plan.block2}"
        raise StoreError(f"{stored.folder} has blocks of {blocks}: another version wrote it. Use another folder.")
    gap = _checked_gap(stored, kernel, Tile(_head(finished.rows, block1), _head(finished.columns, block2)))
    if gap > 0:
        on_message(f"finished tiles differ by rounding ({gap:.1e}) from what is computed now: another processor.")


def refuse_other_corners(stored: StoredKernel, kernel: TiledKernel, corner: int = CORNER) -> None:
    """Compare entries of the first and of the last examples of a complete store with what is computed now."""
    (n1, n2), (block1, block2) = stored.shape, stored.description.block
    first = Tile(_head(slice(0, n1), block1), _head(slice(0, n2), block2))
    last = Tile(slice((n1 - 1) // block1 * block1, n1), slice((n2 - 1) // block2 * block2, n2))
    tails = (slice(max(part.start, part.stop - corner), part.stop) for part in (last.rows, last.columns))
    heads = Tile(_head(first.rows, corner), _head(first.columns, corner))
    for block, part in ((first, heads), (last, Tile(*tails))):
        # Another method may compute few entries, and they may differ by more than rounding: the whole block decides.
        if relative_gap(stored.values(part), kernel.values(part).cpu()) > ROUNDING[stored.dtype]:
            _checked_gap(stored, kernel, block)


def _checked_gap(stored: StoredKernel, kernel: TiledKernel, block: Tile) -> float:
    """The difference between a stored block and what is computed now; refuses one beyond rounding."""
    gap = relative_gap(stored.values(block), kernel.values(block).cpu())
    if gap > ROUNDING[stored.dtype]:
        raise StoreError(
            f"a finished tile differs by {gap:.1e} of its largest entry. Either the code of the model or a number in "
            f"it (an attribute that is no buffer) has changed, or the file {stored.file_of(block)} is wrong."
        )
    return gap


def _head(part: slice, size: int) -> slice:
    return slice(part.start, min(part.start + size, part.stop))


def relative_gap(stored: Float[Tensor, "rows columns"], computed: Float[Tensor, "rows columns"]) -> float:
    """Largest difference relative to the largest entry; 0 only if all values are equal, infinity if one is NaN."""
    if torch.equal(stored, computed):
        return 0.0
    share = float((stored.double() - computed.double()).abs().max() / computed.double().abs().max())
    return share if math.isfinite(share) else math.inf  # a NaN would pass every bound


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of checking a stored kernel; tiles are named by their files."""

    n_tiles: int
    """Tiles of the whole kernel."""
    n_missing: int
    """Tiles that are not stored."""
    n_recomputed: int
    """Tiles that were computed again."""
    damaged: tuple[Path, ...]
    """Tiles whose bytes are not those that were written."""
    wrong: dict[Path, float]
    """Tiles that differ by more than rounding from what is computed now, and by which share of the largest entry."""
    rounded: dict[Path, float]
    """Tiles that differ by rounding only, because another kind of processor computed them."""

    @property
    def complete(self) -> bool:
        """Whether every tile is stored."""
        return self.n_missing == 0

    @property
    def good(self) -> bool:
        """Whether every stored tile has its bytes, and every tile that was computed again has its values."""
        return not self.damaged and not self.wrong

    def __str__(self) -> str:
        n_stored = self.n_tiles - self.n_missing
        n_sound = n_stored - len(self.damaged)
        lines = [f"{n_stored:,} of {self.n_tiles:,} tiles are stored; {n_sound:,} have the right checksum"]
        if not self.complete:
            lines.append("The store is not complete: run the command that began it, which resumes from these tiles.")
        equal = self.n_recomputed - len(self.wrong) - len(self.rounded)
        lines.append(f"{self.n_recomputed:,} computed again: {equal:,} equal bit for bit")
        if self.rounded:
            gap = max(self.rounded.values())
            lines.append(f"{len(self.rounded):,} differ by rounding ({gap:.1e}): another kind of processor wrote them")
        lines += [f"damaged: {file}" for file in self.damaged]
        lines += [f"wrong by {gap:.1e} of its largest entry: {file}" for file, gap in self.wrong.items()]
        if not self.good:
            lines.append("To repair, remove these files and run the command that made the store again.")
        return "\n".join(lines)


def verify(
    stored: StoredKernel,
    kernel: Callable[[], TiledKernel],
    *,
    n_tiles: int,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> Verification:
    """Read every stored tile, and compute a random sample of them again; see `Kernel.verify`."""
    if n_tiles < 0:
        raise ValueError(f"`n_tiles` must be 0 or more, got {n_tiles}.")
    present = [tile for tile in stored.plan.tiles() if stored.file_of(tile).is_file()]
    damaged = sorted(stored.file_of(tile) for tile in present if not _is_readable(stored, tile))
    sound = [tile for tile in present if stored.file_of(tile) not in damaged]
    sample = [sound[i] for i in torch.randperm(len(sound), generator=generator)[:n_tiles].tolist()]
    gaps: dict[Path, float] = {}
    with progress_bar(len(sample), "tiles computed again", progress) as step:
        computed = cache(kernel)  # the kernel is prepared only if there is a sample
        for tile in sample:
            gaps[stored.file_of(tile)] = relative_gap(stored.values(tile), computed().assembled(tile).cpu())
            step(1)
    bound = ROUNDING[stored.dtype]
    wrong = {file: gap for file, gap in gaps.items() if gap > bound}
    rounded = {file: gap for file, gap in gaps.items() if 0 < gap <= bound}
    n_missing = stored.n_tiles - len(present)
    return Verification(stored.n_tiles, n_missing, len(sample), tuple(damaged), wrong, rounded)


def _is_readable(stored: StoredKernel, tile: Tile) -> bool:
    try:
        return bool(torch.isfinite(stored.values(tile)).all())
    except StoreError:
        return False
