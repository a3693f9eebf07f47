"""All experiments by name, and the sweeps of a folder."""

import json
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from neuralpath._configs import from_json
from neuralpath.papers.experiments.experiment import SWEEPS, Experiment, Sweep
from neuralpath.papers.runs import FORMAT, RunError, archives, check_format, read_archive

NAMES = (
    "regimes",
    "stages",
    "label-energy",
    "kernel-parts",
    "gate-orders",
    "tilings",
    "residual",
    "label-noise",
    "hidden-outputs",
    "linear-gating",
    "memorization",
    "theorem",
    "base-kernels",
    "kernels",
)
"""Each is a module of this folder, with ``_`` for ``-``, that defines ``EXPERIMENT``."""


def get(name: str) -> Experiment:
    """The experiment of that name.

    Args:
        name: One of ``NAMES``.

    Raises:
        ValueError: If there is none; the message suggests the nearest name.

    >>> get("base-kernels").source
    'P2 section 7'

    """
    if name not in NAMES:
        near = get_close_matches(name, NAMES, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else f": {', '.join(NAMES)}."
        raise ValueError(f"there is no experiment {name!r}{hint}")
    experiment: Experiment = import_module(f"neuralpath.papers.experiments.{name.replace('-', '_')}").EXPERIMENT
    return experiment


def read_sweeps(folder: Path) -> tuple[list[Sweep], list[str]]:
    """The sweeps of an output folder or of a folder of records.

    Returns:
        The sweeps, and a message for each that this version cannot read.

    Raises:
        RunError: If the folder has none, or was written before this format.

    """
    check_format(folder)
    sweeps: list[Sweep] = []
    problems: list[str] = []
    files = [*sorted((folder / SWEEPS).glob("*.json")), *archives(folder)]
    for path in files:
        try:
            if path.suffix == ".json":
                entries = [json.loads(path.read_bytes())]
            else:
                archive = read_archive(path)
                entries, problems = archive.sweeps, problems + archive.problems
            sweeps += [sweep_from_json(entry) for entry in entries]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            problems.append(f"{path} cannot be read: {error}")
    if not files:
        raise RunError(
            f"{folder} has no runs of an experiment; `neuralpath papers run NAME --out {folder}` makes some."
        )
    return sweeps, problems


def sweep_from_json(entries: Any) -> Sweep:
    """The sweep that `Sweep.to_json` has written.

    Raises:
        ValueError: If an entry is missing or wrong; the message names it.

    """
    if not isinstance(entries, dict):
        raise ValueError("it has no settings of an experiment.")
    if entries.get("format") != FORMAT:
        raise ValueError(f"it has format {entries.get('format', 1)}; this version reads format {FORMAT}.")
    if wrong := [name for name in ("preset", "command", "version") if not isinstance(entries[name], str)]:
        raise ValueError(f"`{wrong[0]}` must be a string, got {entries[wrong[0]]!r}.")
    experiment = get(entries["experiment"])
    config: Any = from_json(experiment.config, entries["config"])
    return Sweep(experiment, config, entries["preset"], entries["command"], entries["version"])
