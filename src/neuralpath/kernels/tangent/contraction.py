r"""Inner products of the gradients of two batches, and the choice of the cheaper of two algorithms.

For a layer with signals :math:`a_t` and deltas :math:`\delta_t` at T positions, the inner product of the gradients of
two examples is

.. math:: \Big\langle \sum_t \delta_t a_t^\top, \sum_s \delta'_s a_s'^\top \Big\rangle
    = \sum_{t,s} (a_t \cdot a'_s) (\delta_t \cdot \delta'_s)

*By position* is the right side: two Gram matrices over all positions of all examples, multiplied entry by entry, and
then summed over blocks of T x T entries::

                 positions of example 0 | of example 1 | ...
    example 0    [ T x T block, summed ]|[            ]|       -> K[0, 0], K[0, 1], ...
    example 1    [                     ]|[            ]|       -> K[1, 0], K[1, 1], ...

*By row* is the left side: some rows of all gradients are written out as vectors, and one matrix product of these
vectors is added to the kernel::

                   entries of rows r, r+1, ... of the weight            (summed over positions already)
    example 0    | dw[r, 0]  dw[r, 1] ...  dw[r+1, 0] ... |             K += vectors @ vectors'.T
    example 1    |                                        |             then the next rows, in the same memory

With few positions the first is cheaper, with many the second.
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from math import isqrt

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath.kernels.tangent import winograd
from neuralpath.kernels.tangent.features import Features
from neuralpath.kernels.tangent.gradients import ConvolutionGradient, ExplicitGradient, FactoredGradient, Uses, Vectors

SCRATCH_BYTES = 2**26
"""Memory for products of positions, or for rows of gradients, that are written out at once: more brings nothing."""

PAIR_OVERHEAD = 16
"""Reading and writing one pair of positions takes as long as this many multiplications."""

Matrix = Float[Tensor, "rows columns"]
Terms = Mapping[str, Uses]


def add_inner_products(
    kernel: Matrix, left: Features, right: Features, *, joint: bool, scratch: int = SCRATCH_BYTES
) -> None:
    """Add inner products of gradients, summed over equal outputs or, if ``joint``, a row for each of them."""
    for name, blocks in left.by_position.items():
        for block1, block2 in zip(blocks, right.by_position[name], strict=True):
            _add_factored(kernel, block1, block2, joint, scratch)
    for name, uses in left.by_row.items():
        for gram in _products_by_row(uses, right.by_row[name], joint, scratch):
            kernel += gram
    if left.explicit is not None and right.explicit is not None:
        kernel += _gram(left.explicit, right.explicit, joint)


def _gram(left: Vectors, right: Vectors, joint: bool) -> Matrix:
    """Inner products of vectors, of all pairs of outputs or summed over equal outputs."""
    axes = (0, 1) if joint else (1, 2)
    return left.flatten(*axes) @ right.flatten(*axes).T


def _add_factored(kernel: Matrix, left: FactoredGradient, right: FactoredGradient, joint: bool, scratch: int) -> None:
    out = kernel.unflatten(0, (len(left.delta), -1)).unflatten(2, (len(right.delta), -1))
    if left.n_positions == right.n_positions == 1:  # T = 1: nothing is summed, and the product goes into the kernel
        deltas = _gram(left.delta[:, :, 0], right.delta[:, :, 0], joint)
        out.addcmul_(deltas.view(out.shape), _signal_products(left, right)[:, None, :, None])
        return
    # Squares of examples, so that both Gram matrices of a square fit into the scratch memory.
    pair_bytes = 2 * left.n_positions * right.n_positions * kernel.element_size()
    side = max(1, isqrt(scratch // pair_bytes))
    for rows in _slices(len(left.delta), side):
        for columns in _slices(len(right.delta), side):
            out[rows, :, columns] += _sums_over_positions(left.examples(rows), right.examples(columns), joint)


def _sums_over_positions(left: FactoredGradient, right: FactoredGradient, joint: bool) -> Float[Tensor, "n1 o1 n2 o2"]:
    signals = _signal_products(left, right)
    n1, n_outputs, t1 = left.delta.shape[:3]
    n2, _, t2 = right.delta.shape[:3]
    if not joint:  # outputs and channels are one axis of the vectors: their product sums over equal outputs
        vectors1, vectors2 = (g.delta.transpose(1, 2).flatten(0, 1).flatten(1) for g in (left, right))
        deltas = vectors1 @ vectors2.T
        return deltas.mul_(signals).view(n1, t1, n2, t2).sum((1, 3))[:, None, :, None]
    out = signals.new_empty(n1, n_outputs, n2, n_outputs)
    for o1 in range(n_outputs):
        for o2 in range(n_outputs):
            deltas = left.delta[:, o1].flatten(0, 1) @ right.delta[:, o2].flatten(0, 1).T
            out[:, o1, :, o2] = deltas.mul_(signals).view(n1, t1, n2, t2).sum((1, 3))
    return out


def _signal_products(left: FactoredGradient, right: FactoredGradient) -> Float[Tensor, "position1 position2"]:
    """Products of signals; a bias is a weight of the constant signal 1."""
    products = left.signal.flatten(0, 1) @ right.signal.flatten(0, 1).T
    return products.add_(1) if left.bias else products


def _products_by_row(left: Uses, right: Uses, joint: bool, scratch: int) -> Iterator[Matrix]:
    """Inner products of one parameter's gradients, of some of its rows at a time."""
    counts = {use.n_rows for use in left if not isinstance(use, ExplicitGradient)}
    n_rows = counts.pop() if len(counts) == 1 else 1  # uses that cut the parameter into different rows: all at once
    first = left[0]
    n_examples = len(first.delta) + (0 if left is right else len(right[0].delta))
    row_bytes = n_examples * first.delta.shape[1] * first.n_entries // n_rows * first.delta.element_size()
    for rows in _slices(n_rows, max(1, scratch // max(row_bytes, 1))):
        vectors = _written_rows(left, rows, n_rows)
        yield _gram(vectors, vectors if left is right else _written_rows(right, rows, n_rows), joint)


def _written_rows(uses: Uses, rows: slice, n_rows: int) -> Vectors:
    """Some of the ``n_rows`` rows of the gradient, written out: the sum over all uses of the parameter."""
    if len(uses) == 1 and isinstance(uses[0], ConvolutionGradient) and uses[0].uses_winograd:
        # With the entries in another order, which inner products of a weight with one use do not mind.
        return winograd.weight_gradients(uses[0].signal, uses[0].delta[:, :, rows], uses[0].geometry.padding)
    steps = [use.n_rows // n_rows for use in uses]
    terms = (use.rows(rows.start * step, rows.stop * step) for use, step in zip(uses, steps, strict=True))
    return reduce(torch.add, terms)


def _slices(count: int, step: int) -> Iterator[slice]:
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def _matrix_shape(uses: Uses) -> tuple[int, int, int, int] | None:
    """Positions of all uses, blocks of the matrix, rows and columns of a block; None if the uses are not alike."""
    shapes: set[tuple[int | bool, ...]] = set()
    positions = 0
    for use in uses:
        match use:
            case FactoredGradient():
                shapes.add((use.transposed, 1, use.delta.shape[3], use.signal.shape[2]))
            case ConvolutionGradient():
                shapes.add((-1, use.geometry.groups, *use.group_shape))
            case _:
                return None
        positions += use.n_positions
    if len(shapes) != 1:
        return None
    ((_, blocks, n_rows, n_columns),) = shapes
    return positions, blocks, n_rows, n_columns


def cheaper_by_position(terms: Terms, n1: int, n2: int, n_outputs: int, *, joint: bool) -> frozenset[str]:
    """The parameters whose inner products between ``n1`` and ``n2`` examples are cheaper by position than by row."""
    output_pairs = n_outputs**2 if joint else n_outputs
    names = []
    for name, uses in terms.items():
        if (shape := _matrix_shape(uses)) is None:
            continue
        positions, blocks, n_rows, n_columns = shape
        by_position = blocks * positions**2 * (n_columns + output_pairs * (n_rows + PAIR_OVERHEAD))
        entries = blocks * n_rows * n_columns
        writing: float = positions * entries  # of an example's gradient by one output
        if len(uses) == 1 and isinstance(uses[0], ConvolutionGradient):
            writing = uses[0].writing_cost
        by_row = output_pairs * entries + n_outputs * writing * (1 / n1 + 1 / n2)
        # With one position nothing is gained from writing out, whatever the estimate.
        if positions == 1 or by_position <= by_row:
            names.append(name)
    return frozenset(names)


def feature_bytes(terms: Terms, by_position: frozenset[str], n_outputs: int) -> int:
    """Bytes of an example's features."""
    total = 0
    for name, uses in terms.items():
        item, shape = uses[0].delta.element_size(), _matrix_shape(uses)
        if name in by_position and shape is not None:
            positions, blocks, n_rows, n_columns = shape
            total += item * positions * blocks * (n_columns + n_outputs * n_rows)
            continue
        for use in uses:
            signal = 0 if use.signal is None else use.signal[0].numel()
            total += item * (signal + n_outputs * use.delta[0, 0].numel())
    return total
