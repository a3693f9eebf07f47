"""Sums over channels: from the entries of a state to one pair matrix, which a linear node or the output reads.

For an entry with masks the sum over channels c factors into the pair values and an overlap:

    sum over c of  mask[b, c, o] * K[b, b', o, o'] * mask'[b', c, o']
        =  K[b, b', o, o']  *  overlap[b, b', o, o']         overlap = matrix product of masks over channels

With an index or a dense map each channel reads other pair values, so the channels are summed one by one. A convolution
then sums over its window, which moves both positions together:

    out[o, o'] = sum over window offsets k of  in[o * stride + k, o' * stride + k]

         o' ->                        every output entry is a sum along a diagonal of the input matrix:
       . . . . .                      the pairs (o + k, o' + k), not all pairs of two windows, because
    o  . a . . .     out = a + b + c  weights at different offsets k are independent
    |  . . b . .
    v  . . . c .

Two implementations: with torch, for every form of map, dtype and device (``contracted``); and compiled loops, for masks
of hard gates and for images with few channels on the CPU, one call for each *term*, all of which add to one output:

    term 1   pair values of entry 1     bits of its gates        K * popcount(gates & gates'), summed over the window
             + biases with these gates                           (K + shift) * popcount: one pass for both
    term 2   image                      floats                   sum over channels of pixel * pixel'
    term 3   all other entries, contracted with torch            already summed over channels: no masks
"""

import math
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath import _loops as loops
from neuralpath.graph import Window, nodes as n
from neuralpath.kernels.path.entries import Entry, PairExponents, PairValues, Scaled, measured, power_of_two, total

_SLACK = 2  # a freed block serves requests down to this fraction of its size
FEW_CHANNELS = 16  # channels of a known signal up to which the compiled loop sums them itself


class Workspace:
    """Blocks of memory on the CPU, reused once no tensor uses them: fresh pages cost more than arithmetic."""

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialized tensor on the CPU."""
        size = math.prod(shape) * dtype.itemsize
        fitting = [i for i, block in enumerate(self._free) if size <= block.nbytes <= _SLACK * size]
        if fitting:
            block = self._free.pop(min(fitting, key=lambda i: self._free[i].nbytes))
        else:
            self._free.clear()  # of other sizes than the tile needs now
            block = np.empty(size, np.uint8)
        array = block[:size].view(str(dtype).removeprefix("torch.")).reshape(shape)
        tensor = torch.from_numpy(array)
        # The tensor's storage, and so every view of it, keeps `array` alive; with the last view the block is free.
        weakref.finalize(array, self._free.append, block)
        return tensor


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Sizes, dtype and memory that all pair matrices of a tile share."""

    batch1: int
    batch2: int
    orders: int  # 1 for values, 2 with the derivative
    dtype: torch.dtype
    device: torch.device
    skip: int  # pairs with row > column + skip are not needed
    workspace: Workspace

    def zeros(self, *positions: int) -> PairValues:
        return torch.zeros(self.orders, self.batch1, self.batch2, *positions, dtype=self.dtype, device=self.device)

    def exponent(self) -> PairExponents:
        return torch.zeros(self.batch1, self.batch2, dtype=torch.int64, device=self.device)

    def constant(self, values: Sequence[float], n_axes: int) -> Tensor:
        """Numbers for value and derivative, shaped to multiply pair values."""
        return torch.tensor(values, dtype=self.dtype, device=self.device).reshape(-1, *(1,) * (n_axes + 2))

    def expanded(self, values: Tensor) -> PairValues:
        """Values for every order and pair, from values that some of them share."""
        return values.expand(self.orders, self.batch1, self.batch2, *values.shape[3:])


def convolved(entries: Sequence[Entry], windows: tuple[Window, ...], frame: Frame) -> Scaled:
    """Contract the channels and sum over the window."""
    space = entries[0].out_space
    if loops.has_loops(frame.dtype, frame.device) and len(space) <= 2:
        return _convolved_by_loop(_terms(entries, frame), windows, space, frame)
    summed = contracted(_pieces(entries), frame)
    values = summed.at(summed.top)
    for axis, (window, size) in enumerate(zip(windows, space, strict=True)):
        values = _slid(values, window, size, 3 + 2 * axis)
    return measured(values, summed.top)


