"""All experiments by name, the sweeps of a folder, and the collection of finished runs in a folder of records."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from neuralpath._configs import from_json
from neuralpath.papers.experiments.experiment import SWEEPS, Experiment, Sweep
from neuralpath.papers.runs import (
    ARCHIVE,
    FORMAT,
    WEIGHTS,
    Archive,
    DamagedRecord,
    DamagedTensors,
    RunError,
    Store,
    Task,
    archives,
    check_format,
    check_record,
    problems_of,
    read_archive,
    read_tensors,
    tensors_problem,
    with_dependencies,
    write_archive,
    write_tensors,
)

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


@dataclass
class Collected:
    """What was copied, and what was damaged."""

    n_records: int = 0
    n_weights: int = 0
    damaged: list[str] = field(default_factory=list)
    """Files of runs that are not what was written; they are not copied."""
    replaced: list[str] = field(default_factory=list)
    """Damaged records and weights in the folder of records, which those of the runs have replaced."""


def collect(sweeps: Sequence[Sweep], store: Store, records: Path, weights: Sequence[str] = ()) -> Collected:
    """Add the finished runs of sweeps to a folder of records.

    Good records that are there already stay as they are. A sweep of some parts of a preset is stored as the sweep of
    all parts, so that the records show what is still to be done. A run that several experiments share is stored once.

    Args:
        sweeps: The sweeps.
        store: Where their runs are.
        records: The folder of records; it is made if it is missing.
        weights: Names of runs whose last and best weights are copied too. Other weights are trained again where a
            run needs them.

    Raises:
        RunError: If the folder cannot be written to, or was written before this format.
    """
    collected = Collected()
    try:
        records.mkdir(parents=True, exist_ok=True)
        check_format(records)
        contents = {path.name.removesuffix(ARCHIVE): read_archive(path) for path in archives(records)}
        for sweep in [sweep.whole for sweep in sweeps]:
            archive = contents.setdefault(sweep.experiment.name, Archive())
            archive.sweeps = [entry for entry in archive.sweeps if entry.get("config") != sweep.to_json()["config"]]
            archive.sweeps.append(sweep.to_json())
            tasks = with_dependencies(sweep.tasks)
            collected.damaged += [text for text in problems_of(tasks, store) if text not in collected.damaged]
            for task in tasks:
                _copy_record(task, store, archive, contents, collected)
                if task.name in weights and store.is_finished(task):
                    _copy_weights(task, store, records, collected)
        for name, archive in contents.items():
            collected.replaced += archive.problems
            write_archive(records / f"{name}{ARCHIVE}", archive)
    except OSError as error:
        raise RunError(f"{records} cannot be written to: {error.strerror}.") from error
    return collected


def _copy_record(
    task: Task, store: Store, archive: Archive, contents: dict[str, Archive], collected: Collected
) -> None:
    """Add the record of a finished run to an archive, unless some archive has a good one."""
    for name, other in contents.items():
        if task.name in other.records:
            try:
                check_record(other.records[task.name], f"the record {task.name} of {name}", task)
            except DamagedRecord as error:
                collected.replaced.append(str(error).removesuffix("."))
                archive = other
            else:
                return
    if store.is_finished(task):
        record = store.record(task)
        assert record is not None
        archive.records[task.name] = record
        collected.n_records += 1


def _copy_weights(task: Task, store: Store, records: Path, collected: Collected) -> None:
    (records / WEIGHTS).mkdir(exist_ok=True)
    for which in ("last", "best"):
        source = store.folder(task) / WEIGHTS / f"{which}.safetensors"
        target = records / WEIGHTS / f"{task.name}.{which}.safetensors"
        problem = tensors_problem(target) if target.exists() else None
        if not source.exists() or (target.exists() and problem is None):
            continue
        try:
            data = read_tensors(source)
        except DamagedTensors as error:
            collected.damaged.append(f"{str(error).removesuffix('.')}: it is not copied")
            continue
        collected.replaced += [] if problem is None else [problem]
        write_tensors(target, data)
        collected.n_weights += 1
