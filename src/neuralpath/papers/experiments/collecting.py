"""From run directories to a folder of records that is kept in a repository."""

from dataclasses import dataclass, field
from pathlib import Path

from neuralpath._files import write_atomically
from neuralpath.papers.experiments.sweeps import Sweep
from neuralpath.papers.runs import (
    ABOUT,
    WEIGHTS,
    DamagedRecord,
    DamagedTensors,
    RunError,
    Store,
    Task,
    Weights,
    damage,
    problems_of,
    read_about,
    read_record,
    read_tensors,
    results_of,
    with_dependencies,
    write_tensors,
)

LARGEST_WEIGHTS = 1_000_000
"""Bytes of a file of weights that is kept; bigger networks are trained again where they are needed."""


@dataclass
class Collected:
    """What was copied, what was left because of its size, and what was found to be damaged."""

    n_records: int = 0
    n_weights: int = 0
    too_big: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    """Files of runs that are not what was written: they are not kept."""
    replaced: list[str] = field(default_factory=list)
    """Files among the records that were damaged, and now are those of the runs."""


def collect(sweeps: list[Sweep], store: Store, records: Path) -> Collected:
    """Copy what is finished: records, what is true of the machine, and weights that others read.

    A run that is still on its way has weights too, the best so far: they are left.

    Weights are only kept while some run that reads them may still be done: those of every run in the sweeps that
    another one reads. What is there already stays as it is, unless it is damaged. What is damaged in the runs is not
    copied. A sweep of some parts of a preset is kept as that of all of them, so that the records show what is still to
    be done.

    Raises: RunError if the folder cannot be written to.
    """
    sweeps = [sweep.whole for sweep in sweeps]
    done = Collected()
    try:
        for folder in ("runs", "weights"):
            (records / folder).mkdir(parents=True, exist_ok=True)
        for sweep in sweeps:
            sweep.write(records)
        tasks = with_dependencies(tuple(task for sweep in sweeps for task in sweep.tasks))
        done.damaged += problems_of(tasks, store)
        finished = results_of(tasks, store)
        for task in finished:
            _copy_run(task, store, records, done)
        for weights in dict.fromkeys(weights for task in tasks for weights in task.weights_read):
            if weights.work in finished:
                _copy_weights(weights, store, records, done)
    except OSError as error:
        raise RunError(f"{records} cannot be written to: {error.strerror}.") from error
    done.too_big.sort()
    return done


def _copy_run(task: Task, store: Store, records: Path, done: Collected) -> None:
    record, folder = store.record_path(task), store.folder(task)
    assert record is not None
    target = records / "runs" / f"{task.name}.json"
    is_new = not _is_kept(target, task, done)
    if is_new:
        write_atomically(target, record.read_bytes())
        done.n_records += 1
    about, kept = folder / ABOUT, target.with_name(f"{task.name}.{ABOUT}")
    if about.exists() and (is_new or read_about(kept) is None):  # it is of the very run that the record is of
        if read_about(about) is None:
            done.damaged.append(f"{about} is damaged: it is left")
        else:
            write_atomically(kept, about.read_bytes())


def _is_kept(target: Path, task: Task, done: Collected) -> bool:
    """Whether the records hold the run's, and hold it whole."""
    if not target.exists():
        return False
    try:
        read_record(target, task)
    except DamagedRecord as error:
        done.replaced.append(str(error).removesuffix("."))
        return False
    return True


def _copy_weights(weights: Weights, store: Store, records: Path, done: Collected) -> None:
    source = store.folder(weights.work) / WEIGHTS / f"{weights.which}.safetensors"
    if not source.exists():
        return
    if source.stat().st_size > LARGEST_WEIGHTS:
        done.too_big.append(f"{weights.work.name}: {weights.which}")
        return
    target = records / "weights" / f"{weights.work.name}.{weights.which}.safetensors"
    done.n_weights += _copy_tensors(source, target, done)


def _copy_tensors(source: Path, target: Path, done: Collected) -> int:
    """Copy a file of tensors, and its checksum, unless it is there and whole; how many files that was."""
    was_there = target.exists()
    problem = damage(target) if was_there else None
    if was_there and problem is None:
        return 0
    try:
        data = read_tensors(source)
    except DamagedTensors as error:
        done.damaged.append(f"{str(error).removesuffix('.')}: it is left")
        return 0
    if problem is not None:
        done.replaced.append(problem)
    write_tensors(target, data)
    return 1
