"""Overlaps of packed gate vectors: for each pair of examples, how many gates both have open.

The gates of all layers of one example are one row of words. Columns are copied into tiles that fit into the cache,
transposed, so that the loop over columns reads one run of memory and the compiler vectorizes it:

    rows     (example, word)          | words of layer 1 | words of layer 2 | ...    one row per example
    tiles    (tile, word, column)       word 0 of columns 0 ... size-1
                                        word 1 of columns 0 ... size-1
                                        ...                                          one run of memory per tile

A row multiplies a vector `product`, one entry for each column of a tile, by the overlaps of layer 1, layer 2, and so
on; then the tile's part of the output row is multiplied by `product`. One thread computes ROWS rows for all tiles.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numba import prange
from torch import Tensor

from neuralpath._loops.compiled import compiled, use_bits
from neuralpath._loops.instructions import popcount
from neuralpath._loops.packed import Words, pack

ROWS = 64  # rows of a task: one thread computes them before it takes the next task
TILE_BYTES = 160 * 1024  # words of a tile of columns, to stay in a core's second-level cache
MAX_COLUMNS = 512


@cache
def _times_overlaps(n_words: int) -> Callable[..., None]:
    """A loop over columns with the number of words known to the compiler, which then unrolls and vectorizes it."""

    @compiled()
    def times_overlaps(product: Any, row: Any, columns: Any, scale: float) -> None:
        for j in range(product.shape[0]):
            count = np.uint64(0)
            for word in range(n_words):
                count += popcount(row[word] & columns[word, j])
            product[j] *= np.float64(np.int64(count)) * scale

    return times_overlaps


@cache
def _times_overlap_products(words: tuple[int, ...]) -> Callable[..., None]:
    """A pass over the pairs that multiplies each by the overlaps of all layers, tile by tile."""
    loops = tuple(_times_overlaps(count) for count in words)
    row_product = _equal_layers(loops[0], words) if len(set(words)) == 1 else _unrolled(loops, words)

    @compiled(parallel=True)
    def times_products(out: Any, rows: Any, tiles: Any, scales: Any, skip_below: int) -> None:
        n_rows, n_columns = out.shape
        size = tiles.shape[2]
        for block in prange((n_rows + ROWS - 1) // ROWS):
            product = np.empty(size)
            for tile in range(tiles.shape[0]):
                start, stop = tile * size, min(tile * size + size, n_columns)
                if stop <= block * ROWS + skip_below:
                    continue
                for i in range(block * ROWS, min(n_rows, block * ROWS + ROWS)):
                    product[:] = 1.0
                    row_product(product, rows[i], tiles[tile], scales)
                    target = out[i, start:stop]
                    for j in range(target.shape[0]):
                        target[j] *= product[j]

    return times_products


def _equal_layers(loop: Callable[..., None], words: tuple[int, ...]) -> Callable[..., None]:
    """Layers of one width share a loop."""
    n_layers, width = len(words), words[0]

    @compiled()
    def row_product(product: Any, row: Any, columns: Any, scales: Any) -> None:
        for layer in range(n_layers):
            start = layer * width
            loop(product, row[start : start + width], columns[start : start + width], scales[layer])

    return row_product


def _unrolled(loops: tuple[Callable[..., None], ...], words: tuple[int, ...]) -> Callable[..., None]:
    """Layers of different widths: each has its own loop, and calls the chain of the layers before it."""
    if len(loops) == 1:
        return _equal_layers(loops[0], words)
    loop, stop, layer = loops[-1], sum(words), len(loops) - 1
    start = stop - words[-1]
    before = _unrolled(loops[:-1], words[:-1])

    @compiled()
    def chained(product: Any, row: Any, columns: Any, scales: Any) -> None:
        before(product, row, columns, scales)
        loop(product, row[start:stop], columns[start:stop], scales[layer])

    return chained


@dataclass(frozen=True, slots=True, eq=False)
class PackedLayers:
    """The hard gates of several dense layers for a batch, packed as drawn above."""

    rows: Words
    words: tuple[int, ...]  # of each layer

    @classmethod
    def of(cls, layers: Sequence[Bool[Tensor, "_batch _unit"]]) -> "PackedLayers":
        """Pack the gates of a batch."""
        packed = [pack(layer) for layer in layers]
        return cls(np.concatenate(packed, axis=1), tuple(p.shape[1] for p in packed))

    @classmethod
    def joined(cls, parts: Sequence["PackedLayers"]) -> "PackedLayers":
        """Batches of one network, one after the other."""
        return cls(np.concatenate([part.rows for part in parts]), parts[0].words)

    def __len__(self) -> int:
        return self.rows.shape[0]

    def tiles(self, start: int, stop: int) -> Words:
        """Columns ``start`` to ``stop`` in the layout (tile, word, column), so that a tile is one run of memory."""
        total, size = self.rows.shape[1], MAX_COLUMNS
        while size > 64 and size * total * 8 > TILE_BYTES:
            size //= 2
        n_tiles = -(-(stop - start) // size)
        padded = np.zeros((n_tiles * size, total), np.uint64)
        padded[: stop - start] = self.rows[start:stop]
        return np.ascontiguousarray(padded.reshape(n_tiles, size, total).transpose(0, 2, 1))


def multiply_by_overlaps(
    out: Float[Tensor, "rows columns"],
    rows: PackedLayers,
    row_start: int,
    tiles: Words,
    scales: Sequence[float],
    *,
    skip_below: int | None = None,
) -> None:
    """Multiply each entry in place by the product over layers of scale times overlap.

    With ``skip_below``, whole tiles left of the diagonal (column + skip_below < row) may be skipped.
    """
    # A diagonal far to the left of every column skips nothing.
    skip = -(2**62) if skip_below is None else skip_below
    words = rows.rows[row_start : row_start + out.shape[0]]
    _times_overlap_products(rows.words)(out.numpy(), words, tiles, np.asarray(scales, np.float64), skip)


def overlaps(
    gates1: Bool[Tensor, "batch1 unit"], gates2: Bool[Tensor, "batch2 unit"], dtype: torch.dtype
) -> Float[Tensor, "batch1 batch2"]:
    """For each pair the number of gates that both have open.

    >>> a = torch.tensor([[True, True, False]]); b = torch.tensor([[True, False, True], [False, False, True]])
    >>> overlaps(a, b, torch.float32)
    tensor([[1., 0.]])
    """
    if not use_bits(gates1, gates2) or dtype not in (torch.float32, torch.float64):
        return gates1.to(dtype) @ gates2.to(dtype).T
    out = torch.ones(gates1.shape[0], gates2.shape[0], dtype=dtype)
    columns = PackedLayers.of([gates2])
    multiply_by_overlaps(out, PackedLayers.of([gates1]), 0, columns.tiles(0, len(columns)), [1.0])
    return out
