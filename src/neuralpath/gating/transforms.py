"""Changing a mask on its way from the feature network to the value network."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Shaped
from torch import Tensor

GateTransform = Callable[[Tensor, tuple[int, ...]], Tensor]
"""From gates of shape (batch, *shape) and the shape that the value network has, to gates of that shape."""


@dataclass(frozen=True)
class TileGates:
    r"""Rotate a mask along space and repeat it over the channels of a wider value network.

    .. math:: G'[c, i] = G[c \bmod w, \; i - s]

    Symbols: :math:`w` is the number of the mask's channels, :math:`s` is ``shift``, and positions start again after
    the last. Dense masks have no space and are only repeated.

    Args:
        shift: positions to rotate by: one number for every axis of space, or one for each.

    >>> mask = torch.tensor([[[True, False, False]]])
    >>> TileGates(shift=1)(mask, (2, 3)).int().tolist()
    [[[0, 1, 0], [0, 1, 0]]]

    """

    shift: int | tuple[int, ...] = 0

    def __post_init__(self) -> None:
        try:
            one = operator.index(self.shift) if not isinstance(self.shift, Sequence) else None
            shift = tuple(map(operator.index, self.shift)) if one is None else one  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(f"`shift` must be an integer, or one for each axis of space, got {self.shift!r}.") from None
        object.__setattr__(self, "shift", shift)

    def __call__(self, gate: Shaped[Tensor, "batch *shape"], shape: tuple[int, ...]) -> Shaped[Tensor, "batch *out"]:
        """The mask for a value network of the given shape."""
        channels, *space = gate.shape[1:]
        if tuple(space) != shape[1:] or not shape or shape[0] < channels:
            raise ValueError(
                f"a mask of shape {tuple(gate.shape[1:])} cannot be tiled to {shape}: it is repeated over channels, so "
                "the value network must have the same positions and at least as many channels"
            )
        shifts = (self.shift,) * len(space) if isinstance(self.shift, int) else tuple(self.shift)
        if space and len(shifts) != len(space):
            raise ValueError(f"`shift` {shifts} does not fit a mask with {len(space)} axes of space")
        if space and any(shifts):
            if gate.dtype == torch.int64:
                raise ValueError(
                    "the positions of a max pool cannot be rotated, since its windows stay; give `gate_transform` as a "
                    "mapping that leaves this gate out, or tiles it without a shift"
                )
            gate = gate.roll(shifts, tuple(range(2, gate.ndim)))
        if shape[0] == channels:
            return gate
        return gate[:, torch.arange(shape[0], device=gate.device) % channels]
