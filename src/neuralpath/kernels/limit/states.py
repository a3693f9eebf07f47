"""The state of a node in the limit."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from neuralpath.kernels.limit.positions import PairValues


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """Values that the input alone decides, of both batches."""

    one: Float[Tensor, "_batch1 *shape"]
    two: Float[Tensor, "_batch2 *shape"]


@dataclass(frozen=True, slots=True, eq=False)
class Random:
    """Second moments of one channel over pairs of positions, the carried kernels, and the means where not 0."""

    moment: PairValues
    carried: tuple[PairValues, ...]
    means: tuple[PairValues, PairValues] | None = None  # of both batches: examples and positions

    def each(self, change: Callable[[PairValues], PairValues]) -> "Random":
        """A change of moments, carried kernels and means alike: a linear map of the positions."""
        means = None if self.means is None else (change(self.means[0]), change(self.means[1]))
        return Random(change(self.moment), tuple(map(change, self.carried)), means)

    def equal(self) -> "Random":
        """Equal positions only."""
        return self.each(PairValues.equal)


State = Fixed | Random | None
"""``None`` stands for what nothing asks for."""
