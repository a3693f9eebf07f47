"""Activations in the limit of infinite width: their expectations over two normal variables, ReLU in closed form.

Throughout, (q, q') are normal with mean 0, variances ``v`` and ``w`` and covariance ``c``; chi is the activation, chi'
its derivative and gamma its gate, chi(q) = q gamma(q).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

Numbers = Float[Tensor, "..."]
Function = Callable[[Numbers], Numbers]

# Cosines within this many units of rounding of 1 or -1 count as 1 or -1: the error of an angle near 0 is the root of a
# few rounding errors, and an example would have an angle of about 1e-8 with itself.
SAME_DIRECTION = 16


class Pair(Enum):
    """The two functions whose product's expectation is taken, of q and of q'."""

    SIGNALS = ("signal", "signal")  # E[chi(q) chi(q')]
    SLOPES = ("slope", "slope")  # E[chi'(q) chi'(q')]
    GATES = ("gate", "gate")  # E[gamma(q) gamma(q')]
    GATE_SLOPE = ("gate", "slope")  # E[gamma(q) chi'(q')]
    SLOPE_GATE = ("slope", "gate")  # E[chi'(q) gamma(q')]


@runtime_checkable
class Activation(Protocol):
    """An activation with its expectations; implement it to add an activation in closed form."""

    @property
    def gated(self) -> bool:
        """Whether it is q times a gate, so that it has expectations with gates."""

    def __call__(self, q: Numbers) -> Numbers:
        """The activation of a tensor."""

    def mean(self, v: Numbers) -> Numbers:
        """E[chi(q)]."""

    def moments(self, v: Numbers, w: Numbers, c: Numbers, pairs: Sequence[Pair]) -> list[Numbers]:
        """The expectation of each pair; ``v`` and ``w`` broadcast against ``c``."""


def check_gated(activation: Activation, node: str | None = None) -> None:
    """Refuse an activation that has no gate, with the name of its node if there is one."""
    if not activation.gated:
        # Some have their node's name already.
        where = "" if node is None or repr(node) in str(activation) else f" at {node!r}"
        raise ValueError(
            f"{activation}{where} is not of the form q * gate(q): its slope has no value and feature part."
        )


def sine_and_angle(v: Numbers, w: Numbers, c: Numbers) -> tuple[Numbers, Numbers]:
    """The angle between two vectors of squared lengths v, w and inner product c, and its sine times the lengths.

    The arc tangent of sine and cosine keeps all digits of c, unlike the arc cosine. A vector of length 0 counts as
    orthogonal to every vector, itself included.
    """
    sine = sine_square(v, w, c).sqrt_()
    return sine, torch.where((v == 0) | (w == 0), math.pi / 2, torch.atan2(sine, c))


def sine_square(v: Numbers, w: Numbers, c: Numbers) -> Numbers:
    """The squared sine times the squared lengths, v w - c^2; exactly 0 where it is only rounding error."""
    lengths = v.sqrt() * w.sqrt()
    tiny = SAME_DIRECTION * torch.finfo(c.dtype).eps * lengths
    below, above = lengths - c, lengths + c
    return torch.where(below <= tiny, 0.0, below) * torch.where(above <= tiny, 0.0, above)


@dataclass(frozen=True)
class Rectifier:
    """ReLU, and leaky ReLU with a slope for negative values; its gate is its derivative.

    With a the slope and t the angle: E[chi' chi''] = [(1 + a^2)(pi - t) + 2 a t] / 2 pi, and E[chi chi'] = c times that
    plus (1 - a)^2 |q||q'| sin t / 2 pi.
    """

    slope: float = 0.0

    gated = True

    def __call__(self, q: Numbers) -> Numbers:
        return torch.where(q > 0, q, self.slope * q)

    def mean(self, v: Numbers) -> Numbers:
        return (1 - self.slope) * (v / (2 * math.pi)).sqrt()

    def moments(self, v: Numbers, w: Numbers, c: Numbers, pairs: Sequence[Pair]) -> list[Numbers]:
        sine, angle = sine_and_angle(v, w, c)
        slopes = ((1 + self.slope**2) * math.pi - (1 - self.slope) ** 2 * angle) / (2 * math.pi)
        bend = (1 - self.slope) ** 2 / (2 * math.pi)
        return [c * slopes + bend * sine if pair is Pair.SIGNALS else slopes for pair in pairs]


@dataclass(frozen=True)
class Identity(Rectifier):
    """No activation: the gate is always open."""

    slope: float = 1.0
