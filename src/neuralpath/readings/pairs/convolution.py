"""A convolution's step: contract the channels, then sum over the window, which moves both positions together.

Hard gates on the processor are packed into words and done by one compiled pass; anything else goes through torch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neuralpath.bits.packed import Words, use_bits
from neuralpath.bits.positions import pack_positions, real_of, total_sums, window_sums
from neuralpath.graph import nodes as n
from neuralpath.graph.geometry import Window
from neuralpath.readings.pairs.contraction import Frame, contracted, is_diagonal, pair_of, pieces_of
from neuralpath.readings.pairs.entries import Entry
from neuralpath.readings.pairs.scaled import Scaled, measured, power_of_two, total

KERNEL_DTYPES = (torch.float32, torch.float64)


def convolved(entries: Sequence[Entry], windows: tuple[Window, ...], frame: Frame) -> Scaled:
    """Contract the channels and sum over the window."""
    space = entries[0].out_space
    if _has_kernels(frame) and len(space) <= 2:
        return _convolved_by_kernel(_terms(entries, frame), windows, space, frame)
    summed = contracted(entries, frame)
    values = summed.at(summed.top)
    for axis, (window, size) in enumerate(zip(windows, space, strict=True)):
        values = _slid(values, window, size, 3 + 2 * axis)
    return measured(values, summed.top)


def pooled(entries: Sequence[Entry], frame: Frame) -> Scaled:
    """Contract the channels of entries that have one position left; global pools of hard gates by bits."""
    fast = [e for e in entries if _is_global(e) and _has_kernels(frame) and len(e.space) in (1, 2) and _countable(e)]
    slow = [e for e in entries if e not in fast]
    parts = [contracted(slow, frame)] if slow else []
    for piece in (p for entry in fast for p in pieces_of(entry)):
        parts.append(_pooled_by_kernel(piece, frame))
    return total(parts)


def _has_kernels(frame: Frame) -> bool:
    return frame.device.type == "cpu" and frame.dtype in KERNEL_DTYPES and use_bits()


def _slid(values: Tensor, window: Window, size: int, dim: int) -> Tensor:
    """The window sum along one axis: dimension ``dim`` and the one after it move together."""
    result = torch.zeros((), dtype=values.dtype, device=values.device)
    for place in window.table(size).to(values.device).T:
        moved = values.index_select(dim, place.clamp(min=0)).index_select(dim + 1, place.clamp(min=0))
        inside = (place >= 0).to(values.dtype)
        both = inside[:, None] * inside[None, :]
        result = result + moved * both.reshape(*both.shape, *(1,) * (values.ndim - dim - 2))
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Term:
    """One call of a kernel: pair values weighed by packed gates, or already contracted."""

    pair: Scaled
    gates: tuple[Tensor, Tensor] | None
    shift: tuple[float, ...] = ()  # added to the pair values before weighing, at exponent 0


def _countable(entry: Entry) -> bool:
    """Whether an entry has pair values, and hard gates of every position on both sides."""
    masks = [side.mask for side in entry.sides]
    full = all(m is not None and m.shape[2] == math.prod(entry.space) for m in masks)
    return entry.pairs is not None and full and is_diagonal(entry) and use_bits(*masks)


def _terms(entries: Sequence[Entry], frame: Frame) -> list[_Term]:
    """Entries as calls of a kernel. Biases ride along with pair values that have the same gates."""
    pieces = [piece for entry in entries for piece in pieces_of(entry)]
    counted = [p for p in pieces if p.axes is None and _countable(p)]
    rest = [p for p in pieces if not any(p is c for c in counted)]
    terms = []
    for piece in counted:
        riders = [r for r in rest if _rides_along(r, piece)]
        rest = [r for r in rest if not any(r is rider for rider in riders)]
        shift = tuple(math.fsum(r.constant[order] for r in riders) for order in range(frame.orders)) if riders else ()
        masks = (piece.sides[0].mask, piece.sides[1].mask)
        terms.append(_Term(pair_of(piece), masks, shift))  # type: ignore[arg-type]
    if rest:
        terms.append(_Term(contracted(rest, frame), None))
    return terms


def _rides_along(known: Entry, piece: Entry) -> bool:
    """Whether a known entry's masks are the very gates of a piece with pair values."""
    return known.pairs is None and all(a.mask is b.mask for a, b in zip(known.sides, piece.sides, strict=True))


