"""Inner products of the gradients of two batches, parameter by parameter."""

from collections.abc import Iterator, Sequence
from math import isqrt

from jaxtyping import Float
from torch import Tensor

from neuralpath.kernels.tangent.features import Features
from neuralpath.kernels.tangent.gradients import Convolved, Gradients, Outer, Written, some_examples

WORK_BYTES = 2**26
"""Pairs of positions, or rows of gradients, that are written out at once: more brings nothing."""

Kernel = Float[Tensor, "rows columns"]


def add_inner_products(kernel: Kernel, one: Features, two: Features, *, joint: bool, work: int = WORK_BYTES) -> None:
    """Add the inner products of the gradients of two batches over all parameters.

    ``joint``: a row for each example and output, for all pairs of outputs; else a row for each example, and the sum
    over equal outputs. ``work`` is the memory in bytes for what is written out on the way.
    """
    for name, blocks in one.paired.items():
        for block1, block2 in zip(blocks, two.paired[name], strict=True):
            _add_pairs(kernel, block1, block2, joint, work)
    for name, parts in one.summed.items():
        for gram in _row_products(parts, two.summed[name], joint, work):
            kernel += gram
    if one.written is not None and two.written is not None:
        kernel += _gram(one.written, two.written, joint)


def _gram(one: Float[Tensor, "batch1 output entry"], two: Float[Tensor, "batch2 output entry"], joint: bool) -> Kernel:
    """Inner products of vectors, of all pairs of outputs or summed over equal ones."""
    return _vectors(one, joint) @ _vectors(two, joint).T


def _vectors(values: Float[Tensor, "batch output entry"], joint: bool) -> Float[Tensor, "row column"]:
    return values.flatten(0, 1) if joint else values.flatten(1)


def _add_pairs(kernel: Kernel, one: Outer, two: Outer, joint: bool, work: int) -> None:
    r"""Add :math:`\sum_{t,t'} (a_t \cdot a'_{t'} + [bias]) (\delta_t \cdot \delta'_{t'})`, by pairs of positions."""
    if one.n_positions == two.n_positions == 1:
        deltas = _gram(one.delta[:, :, 0], two.delta[:, :, 0], joint)
        signals = _signals(one, two)
        if joint:
            _by_output(kernel, one, two).addcmul_(_by_output(deltas, one, two), signals[:, None, :, None])
        else:
            kernel.addcmul_(deltas, signals)
        return
    pair_bytes = 2 * one.n_positions * two.n_positions * kernel.element_size()
    side = max(1, isqrt(work // pair_bytes))
    out = kernel.unflatten(0, (len(one.delta), -1)).unflatten(2, (len(two.delta), -1))
    for rows in _slices(len(one.delta), side):
        for columns in _slices(len(two.delta), side):
            block1, block2 = some_examples(one, rows), some_examples(two, columns)
            out[rows, :, columns] += _summed_pairs(block1, block2, joint)


def _summed_pairs(one: Outer, two: Outer, joint: bool) -> Float[Tensor, "batch1 out1 batch2 out2"]:
    signals = _signals(one, two)
    n1, n_outputs, t1 = one.delta.shape[:3]
    n2, _, t2 = two.delta.shape[:3]
    if not joint:
        deltas = _by_position(one) @ _by_position(two).T
        return deltas.mul_(signals).view(n1, t1, n2, t2).sum((1, 3))[:, None, :, None]
    out = signals.new_empty(n1, n_outputs, n2, n_outputs)
    for o1 in range(n_outputs):
        for o2 in range(n_outputs):
            deltas = one.delta[:, o1].flatten(0, 1) @ two.delta[:, o2].flatten(0, 1).T
            out[:, o1, :, o2] = deltas.mul_(signals).view(n1, t1, n2, t2).sum((1, 3))
    return out


def _by_position(outer: Outer) -> Float[Tensor, "position entry"]:
    return outer.delta.transpose(1, 2).flatten(0, 1).flatten(1)


def _signals(one: Outer, two: Outer) -> Float[Tensor, "position1 position2"]:
    products = one.signal.flatten(0, 1) @ two.signal.flatten(0, 1).T
    return products.add_(1) if one.bias else products


def _by_output(kernel: Kernel, one: Outer, two: Outer) -> Float[Tensor, "batch1 out1 batch2 out2"]:
    return kernel.view(len(one.delta), one.delta.shape[1], len(two.delta), two.delta.shape[1])


def _row_products(one: Sequence[Gradients], two: Sequence[Gradients], joint: bool, work: int) -> Iterator[Kernel]:
    """Inner products from gradients that are written out, some rows of the parameter at a time."""
    counts = {part.n_rows for part in one if not isinstance(part, Written)}
    n_rows = counts.pop() if len(counts) == 1 else 1  # uses that cut the parameter into other rows are taken whole
    n_examples = one[0].n_examples + (0 if one is two else two[0].n_examples)
    row_bytes = n_examples * one[0].n_outputs * one[0].n_entries // n_rows * one[0].dtype.itemsize
    for rows in _slices(n_rows, max(1, work // max(row_bytes, 1))):
        first = _written_rows(one, rows, n_rows)
        yield _gram(first, first if one is two else _written_rows(two, rows, n_rows), joint)


def _written_rows(parts: Sequence[Gradients], rows: slice, n_rows: int) -> Float[Tensor, "batch output entry"]:
    match parts:
        case (Convolved(fast=True) as only,):
            return only.fast_rows(rows.start, rows.stop)
    total = None
    for part in parts:
        if isinstance(part, Written):
            size = part.n_entries // n_rows
            term = part.values[:, :, rows.start * size : rows.stop * size]
        else:
            whole = n_rows == 1
            term = part.rows(0, part.n_rows) if whole else part.rows(rows.start, rows.stop)
        total = term if total is None else total + term
    assert total is not None
    return total


def _slices(count: int, step: int) -> Iterator[slice]:
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
