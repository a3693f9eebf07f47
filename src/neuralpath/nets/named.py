"""The networks of the papers by name."""

from torch import nn

from neuralpath.nets.convolutional import GCONV, VCONV, CircularCNN, DavidNet
from neuralpath.nets.fully_connected import FC, ResidualFC
from neuralpath.nets.initialization import look_up

BY_NAME: dict[str, type[nn.Module]] = {
    "fc": FC,
    "vconv": VCONV,
    "gconv": GCONV,
    "circular-cnn": CircularCNN,
    "residual-fc": ResidualFC,
    "davidnet": DavidNet,
}
"""The classes of the networks; each takes `input_shape`, `n_outputs`, `bias`, `init` and `generator`."""


def build(name: str, **settings: object) -> nn.Module:
    """A network by name.

    Args:
        name: A key of `BY_NAME`, in upper or lower case, with ``-`` or ``_``.
        **settings: Arguments of the network's class.

    Raises:
        ValueError: If no network has that name; the message suggests the closest one.

    Example:
        >>> type(build("gconv", input_shape=(3, 32, 32), n_outputs=10)).__name__
        'GCONV'
    """
    return look_up(BY_NAME, name, "name")(**settings)
