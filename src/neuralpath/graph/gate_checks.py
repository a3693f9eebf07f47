"""Checks of gates that a caller gives: numbers for an activation, positions inside the windows for a max pool.

A position is checked without comparing it with its whole window. Most windows of a max pool have the same pattern of
flat positions, counted from their first one, so a table has one row for each pattern and one byte for each offset. For
windows of 2 x 2 on lines of 5 positions there is one pattern::

    offset from the first position   0 1 2 3 4 5 6
    is inside the window             1 1 0 0 0 1 1

A position is valid where the row of its window has a 1 at its offset. One more column before and after catches offsets
that are out of range.
"""

from functools import lru_cache
from math import prod

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from neuralpath._checks import check_finite, describe
from neuralpath.graph import nodes as n
from neuralpath.graph.linear_maps import window_positions
from neuralpath.graph.nodes import WindowTable

CHUNK_POSITIONS = 2**16
"""Positions that are checked together: their temporaries stay in the second-level cache."""


def check_layer(
    name: str,
    node: n.GateNode | n.MaxPoolNode,
    layer: Shaped[Tensor, "batch ..."],
    *,
    chunk_positions: int = CHUNK_POSITIONS,
) -> None:
    """Refuse a tensor of gates that does not fit its node: by shape, dtype or values.

    Cost: one pass over soft gates, two or three over positions, without large temporaries.
    Raises: TypeError for a dtype that is none of gates; ValueError otherwise.
    """
    if tuple(layer.shape[1:]) != node.shape:
        raise ValueError(
            f"`{name}` at {node.name!r} has the shape {tuple(layer.shape[1:])} for each example, "
            f"but the graph has {node.shape} there."
        )
    if isinstance(node, n.MaxPoolNode):
        if layer.dtype != torch.int64:
            raise TypeError(f"`{name}` at {node.name!r} must be int64 positions of a max pool, got {describe(layer)}.")
        _check_positions(name, node, layer, chunk_positions)
    elif layer.is_floating_point():
        check_finite(f"{name}[{node.name!r}]", layer)
    elif layer.dtype != torch.bool:
        raise TypeError(
            f"`{name}` at {node.name!r} must be boolean or floating-point gates, got {describe(layer)}; convert it, "
            "for example with `.bool()`."
        )


def _check_positions(name: str, node: n.MaxPoolNode, positions: Int[Tensor, "batch ..."], chunk: int) -> None:
    first, row, inside = (part.to(positions.device) for part in _windows(node))
    n_patterns, width = inside.shape
    # A column before and one after, for offsets out of range. Bytes, because torch finds the minimum of bytes ten times
    # faster than `all` of as many booleans.
    inside = F.pad(inside, (1, 1)).to(torch.uint8).reshape(-1)
    before, start = first - 1, row * (width + 2)
    n_seen = 0
    for part in positions.split(max(1, chunk // max(1, node.n_units))):
        places = (part.flatten(2) - before).clamp_(0, width + 1)
        if n_patterns > 1:
            places += start
        fits = inside.index_select(0, places.reshape(-1))
        if len(fits) and not int(fits.amin()):
            raise ValueError(_misplaced(name, node, positions, n_seen + int(torch.nonzero(fits == 0)[0, 0])))
        n_seen += len(fits)


def _misplaced(name: str, node: n.MaxPoolNode, positions: Int[Tensor, "batch ..."], index: int) -> str:
    """What is wrong with the position at a flat index."""
    low, high = (int(end) for end in positions.aminmax())
    n_positions = prod(node.in_space)
    if low < 0 or high >= n_positions:
        return (
            f"`{name}` at {node.name!r} must be positions from 0 to {n_positions - 1}, the flat "
            f"positions that the max pool reads, got {low} to {high}."
        )
    example, *unit = (int(i) for i in torch.unravel_index(torch.tensor(index), positions.shape))
    window = window_positions(node.tables, node.in_space)[index % node.n_positions]
    read = [position for position in window.tolist() if position >= 0]
    listed = ", ".join(map(str, read[:8])) + (", ..." if len(read) > 8 else "")
    return (
        f"`{name}` at {node.name!r} must be positions inside the window of their unit: example {example} has "
        f"{int(positions[(example, *unit)])} at unit {tuple(unit)}, whose window reads {listed}."
    )


@lru_cache(maxsize=64)  # nodes of a few graphs: the tables take longer than the gates of an example
def _windows(node: n.MaxPoolNode) -> tuple[Int[Tensor, " out"], Int[Tensor, " out"], Bool[Tensor, "_patterns _width"]]:
    """For each output position the first position of its window and the row of its pattern; and the table of patterns.

    The entry of a pattern at k says whether the flat position k after the first one is inside. No position beyond an
    edge is mistaken for one of the next line, because patterns only contain positions that the window has.
    """
    first, row = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    inside = torch.ones(1, 1, dtype=torch.bool)
    for table, size in zip(node.tables, node.in_space, strict=True):
        starts, rows, patterns = _windows_of_axis(table, size)
        first = (first[:, None] * size + starts).reshape(-1)
        row = (row[:, None] * len(patterns) + rows).reshape(-1)
        (n_rows, width), (n_new, reach) = inside.shape, patterns.shape
        lines = F.pad(patterns, (0, size - reach))  # a step along the axes before is a whole line of this one
        inside = (inside[:, None, :, None] & lines[None, :, None, :]).reshape(n_rows * n_new, width * size)
        inside = inside[:, : (width - 1) * size + reach]
    return first, row, inside


def _windows_of_axis(
    table: WindowTable, size: int
) -> tuple[Int[Tensor, " out"], Int[Tensor, " out"], Bool[Tensor, "_patterns _reach"]]:
    """Along one axis: the first position of each window, its pattern, and the offsets of each pattern."""
    is_read = table >= 0
    starts = torch.where(is_read, table, size).amin(1)
    after = torch.where(is_read, table - starts[:, None], 0)  # the first one is read anyway
    patterns = torch.zeros(len(table), int(after.max()) + 1, dtype=torch.bool).scatter_(1, after, True)
    patterns, rows = torch.unique(patterns, dim=0, return_inverse=True)
    return starts, rows, patterns
