"""All experiments by name."""

from difflib import get_close_matches
from importlib import import_module

from neuralpath.papers.experiments.experiment import Experiment

NAMES = (
    "regimes", "stages", "label-energy", "kernel-parts", "gate-orders", "tilings", "residual", "label-noise",
    "hidden-outputs", "linear-gating", "memorisation", "theorem", "base-kernels", "kernels",
)  # fmt: skip


def get(name: str) -> Experiment:
    """The experiment of that name.

    Raises: ValueError if there is none; the message suggests the nearest.

    >>> get("base-kernels").source
    'P2 section 7'
    """
    if name not in NAMES:
        near = get_close_matches(name, NAMES, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else f": {', '.join(NAMES)}."
        raise ValueError(f"there is no experiment {name!r}{hint}")
    experiment: Experiment = import_module(f"neuralpath.papers.experiments.{name.replace('-', '_')}").EXPERIMENT
    return experiment
