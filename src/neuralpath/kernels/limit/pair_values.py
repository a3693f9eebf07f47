"""Values over pairs of positions of two examples, and the state of a node in the recursion of infinite width.

The axes of a value tensor, for examples of height h and width w:

    all pairs of positions (full)         (batch1, batch2, h, w, h', w')   position of the first, of the second example
    equal positions only                  (batch1, batch2, h, w)           one position for both
    each example with itself (``own``)    (batch, ...)                     one axis instead of batch1, batch2

Flattened networks need equal positions only, pooled networks need all pairs: positions² times the memory of positions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath.graph import Window

Space = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PairValues:
    """A value for each pair of examples and each pair of positions."""

    values: Float[Tensor, "..."]
    space: Space
    full: bool  # all pairs of positions, or equal positions only

    @property
    def lead(self) -> int:
        """Number of axes for pairs of examples."""
        return self.values.ndim - len(self.space) * (2 if self.full else 1)

    def axes(self, axis: int) -> tuple[int, ...]:
        """Where a spatial axis is in the tensor: once, or once for each example."""
        first = self.lead + axis
        return (first, first + len(self.space)) if self.full else (first,)

    def equal(self) -> "PairValues":
        """Equal positions only."""
        if not self.full:
            return self
        lead, size = self.values.shape[: self.lead], math.prod(self.space)
        values = self.values.reshape(*lead, size, size).diagonal(dim1=-2, dim2=-1)
        return PairValues(values.reshape(*lead, *self.space), self.space, False)

    def as_full(self) -> "PairValues":
        """All pairs of positions of examples with a single position."""
        assert math.prod(self.space) == 1
        return PairValues(self.values.reshape(*self.values.shape, *self.space), self.space, True)

    def mean_of_equal(self) -> "PairValues":
        """The mean over equal positions, which leaves no spatial axes."""
        values = self.equal().values.reshape(*self.values.shape[: self.lead], math.prod(self.space))
        return PairValues(values.mean(-1), (), False)

    def reshaped(self, space: Space) -> "PairValues":
        """The same positions under other axes."""
        axes = space * (2 if self.full else 1)
        return PairValues(self.values.reshape(*self.values.shape[: self.lead], *axes), space, self.full)

    def window_mean(self, windows: Sequence[Window]) -> "PairValues":
        """The sum over a window that moves both positions together, divided by its size; padding counts as 0."""
        result = self
        for axis, window in enumerate(windows):
            result = result._slid(axis, window)
        size = math.prod(window.size for window in windows)
        return replace(result, values=result.values / size) if size > 1 else result

    def _slid(self, axis: int, window: Window) -> "PairValues":
        size, count = self.space[axis], window.n_out(self.space[axis])
        if window == Window(1):
            return self
        axes = self.axes(axis)
        shape = [count if i in axes else extent for i, extent in enumerate(self.values.shape)]
        total = self.values.new_zeros(shape)
        for tap in range(window.size):
            offset = tap * window.dilation - window.before
            low = max(0, -(offset // window.stride))  # the first output whose position is inside
            high = min(count, (size - 1 - offset) // window.stride + 1)
            if low < high:
                start = low * window.stride + offset
                read = slice(start, start + (high - low - 1) * window.stride + 1, window.stride)
                # The same slice along the axes of both examples: the window moves both positions together.
                target = tuple(slice(low, high) if i in axes else slice(None) for i in range(len(shape)))
                total[target] += self.values[tuple(read if i in axes else slice(None) for i in range(len(shape)))]
        return PairValues(total, (*self.space[:axis], count, *self.space[axis + 1 :]), self.full)

    def averaged(self, matrices: Sequence[Float[Tensor, "_out _n_in"]]) -> "PairValues":
        """A linear map of the positions of either example; needs all pairs."""
        values = self.values
        for axis, matrix in enumerate(matrices):
            for dim in self.axes(axis):
                values = torch.tensordot(values, matrix.to(values), dims=([dim], [1])).movedim(-1, dim)
        return PairValues(values, tuple(matrix.shape[0] for matrix in matrices), self.full)

    def selected(self, indices: Sequence[Tensor | None]) -> "PairValues":
        """Positions read by index along each axis; a negative index gives 0."""
        values = self.values
        for axis, index in enumerate(indices):
            if index is None:
                continue
            index = index.to(values.device)
            for dim in self.axes(axis):
                values = values.index_select(dim, index.clamp(min=0))
                if bool((index < 0).any()):
                    values = values.masked_fill((index < 0).reshape(-1, *(1,) * (values.ndim - dim - 1)), 0)
        space = tuple(s if i is None else len(i) for s, i in zip(self.space, indices, strict=True))
        return PairValues(values, space, self.full)


def of_examples(values: Float[Tensor, "batch *space"]) -> PairValues:
    """A value for each example and position, which moves as pair values of equal positions do."""
    return PairValues(values, tuple(values.shape[1:]), False)


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which examples are paired: all of one batch with all of another, or (``own``) each with itself."""

    own: bool

    def products(
        self, x1: Float[Tensor, "_batch1 channel *space"], x2: Float[Tensor, "_batch2 channel *space"], *, full: bool
    ) -> PairValues:
        """Inner products over the channels."""
        space = tuple(x1.shape[2:])
        a, b = x1.flatten(2) if space else x1[..., None], x2.flatten(2) if space else x2[..., None]
        if self.own:
            values = a.mT @ b if full else (a * b).sum(1)
        elif full:  # one matrix product: rows (example, position) of the first, columns of the second batch
            left = a.transpose(1, 2).reshape(-1, a.shape[1])
            values = (left @ b.transpose(0, 1).reshape(b.shape[1], -1)).reshape(len(a), a.shape[2], len(b), b.shape[2])
            values = values.transpose(1, 2)
        else:  # a matrix product for each position, over (example, channel) and (channel, example)
            values = torch.bmm(a.permute(2, 0, 1), b.permute(2, 1, 0)).permute(1, 2, 0)
        lead = values.shape[:1] if self.own else values.shape[:2]
        return PairValues(values.reshape(*lead, *space * (2 if full else 1)), space, full)

    def spread(
        self, first: Float[Tensor, "_batch1 *space"], second: Float[Tensor, "_batch2 *space"], *, full: bool
    ) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        """Values of the positions of either example, with the axes at which they broadcast against pair values.

        full    (batch1, 1, h, w, 1, 1)  and  (1, batch2, 1, 1, h, w)
        equal   (batch1, 1, h, w)        and  (1, batch2, h, w)
        own     without the 1 among the batches
        """
        space = first.shape[1:]
        others = (1,) * (len(space) if full else 0)
        lead1, lead2 = (first.shape[:1], second.shape[:1]) if self.own else ((len(first), 1), (1, len(second)))
        return first.reshape(*lead1, *space, *others), second.reshape(*lead2, *others, *space)


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """The state of a node whose values the input alone decides: these values, for both batches."""

    first: Float[Tensor, "_batch1 *shape"]
    second: Float[Tensor, "_batch2 *shape"]


@dataclass(frozen=True, slots=True, eq=False)
class Random:
    """The state of a random node: second moments of one channel, the carried kernels, and means that are not 0."""

    moment: PairValues
    carried: tuple[PairValues, ...]
    means: tuple[PairValues, ...] | None = None  # of both batches: examples and positions

    def each(self, change: Callable[[PairValues], PairValues]) -> "Random":
        """The same linear map of the positions for moments, carried kernels and means."""
        means = None if self.means is None else tuple(map(change, self.means))
        return Random(change(self.moment), tuple(map(change, self.carried)), means)


State = Fixed | Random | None  # ``None`` for a node whose values nothing needs