def _slid(values: Tensor, window: Window, size: int, dim: int) -> Tensor:
    """The window sum along one axis: dimension ``dim`` and the one after it move together."""
    result = torch.zeros((), dtype=values.dtype, device=values.device)
    for offset in window.table(size).to(values.device).T:
        moved = values.index_select(dim, offset.clamp(min=0)).index_select(dim + 1, offset.clamp(min=0))
        inside = (offset >= 0).to(values.dtype)
        both = inside[:, None] * inside[None, :]
        result = result + moved * both.reshape(*both.shape, *(1,) * (values.ndim - dim - 2))
    return result


def pooled(entries: Sequence[Entry], frame: Frame) -> Scaled:
    """Contract the channels of entries that have one position left; global pools of hard gates by bits."""
    parts = []
    for piece in _pieces(entries):
        is_global = piece.axes is not None and n.is_global_pool(piece.axes) and len(piece.space) <= 2
        by_loop = is_global and loops.has_loops(frame.dtype, frame.device) and _has_counted_gates(piece)
        part = _pooled_by_loop(piece, frame) if by_loop else contracted([piece], frame)
        parts.append(replace(part, values=part.values.reshape(part.values.shape[:3])))
    return total(parts)


def contracted_units(entries: Sequence[Entry], frame: Frame) -> Scaled:
    """The sum over channels and positions of the covariances of equal units, which a flattened layer reads."""
    parts = []
    for piece in _pieces(entries):
        if piece.is_diagonal and piece.axes is None:
            values, exponent = _units_of_diagonal(piece, frame)
        else:
            values, exponent = _core(piece, frame)
            values = _positions_last(frame.expanded(_apply_axes(values, piece.axes)))
            values = values.diagonal(dim1=-2, dim2=-1).sum(-1)
        parts.append(measured(frame.expanded(values), exponent))
    return total(parts)


def _units_of_diagonal(piece: Entry, frame: Frame) -> tuple[Tensor, Tensor]:
    """For a diagonal map only equal positions count: the diagonal of the pair values, weighted by the masks."""
    left, right = (mask.to(frame.dtype) for mask in piece.masks())
    if piece.is_known:
        return frame.constant(piece.constant, 0) * (left.flatten(1) @ right.flatten(1).T), frame.exponent()
    pair = _pair_of(piece)
    values = _positions_last(pair.values).diagonal(dim1=-2, dim2=-1)
    values = replace(pair, values=values).at(pair.top)
    both = left.permute(2, 0, 1) @ right.permute(2, 1, 0)  # position, batch1, batch2
    return (values * both.permute(1, 2, 0)).sum(-1), pair.top


# With torch: any map, dtype and device.


def contracted(pieces: Sequence[Entry], frame: Frame) -> Scaled:
    """The sum over channels of the covariances of the current positions."""
    parts = []
    for piece in pieces:
        values, exponent = _core(piece, frame)
        parts.append(measured(frame.expanded(_apply_axes(values, piece.axes)), exponent))
    return total(parts)


def _pieces(entries: Sequence[Entry]) -> list[Entry]:
    """The entries split by the groups of their sources, each of which has pair values of its own."""
    pieces = []
    for entry in entries:
        groups = [] if entry.group is None else entry.group.unique().tolist()
        pieces += [entry.at_channels((entry.group == group).nonzero()[:, 0]) for group in groups] or [entry]
    return pieces


def _pair_of(piece: Entry) -> Scaled:
    """The pair values that all channels of a piece read."""
    return cast(tuple[Scaled, ...], piece.pairs)[0 if piece.group is None else int(piece.group[0])]


def _core(piece: Entry, frame: Frame) -> tuple[Tensor, Tensor]:
    """Values and exponent of the sum over the channels of a piece, before its axes."""
    if piece.is_known:
        return frame.constant(piece.constant, 2 * len(piece.space)) * _overlap(piece, frame), frame.exponent()
    pair = _pair_of(piece)
    # Scale the values to a common size now, as they are read anyway.
    values = pair.at(pair.top)
    if piece.sides[0].dense is not None:
        return _through_dense(piece, values), pair.top
    if piece.sides[0].index is not None:
        return _through_index(piece, values), pair.top
    return values * _overlap(piece, frame), pair.top


def _overlap(entry: Entry, frame: Frame) -> Float[Tensor, "_batch1 _batch2 *positions"]:
    """Sum over the channels of the product of both masks, for every pair of positions."""
    left, right = (mask.to(frame.device) for mask in entry.masks())
    if not entry.space:
        left, right = left[:, :, 0], right[:, :, 0]
        if left.dtype == right.dtype == torch.bool:
            return loops.overlaps(left, right, frame.dtype)
        return left.to(frame.dtype) @ right.to(frame.dtype).T
    rows, columns = (m.to(frame.dtype).transpose(1, 2).reshape(-1, len(entry.at)) for m in (left, right))
    product = (rows @ columns.T).reshape(left.shape[0], left.shape[2], right.shape[0], right.shape[2])
    return _interleaved(product.transpose(1, 2), entry.space)


