"""The reproduction of four papers: experiments, runs, claims, report."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
