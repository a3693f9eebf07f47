"""The counting reading: the number of paths, exactly, in Python's integers."""

import numpy as np
from numpy.typing import NDArray

from neuralpath.graph import nodes as n

Counts = NDArray[np.object_]  # Python integers, one for each unit


class ExactCounts:
    """Number of paths that end at each unit: weights, gates, masks, pooling factors and scales are all 1."""

    def input(self, node: n.InputNode) -> Counts:
        return np.ones(node.shape, dtype=object)

    def constant(self, node: n.ConstantNode) -> Counts:
        return np.ones(node.shape, dtype=object)

    def linear(self, node: n.LinearNode, counts: Counts) -> Counts:
        sums = counts.reshape(node.groups, -1, *counts.shape[1:]).sum(axis=1)
        for axis, window in enumerate(node.windows, start=1):
            sums = _sum_rows(sums, axis, window.table(sums.shape[axis]).tolist())
        return np.repeat(sums, node.weight_shape[0] // node.groups, axis=0)

    def bias(self, node: n.BiasNode, counts: Counts) -> Counts:
        return counts + 1

    def gate(self, node: n.GateNode, counts: Counts) -> Counts:
        return counts

    def activation(self, node: n.ActivationNode, counts: Counts) -> Counts:
        raise no_paths_through(node)

    def scale(self, node: n.ScaleNode, counts: Counts) -> Counts:
        return counts

    def add(self, node: n.AddNode, *branches: Counts) -> Counts:
        return np.sum([np.broadcast_to(branch, node.shape) for branch in branches], axis=0)

    def concat(self, node: n.ConcatNode, *branches: Counts) -> Counts:
        return np.concatenate(branches, axis=0)

    def select(self, node: n.SelectNode, counts: Counts) -> Counts:
        for axis, index in enumerate(node.indices):
            if index is not None:
                counts = _sum_rows(counts, axis, index[:, None].tolist())
        return counts

    def average_pool(self, node: n.AveragePoolNode, counts: Counts) -> Counts:
        for axis, matrix in enumerate(node.matrices, start=1):
            counts = _sum_rows(counts, axis, [np.flatnonzero(row).tolist() for row in matrix.numpy()])
        return counts

    def max_pool(self, node: n.MaxPoolNode, counts: Counts) -> Counts:
        for axis, table in enumerate(node.tables, start=1):
            counts = _sum_rows(counts, axis, table.tolist())
        return counts

    def reshape(self, node: n.ReshapeNode, counts: Counts) -> Counts:
        return counts.reshape(node.shape)


def no_paths_through(node: n.ActivationNode) -> ValueError:
    """The error of every path reading at an activation that is not a gate times its input."""
    return ValueError(
        f"the activation {node.operation} at {node.name!r} is not of the form q * gate(q), so no path goes "
        "through it; path readings need ReLU, leaky ReLU, SiLU, GELU or another gate there (the tangent and "
        "limit kernels take it as it is)."
    )


def _sum_rows(counts: Counts, axis: int, rows: list[list[int]]) -> Counts:
    """For each row of positions the sum over them along one axis; positions outside count nothing."""
    inside = [[position for position in row if position >= 0] for row in rows]
    sums = [np.take(counts, row, axis=axis).sum(axis=axis) for row in inside]
    return np.stack(sums, axis=axis, dtype=object)  # of a vector the sums are plain integers, and would become int64
