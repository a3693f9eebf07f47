"""Whether a store holds the kernel that is asked for: what it was computed from, and a part of its values."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath.kernels.storage.store import StoredKernel, StoreError
from neuralpath.kernels.storage.stored_tiles import Recipe
from neuralpath.kernels.tiling.plan import Tile
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel

ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-10}
"""Relative to the largest entry, by how much tiles may differ that another kind of processor has computed."""

CORNER = 8
"""Rows and columns of a complete kernel that are computed again: few, as nothing else is left to do."""

Say = Callable[[str], None]


def refuse_other_kernel(kernel: StoredKernel, recipe: Recipe) -> None:
    """Refuse a store that was computed from anything else, and say what differs.

    Raises: StoreError.
    """
    differences = kernel.fingerprint.differences(recipe.fingerprint)
    if differences:
        raise StoreError(
            f"{kernel.folder} holds another kernel. What differs: {'; '.join(differences)}. "
            "Give what it was begun with, or another folder."
        )


def refuse_other_corners(kernel: StoredKernel, tiled: TiledKernel) -> None:
    """Compare a few entries of the first and of the last examples of a complete kernel with what is computed now.

    Where few at a time are computed in another way, they may differ by more than rounding: then the block that they are
    in decides, which is as large as those that the store was computed from.

    Raises: StoreError.
    """
    (n1, n2), (block1, block2) = kernel.shape, kernel.description.block
    first = Tile(_head(slice(0, n1), block1), _head(slice(0, n2), block2))
    last = Tile(slice((n1 - 1) // block1 * block1, n1), slice((n2 - 1) // block2 * block2, n2))
    for block, cut in ((first, _head), (last, _tail)):
        if _gap(kernel, tiled, Tile(cut(block.rows, CORNER), cut(block.columns, CORNER))) > ROUNDING[kernel.dtype]:
            _refuse_other_values(kernel, tiled, block)


def refuse_other_blocks(kernel: StoredKernel, tiled: TiledKernel, say: Say) -> None:
    """Compare a block of a finished tile with what is computed now, and the size of blocks.

    Raises: StoreError.
    """
    finished = next((tile for tile in kernel.plan.tiles() if kernel.file_of(tile).is_file()), None)
    if finished is None:
        return
    block1, block2 = kernel.description.block
    if (tiled.plan.block1, tiled.plan.block2) != (block1, block2):
        raise StoreError(
            f"{kernel.folder} has tiles of blocks of {block1} x {block2}, but now they would be {tiled.plan.block1} x "
            f"{tiled.plan.block2}: another version of the library wrote it. Begin in another folder."
        )
    gap = _refuse_other_values(kernel, tiled, Tile(_head(finished.rows, block1), _head(finished.columns, block2)))
    if gap > 0:
        say(f"finished tiles differ from what is computed now by rounding ({gap:.1e}): another kind of processor.")


def _refuse_other_values(kernel: StoredKernel, tiled: TiledKernel, block: Tile) -> float:
    """Compare a block of a finished tile with what is computed now; by how much it differs, within rounding."""
    gap = _gap(kernel, tiled, block)
    if gap > ROUNDING[kernel.dtype]:
        raise StoreError(
            f"a finished tile of {kernel.folder} differs by {gap:.1e} of its largest entry from what is computed now, "
            "though weights, inputs and settings are the same: the code of the model or a number in it (an attribute "
            f"that is no parameter or buffer) has changed, or the tile {kernel.file_of(block)} is wrong. Begin in "
            "another folder."
        )
    return gap


def _head(part: slice, size: int) -> slice:
    return slice(part.start, min(part.start + size, part.stop))


def _tail(part: slice, size: int) -> slice:
    return slice(max(part.start, part.stop - size), part.stop)


def _gap(kernel: StoredKernel, tiled: TiledKernel, part: Tile) -> float:
    return relative_gap(kernel.values(part), tiled.values(part).cpu())


def relative_gap(stored: Float[Tensor, "rows columns"], computed: Float[Tensor, "rows columns"]) -> float:
    """Largest difference, as a share of the largest entry; 0 only where all values agree, infinity beside NaN."""
    if torch.equal(stored, computed):
        return 0.0
    gap, size = (stored.double() - computed.double()).abs().max(), computed.double().abs().max()
    share = float(gap / size)
    return share if math.isfinite(share) else math.inf  # a NaN would pass every bound
