"""Values over pairs of positions: the axes of two examples' pairs, then the positions of one and of the other.

With ``full`` there is an axis for each position of either example; else the two positions are equal and share one.
"""

import math
from collections.abc import Sequence
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
    full: bool

    @property
    def lead(self) -> int:
        """Number of axes for pairs of examples."""
        return self.values.ndim - len(self.space) * (2 if self.full else 1)

    def axes(self, axis: int) -> tuple[int, ...]:
        """Where a spatial axis stands: once, or once for either example."""
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
        """An axis for either example, where there is a single position."""
        assert math.prod(self.space) == 1
        return PairValues(self.values.reshape(*self.values.shape, *self.space), self.space, True)

    def mean_of_equal(self) -> "PairValues":
        """The mean over equal positions, which leaves no space."""
        values = self.equal().values
        flat = values.reshape(*values.shape[: self.lead], math.prod(self.space))
        return PairValues(flat.mean(-1), (), False)

    def reshaped(self, space: Space) -> "PairValues":
        """The same positions under other axes."""
        times = 2 if self.full else 1
        return PairValues(self.values.reshape(*self.values.shape[: self.lead], *space * times), space, self.full)

    def window_mean(self, windows: Sequence[Window]) -> "PairValues":
        """The sum over a window that moves both positions alike, divided by its size; beyond an edge is 0."""
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
        for place in range(window.size):
            offset = place * window.dilation - window.before
            low = max(0, -(offset // window.stride))  # the first output whose position lies inside
            high = min(count, (size - 1 - offset) // window.stride + 1)
            if low >= high:
                continue
            start = low * window.stride + offset
            read = slice(start, start + (high - low - 1) * window.stride + 1, window.stride)
            target = tuple(slice(low, high) if i in axes else slice(None) for i in range(len(shape)))
            source = tuple(read if i in axes else slice(None) for i in range(len(shape)))
            total[target] += self.values[source]
        return PairValues(total, (*self.space[:axis], count, *self.space[axis + 1 :]), self.full)

    def averaged(self, matrices: Sequence[Float[Tensor, "_out _n_in"]]) -> "PairValues":
        """A linear map of the positions of either example; needs all pairs."""
        values = self.values
        for axis, matrix in enumerate(matrices):
            for place in self.axes(axis):
                values = torch.tensordot(values, matrix.to(values), dims=([place], [1])).movedim(-1, place)
        return PairValues(values, tuple(matrix.shape[0] for matrix in matrices), self.full)

    def selected(self, indices: Sequence[Tensor | None]) -> "PairValues":
        """Positions read by index along each axis; an index below 0 gives 0."""
        values = self.values
        for axis, index in enumerate(indices):
            if index is None:
                continue
            index = index.to(values.device)
            for place in self.axes(axis):
                values = values.index_select(place, index.clamp(min=0))
                if bool((index < 0).any()):
                    values = values.masked_fill((index < 0).reshape(-1, *(1,) * (values.ndim - place - 1)), 0)
        space = tuple(s if i is None else len(i) for s, i in zip(self.space, indices, strict=True))
        return PairValues(values, space, self.full)


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which examples are paired: all of one batch with all of another, or (``own``) each with itself."""

    own: bool

    def products(self, one: Float[Tensor, "_batch1 channel *space"], two: Float[Tensor, "_batch2 channel *space"],
                 *, full: bool) -> PairValues:  # fmt: skip
        """Inner products over the channels."""
        space = tuple(one.shape[2:])
        a, b = one.flatten(2) if space else one[..., None], two.flatten(2) if space else two[..., None]
        if self.own:
            values = a.mT @ b if full else (a * b).sum(1)
        elif full:
            left = a.transpose(1, 2).reshape(-1, a.shape[1])
            values = (left @ b.transpose(0, 1).reshape(b.shape[1], -1)).reshape(len(a), a.shape[2], len(b), b.shape[2])
            values = values.transpose(1, 2)
        else:
            values = torch.bmm(a.permute(2, 0, 1), b.permute(2, 1, 0)).permute(1, 2, 0)
        lead = values.shape[:1] if self.own else values.shape[:2]
        return PairValues(values.reshape(*lead, *space * (2 if full else 1)), space, full)

    def first(self, of_example: Float[Tensor, "batch *space"], *, full: bool) -> Float[Tensor, "..."]:
        """A value of the first example's positions, to broadcast against pair values."""
        space = of_example.shape[1:]
        lead = of_example.shape[:1] if self.own else (of_example.shape[0], 1)
        return of_example.reshape(*lead, *space, *(1,) * (len(space) if full else 0))

    def second(self, of_example: Float[Tensor, "batch *space"], *, full: bool) -> Float[Tensor, "..."]:
        """A value of the second example's positions, to broadcast against pair values."""
        space = of_example.shape[1:]
        lead = of_example.shape[:1] if self.own else (1, of_example.shape[0])
        return of_example.reshape(*lead, *(1,) * (len(space) if full else 0), *space)
