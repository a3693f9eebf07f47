"""Overlaps of the gates of a random network of infinite width, layer by layer, in closed form."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def cosines_of(x: "Tensor") -> "Tensor":
    """Cosines of the angles between all inputs, in float64."""
    flat = x.flatten(1).double()
    flat = flat / flat.norm(dim=1, keepdim=True)
    return (flat @ flat.T).clamp(-1, 1)


def overlaps_in_the_limit(cosines: "Tensor", n_layers: int, *, linear: bool = False) -> "list[Tensor]":
    r"""For each gate layer of a random network the share of the gates that two inputs both open, at infinite width.

    .. math:: \frac{\pi - \theta_l}{2 \pi}, \qquad
        \cos \theta_{l+1} = \frac{\sin \theta_l + (\pi - \theta_l) \cos \theta_l}{\pi}

    Symbols: :math:`\theta_1` is the angle between the inputs, whose cosine is given; where features are ``linear`` it
    stays the same at every layer. Without biases. Reference: Theory, "Parts, gates, skips and images".

    >>> import torch
    >>> overlaps_in_the_limit(torch.tensor([0.0, 1.0]), 1)
    [tensor([0.2500, 0.5000])]
    """
    angles, overlaps = cosines.clamp(-1, 1).acos(), []
    for _ in range(n_layers):
        overlaps.append((math.pi - angles) / (2 * math.pi))
        if not linear:
            angles = next_angles(angles)
    return overlaps


def next_angles(angles: "Tensor") -> "Tensor":
    """The angles behind a ReLU layer of random weights and infinite width, from those before it."""
    return ((angles.sin() + (math.pi - angles) * angles.cos()) / math.pi).clamp(-1, 1).acos()
