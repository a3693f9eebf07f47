"""Where runs are kept: the output folder, and folders of records of runs that were done before."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuralpath._configs import to_json
from neuralpath._files import write_atomically
from neuralpath.papers.runs.errors import RunError as RunError  # which is part of what a store offers
from neuralpath.papers.runs.locks import locked
from neuralpath.papers.runs.run_directory import METRICS, WEIGHTS, RunDirectory
from neuralpath.papers.runs.task import FORMAT, Task, Weights, canonical
from neuralpath.papers.runs.tensors import DamagedTensors, damage

RECORD = "record.json"
CONFIG = "config.json"
FAILURE = "failed.json"
ABOUT = "about.json"
LOCKS = ".locks"
QUARANTINE = "quarantine"

_PARTS: dict[str, type] = {"sha256": str, "format": int, "fingerprint": str, "result": dict}
"""What every record has, with its types."""


class DamagedRecord(RunError):
    """A record is not what was written."""


@dataclass(frozen=True)
class Store:
    """The output folder ``out``, and ``records``, folders that are only read, in which finished runs count too."""

    out: Path
    records: Path | tuple[Path, ...] | None = None
    """One folder or several, of which the first that has a file counts."""
    data_dir: Path | None = None
    _known: dict[str, Path] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for folder in reversed(self.record_folders):
            if not folder.is_dir():
                raise RunError(f"there is no folder {folder} of records.")
            self._known.update({path.name: path for path in folder.rglob("*") if path.is_file()})

    @property
    def record_folders(self) -> tuple[Path, ...]:
        """The folders of records, however many."""
        if self.records is None:
            return ()
        return self.records if isinstance(self.records, tuple) else (self.records,)

    def make(self) -> None:
        """Make the output folder, and see that it can be written to.

        Raises: RunError.
        """
        try:
            (self.out / LOCKS).mkdir(parents=True, exist_ok=True)
            write_atomically(self.out / LOCKS / ".probe", b"")
        except OSError as error:
            raise RunError(f"the output folder {self.out} cannot be written to: {error.strerror}.") from error

    def folder(self, task: Task) -> Path:
        """The directory of a run."""
        return self.out / task.name

    @contextmanager
    def lock(self, task: Task) -> Iterator[bool]:
        """Hold the run against other processes; False where another one has it."""
        with locked(self.out / LOCKS / task.name) as ours:
            yield ours

    def result(self, task: Task) -> dict[str, Any] | None:
        """The result of a finished run; None of any other.

        Raises: DamagedRecord.
        """
        path = self.record_path(task)
        return None if path is None else read_record(path, task)["result"]

    def record_path(self, task: Task) -> Path | None:
        """The record of a finished run, in the output folder or else among the records."""
        path = self.folder(task) / RECORD
        return path if path.exists() else self._known.get(f"{task.name}.json")

    def weights_path(self, task: Task, which: str) -> Path | None:
        """The file of weights that a run has kept, if it is still there and whole."""
        return next((path for path in self._weights_files(task, which) if damage(path) is None), None)

    def has(self, weights: Weights) -> bool:
        """Whether weights that a run reads are there; damaged ones count as missing."""
        return self.weights_path(weights.work, weights.which) is not None

    def damaged_weights(self, task: Task, which: str) -> list[str]:
        """What is wrong with the files of weights that a run has kept, in the output folder or among the records."""
        return [problem for path in self._weights_files(task, which) if (problem := damage(path)) is not None]

    def directory(self, task: Task) -> RunDirectory:
        """The directory as the task sees it."""
        return RunDirectory(self.folder(task), self._find_weights, self.data_dir)

    def failure(self, task: Task) -> dict[str, Any] | None:
        """What a failed run has left, its ``error`` at least; None where there is nothing that can be read."""
        return _read_failure(self.folder(task))

    def is_running(self, task: Task) -> bool:
        """Whether some process has the run in its hands."""
        try:
            if not (self.out / LOCKS / task.name).exists():
                return False
            with self.lock(task) as ours:
                return not ours
        except OSError:  # a folder of somebody else, which may be read only
            return False

    def problem(self, task: Task, weights: tuple[str, ...] = ()) -> str | None:
        """What is wrong with what is kept of a run that is in nobody's hands: its directory, its record, and weights.

        Only those weights are looked at that are named, since that takes reading them.
        """
        folder = self.folder(task)
        found = _damage(folder, task) or _damaged_weights(folder, weights)
        if found is None:
            return "; ".join(self.damaged_among_records(task, weights)) or None
        return None if self.is_running(task) else f"{folder} is damaged ({found})"

    def damaged_among_records(self, task: Task, weights: tuple[str, ...] = ()) -> list[str]:
        """What is damaged of a run in the folder of records: that is only read, so it is named and stays."""
        problems = []
        record = self._known.get(f"{task.name}.json")
        if record is not None:
            try:
                read_record(record, task)
            except DamagedRecord as error:
                problems.append(str(error).removesuffix("."))
        files = (self._known.get(f"{task.name}.{which}.safetensors") for which in weights)
        return problems + [found for path in files if path is not None and (found := damage(path)) is not None]

    def begin(self, task: Task) -> str | None:
        """Prepare the directory; call it with the lock held. What was damaged is put aside: the message names it."""
        folder = self.folder(task)
        problem = _damage(folder, task) or _damaged_weights(folder)
        message = None if problem is None else self.put_aside(task, problem)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FAILURE).unlink(missing_ok=True)
        if not (folder / CONFIG).exists():
            write_atomically(folder / CONFIG, _pretty(_identity(task)))
        return message

    def put_aside(self, task: Task, problem: str) -> str:
        """Move the damaged directory of a run away; a message that says so."""
        for number in range(1, 10_000):
            target = self.out / QUARANTINE / f"{task.name}-{number}"
            if not target.exists():
                break
        target.parent.mkdir(exist_ok=True)
        shutil.move(self.folder(task), target)
        return f"{self.folder(task)} is damaged ({problem}): it lies in {target} now, and the run is repeated"

    def finish(self, task: Task, result: dict[str, Any], about: dict[str, Any]) -> None:
        """Write what is true of this machine, and then the record: with it the run is finished."""
        folder = self.folder(task)
        write_atomically(folder / ABOUT, _pretty(about))
        body = {**_identity(task), "result": result}
        checked = {"sha256": _checksum(body), **body}
        write_atomically(folder / RECORD, _pretty(checked))

    def fail(self, task: Task, error: str, trace: str, about: dict[str, Any]) -> None:
        """Note that a run has failed."""
        folder = self.folder(task)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FAILURE, _pretty({"error": error, "trace": trace, **about}))

    def _weights_files(self, task: Task, which: str) -> list[Path]:
        """Where the weights of a run are, damaged ones included; those of the output folder first."""
        own = self.folder(task) / WEIGHTS / f"{which}.safetensors"
        known = self._known.get(f"{task.name}.{which}.safetensors")
        return [path for path in (own, known) if path is not None and path.exists()]

    def _find_weights(self, task: Task, which: str) -> Path:
        path = self.weights_path(task, which)
        if path is not None:
            return path
        if problems := self.damaged_weights(task, which):
            raise DamagedTensors(f"{'; '.join(problems)}; --retry-failed does the run again that has made them.")
        raise FileNotFoundError(f"the run {task.name} has kept no weights {which!r}.")


def read_record(path: Path, task: Task | None = None) -> dict[str, Any]:
    """A record, checked against its checksum, and against the task that it should be of.

    Raises: DamagedRecord.
    """
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedRecord(f"{path} is no record of a run ({error}).") from error
    if not isinstance(body, dict):
        raise DamagedRecord(f"{path} is no record of a run (it is no JSON object).")
    if wrong := [name for name, kind in _PARTS.items() if not isinstance(body.get(name), kind)]:
        raise DamagedRecord(f"{path} is no record of a run (`{wrong[0]}` is missing or of a wrong type).")
    expected = body.pop("sha256")
    if _checksum(body) != expected:
        raise DamagedRecord(f"{path} is damaged: its checksum is wrong.")
    if body["format"] != FORMAT:
        raise DamagedRecord(f"{path} has format {body['format']}; this version reads format {FORMAT}.")
    if task is not None and body["fingerprint"] != task.fingerprint:
        raise DamagedRecord(f"{path} is of another run: its fingerprint is {body['fingerprint'][:10]}….")
    return dict(body)


def read_about(path: Path) -> dict[str, Any] | None:
    """What is true of the machine that a run was done on; None where the file is not what was written."""
    try:
        about = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    versions = about.get("versions", {}) if isinstance(about, dict) else None
    if not isinstance(versions, dict) or not all(isinstance(version, str) for version in versions.values()):
        return None
    return dict(about)


def _identity(task: Task) -> dict[str, Any]:
    return {"format": FORMAT, "name": task.name, "fingerprint": task.fingerprint, "work": to_json(task)}


def _damage(folder: Path, task: Task) -> str | None:
    """What is wrong with the directory of a run that is to be begun or taken up, its weights aside."""
    if not folder.exists() and not folder.is_symlink():
        return None
    if not folder.is_dir():
        return "it is no directory"
    config = folder / CONFIG
    try:
        if config.exists() and json.loads(config.read_bytes()) != json.loads(canonical(_identity(task))):
            return f"{CONFIG} is of another run"
        if (folder / METRICS).exists():
            (folder / METRICS).read_text(encoding="utf-8")
        if (folder / RECORD).exists():
            read_record(folder / RECORD, task)
    except DamagedRecord as error:
        return str(error).removesuffix(".")
    except (OSError, ValueError, RecursionError) as error:
        return f"a file in it cannot be read: {error}"
    if (folder / FAILURE).exists() and _read_failure(folder) is None:
        return f"{FAILURE} does not say what failed"
    return None if config.exists() or not any(folder.iterdir()) else f"{CONFIG} is missing"


def _damaged_weights(folder: Path, only: tuple[str, ...] | None = None) -> str | None:
    """What is wrong with weights in the directory of a run: with all of them, or with some."""
    weights = folder / WEIGHTS
    if weights.exists() and not weights.is_dir():
        return f"{WEIGHTS} is no directory"
    files = sorted(weights.glob("*.safetensors")) if only is None else [weights / f"{one}.safetensors" for one in only]
    return next((problem for path in files if path.exists() and (problem := damage(path)) is not None), None)


def _read_failure(folder: Path) -> dict[str, Any] | None:
    try:
        left = json.loads((folder / FAILURE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return left if isinstance(left, dict) and isinstance(left.get("error"), str) else None


def _checksum(body: dict[str, Any]) -> str | None:
    """SHA-256 of what a record says; None of values that are in no record, such as infinity."""
    try:
        return hashlib.sha256(canonical(body)).hexdigest()
    except ValueError:
        return None


def _pretty(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
