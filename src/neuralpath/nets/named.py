"""The networks by name."""

from typing import Any

from torch import nn

from neuralpath.nets._checks import look_up
from neuralpath.nets.circular import CircularCNN
from neuralpath.nets.convolutional import GCONV, VCONV
from neuralpath.nets.davidnet import DavidNet
from neuralpath.nets.fully_connected import FC
from neuralpath.nets.residual import ResidualFC

BY_NAME: dict[str, type[nn.Module]] = {
    "fc": FC,
    "vconv": VCONV,
    "gconv": GCONV,
    "circular-cnn": CircularCNN,
    "residual-fc": ResidualFC,
    "davidnet": DavidNet,
}
"""Constructors; every one takes `input_shape`, `n_outputs`, `bias`, `init` and `generator`."""


def build(name: str, **settings: Any) -> nn.Module:
    """Make the network of that name; case does not matter, and ``_`` stands for ``-``.

    Raises:
        ValueError: If no network has that name; the message suggests the nearest.

    Example:
        >>> type(build("gconv", input_shape=(3, 32, 32), n_outputs=10)).__name__
        'GCONV'

    """
    return look_up(BY_NAME, name, "name")(**settings)
