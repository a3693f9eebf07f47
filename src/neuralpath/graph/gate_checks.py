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
from jaxtyping import Bool, Int
from torch import Tensor

from neuralpath._checks import check_finite, describe
from neuralpath.graph import nodes as n
from neuralpath.graph.path_graph import PathGraph
from neuralpath.graph.walking import Gates

CHUNK_POSITIONS = 2**16  # positions that are checked together: their temporaries stay in the second-level cache


def check_gates(name: str, gates: object, graph: PathGraph, n_examples: int | None = None) -> None:
    """Refuse gates that do not fit a graph, saying which node and what was expected."""
    if not isinstance(gates, Gates):
        raise TypeError(f"`{name}` must be `Gates`, as `graph.gates(x)` returns them, got {describe(gates)}.")
    if gates.names != graph.gate_names:
        own, other = (", ".join(names) or "(none)" for names in (graph.gate_names, gates.names))
        raise ValueError(f"`{name}` are for the gate nodes {other}, but the graph has {own}.")
    for node in graph.gate_nodes:
        check_layer(name, node, gates[node.name])
    if n_examples is not None and len(gates) and gates.n_examples != n_examples:
        raise ValueError(f"`{name}` has {gates.n_examples} examples but its input has {n_examples}: give one batch.")


def check_layer(name: str, node: n.GateNode | n.MaxPoolNode, layer: Tensor, *, chunk: int = CHUNK_POSITIONS) -> None:
    """Refuse a tensor of gates that does not fit its node; in a few passes without large temporaries."""
    at = f"`{name}` at {node.name!r}"
    if tuple(layer.shape[1:]) != node.shape:
        raise ValueError(f"{at} has the shape {tuple(layer.shape[1:])} for each example, the graph has {node.shape}.")
    if isinstance(node, n.MaxPoolNode):
        if layer.dtype != torch.int64:
            raise TypeError(f"{at} must be int64 positions of a max pool, got {describe(layer)}.")
        _check_positions(name, node, layer, chunk)
    elif layer.is_floating_point():
        check_finite(f"{name}[{node.name!r}]", layer)
    elif layer.dtype != torch.bool:
        raise TypeError(f"{at} must be boolean or floating-point gates, got {describe(layer)}; use `.bool()`.")


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
    last = prod(node.in_space) - 1
    if low < 0 or high > last:
        return (
            f"`{name}` at {node.name!r} must be positions from 0 to {last}, which the pool reads, got {low} to {high}."
        )
    example, *unit = (int(i) for i in torch.unravel_index(torch.tensor(index), positions.shape))
    read = [position for position in node.positions[index % node.n_positions].tolist() if position >= 0]
    position, window = int(positions[(example, *unit)]), ", ".join(map(str, read[:8])) + ", ..." * (len(read) > 8)
    return (
        f"`{name}` at {node.name!r} must be positions inside the window of their unit: example {example} has "
        f"{position} at unit {tuple(unit)}, whose window reads {window}."
    )


@lru_cache(maxsize=64)  # nodes of a few graphs: the tables take longer than the gates of an example
def _windows(node: n.MaxPoolNode) -> tuple[Int[Tensor, " out"], Int[Tensor, " out"], Bool[Tensor, "_patterns _width"]]:
    """For each output position the first position of its window and the row of its pattern; and all patterns."""
    first, row = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    inside = torch.ones(1, 1, dtype=torch.bool)
    for table, size in zip(node.tables, node.in_space, strict=True):
        # Along this axis: the first position of each window, and the offsets from there, equal rows joined.
        is_read = table >= 0
        starts = torch.where(is_read, table, size).amin(1)
        after = torch.where(is_read, table - starts[:, None], 0)  # the first one is read anyway
        patterns = torch.zeros(len(table), int(after.max()) + 1, dtype=torch.bool).scatter_(1, after, True)
        patterns, rows = torch.unique(patterns, dim=0, return_inverse=True)
        first = (first[:, None] * size + starts).reshape(-1)
        row = (row[:, None] * len(patterns) + rows).reshape(-1)
        (n_rows, width), (n_new, reach) = inside.shape, patterns.shape
        lines = F.pad(patterns, (0, size - reach))  # a step along the axes before is a whole line of this one
        inside = (inside[:, None, :, None] & lines[None, :, None, :]).reshape(n_rows * n_new, width * size)
        inside = inside[:, : (width - 1) * size + reach]
    return first, row, inside
