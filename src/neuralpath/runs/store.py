"""Where runs are kept: the output folder, and folders of records of runs that were done before."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuralpath._atomic import write_atomically
from neuralpath.runs.locks import locked
from neuralpath.runs.place import METRICS, WEIGHTS, Place
from neuralpath.runs.work import FORMAT, Weights, Work, canonical
from neuralpath.training.config import as_json

RECORD = "record.json"
CONFIG = "config.json"
FAILURE = "failed.json"
ABOUT = "about.json"
LOCKS = ".locks"
QUARANTINE = "quarantine"


class RunError(ValueError):
    """Runs cannot be kept or read; the message says what and what to do."""


class DamagedRecord(RunError):
    """A record is not what was written."""


@dataclass(frozen=True)
class Store:
    """The output folder ``out``, and ``records``, a folder that is only read, in which finished runs count too."""

    out: Path
    records: Path | None = None
    data_dir: Path | None = None
    _known: dict[str, Path] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.records is not None:
            if not self.records.is_dir():
                raise RunError(f"there is no folder {self.records} of records.")
            self._known.update({path.name: path for path in self.records.rglob("*") if path.is_file()})

    def make(self) -> None:
        """Make the output folder, and see that it can be written to.

        Raises: RunError.
        """
        try:
            (self.out / LOCKS).mkdir(parents=True, exist_ok=True)
            write_atomically(self.out / LOCKS / ".probe", b"")
        except OSError as error:
            raise RunError(f"the output folder {self.out} cannot be written to: {error.strerror}.") from error

    def folder(self, work: Work) -> Path:
        """The directory of a run."""
        return self.out / work.name

    @contextmanager
    def lock(self, work: Work) -> Iterator[bool]:
        """Hold the run against other processes; False where another one has it."""
        with locked(self.out / LOCKS / work.name) as ours:
            yield ours

    def result(self, work: Work) -> dict[str, Any] | None:
        """The result of a finished run; None of any other.

        Raises: DamagedRecord.
        """
        path = self.record_path(work)
        return None if path is None else read_record(path, work)["result"]

    def record_path(self, work: Work) -> Path | None:
        """The record of a finished run, in the output folder or else among the records."""
        path = self.folder(work) / RECORD
        return path if path.exists() else self._known.get(f"{work.name}.json")

    def weights_path(self, work: Work, which: str) -> Path | None:
        """The file of weights that a run has kept, if it is still there."""
        path = self.folder(work) / WEIGHTS / f"{which}.safetensors"
        return path if path.exists() else self._known.get(f"{work.name}.{which}.safetensors")

    def has(self, weights: Weights) -> bool:
        """Whether weights that a run reads are there."""
        return self.weights_path(weights.work, weights.which) is not None

    def place(self, work: Work) -> Place:
        """The directory as the work sees it."""
        return Place(self.folder(work), self._find_weights, self.data_dir)

    def failure(self, work: Work) -> dict[str, Any] | None:
        """What a failed run has left."""
        try:
            return dict(json.loads((self.folder(work) / FAILURE).read_text()))
        except (FileNotFoundError, ValueError):
            return None

    def begin(self, work: Work) -> str | None:
        """Prepare the directory; call it with the lock held. What was damaged is put aside: the message names it."""
        folder = self.folder(work)
        problem = _damage(folder, work)
        message = None if problem is None else self.put_aside(work, problem)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FAILURE).unlink(missing_ok=True)
        if not (folder / CONFIG).exists():
            write_atomically(folder / CONFIG, _pretty(_identity(work)))
        return message

    def put_aside(self, work: Work, problem: str) -> str:
        """Move the damaged directory of a run away; a message that says so."""
        for number in range(1, 10_000):
            target = self.out / QUARANTINE / f"{work.name}-{number}"
            if not target.exists():
                break
        target.parent.mkdir(exist_ok=True)
        shutil.move(self.folder(work), target)
        return f"{self.folder(work)} is damaged ({problem}): it lies in {target} now, and the run is repeated"

    def finish(self, work: Work, result: dict[str, Any], about: dict[str, Any]) -> None:
        """Write what is true of this machine, and then the record: with it the run is finished."""
        folder = self.folder(work)
        write_atomically(folder / ABOUT, _pretty(about))
        body = {**_identity(work), "result": result}
        checked = {"sha256": hashlib.sha256(canonical(body)).hexdigest(), **body}
        write_atomically(folder / RECORD, _pretty(checked))

    def fail(self, work: Work, error: str, trace: str, about: dict[str, Any]) -> None:
        """Note that a run has failed."""
        folder = self.folder(work)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FAILURE, _pretty({"error": error, "trace": trace, **about}))

    def _find_weights(self, work: Work, which: str) -> Path:
        path = self.weights_path(work, which)
        if path is None:
            raise FileNotFoundError(f"the run {work.name} has kept no weights {which!r}.")
        return path


def read_record(path: Path, work: Work | None = None) -> dict[str, Any]:
    """A record, checked against its checksum, and against the work that it should be of.

    Raises: DamagedRecord.
    """
    try:
        body = json.loads(path.read_bytes())
        expected = body.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise DamagedRecord(f"{path} is no record of a run ({error}).") from error
    if hashlib.sha256(canonical(body)).hexdigest() != expected:
        raise DamagedRecord(f"{path} is damaged: its checksum is wrong.")
    if body["format"] != FORMAT:
        raise DamagedRecord(f"{path} has format {body['format']}; this version reads format {FORMAT}.")
    if work is not None and body["fingerprint"] != work.fingerprint:
        raise DamagedRecord(f"{path} is of another run: its fingerprint is {body['fingerprint'][:10]}….")
    return dict(body)


def _identity(work: Work) -> dict[str, Any]:
    return {"format": FORMAT, "name": work.name, "fingerprint": work.fingerprint, "work": as_json(work)}


def _damage(folder: Path, work: Work) -> str | None:
    """What is wrong with the directory of a run that is to be begun or taken up."""
    if not folder.exists():
        return None
    if not folder.is_dir():
        return "it is no directory"
    config = folder / CONFIG
    try:
        if config.exists() and json.loads(config.read_bytes()) != json.loads(canonical(_identity(work))):
            return f"{CONFIG} is of another run"
        if (folder / METRICS).exists():
            (folder / METRICS).read_text()
        if (folder / RECORD).exists():
            read_record(folder / RECORD, work)
    except DamagedRecord as error:
        return str(error).removesuffix(".")
    except (OSError, ValueError) as error:
        return f"a file in it cannot be read: {error}"
    return None if config.exists() or not any(folder.iterdir()) else f"{CONFIG} is missing"


def _pretty(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