def _through_index(piece: Entry, values: Tensor) -> Tensor:
    """Channel by channel, each position reads the pair values at its index: K[index[o], index'[o']]."""
    flat = _positions_last(values)
    orders, n1, n2, n_in, _ = flat.shape
    n_out = math.prod(piece.space)
    result = flat.new_zeros(orders, n1, n2, n_out, n_out)
    (mask1, mask2), (index1, index2) = piece.masks(), (cast(Tensor, side.index) for side in piece.sides)
    for channel in range(len(piece.at)):
        at1 = index1[:, channel].expand(n1, -1)[None, :, None, :, None].expand(orders, n1, n2, n_out, n_in)
        at2 = index2[:, channel].expand(n2, -1)[None, None, :, None, :].expand(orders, n1, n2, n_out, n_out)
        weight1 = mask1[:, channel].to(flat.dtype)[None, :, None, :, None]
        weight2 = mask2[:, channel].to(flat.dtype)[None, None, :, None, :]
        result += flat.gather(3, at1).gather(4, at2) * weight1 * weight2
    return _interleaved(result, piece.space)


def _through_dense(piece: Entry, values: Tensor) -> Tensor:
    """Channel by channel, the full maps on both sides: L K L'^T."""
    flat = _positions_last(values)
    map1, map2 = (cast(Tensor, side.dense) for side in piece.sides)
    n_out = math.prod(piece.space)
    result = flat.new_zeros(*flat.shape[:3], n_out, n_out)
    for channel in range(len(piece.at)):
        left = map1[:, channel].to(flat)[:, None]  # batch1, 1, out, in
        right = map2[:, channel].to(flat)[None].transpose(-1, -2)  # 1, batch2, in, out
        result += left @ flat @ right
    return _interleaved(result, piece.space)


def _apply_axes(values: Tensor, axes: n.Axes | None) -> Tensor:
    """Apply a map of positions to both inputs of pair values, along each axis of space."""
    for axis, matrix in enumerate(axes or ()):
        for dim in (3 + 2 * axis, 4 + 2 * axis):
            values = torch.tensordot(values, matrix.to(values), dims=([dim], [1])).movedim(-1, dim)
    return values


def _interleaved(values: Tensor, space: n.Shape) -> Tensor:
    """From flat positions to neighboring axes: (..., [y x], [y' x']) -> (..., y, x, y', x') -> (..., y, y', x, x')."""
    lead, k = values.shape[:-2], len(space)
    order = [len(lead) + axis + side * k for axis in range(k) for side in (0, 1)]
    return values.reshape(*lead, *space, *space).permute(*range(len(lead)), *order)


def _positions_last(values: Tensor) -> Tensor:
    """The inverse of ``_interleaved``: from (..., y, y', x, x') to (..., position, position')."""
    k = (values.ndim - 3) // 2
    moved = values.permute(0, 1, 2, *(3 + 2 * axis + side for side in (0, 1) for axis in range(k)))
    size = math.prod(moved.shape[3 : 3 + k])
    return moved.reshape(*values.shape[:3], size, size)


# With compiled loops: hard gates as bits, images as floats.


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
        if self.pair is None:
            return cast(Tensor, self.bound)
        return self.pair.top.clamp(min=1) if self.shift else self.pair.top


def _terms(entries: Sequence[Entry], frame: Frame) -> list[_Term]:
    """Entries as calls of a compiled loop. Biases are fused with pair values that have the same gates."""
    rest = _pieces(entries)
    terms = []
    for piece in [piece for piece in rest if piece.axes is None and _has_counted_gates(piece)]:
        biases = [known for known in rest if _has_same_gates(known, piece)]
        rest = [other for other in rest if other is not piece and other not in biases]
        shift = tuple(math.fsum(b.constant[order] for b in biases) for order in range(frame.orders)) if biases else ()
        terms.append(_Term(_pair_of(piece), _stored_masks(piece), shift))
    images = [piece for piece in rest if _is_image(piece)]
    terms += [_image_term(piece, frame) for piece in images]
    if rest := [piece for piece in rest if piece not in images]:
        terms.append(_Term(contracted(rest, frame), None))
    return terms


