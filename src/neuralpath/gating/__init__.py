"""Running a module with given gates; deep gated networks and the regimes of the papers."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
