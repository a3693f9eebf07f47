"""Gates, paths and kernels of neural networks."""

from importlib.metadata import version as _version

import lazy_loader as _lazy

__version__ = _version("neuralpath")

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
