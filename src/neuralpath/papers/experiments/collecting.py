"""Collecting: from output folders to a folder of records, with one archive for each experiment."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from neuralpath.papers.experiments.experiment import Sweep
from neuralpath.papers.runs import (
    ARCHIVE,
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