def _convolved_by_kernel(terms: list[_Term], windows: tuple[Window, ...], space: n.Shape, frame: Frame) -> Scaled:
    exponent = torch.stack([term.pair.top for term in terms]).amax(0)
    if any(term.shift for term in terms):
        exponent = exponent.clamp(min=1)  # what is added stands at exponent 0
    height = space[0] if len(space) == 2 else 1
    rows, columns = windows if len(space) == 2 else (Window(1), windows[0])
    steps = np.array([s for w in (rows, columns) for s in (w.size, w.stride, w.dilation, w.before)])
    n_rows, n_columns = rows.n_out(height), columns.n_out(space[-1])
    out = frame.zeros(n_rows, n_rows, n_columns, n_columns)
    largest = torch.zeros(frame.orders, frame.batch1, frame.batch2, dtype=frame.dtype)
    for term in terms:
        bits1, bits2 = _packed(term, height, frame)
        largest.zero_()  # of the sum so far: the last call sees the whole
        window_sums(bits1.shape[2], real_of(frame.dtype))(
            out.numpy(), _planar(term.pair.values), bits1, bits2, *_weights(term, exponent, frame), steps,
            largest.numpy(), frame.skip,
        )  # fmt: skip
    flat = out if len(space) == 2 else out.reshape(*out.shape[:3], n_columns, n_columns)
    return measured(flat, exponent, largest.amax(0))


def _is_global(entry: Entry) -> bool:
    """Whether the axes take one average, or sum, over all positions."""
    return entry.axes is not None and all(m.shape[0] == 1 and bool((m == m[0, 0]).all()) for m in entry.axes)


def _pooled_by_kernel(piece: Entry, frame: Frame) -> Scaled:
    assert piece.axes is not None
    term = _Term(pair_of(piece), (piece.sides[0].mask, piece.sides[1].mask))  # type: ignore[arg-type]
    exponent = term.pair.top
    bits1, bits2 = _packed(term, piece.space[0] if len(piece.space) == 2 else 1, frame)
    out = frame.zeros()
    kernel = total_sums(bits1.shape[2], real_of(frame.dtype))
    kernel(out.numpy(), _planar(term.pair.values), bits1, bits2, *_weights(term, exponent, frame), frame.skip)
    share = math.prod(float(matrix[0, 0]) for matrix in piece.axes) ** 2
    ones = [1] * (2 * len(piece.space))
    return measured((out * share).reshape(*out.shape, *ones), exponent)


def _planar(values: Tensor) -> np.ndarray:
    """Pair values with two axes of space; a network on sequences has one row."""
    planar = values.reshape(*values.shape[:3], 1, 1, *values.shape[3:]) if values.ndim == 5 else values
    return planar.contiguous().numpy()


def _packed(term: _Term, height: int, frame: Frame) -> tuple[Words, Words]:
    if term.gates is None:
        return tuple(np.zeros((batch, height, 0, 0), np.uint64) for batch in (frame.batch1, frame.batch2))  # type: ignore[return-value]
    batches = zip(term.gates, (frame.batch1, frame.batch2), strict=True)
    return tuple(pack_positions(gates.expand(batch, -1, -1), height) for gates, batch in batches)  # type: ignore[return-value]


def _weights(term: _Term, exponent: Tensor, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    """Factor of the pair values, and what is added to them, relative to the exponent of the sum."""
    factor = term.pair.factor(exponent)
    shift = torch.zeros(frame.orders, frame.batch1, frame.batch2, dtype=frame.dtype)
    if term.shift:
        shift = frame.constant(term.shift, 0) * power_of_two(-exponent, frame.dtype)
    return factor.numpy(), shift.contiguous().numpy()
