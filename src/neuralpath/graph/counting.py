"""The exact number of paths, as a reading with Python's integers."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from neuralpath.graph import nodes as n

Counts = NDArray[np.object_]  # Python integers, one for each unit


class ExactCounts:
    """Number of paths that end at each unit: weights, gates, masks, pooling factors and scales are all 1."""

    def input(self, node: n.InputNode | n.ConstantNode) -> Counts:
        return np.ones(node.shape, dtype=object)

    constant = input

    def linear(self, node: n.LinearNode, counts: Counts) -> Counts:
        sums = counts.reshape(node.groups, -1, *counts.shape[1:]).sum(axis=1)
        tables = [w.table(size).tolist() for w, size in zip(node.windows, sums.shape[1:], strict=True)]
        return np.repeat(_summed(sums, 1, tables), node.weight_shape[0] // node.groups, axis=0)

    def bias(self, node: n.BiasNode, counts: Counts) -> Counts:
        return counts + 1

    def gate(self, node: n.GateNode | n.ScaleNode, counts: Counts) -> Counts:
        return counts

    scale = gate

    def activation(self, node: n.ActivationNode, counts: Counts) -> Counts:
        raise no_paths_through(node)

    def add(self, node: n.AddNode, *branches: Counts) -> Counts:
        return np.sum([np.broadcast_to(branch, node.shape) for branch in branches], axis=0)

    def concat(self, node: n.ConcatNode, *branches: Counts) -> Counts:
        return np.concatenate(branches, axis=0)

    def select(self, node: n.SelectNode, counts: Counts) -> Counts:
        return _summed(counts, 0, [None if index is None else index[:, None].tolist() for index in node.indices])

    def average_pool(self, node: n.AveragePoolNode, counts: Counts) -> Counts:
        return _summed(counts, 1, [[np.flatnonzero(row).tolist() for row in m.numpy()] for m in node.matrices])

    def max_pool(self, node: n.MaxPoolNode, counts: Counts) -> Counts:
        return _summed(counts, 1, [table.tolist() for table in node.tables])

    def reshape(self, node: n.ReshapeNode, counts: Counts) -> Counts:
        return counts.reshape(node.shape)


def no_paths_through(node: n.ActivationNode) -> ValueError:
    """The error of path quantities at an activation that is not a gate times its input."""
    return ValueError(
        f"the activation {node.operation} at {node.name!r} is not supported by path quantities: it is not of the form "
        "q * gate(q). Use a gate there, such as ReLU, SiLU or GELU, or the tangent or limit kernel, which support it."
    )


def _summed(counts: Counts, first_axis: int, rows: Iterable[list[list[int]] | None]) -> Counts:
    """Axis by axis, for each row of positions the sum over them; positions outside count nothing."""
    for axis, positions in enumerate(rows, start=first_axis):
        if positions is not None:
            inside = [[position for position in row if position >= 0] for row in positions]
            sums = [np.take(counts, row, axis=axis).sum(axis=axis) for row in inside]
            counts = np.stack(sums, axis=axis, dtype=object)  # else the sums of a vector would become int64
    return counts
