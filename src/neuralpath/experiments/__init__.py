"""The papers' tables and figures: one module each, with a frozen config and `run(config, out)`.

>>> experiment = get("regimes")
>>> len(experiment.works(experiment.presets["smoke"]))
28
"""

from neuralpath.experiments.registry import NAMES, get

__all__ = ["NAMES", "get"]