def _stored_masks(entry: Entry) -> tuple[Tensor, Tensor] | None:
    """The masks of a diagonal map, if both have a value for every position."""
    left, right = (side.mask for side in entry.sides)
    n_positions = math.prod(entry.space)
    if left is None or right is None or not entry.is_diagonal or {left.shape[2], right.shape[2]} != {n_positions}:
        return None
    return left, right


def _has_counted_gates(entry: Entry) -> bool:
    """Whether an entry has pair values, and hard gates of every position on both sides."""
    masks = _stored_masks(entry)
    return not entry.is_known and masks is not None and loops.use_bits(*masks)


def _has_same_gates(known: Entry, piece: Entry) -> bool:
    """Whether the masks of a known entry are the same tensors as those of a piece with pair values."""
    return known.is_known and all(a.mask is b.mask for a, b in zip(known.sides, piece.sides, strict=True))


def _is_image(piece: Entry) -> bool:
    """Whether a piece is a known signal with few channels: the loop is then faster than a matrix product."""
    masks, is_small = _stored_masks(piece), piece.is_known and piece.axes is None and len(piece.at) <= FEW_CHANNELS
    return is_small and masks is not None and all(mask.is_floating_point() for mask in masks)


def _image_term(piece: Entry, frame: Frame) -> _Term:
    left, right = (mask.to(frame.dtype) for mask in _stored_masks(piece) or ())
    # The product of two positions is at most the product of their norms.
    norms = [m.square().sum(1).amax(1).sqrt().expand(n) for m, n in ((left, frame.batch1), (right, frame.batch2))]
    bound = torch.frexp(norms[0][:, None] * norms[1][None, :]).exponent.to(torch.int64)
    return _Term(None, (left, right), piece.constant, bound)


def _convolved_by_loop(terms: list[_Term], windows: tuple[Window, ...], space: n.Shape, frame: Frame) -> Scaled:
    exponent = torch.stack([term.top for term in terms]).amax(0)
    if is_sequence := len(space) == 1:  # the loops have two axes of space: a sequence is an image of one row
        windows, space = (Window(1), *windows), (1, *space)
    steps = loops.WindowSteps.of(windows, space, frame.dtype.itemsize)
    positions = (steps.rows, steps.rows, steps.columns, steps.columns)
    out = frame.workspace.empty((frame.orders, frame.batch1, frame.batch2, *positions), frame.dtype)
    largest = torch.zeros(frame.orders, frame.batch1, frame.batch2, dtype=frame.dtype)  # after the last call
    for i, term in enumerate(terms):
        arguments = (*_loop_inputs(term, space[0], exponent, frame), np.array(steps), largest.numpy())
        loops.window_sums(out.numpy(), *arguments, i > 0, frame.skip)  # the first call writes, the others add
    flat = out.reshape(*out.shape[:3], *positions[2:]) if is_sequence else out
    return measured(flat, exponent, largest.amax(0))


def _pooled_by_loop(piece: Entry, frame: Frame) -> Scaled:
    term = _Term(_pair_of(piece), _stored_masks(piece))
    out = frame.zeros()
    height = piece.space[0] if len(piece.space) == 2 else 1
    loops.total_sums(out.numpy(), *_loop_inputs(term, height, term.top, frame), frame.skip)
    share = math.prod(float(matrix[0, 0]) for matrix in piece.axes or ()) ** 2
    return measured(out * share, term.top)


def _loop_inputs(term: _Term, height: int, exponent: Tensor, frame: Frame) -> Iterator[np.ndarray | bool]:
    """The inputs of the loops: pair values, whether there are any, masks of both sides, factor and shift."""
    # Without pair values or masks the loops get an empty array of the right rank, which they do not read.
    pair, no_values = term.pair, torch.zeros((1,) * 7, dtype=frame.dtype)
    values = no_values if pair is None else pair.values
    values = values.reshape(*values.shape[:3], 1, 1, *values.shape[3:]) if values.ndim == 5 else values
    yield values.contiguous().numpy()
    yield pair is not None
    for side, size in enumerate((frame.batch1, frame.batch2)):
        if term.masks is None:
            yield np.zeros((size, height, 0, 0), np.uint8)
        else:
            mask = term.masks[side].expand(size, -1, -1)
            arranged = loops.arrange_positions if term.masks[0].is_floating_point() else loops.pack_positions
            yield arranged(mask, height)
    zero = torch.zeros_like(exponent, dtype=frame.dtype)
    yield (zero if pair is None else pair.factor(exponent)).numpy()
    shift = zero.expand(frame.orders, *zero.shape)
    if term.shift:
        shift = frame.constant(term.shift, 0) * power_of_two(-exponent, frame.dtype)
    yield shift.contiguous().numpy()
