"""Tasks that are hashed, recorded and resumed, in processes or on Dask."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
