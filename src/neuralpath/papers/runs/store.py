"""The store of runs: an output folder, and folders of records of runs that were finished before."""

import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from neuralpath._files import AlreadyLocked, exclusive_lock, write_atomically
from neuralpath.papers.runs.records import (
    RECORD,
    DamagedRecord,
    archives,
    check_record,
    make_record,
    read_archive,
    read_record,
    write_record,
)
from neuralpath.papers.runs.run_directory import METRICS, WEIGHTS, DamagedTensors, RunDirectory, tensors_problem
from neuralpath.papers.runs.task import FORMAT, RunError, Task

LOCKS = ".locks"
QUARANTINE = "quarantine"


@dataclass(frozen=True)
class Store:
    """Runs by task. Each good record is read and checked once.

    Args:
        out: The output folder: one directory for each run. A folder of records is read in the same way.
        records: Folders that are only read, in which finished runs count too: folders of records (one archive for each
            experiment, and ``weights/``) or other output folders. The first folder with a good record counts.
        data_dir: Folder with the data sets; None for the default places.

    Raises:
        RunError: If a folder of records is missing, or a folder was written before this format.
    """

    out: Path
    records: Path | tuple[Path, ...] | None = None
    data_dir: Path | None = None
    _finished: dict[str, dict[str, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Records that were read and found to be good."""

    def __post_init__(self) -> None:
        for folder in self.record_folders:
            if not folder.is_dir():
                raise RunError(f"there is no folder {folder} of records.")
        for folder in self._folders:
            check_format(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes read the records that they need themselves."""
        return Store, (self.out, self.records, self.data_dir)

    @property
    def record_folders(self) -> tuple[Path, ...]:
        """The folders of records, however many."""
        if self.records is None:
            return ()
        return self.records if isinstance(self.records, tuple) else (self.records,)

    def make(self) -> None:
        """Make the output folder.

        Raises:
            RunError: If it cannot be written to.
        """
        try:
            (self.out / LOCKS).mkdir(parents=True, exist_ok=True)
            write_atomically(self.out / LOCKS / ".probe", b"")
        except OSError as error:
            raise RunError(f"the output folder {self.out} cannot be written to: {error.strerror}.") from error

    def folder(self, task: Task) -> Path:
        """The directory of a run."""
        return self.out / task.name

    def directory(self, task: Task) -> RunDirectory:
        """The directory of a run, as its task sees it."""
        return RunDirectory(self.folder(task), self._find_weights, self.data_dir)

    def lock(self, task: Task) -> AbstractContextManager[None]:
        """Lock a run against other processes; entering raises `AlreadyLocked` if another process holds the lock."""
        return exclusive_lock(self.out / LOCKS / task.name)

    def is_running(self, task: Task) -> bool:
        """Whether a process is doing the run."""
        if (self.out / LOCKS / task.name).exists():
            try:
                with self.lock(task):
                    return False
            except AlreadyLocked:
                return True
            except OSError:  # a read-only folder of another user
                pass
        return False

    # Reading

    def record(self, task: Task) -> dict[str, Any] | None:
        """The record of a finished run; None for any other run.

        Raises:
            DamagedRecord: If there is a record, but it is damaged.
        """
        problem = None
        for folder in self._folders if task.name not in self._finished else ():
            try:
                record = self._record_in(folder, task)
            except DamagedRecord as error:
                problem = problem or error
                continue
            if record is not None and record["state"] == "finished":
                self._finished[task.name] = record
                break
        if problem is not None and task.name not in self._finished:
            raise problem
        return self._finished.get(task.name)

    def result(self, task: Task) -> dict[str, Any] | None:
        """The result of a finished run; None for any other run. Errors are those of `record`."""
        record = self.record(task)
        return None if record is None else record["result"]

    def is_finished(self, task: Task, weights: Iterable[str] = ()) -> bool:
        """Whether a run has a good record, and good files of these weights."""
        try:
            finished = self.record(task) is not None
        except DamagedRecord:
            return False  # `problem` names it, and `begin` quarantines it
        return finished and all(self.weights_path(task, which) is not None for which in weights)

    def failure(self, task: Task) -> str | None:
        """The error of a failed run; None for any other run."""
        try:
            record = self._record_in(self.out, task)
        except DamagedRecord:
            return None
        return record["error"] if record is not None and record["state"] == "failed" else None

    def weights_path(self, task: Task, which: str) -> Path | None:
        """The weights file of a run; None if it is missing or damaged."""
        return next((path for path in self._weights_files(task, which) if tensors_problem(path) is None), None)

    def damaged_weights(self, task: Task, which: str) -> list[str]:
        """What is wrong with the weights files of a run."""
        return _known(map(tensors_problem, self._weights_files(task, which)))

    def problem(self, task: Task, weights: Iterable[str] = ()) -> str | None:
        """What is damaged of a run that no process is doing, and of these weights, which takes reading them."""
        weights, folder = tuple(weights), self.folder(task)
        damage = _directory_problem(folder, task) or _weights_problem(folder, weights)
        if damage is not None:
            return None if self.is_running(task) else f"{folder} is damaged ({damage})"
        return "; ".join(self.problems_in_records(task, weights)) or None

    def problems_in_records(self, task: Task, weights: Iterable[str] = ()) -> list[str]:
        """What is damaged of a run in the folders of records, which are only read."""
        problems: list[str] = []
        for folder in self._folders:
            if folder != self.out or not (self.folder(task) / RECORD).exists():
                try:
                    self._record_in(folder, task)
                except DamagedRecord as error:
                    problems.append(str(error).removesuffix("."))
        paths = (path for which in weights for path in self._weights_files(task, which))
        return problems + _known(tensors_problem(path) for path in paths if self.folder(task) not in path.parents)

    # Writing; the caller holds the lock of the run

    def begin(self, task: Task) -> list[str]:
        """Prepare the directory of a run; returns messages about damage that was quarantined."""
        folder = self.folder(task)
        problem = _directory_problem(folder, task) or _weights_problem(folder)
        messages = [] if problem is None else [self.quarantine(task, problem)]
        self._write(task, "started", {})
        return messages

    def finish(self, task: Task, result: dict[str, Any], provenance: dict[str, Any]) -> None:
        """Write the record that makes a run finished."""
        self._write(task, "finished", {"result": result, "provenance": provenance})

    def fail(self, task: Task, error: str, trace: str, provenance: dict[str, Any]) -> None:
        """Record that a run has failed."""
        self._write(task, "failed", {"error": error, "trace": trace, "provenance": provenance})

    def quarantine(self, task: Task, problem: str) -> str:
        """Move the damaged directory of a run away, and say so."""
        self._finished.pop(task.name, None)
        folder = self.out / QUARANTINE
        folder.mkdir(exist_ok=True)
        target = next(path for number in range(1, 10_000) if not (path := folder / f"{task.name}-{number}").exists())
        shutil.move(self.folder(task), target)
        return f"{self.folder(task)} is damaged ({problem}): it was moved to {target}, and the run is repeated"

    # Private

    def _write(self, task: Task, state: str, entries: dict[str, Any]) -> None:
        self.folder(task).mkdir(parents=True, exist_ok=True)
        write_record(self.folder(task) / RECORD, make_record(task, state, entries))

    @cached_property
    def _folders(self) -> tuple[Path, ...]:
        """The output folder, then the folders of records, each once."""
        folders: dict[Path, Path] = {}
        for folder in (self.out, *self.record_folders):
            folders.setdefault(folder.resolve(), folder)
        return tuple(folders.values())

    @cached_property
    def _archived(self) -> dict[Path, dict[str, tuple[str, Any]]]:
        """For each folder the records of its archives: the archive and the parsed line, by the name of the run."""
        return {
            folder: {
                name: (str(path), line)
                for path in archives(folder)
                for name, line in read_archive(path).records.items()
            }
            for folder in self._folders
        }

    def _record_in(self, folder: Path, task: Task) -> dict[str, Any] | None:
        path = folder / task.name / RECORD
        if path.exists():
            return read_record(path, task)
        where, line = self._archived[folder].get(task.name, ("", None))
        return None if line is None else check_record(line, f"the record {task.name} in {where}", task)

    def _weights_files(self, task: Task, which: str) -> list[Path]:
        """The existing weights files of a run, damaged ones included; those of the output folder first."""
        names = (f"{task.name}/{WEIGHTS}/{which}.safetensors", f"{WEIGHTS}/{task.name}.{which}.safetensors")
        return [folder / name for folder in self._folders for name in names if (folder / name).exists()]

    def _find_weights(self, task: Task, which: str) -> Path:
        path = self.weights_path(task, which)
        if path is not None:
            return path
        if problems := self.damaged_weights(task, which):
            raise DamagedTensors(f"{'; '.join(problems)}; --retry-failed repeats the run that wrote them.")
        raise FileNotFoundError(f"the run {task.name} has saved no weights {which!r}.")


def check_format(folder: Path) -> None:
    """Refuse a folder of runs or records that was written before this format, by a `RunError` that names it."""
    if next(chain(folder.glob("*/config.json"), folder.glob("runs/*.about.json")), None) is not None:
        raise RunError(
            f"{folder} has runs of format 1, which were written by an earlier version; this version reads format "
            f"{FORMAT}: use another folder, or the version that wrote it."
        )


def _known(problems: Iterable[str | None]) -> list[str]:
    return [problem for problem in problems if problem is not None]


def _directory_problem(folder: Path, task: Task) -> str | None:
    """What is wrong with the directory of a run, its weights aside."""
    if not folder.exists() and not folder.is_symlink():
        return None
    if not folder.is_dir():
        return "it is not a directory"
    try:
        if (folder / METRICS).exists():
            (folder / METRICS).read_text(encoding="utf-8")
        if (folder / RECORD).exists():
            read_record(folder / RECORD, task)
    except DamagedRecord as error:
        return str(error).removesuffix(".")
    except (OSError, ValueError) as error:
        return f"a file in it cannot be read: {error}"
    return None if (folder / RECORD).exists() or not any(folder.iterdir()) else f"{RECORD} is missing"


def _weights_problem(folder: Path, only: Iterable[str] | None = None) -> str | None:
    """What is wrong with the weights in the directory of a run: with all of them, or only with some."""
    weights = folder / WEIGHTS
    if weights.exists() and not weights.is_dir():
        return f"{WEIGHTS} is not a directory"
    paths = weights.glob("*.safetensors") if only is None else (weights / f"{which}.safetensors" for which in only)
    return next(iter(_known(tensors_problem(path) for path in sorted(paths) if path.exists())), None)
