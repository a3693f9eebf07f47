"""How a convolution moves its window."""

from dataclasses import dataclass

Pair = tuple[int, ...]  # one number for each spatial axis


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a convolution moves its window; ``padding`` zeros lie on both sides of each axis."""

    window: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int
