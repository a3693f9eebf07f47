"""The papers' networks as plain modules, and the initialisations that the papers use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from neuralpath.nets.circular import CircularCNN
from neuralpath.nets.convolutional import GCONV, VCONV
from neuralpath.nets.davidnet import DavidNet
from neuralpath.nets.fully_connected import FC
from neuralpath.nets.initialisation import (
    INITIALISATIONS,
    Fans,
    Gaussian,
    GlorotUniform,
    Initialisation,
    RandomSign,
    TorchDefault,
    initialise,
)
from neuralpath.nets.named import BY_NAME, build
from neuralpath.nets.residual import ResidualFC

if TYPE_CHECKING:
    from neuralpath.nets.linear_gated import LinearGatedCNN as LinearGatedCNN
    from neuralpath.nets.linear_gated import LinearGatedFC as LinearGatedFC

__all__ = [
    "BY_NAME",
    "FC",
    "GCONV",
    "INITIALISATIONS",
    "VCONV",
    "CircularCNN",
    "DavidNet",
    "Fans",
    "Gaussian",
    "GlorotUniform",
    "Initialisation",
    "LinearGatedCNN",
    "LinearGatedFC",
    "RandomSign",
    "ResidualFC",
    "TorchDefault",
    "build",
    "initialise",
]


def __getattr__(name: str) -> Any:
    # Gated networks stand on `neuralpath.gating`, which itself stands on the networks here.
    if name not in ("LinearGatedCNN", "LinearGatedFC"):
        raise AttributeError(f"module 'neuralpath.nets' has no attribute {name!r}")
    return getattr(import_module("neuralpath.nets.linear_gated"), name)
