"""Kernels of networks: path kernel, tangent kernels, infinite width, and what follows from a kernel matrix."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
