from .convolutional import GCONV as GCONV, VCONV as VCONV, CircularCNN as CircularCNN, DavidNet as DavidNet
from .fully_connected import FC as FC, ResidualFC as ResidualFC
from .initialization import (
    INITIALIZATIONS as INITIALIZATIONS,
    Fans as Fans,
    Gaussian as Gaussian,
    GlorotUniform as GlorotUniform,
    Initialization as Initialization,
    RandomSign as RandomSign,
    TorchDefault as TorchDefault,
    initialize as initialize,
)
from .named import BY_NAME as BY_NAME, build as build
