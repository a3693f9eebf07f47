"""The step of a convolution: sum over channels, then over the window, which moves both positions together.

    out[o, o'] = sum over window offsets k of  in[o * stride + k, o' * stride + k]

Hard gates on the CPU are packed into words, and one compiled pass does both sums; anything else goes through torch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from neuralpath._loops import (
    WindowSteps,
    arrange_positions,
    block_step,
    pack_positions,
    total_sums,
    use_bits,
    window_sums,
)
from neuralpath.graph import Window, nodes as n
from neuralpath.kernels.path.contraction import Frame, contracted, is_diagonal, pair_of, pieces_of
from neuralpath.kernels.path.entries import Entry, Scaled, measured, power_of_two, total

KERNEL_DTYPES = (torch.float32, torch.float64)

FEW_CHANNELS = 16
"""Channels of a known signal up to which the compiled loop sums them itself."""


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
    parts = []
    for piece in (p for entry in entries for p in pieces_of(entry)):
        by_kernel = _has_kernels(frame) and len(piece.space) in (1, 2) and _is_global(piece) and _countable(piece)
        part = _pooled_by_kernel(piece, frame) if by_kernel else contracted([piece], frame)
        parts.append(replace(part, values=part.values.reshape(part.values.shape[:3])))
    return total(parts)


def window_steps(windows: Sequence[Window], in_space: Sequence[int], itemsize: int) -> WindowSteps:
    """The parameters of a convolution for the compiled loops: sizes, strides and buffer sizes."""
    (y, x), (height, width) = windows, in_space
    rows, columns = y.n_out(height), x.n_out(width)
    side = max(x.before + width, (columns - 1) * x.stride + (x.size - 1) * x.dilation + 1)
    return WindowSteps(
        height,
        y.size,
        y.stride,
        y.dilation,
        y.before,
        width,
        x.size,
        x.stride,
        x.dilation,
        x.before,
        rows,
        columns,
        side,
        block_step(side, itemsize),
    )


def _has_kernels(frame: Frame) -> bool:
    return frame.device.type == "cpu" and frame.dtype in KERNEL_DTYPES and use_bits()


def _slid(values: Tensor, window: Window, size: int, dim: int) -> Tensor:
    """The window sum along one axis: dimension ``dim`` and the one after it move together."""
    result = torch.zeros((), dtype=values.dtype, device=values.device)
    for offset in window.table(size).to(values.device).T:
        moved = values.index_select(dim, offset.clamp(min=0)).index_select(dim + 1, offset.clamp(min=0))
        inside = (offset >= 0).to(values.dtype)
        both = inside[:, None] * inside[None, :]
        result = result + moved * both.reshape(*both.shape, *(1,) * (values.ndim - dim - 2))
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Term:
    """One call of a compiled loop: pair values (or none) and the masks of their channels, or sums over channels."""

    pair: Scaled | None
    masks: tuple[Tensor, Tensor] | None
    shift: tuple[float, ...] = ()  # added to the pair values before they meet the masks, at exponent 0
    bound: Tensor | None = None  # exponent below which a term without pair values stays

    @property
    def top(self) -> Tensor:
        """Exponent at which the largest of the term's pair values lies between 1/2 and 1."""
        if self.pair is not None:
            return self.pair.top.clamp(min=1) if self.shift else self.pair.top
        assert self.bound is not None
        return self.bound


def _full_masks(entry: Entry) -> tuple[Tensor, Tensor] | None:
    """The masks of a diagonal map without axes, if both have a value for every position."""
    one, two = (side.mask for side in entry.sides)
    n_positions = math.prod(entry.space)
    if one is None or two is None or not is_diagonal(entry) or {one.shape[2], two.shape[2]} != {n_positions}:
        return None
    return one, two


def _countable(entry: Entry) -> bool:
    """Whether an entry has pair values, and hard gates of every position on both sides."""
    masks = _full_masks(entry)
    return entry.pairs is not None and masks is not None and use_bits(*masks)


def _terms(entries: Sequence[Entry], frame: Frame) -> list[_Term]:
    """Entries as calls of a compiled loop. Biases are fused with pair values that have the same gates."""
    pieces = [piece for entry in entries for piece in pieces_of(entry)]
    counted = [p for p in pieces if p.axes is None and _countable(p)]
    rest = [p for p in pieces if not any(p is c for c in counted)]
    terms = []
    for piece in counted:
        biases = [known for known in rest if _has_same_gates(known, piece)]
        rest = [r for r in rest if not any(r is bias for bias in biases)]
        shift = tuple(math.fsum(b.constant[order] for b in biases) for order in range(frame.orders)) if biases else ()
        terms.append(_Term(pair_of(piece), _full_masks(piece), shift))
    few = [p for p in rest if _is_few_floats(p)]
    terms += [_few_floats(p, frame) for p in few]
    rest = [p for p in rest if not any(p is f for f in few)]
    if rest:
        terms.append(_Term(contracted(rest, frame), None))
    return terms


