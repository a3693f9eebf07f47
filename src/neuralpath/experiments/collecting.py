"""From run directories to a folder of records that is kept in a repository."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from neuralpath.experiments.sweeps import Sweep
from neuralpath.runs.place import PICTURES
from neuralpath.runs.store import ABOUT, RunError, Store
from neuralpath.runs.sweep import results_of
from neuralpath.runs.work import Work, with_needs

LARGEST_WEIGHTS = 1_000_000
"""Bytes of a file of weights that is kept; bigger networks are trained again where they are needed."""


@dataclass(frozen=True)
class Collected:
    """What was copied, and what was left because of its size."""

    n_records: int
    n_weights: int
    too_big: tuple[str, ...]


def collect(sweeps: list[Sweep], store: Store, records: Path) -> Collected:
    """Copy what is finished: records, what is true of the machine, arrays of pictures, and weights that others read.

    A run that is still on its way has weights too, the best so far: they are left.

    Weights are only kept while some run that reads them may still be done: those of every run in the sweeps that
    another one reads. What is there already stays as it is. A sweep of some parts of a preset is kept as that of all of
    them, so that the records show what is still to be done.

    Raises: RunError if the folder cannot be written to.
    """
    sweeps = [sweep.whole for sweep in sweeps]
    n_records, n_weights, too_big = 0, 0, []
    try:
        for folder in ("runs", "weights", "arrays"):
            (records / folder).mkdir(parents=True, exist_ok=True)
        for sweep in sweeps:
            sweep.write(records)
        works = with_needs(tuple(work for sweep in sweeps for work in sweep.works))
        finished = results_of(works, store)
        for work in finished:
            n_records += _copy_run(work, store, records)
        for weights in {weights for work in works for weights in work.weights_read if weights.work in finished}:
            source = store.folder(weights.work) / "weights" / f"{weights.which}.safetensors"
            if not source.exists():
                continue
            if source.stat().st_size > LARGEST_WEIGHTS:
                too_big.append(f"{weights.work.name}: {weights.which}")
            else:
                n_weights += _copy(source, records / "weights" / f"{weights.work.name}.{weights.which}.safetensors")
    except OSError as error:
        raise RunError(f"{records} cannot be written to: {error.strerror}.") from error
    return Collected(n_records, n_weights, tuple(sorted(too_big)))


def _copy_run(work: Work, store: Store, records: Path) -> int:
    record = store.record_path(work)
    assert record is not None
    folder = store.folder(work)
    new = _copy(record, records / "runs" / f"{work.name}.json")
    if (folder / ABOUT).exists():
        _copy(folder / ABOUT, records / "runs" / f"{work.name}.about.json")
    for arrays in sorted((folder / PICTURES).glob("*.safetensors")):
        _copy(arrays, records / "arrays" / f"{work.name}.{arrays.name}")
    return new


def _copy(source: Path, target: Path) -> int:
    """Copy unless it is there; how many files that was."""
    if target.exists() or source == target:
        return 0
    shutil.copyfile(source, target)
    return 1
