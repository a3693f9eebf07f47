"""Checkpoints on disk: written whole or not at all, checked when read, and the one before the last always kept.

A checkpoint is two files, ``checkpoint-000007.safetensors`` with the tensors and ``checkpoint-000007.json`` with
everything else. Each is written beside its place, flushed to the disk and renamed; the JSON comes last and holds the
SHA-256 of both, so that a checkpoint exists when its JSON does, and is good when the sums agree.
"""

import fcntl
import hashlib
import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from neuralpath._files import write_atomically

FORMAT = 1
_NAME = re.compile(r"checkpoint-(\d+)\.json")


class CheckpointError(ValueError):
    """A folder of checkpoints cannot be used; the message says why and what to do."""


class CheckpointWarning(UserWarning):
    """A checkpoint is damaged, or was made by other versions; the run goes on."""


class _Damaged(Exception):
    pass


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Tensors by name, and plain JSON values."""

    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]


class CheckpointFolder:
    """The checkpoints of one run. While it is entered no other process can use the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._good: int | None = None  # number of the newest checkpoint that is known to be good
        self._lock: int | None = None

    def __enter__(self) -> "CheckpointFolder":
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder, os.O_RDONLY)
        except OSError as error:
            raise CheckpointError(f"the folder {self.folder} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system lets go of it when the process ends
        except BlockingIOError as error:
            os.close(self._lock)
            raise CheckpointError(f"another process is training in {self.folder}; give each run a folder.") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lock is not None
        os.close(self._lock)

    def newest(self) -> Checkpoint | None:
        """The newest good checkpoint; a warning names each damaged one that is passed over. None if there is none.

        Raises: CheckpointError if there are checkpoints and all of them are damaged.
        """
        numbers = sorted(self._numbers(), reverse=True)
        problems = []
        for number in numbers:
            try:
                checkpoint = self._read(number)
            except _Damaged as error:
                problems.append(str(error))
                continue
            if problems:
                warnings.warn(
                    f"{'; '.join(problems)}. The run goes on from the checkpoint before, {self._json(number)}.",
                    CheckpointWarning, stacklevel=2,
                )  # fmt: skip
            self._good = number
            return checkpoint
        if problems:
            raise CheckpointError(
                f"{'; '.join(problems)}. No good checkpoint is left; remove the folder to begin anew."
            )
        return None

    def write(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint; only the good one before it is kept besides.

        Raises: CheckpointError if it cannot be written; those on disk stay.
        """
        try:
            number = max(self._numbers(), default=0) + 1
        except OSError as error:
            raise self._gone(error) from error
        tensors = save(dict(checkpoint.tensors))
        body = {
            "format": FORMAT,
            "tensors": {"bytes": len(tensors), "sha256": hashlib.sha256(tensors).hexdigest()},
            "values": dict(checkpoint.values),
        }
        record = {"sha256": hashlib.sha256(_canonical(body)).hexdigest(), **body}
        try:
            write_atomically(self._tensors(number), tensors)
            write_atomically(self._json(number), json.dumps(record, indent=1, allow_nan=False).encode())
            self._remove_all_but({number, self._good})
        except OSError as error:
            if not self.folder.is_dir():
                raise self._gone(error) from error
            raise CheckpointError(f"{self._json(number)} cannot be written: {error.strerror}.") from error
        self._good = number

    def _gone(self, error: OSError) -> CheckpointError:
        what = "was removed" if not self.folder.is_dir() else f"cannot be read any more ({error.strerror})"
        return CheckpointError(
            f"the folder {self.folder} {what} while the run was using it, so that no checkpoint can be written; "
            "the run was stopped. Begin it again, and leave the folder until it has finished."
        )

    def _read(self, number: int) -> Checkpoint:
        path = self._json(number)
        try:
            record = json.loads(path.read_bytes())
            sum_of_body = record.pop("sha256")
        except OSError as error:
            raise _Damaged(f"{path} cannot be read ({error.strerror})") from error
        except (ValueError, KeyError, AttributeError, TypeError) as error:  # no JSON, or JSON of something else
            raise _Damaged(f"{path} is damaged (it is no checkpoint)") from error
        if hashlib.sha256(_canonical(record)).hexdigest() != sum_of_body:
            raise _Damaged(f"{path} is damaged (its checksum is wrong)")
        if record["format"] != FORMAT:
            raise CheckpointError(
                f"{path} has format {record['format']}, this version reads format {FORMAT}; "
                "go on with the version that wrote it, or begin in a new folder."
            )
        return Checkpoint(self._read_tensors(number, record["tensors"]), record["values"])

    def _read_tensors(self, number: int, expected: Mapping[str, Any]) -> dict[str, Tensor]:
        path = self._tensors(number)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise _Damaged(f"{path} cannot be read ({error.strerror})") from error
        if len(data) != expected["bytes"]:
            raise _Damaged(f"{path} is damaged ({len(data)} bytes, expected {expected['bytes']})")
        if hashlib.sha256(data).hexdigest() != expected["sha256"]:
            raise _Damaged(f"{path} is damaged (its checksum is wrong)")
        try:
            # A copy of each, in memory that torch aligns: vector code may round differently on other alignments.
            return {name: tensor.clone() for name, tensor in load(data).items()}
        except SafetensorError as error:
            raise _Damaged(f"{path} is damaged ({error})") from error

    def _numbers(self) -> list[int]:
        return [int(match[1]) for path in self.folder.iterdir() if (match := _NAME.fullmatch(path.name))]

    def _json(self, number: int) -> Path:
        return self.folder / f"checkpoint-{number:06d}.json"

    def _tensors(self, number: int) -> Path:
        return self._json(number).with_suffix(".safetensors")

    def _remove_all_but(self, kept: set[int | None]) -> None:
        """Remove older and damaged checkpoints, and what a killed process left half written."""
        stay = {path for number in kept if number is not None for path in (self._json(number), self._tensors(number))}
        for path in sorted(
            self.folder.glob("checkpoint-*")
        ):  # .json sorts before .safetensors: no JSON loses its tensors
            if path not in stay:
                path.unlink(missing_ok=True)


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
