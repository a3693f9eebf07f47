"""All experiments by name, the sweeps of a folder, and the collection of finished runs in a folder of records."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from neuralpath._configs import from_json
from neuralpath.papers import runs
from neuralpath.papers.experiments.experiment import SWEEPS, Experiment, Sweep

NAMES = (
    *("regimes", "stages", "label-energy", "kernel-parts", "gate-orders", "tilings", "residual"),
    *("label-noise", "hidden-outputs", "linear-gating", "memorization", "theorem", "base-kernels", "kernels"),
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
    """The sweeps of an output folder or of a folder of records, and a message for each that cannot be read."""
    runs.check_format(folder)
    sweeps: list[Sweep] = []
    problems: list[str] = []
    files = [*sorted((folder / SWEEPS).glob("*.json")), *runs.archives(folder)]
    if not files:
        raise runs.RunError(f"{folder} has no runs; `neuralpath papers run NAME --out {folder}` makes some.")
    for path in files:
        try:
            if path.suffix == ".json":
                entries = [json.loads(path.read_bytes())]
            else:
                archive = runs.read_archive(path)
                entries, problems = archive.sweeps, problems + archive.problems
            sweeps += [sweep_from_json(entry) for entry in entries]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            problems.append(f"{path} cannot be read: {error}")
    return sweeps, problems


def sweep_from_json(entries: Any) -> Sweep:
    """The sweep that `Sweep.to_json` has written; errors name the entry that is missing or wrong."""
    if not isinstance(entries, dict):
        raise ValueError("it has no settings of an experiment.")
    if entries.get("format") != runs.FORMAT:
        raise ValueError(f"it has format {entries.get('format', 1)}; this version reads format {runs.FORMAT}.")
    if wrong := [name for name in ("preset", "command", "version") if not isinstance(entries[name], str)]:
        raise ValueError(f"`{wrong[0]}` must be a string, got {entries[wrong[0]]!r}.")
    experiment = get(entries["experiment"])
    config: Any = from_json(experiment.config, entries["config"])
    return Sweep(experiment, config, entries["preset"], entries["command"], entries["version"])


@dataclass
class Collected:
    """What was copied, and what was damaged."""

    n_records: int = 0
    n_weights: int = 0
    damaged: list[str] = field(default_factory=list)  # files of runs that are not what was written: not copied
    replaced: list[str] = field(default_factory=list)  # damaged files among the records, replaced by those of the runs


def collect(sweeps: Sequence[Sweep], store: runs.Store, records: Path, weights: Sequence[str] = ()) -> Collected:
    """Add the finished runs of sweeps to a folder of records, with the last and best weights of the runs named.

    Good records that are there already stay as they are. A sweep of some parts of a preset is stored as the sweep of
    all parts, so that the records show what is still to be done. A run that several experiments share is stored once.
    """
    collected = Collected()
    try:
        records.mkdir(parents=True, exist_ok=True)
        runs.check_format(records)
        contents = {path.name.removesuffix(runs.ARCHIVE): runs.read_archive(path) for path in runs.archives(records)}
        for sweep in [sweep.whole for sweep in sweeps]:
            archive = contents.setdefault(sweep.experiment.name, runs.Archive())
            archive.sweeps = [entry for entry in archive.sweeps if entry.get("config") != sweep.to_json()["config"]]
            archive.sweeps.append(sweep.to_json())
            tasks = runs.with_dependencies(sweep.tasks)
            collected.damaged += [text for text in runs.problems_of(tasks, store) if text not in collected.damaged]
            for task in filter(store.is_finished, tasks):
                _copy_record(task, store, archive, contents, collected)
                if task.name in weights:
                    _copy_weights(task, store, records, collected)
        for name, archive in contents.items():
            collected.replaced += archive.problems
            runs.write_archive(records / f"{name}{runs.ARCHIVE}", archive)
    except OSError as error:
        raise runs.RunError(f"{records} cannot be written to: {error.strerror}.") from error
    return collected


def _copy_record(
    task: runs.Task, store: runs.Store, archive: runs.Archive, contents: dict[str, runs.Archive], collected: Collected
) -> None:
    """Add the record of a finished run to an archive, or in place of a damaged one, unless there is a good one."""
    for name, other in contents.items():
        if task.name in other.records:
            try:
                runs.check_record(other.records[task.name], f"the record {task.name} of {name}", task)
            except runs.DamagedRecord as error:
                collected.replaced.append(str(error).removesuffix("."))
                archive = other
            else:
                return
    record = store.record(task)
    if record is not None:
        archive.records[task.name] = record
        collected.n_records += 1


def _copy_weights(task: runs.Task, store: runs.Store, records: Path, collected: Collected) -> None:
    (records / runs.WEIGHTS).mkdir(exist_ok=True)
    for which in ("last", "best"):
        source = store.folder(task) / runs.WEIGHTS / f"{which}.safetensors"
        target = records / runs.WEIGHTS / f"{task.name}.{which}.safetensors"
        problem, existed = runs.tensors_problem(target), target.exists()
        if problem is None or not source.exists():
            continue
        try:
            runs.write_tensors(target, runs.read_tensors(source))
        except runs.DamagedTensors as error:
            collected.damaged.append(f"{str(error).removesuffix('.')}: it is not copied")
        else:
            collected.n_weights += 1
            collected.replaced += [problem] if existed else []
