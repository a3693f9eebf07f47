"""The papers' networks as plain modules, and the initialisations that the papers use."""

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
    "RandomSign",
    "ResidualFC",
    "TorchDefault",
    "build",
    "initialise",
]
