"""The linear nodes of a network as tensor functions, for the readings that have one value for each unit."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from neuralpath.graph.nodes import OUTSIDE, LinearNode, MaxPoolNode, SelectNode, WindowTable

_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def linear(
    node: LinearNode, z: Float[Tensor, "batch *shape"], weight: Float[Tensor, "..."]
) -> Float[Tensor, "batch *out"]:
    """Apply a linear node with the given weight to a batch of values."""
    if not node.windows:
        return F.linear(z, weight)
    padding = [window.before for window in node.windows]
    if padding != [window.after for window in node.windows]:
        # F.pad counts axes from the last.
        z = F.pad(z, [side for w in reversed(node.windows) for side in (w.before, w.after)])
        padding = [0] * len(padding)
    return _CONVOLUTIONS[len(node.windows)](
        z,
        weight,
        stride=[window.stride for window in node.windows],
        padding=padding,
        dilation=[window.dilation for window in node.windows],
        groups=node.groups,
    )


def linear_with_ones(node: LinearNode, z: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch *out"]:
    """A linear node whose weights are all 1: sum the channels of a group first, then the window, then copy.

    The result is a view: every output channel of a group is the same memory.
    """
    batch, out = z.shape[0], node.weight_shape[0]
    sums = z.unflatten(1, (node.groups, -1)).sum(2)
    if node.windows:
        ones = sums.new_ones(node.groups, 1, *node.weight_shape[2:])
        sums = linear(node, sums, ones)
    space = sums.shape[2:]
    copies = sums.unsqueeze(2).expand(batch, node.groups, out // node.groups, *space)
    return copies.reshape(batch, out, *space)


def average(
    z: Float[Tensor, "batch *shape"], matrices: tuple[Float[Tensor, "_out _n_in"], ...]
) -> Float[Tensor, "batch *out"]:
    """Apply one matrix along each spatial axis, the cheapest (strongest reduction) first."""
    for axis in sorted(range(len(matrices)), key=lambda a: matrices[a].shape[0] / matrices[a].shape[1]):
        matrix = matrices[axis].to(z)
        z = torch.tensordot(z, matrix, dims=([axis + 2], [1])).movedim(-1, axis + 2)
    return z


def select(node: SelectNode, z: Shaped[Tensor, "batch *shape"]) -> Shaped[Tensor, "batch *out"]:
    """Read units by index along each axis; an index of ``OUTSIDE`` gives 0."""
    for axis, index in enumerate(node.indices, start=1):
        if index is None:
            continue
        index = index.to(z.device)
        z = z.index_select(axis, index.clamp(min=0))
        if (index < 0).any():
            z = z.masked_fill((index < 0).reshape(-1, *(1,) * (z.ndim - axis - 1)), 0)
    return z


def window_positions(tables: tuple[WindowTable, ...], in_space: tuple[int, ...]) -> Int[Tensor, "out window"]:
    """Flat input position of each place of each window, ``OUTSIDE`` beyond the edge, from a table for each axis."""
    positions = torch.zeros(1, 1, dtype=torch.int64)
    for table, size in zip(tables, in_space, strict=True):
        outer, inner = positions[:, None, :, None], table[None, :, None, :]
        joined = torch.where((outer < 0) | (inner < 0), OUTSIDE, outer * size + inner)
        positions = joined.reshape(outer.shape[0] * table.shape[0], -1)
    return positions


def max_positions(node: MaxPoolNode, z: Float[Tensor, "batch *shape"]) -> Int[Tensor, "batch *out"]:
    """Flat input position of the largest entry of each window."""
    if node.windows is not None:  # torch's own, whose windows are padded alike on both sides
        pool = _MAX_POOLS[len(node.windows)]
        return pool(
            z.detach(),
            [window.size for window in node.windows],
            [window.stride for window in node.windows],
            [window.before for window in node.windows],
            [window.dilation for window in node.windows],
            ceil_mode=node.ceil,
            return_indices=True,
        )[1]
    positions = window_positions(node.tables, node.in_space).to(z.device)
    flat = z.detach().flatten(2)
    seen = flat[:, :, positions.clamp(min=0)].masked_fill(positions < 0, -torch.inf)
    place = seen.argmax(-1, keepdim=True)
    index = positions.expand(*place.shape[:2], -1, -1).gather(-1, place).squeeze(-1)
    return index.reshape(z.shape[0], *node.shape)


def gather_positions(
    z: Shaped[Tensor, "batch channels *space"], index: Int[Tensor, "batch channels *out"]
) -> Shaped[Tensor, "batch channels *out"]:
    """Read each output position of each channel at its own flat input position."""
    return z.flatten(2).gather(2, index.flatten(2)).reshape(index.shape)


def sum_windows(node: MaxPoolNode, z: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch *out"]:
    """Sum over each window of a max pool: every path of the window counts."""
    positions = window_positions(node.tables, node.in_space).to(z.device)
    seen = z.flatten(2)[:, :, positions.clamp(min=0)].masked_fill(positions < 0, 0)
    return seen.sum(-1).reshape(z.shape[0], *node.shape)
