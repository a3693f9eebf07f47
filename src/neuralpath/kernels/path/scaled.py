"""Pair matrices whose size passes any floating-point range: each pair of inputs has a power of two of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

NOTHING = -(2**20)
"""Exponent of a pair whose values are all 0: below every other, so that it never sets the scale of a sum."""


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Pair values ``values * gain * 2**exponent``, and the binary magnitude of the largest of ``values``.

    Values are not brought to a common size when they are made, which would be one more pass over them: whoever
    reads them next multiplies by ``2**(exponent - common exponent)``. Scaling by powers of two is exact.
    """

    values: Float[Tensor, "order batch1 batch2 *positions"]
    exponent: Int[Tensor, "batch1 batch2"]
    magnitude: Int[Tensor, "batch1 batch2"]
    gain: float = 1.0  # a factor of all values, such as a variance, that waits for the next reader too

    @property
    def top(self) -> Int[Tensor, "batch1 batch2"]:
        """Exponent at which the largest value of each pair lies between 1/2 and 1."""
        return self.exponent + self.magnitude

    def at(self, exponent: Int[Tensor, "batch1 batch2"]) -> Float[Tensor, "order batch1 batch2 *positions"]:
        """The values relative to another exponent."""
        factor = self.factor(exponent)
        return self.values * factor.reshape(1, *exponent.shape, *(1,) * (self.values.ndim - 3))

    def factor(self, exponent: Int[Tensor, "batch1 batch2"]) -> Float[Tensor, "batch1 batch2"]:
        """What the values are to be multiplied with, relative to another exponent."""
        return power_of_two(self.exponent - exponent, self.values.dtype) * self.gain


def power_of_two(power: Int[Tensor, "batch1 batch2"], dtype: torch.dtype) -> Float[Tensor, "batch1 batch2"]:
    """2**power, exactly; 0 and infinity beyond the range."""
    return torch.ldexp(torch.ones_like(power, dtype=dtype), power)


def measured(
    values: Float[Tensor, "order batch1 batch2 *positions"],
    exponent: Int[Tensor, "batch1 batch2"],
    largest: Float[Tensor, "batch1 batch2"] | None = None,
) -> Scaled:
    """Values with their magnitude, which is looked up unless the largest value of each pair is given."""
    if largest is None:
        largest = values.abs().amax(0)
        largest = largest.flatten(2).amax(2) if largest.ndim > 2 else largest
    magnitude = torch.frexp(largest).exponent.to(torch.int64)
    return Scaled(values, torch.where(largest == 0, NOTHING, exponent), magnitude)


def total(parts: Sequence[Scaled]) -> Scaled:
    """The sum of several."""
    if len(parts) == 1:
        return parts[0]  # with its gain
    exponent = torch.stack([part.top for part in parts]).amax(0)
    values = parts[0].at(exponent)
    for part in parts[1:]:
        values = values + part.at(exponent)
    return measured(values, exponent)
