"""Sums over channels: from the entries of a state to one pair matrix, which a linear node or the output reads.

This is the general method, written with torch, for every form of map, dtype and device. ``convolution`` does the common
cases with bits. For an entry with masks the sum over channels c factors into the pair values and an overlap:

    sum over c of  mask[b, c, o] * K[b, b', o, o'] * mask'[b', c, o']
        =  K[b, b', o, o']  *  overlap[b, b', o, o']         overlap = matrix product of masks over channels

With an index or a dense map each channel reads other pair values, so the channels are summed one by one.
"""

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._loops import overlaps
from neuralpath.graph import nodes as n
from neuralpath.kernels.path.entries import Axes, Entry, Scaled, Side, measured, total

_SLACK = 2
"""A freed block serves requests down to this fraction of its size."""


class Workspace:
    """Blocks of memory for tensors on the CPU, reused once no tensor uses them.

    The first write to fresh memory pages costs more than the arithmetic on them.
    """

    def __init__(self) -> None:
        self._free: list[np.ndarray] = []

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialized tensor on the CPU."""
        size = math.prod(shape) * dtype.itemsize
        block = self._take(size)
        array = block[:size].view(str(dtype).removeprefix("torch.")).reshape(shape)
        tensor = torch.from_numpy(array)
        # The tensor's storage, and so every view of it, keeps `array` alive; with the last view the block is free.
        weakref.finalize(array, self._free.append, block)
        return tensor

    def _take(self, size: int) -> np.ndarray:
        fitting = [i for i, block in enumerate(self._free) if size <= block.nbytes <= _SLACK * size]
        if fitting:
            return self._free.pop(min(fitting, key=lambda i: self._free[i].nbytes))
        self._free.clear()  # of other sizes than the tile needs now
        return np.empty(size, np.uint8)


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

    def empty(self, *positions: int) -> Float[Tensor, "order batch1 batch2 *positions"]:
        """Uninitialized pair values on the CPU."""
        return self.workspace.empty((self.orders, self.batch1, self.batch2, *positions), self.dtype)

    def zeros(self, *positions: int) -> Float[Tensor, "order batch1 batch2 *positions"]:
        """Pair values of 0."""
        return torch.zeros(self.orders, self.batch1, self.batch2, *positions, dtype=self.dtype, device=self.device)

    def exponent(self) -> Tensor:
        """An exponent of 0 for each pair."""
        return torch.zeros(self.batch1, self.batch2, dtype=torch.int64, device=self.device)

    def constant(self, values: Sequence[float], n_axes: int) -> Tensor:
        """Numbers for value and derivative, shaped to multiply pair values."""
        return torch.tensor(values, dtype=self.dtype, device=self.device).reshape(-1, *(1,) * (n_axes + 2))


def interleaved(values: Tensor, space: n.Shape) -> Tensor:
    """From (..., position, position') to (..., y, y', x, x').

    The positions of both inputs are flat before and interleaved after, one axis of space at a time:

        (..., [y x], [y' x'])  ->  (..., y, x, y', x')  ->  (..., y, y', x, x')
    """
    lead, k = values.shape[:-2], len(space)
    order = [len(lead) + axis + side * k for axis in range(k) for side in (0, 1)]
    return values.reshape(*lead, *space, *space).permute(*range(len(lead)), *order)


def positions_last(values: Tensor) -> Tensor:
    """The inverse of ``interleaved``: from (..., y, y', x, x') to (..., position, position')."""
    k = (values.ndim - 3) // 2
    moved = values.permute(0, 1, 2, *(3 + 2 * axis + side for side in (0, 1) for axis in range(k)))
    size = math.prod(moved.shape[3 : 3 + k])
    return moved.reshape(*values.shape[:3], size, size)


def pieces_of(entry: Entry) -> list[Entry]:
    """The entry split by the groups of its source, each of which has pair values of its own."""
    if entry.group is None:
        return [entry]
    return [entry.at_channels((entry.group == g).nonzero()[:, 0]) for g in entry.group.unique().tolist()]


def pair_of(piece: Entry) -> Scaled:
    """The pair values that all channels of a piece read."""
    assert piece.pairs is not None
    return piece.pairs[0 if piece.group is None else int(piece.group[0])]


def is_diagonal(entry: Entry) -> bool:
    """Whether the maps before the axes are diagonal: a factor for each position."""
    return all(side.index is None and side.dense is None for side in entry.sides)


def _mask_of(side: Side, entry: Entry) -> Tensor:
    mask = torch.ones(1, len(entry.at), 1, dtype=torch.bool) if side.mask is None else side.mask
    return mask.expand(*mask.shape[:2], math.prod(entry.space))


def _overlap(entry: Entry, frame: Frame) -> Float[Tensor, "_batch1 _batch2 *positions"]:
    """Sum over the channels of the product of both masks, for every pair of positions."""
    left, right = (_mask_of(side, entry).to(frame.device) for side in entry.sides)
    if not entry.space:
        left, right = left[:, :, 0], right[:, :, 0]
        if left.dtype == right.dtype == torch.bool:
            return overlaps(left, right, frame.dtype)
        return left.to(frame.dtype) @ right.to(frame.dtype).T
    rows, columns = (m.to(frame.dtype).transpose(1, 2).reshape(-1, len(entry.at)) for m in (left, right))
    product = (rows @ columns.T).reshape(left.shape[0], left.shape[2], right.shape[0], right.shape[2])
    return interleaved(product.transpose(1, 2), entry.space)


def _core(piece: Entry, frame: Frame) -> tuple[Tensor, Tensor]:
    """Values and exponent of the sum over the channels of a piece, before its axes."""
    if piece.pairs is None:
        return frame.constant(piece.constant, 2 * len(piece.space)) * _overlap(piece, frame), frame.exponent()
    pair = pair_of(piece)
    # Scale the values to a common size now, as they are read anyway.
    values = pair.at(pair.top)
    if piece.sides[0].dense is not None:
        return _through_dense(piece, values), pair.top
    if piece.sides[0].index is not None:
        return _through_index(piece, values), pair.top
    return values * _overlap(piece, frame), pair.top


def _through_index(piece: Entry, values: Tensor) -> Tensor:
    """Channel by channel, each position reads the pair values at its index: K[index[o], index'[o']]."""
    flat = positions_last(values)
    orders, n1, n2, n_in, _ = flat.shape
    n_out = math.prod(piece.space)
    result = flat.new_zeros(orders, n1, n2, n_out, n_out)
    (mask1, index1), (mask2, index2) = ((_mask_of(side, piece), side.index) for side in piece.sides)
    assert index1 is not None
    assert index2 is not None
    for channel in range(len(piece.at)):
        at1 = index1[:, channel].expand(n1, -1)[None, :, None, :, None].expand(orders, n1, n2, n_out, n_in)
        at2 = index2[:, channel].expand(n2, -1)[None, None, :, None, :].expand(orders, n1, n2, n_out, n_out)
        weight1 = mask1[:, channel].to(flat.dtype)[None, :, None, :, None]
        weight2 = mask2[:, channel].to(flat.dtype)[None, None, :, None, :]
        result += flat.gather(3, at1).gather(4, at2) * weight1 * weight2
    return interleaved(result, piece.space)


def _through_dense(piece: Entry, values: Tensor) -> Tensor:
    """Channel by channel, the full maps on both sides: L K L'^T."""
    flat = positions_last(values)
    map1, map2 = (side.dense for side in piece.sides)
    assert map1 is not None
    assert map2 is not None
    n_out = math.prod(piece.space)
    result = flat.new_zeros(*flat.shape[:3], n_out, n_out)
    for channel in range(len(piece.at)):
        left = map1[:, channel].to(flat)[:, None]  # batch1, 1, out, in
        right = map2[:, channel].to(flat)[None].transpose(-1, -2)  # 1, batch2, in, out
        result += left @ flat @ right
    return interleaved(result, piece.space)


def apply_axes(values: Tensor, axes: Axes | None) -> Tensor:
    """Apply a map of positions to both inputs of pair values, along each axis of space."""
    for axis, matrix in enumerate(axes or ()):
        for dim in (3 + 2 * axis, 4 + 2 * axis):
            values = torch.tensordot(values, matrix.to(values), dims=([dim], [1])).movedim(-1, dim)
    return values


def _expanded(values: Tensor, frame: Frame) -> Tensor:
    return values.expand(frame.orders, frame.batch1, frame.batch2, *values.shape[3:])


def contracted(entries: Sequence[Entry], frame: Frame) -> Scaled:
    """The sum over channels of the covariances of the current positions."""
    parts = []
    for piece in (p for entry in entries for p in pieces_of(entry)):
        values, exponent = _core(piece, frame)
        parts.append(measured(_expanded(apply_axes(values, piece.axes), frame), exponent))
    return total(parts)


def contracted_units(entries: Sequence[Entry], frame: Frame) -> Scaled:
    """The sum over channels and positions of the covariances of equal units, which a flattened layer reads."""
    parts = []
    for piece in (p for entry in entries for p in pieces_of(entry)):
        if is_diagonal(piece) and piece.axes is None:
            values, exponent = _units_of_diagonal(piece, frame)
        else:
            values, exponent = _core(piece, frame)
            values = positions_last(_expanded(apply_axes(values, piece.axes), frame))
            values = values.diagonal(dim1=-2, dim2=-1).sum(-1)
        parts.append(measured(_expanded(values, frame), exponent))
    return total(parts)


def _units_of_diagonal(piece: Entry, frame: Frame) -> tuple[Tensor, Tensor]:
    """For a diagonal map only equal positions count: the diagonal of the pair values, weighted by the masks."""
    left, right = (_mask_of(side, piece).to(frame.dtype) for side in piece.sides)
    if piece.pairs is None:
        return frame.constant(piece.constant, 0) * (left.flatten(1) @ right.flatten(1).T), frame.exponent()
    pair = pair_of(piece)
    values = positions_last(pair.values).diagonal(dim1=-2, dim2=-1)
    values = replace(pair, values=values).at(pair.top)
    both = left.permute(2, 0, 1) @ right.permute(2, 1, 0)  # position, batch1, batch2
    return (values * both.permute(1, 2, 0)).sum(-1), pair.top
