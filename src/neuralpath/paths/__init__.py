"""Quantities over paths: counts, enumeration, norms, sensitivity, gate statistics, sketch, nearest examples."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
