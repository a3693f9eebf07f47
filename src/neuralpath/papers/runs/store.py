"""The store of runs: an output folder, and folders of records of runs that were finished before."""

import os
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import Any

from neuralpath._files import AlreadyLocked, exclusive_lock, write_atomically
from neuralpath.papers.runs.records import RECORD, DamagedRecord, archived, check_record, read_record, write_record
from neuralpath.papers.runs.run_directory import METRICS, WEIGHTS, DamagedTensors, RunDirectory, tensors_problem
from neuralpath.papers.runs.task import FORMAT, RunError, Task

LOCKS = ".locks"
QUARANTINE = "quarantine"


@dataclass(frozen=True)
class Store:
    """Runs by task. A good record or weights file is read and checked once; a damaged one counts as missing."""

    out: Path
    """The output folder: one directory for each run. A folder of records is read in the same way."""
    records: Path | None = None
    """A folder that is only read, in which finished runs count too: a folder of records (one archive for each
    experiment, and ``weights/``) or another output folder."""
    data_dir: Path | None = None
    """Folder with the data sets; None for the default places."""
    _finished: dict[str, dict[str, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Good records of finished runs."""
    _good_weights: set[tuple[Any, ...]] = field(default_factory=set, init=False, repr=False, compare=False)
    """Weights files with the right checksum; a file that has changed since is read again."""

    def __post_init__(self) -> None:
        if self.records is not None and not self.records.is_dir():
            raise RunError(f"there is no folder {self.records} of records.")
        for folder in self._folders:
            check_format(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes read the records that they need themselves."""
        return Store, (self.out, self.records, self.data_dir)

    def make(self) -> None:
        """Make the output folder; `RunError` if it cannot be written to."""
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
                with suppress(OSError), self.lock(task):  # in a read-only folder of another user
                    return False
            except AlreadyLocked:
                return True
        return False

    # Reading

    def record(self, task: Task) -> dict[str, Any] | None:
        """The record of a finished run; None for any other run."""
        for folder in self._folders if task.name not in self._finished else ():
            with suppress(DamagedRecord):  # `problem` names it, and `begin` quarantines it
                record = self._record_in(folder, task)
                if record is not None and record["state"] == "finished":
                    self._finished[task.name] = record
                    break
        return self._finished.get(task.name)

    def result(self, task: Task) -> dict[str, Any] | None:
        """The result of a finished run; None for any other run."""
        return (self.record(task) or {}).get("result")

    def is_finished(self, task: Task, weights: Iterable[str] = ()) -> bool:
        """Whether a run has a good record, and good files of these weights."""
        return self.record(task) is not None and all(self.weights_path(task, which) is not None for which in weights)

    def failure(self, task: Task) -> str | None:
        """The error of a failed run; None for any other run."""
        with suppress(DamagedRecord):
            record = self._record_in(self.out, task)
            return record["error"] if record is not None and record["state"] == "failed" else None
        return None

    def weights_path(self, task: Task, which: str) -> Path | None:
        """The weights file of a run; None if it is missing or damaged."""
        for path in self._weights_files(task, which):
            stamp = _stamp(path)
            if stamp in self._good_weights or tensors_problem(path) is None:
                self._good_weights.add(stamp)
                return path
        return None

    def damaged_weights(self, task: Task, which: str = "*") -> list[str]:
        """What is wrong with the weights files of a run; ``*`` for all of them."""
        return _problems(self._weights_files(task, which))

    def problem(self, task: Task) -> str | None:
        """What is damaged of an unfinished run that no process is doing."""
        damage = self._directory_problem(task)
        if damage is not None:
            return None if self.is_running(task) else f"{self.folder(task)} is damaged ({damage})"
        return "; ".join(self.problems_in_records(task)) or None

    def problems_in_records(self, task: Task) -> list[str]:
        """What is damaged of a run outside its own directory, in archives and folders that are only read."""
        problems: list[str] = []
        for folder in self._folders:
            if folder != self.out or not (self.folder(task) / RECORD).exists():
                try:
                    self._record_in(folder, task)
                except DamagedRecord as error:
                    problems.append(str(error).removesuffix("."))
        return problems + _problems(path for path in self._weights_files(task) if self.folder(task) not in path.parents)

    # Writing; the caller holds the lock of the run

    def begin(self, task: Task) -> list[str]:
        """Prepare the directory of a run; returns messages about damage that was quarantined."""
        problem = self._directory_problem(task)
        messages = [] if problem is None else [self.quarantine(task, problem)]
        self.write(task, "started")
        return messages

    def write(self, task: Task, state: str, **entries: Any) -> None:
        """Write the record of a run, which makes it ``started``, ``finished`` or ``failed``."""
        self.folder(task).mkdir(parents=True, exist_ok=True)
        write_record(self.folder(task) / RECORD, task, state, entries)

    def quarantine(self, task: Task, problem: str) -> str:
        """Move the damaged directory of a run away, and say so."""
        self._finished.pop(task.name, None)
        folder = self.out / QUARANTINE
        folder.mkdir(exist_ok=True)
        target = next(path for number in count(1) if not (path := folder / f"{task.name}-{number}").exists())
        shutil.move(self.folder(task), target)
        return f"{self.folder(task)} is damaged ({problem}): it was moved to {target}, and the run is repeated"

    @cached_property
    def _folders(self) -> tuple[Path, ...]:
        """The output folder, then the folder of records, if it is another one."""
        if self.records is None or self.records.resolve() == self.out.resolve():
            return (self.out,)
        return self.out, self.records

    @cached_property
    def _archived(self) -> dict[Path, dict[str, tuple[Path, Any]]]:
        """The archived records of each folder."""
        return {folder: archived(folder) for folder in self._folders}

    def _record_in(self, folder: Path, task: Task) -> dict[str, Any] | None:
        path = folder / task.name / RECORD
        if path.exists():
            return read_record(path, task)
        archive, line = self._archived[folder].get(task.name, (None, None))
        return None if line is None else check_record(line, f"the record {task.name} in {archive}", task)

    def _weights_files(self, task: Task, which: str = "*") -> list[Path]:
        """The existing weights files of a run, damaged ones included; those of the output folder first."""
        names = (f"{task.name}/{WEIGHTS}/{which}.safetensors", f"{WEIGHTS}/{task.name}.{which}.safetensors")
        return [path for folder in self._folders for name in names for path in sorted(folder.glob(name))]

    def _directory_problem(self, task: Task) -> str | None:
        """What is wrong with the directory of a run."""
        folder = self.folder(task)
        record, metrics, weights = folder / RECORD, folder / METRICS, folder / WEIGHTS
        if not os.path.lexists(folder):
            return None
        if not folder.is_dir():
            return "it is not a directory"
        try:
            if metrics.exists():
                metrics.read_text(encoding="utf-8")
            if record.exists():
                read_record(record, task)
            elif any(folder.iterdir()):
                return f"{RECORD} is missing"
        except DamagedRecord as error:
            return str(error).removesuffix(".")
        except (OSError, ValueError) as error:
            return f"a file in it cannot be read: {error}"
        if weights.exists() and not weights.is_dir():
            return f"{WEIGHTS} is not a directory"
        return next(iter(_problems(sorted(weights.glob("*.safetensors")))), None)

    def _find_weights(self, task: Task, which: str) -> Path:
        if (path := self.weights_path(task, which)) is not None:
            return path
        if problems := self.damaged_weights(task, which):
            raise DamagedTensors(f"{'; '.join(problems)}; --retry-failed repeats the run that wrote them.")
        raise FileNotFoundError(f"the run {task.name} has saved no weights {which!r}.")


def check_format(folder: Path) -> None:
    """Refuse a folder of runs or records that was written before this format, by a `RunError` that names it."""
    if next(chain(folder.glob("*/config.json"), folder.glob("runs/*.about.json")), None) is not None:
        hint = f"this version reads format {FORMAT}: use another folder, or the version that wrote it"
        raise RunError(f"{folder} has runs of format 1, which were written by an earlier version; {hint}.")


def _problems(paths: Iterable[Path]) -> list[str]:
    return [problem for problem in map(tensors_problem, paths) if problem is not None]


def _stamp(path: Path) -> tuple[Any, ...]:
    """What changes with a file."""
    with suppress(OSError):  # another process may have moved it away
        status = path.stat()
        return path, status.st_mtime_ns, status.st_size, status.st_ino
    return (path,)