def _has_same_gates(known: Entry, piece: Entry) -> bool:
    """Whether the masks of a known entry are the same tensors as those of a piece with pair values."""
    return known.pairs is None and all(a.mask is b.mask for a, b in zip(known.sides, piece.sides, strict=True))


def _is_few_floats(piece: Entry) -> bool:
    """Whether a known signal has few channels, like an image, so that the loop is faster than a matrix product."""
    masks = _full_masks(piece)
    known = piece.pairs is None and piece.axes is None
    return known and masks is not None and len(piece.at) <= FEW_CHANNELS and all(m.is_floating_point() for m in masks)


def _few_floats(piece: Entry, frame: Frame) -> _Term:
    one, two = (m.to(frame.dtype) for m in _full_masks(piece) or ())
    # The product of two positions is at most the product of their norms.
    norms = [m.square().sum(1).amax(1).sqrt().expand(size) for m, size in ((one, frame.batch1), (two, frame.batch2))]
    bound = torch.frexp(norms[0][:, None] * norms[1][None, :]).exponent.to(torch.int64)
    return _Term(None, (one, two), piece.constant, bound)


def _convolved_by_kernel(terms: list[_Term], windows: tuple[Window, ...], space: n.Shape, frame: Frame) -> Scaled:
    exponent = torch.stack([term.top for term in terms]).amax(0)
    height = space[0] if len(space) == 2 else 1
    rows, columns = windows if len(space) == 2 else (Window(1), windows[0])
    steps = np.array(window_steps((rows, columns), (height, space[-1]), frame.dtype.itemsize))
    n_rows, n_columns = rows.n_out(height), columns.n_out(space[-1])
    out = frame.empty(n_rows, n_rows, n_columns, n_columns)
    largest = torch.zeros(frame.orders, frame.batch1, frame.batch2, dtype=frame.dtype)  # after the last call
    for i, term in enumerate(terms):
        masks1, masks2 = _masks(term, height, frame)
        window_sums(
            out.numpy(),
            _planar(term.pair, frame),
            term.pair is not None,
            masks1,
            masks2,
            *_weights(term, exponent, frame),
            steps,
            largest.numpy(),
            i > 0,
            frame.skip,
        )
    flat = out if len(space) == 2 else out.reshape(*out.shape[:3], n_columns, n_columns)
    return measured(flat, exponent, largest.amax(0))


def _is_global(entry: Entry) -> bool:
    """Whether the axes take one average, or sum, over all positions."""
    return entry.axes is not None and all(m.shape[0] == 1 and bool((m == m[0, 0]).all()) for m in entry.axes)


def _pooled_by_kernel(piece: Entry, frame: Frame) -> Scaled:
    assert piece.axes is not None
    term = _Term(pair_of(piece), _full_masks(piece))
    masks1, masks2 = _masks(term, piece.space[0] if len(piece.space) == 2 else 1, frame)
    out = frame.zeros()
    weights = _weights(term, term.top, frame)
    total_sums(out.numpy(), _planar(term.pair, frame), True, masks1, masks2, *weights, frame.skip)
    share = math.prod(float(matrix[0, 0]) for matrix in piece.axes) ** 2
    return measured(out * share, term.top)


def _planar(pair: Scaled | None, frame: Frame) -> np.ndarray:
    """Pair values with two axes of space (sequences have one row); a placeholder if there are none."""
    if pair is None:
        return torch.zeros((1,) * 7, dtype=frame.dtype).numpy()
    values = pair.values
    planar = values.reshape(*values.shape[:3], 1, 1, *values.shape[3:]) if values.ndim == 5 else values
    return planar.contiguous().numpy()


def _masks(term: _Term, height: int, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    """The masks of a term in the layout of the loops: words of bits, or floats."""
    sizes = (frame.batch1, frame.batch2)
    if term.masks is None:
        none = [np.zeros((size, height, 0, 0), np.uint8) for size in sizes]
        return none[0], none[1]
    one, two = (mask.expand(size, -1, -1) for mask, size in zip(term.masks, sizes, strict=True))
    arranged = arrange_positions if one.is_floating_point() else pack_positions
    return arranged(one, height), arranged(two, height)


def _weights(term: _Term, exponent: Tensor, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    """The factor of the pair values and the number added to them, relative to the exponent of the sum."""
    zero = torch.zeros_like(exponent, dtype=frame.dtype)
    factor = zero if term.pair is None else term.pair.factor(exponent)
    shift = zero.expand(frame.orders, *zero.shape)
    if term.shift:
        shift = frame.constant(term.shift, 0) * power_of_two(-exponent, frame.dtype)
    return factor.numpy(), shift.contiguous().numpy()
