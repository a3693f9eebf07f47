"""The directory of a run: its metrics, its weights with checksums, and its checkpoints."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralpath._files import write_atomically
from neuralpath.papers.runs.task import RunError, Task

if TYPE_CHECKING:
    from torch import Tensor

METRICS = "metrics.jsonl"
WEIGHTS = "weights"
CHECKPOINTS = "checkpoints"

FindWeights = Callable[[Task, str], Path]
"""The file with the weights of a task; the second argument says which weights."""

_CHECKSUM = re.compile(r"([0-9a-f]{64}) [ *][^\n]+\n?")

_Stamp = tuple[int, int, int] | None
"""Time of the last change, size and inode of a file; None if the file is missing."""


class DamagedTensors(RunError):
    """A weights file is not what was written; the message names it."""


class RunDirectory:
    """The directory of one run, as its task sees it.

    Args:
        folder: The directory.
        find_weights: Finds the weights of other runs.
        data_dir: Folder with the data sets; None for the default places.
    """

    def __init__(self, folder: Path, find_weights: FindWeights, data_dir: Path | None = None) -> None:
        self.folder = folder
        self.data_dir = data_dir
        self._find_weights = find_weights

    @property
    def checkpoints(self) -> Path:
        """Folder for the checkpoints of `neuralpath.training.train`; it is removed when the run is finished."""
        return self.folder / CHECKPOINTS

    def add_metrics(self, step: int, values: Mapping[str, Any]) -> None:
        """Append a line of metrics. A resumed run may write a step again; the later line counts.

        Args:
            step: Number of the step, such as the epoch.
            values: Plain JSON values by name.
        """
        line = json.dumps({"step": step, **values}, allow_nan=False).encode() + b"\n"
        with (self.folder / METRICS).open("a+b") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a full disk has cut the last line: this line must not continue it
                    line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of all steps so far, in order, each step once."""
        return read_metrics(self.folder)

    def save_weights(self, which: str, tensors: "Mapping[str, Tensor]") -> None:
        """Save tensors, with a checksum, for the runs that read them.

        Args:
            which: Name of the weights, such as ``last``, ``best`` or ``epoch-10``.
            tensors: The tensors by name, such as a module's state.
        """
        from safetensors.torch import save

        folder = self.folder / WEIGHTS
        folder.mkdir(exist_ok=True)
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_tensors(folder / f"{which}.safetensors", save(whole))

    def weights_of(self, task: Task, which: str) -> "dict[str, Tensor]":
        """The weights of another run.

        Args:
            task: The other run.
            which: Name of the weights.

        Raises:
            FileNotFoundError: If there are no weights of that name.
            DamagedTensors: If the file is not what was written.
        """
        from safetensors.torch import load

        # Copies, in memory that torch aligns: vector code may round differently on other alignments.
        return {name: tensor.clone() for name, tensor in load(read_tensors(self._find_weights(task, which))).items()}

    def clear_checkpoints(self) -> None:
        """Remove the checkpoints, which only an unfinished run needs."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The metrics in the directory of a run; lines that are cut off or unreadable are skipped."""
    try:
        lines = (folder / METRICS).read_bytes().split(b"\n")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return []
    steps: dict[int, dict[str, Any]] = {}
    for line in lines:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict) and isinstance(values.get("step"), int):
            steps[values["step"]] = values
    return [steps[step] for step in sorted(steps)]


def checksum_path(path: Path) -> Path:
    """The file beside a weights file with its checksum, as ``sha256sum --check`` reads it."""
    return path.with_name(f"{path.name}.sha256")


def write_tensors(path: Path, data: bytes) -> None:
    """Write a safetensors file, and its checksum beside it.

    The two never disagree: the old file is removed first, and the new one is written last. A kill in between leaves no
    weights file; the run is not finished then and writes it again.
    """
    path.unlink(missing_ok=True)
    write_atomically(checksum_path(path), f"{hashlib.sha256(data).hexdigest()}  {path.name}\n".encode())
    write_atomically(path, data)


def read_tensors(path: Path) -> bytes:
    """The bytes of a safetensors file, checked against its checksum.

    Raises:
        DamagedTensors: If the file or its checksum is missing, unreadable or wrong.
    """
    try:
        data = path.read_bytes()
        checksum = _CHECKSUM.fullmatch(checksum_path(path).read_text(errors="replace"))
    except OSError as error:
        raise DamagedTensors(f"{error.filename or path} cannot be read: {error.strerror}.") from error
    if checksum is None:
        raise DamagedTensors(f"{path} is damaged: {checksum_path(path).name} has no checksum.")
    if hashlib.sha256(data).hexdigest() != checksum[1]:
        raise DamagedTensors(f"{path} is damaged: its checksum is wrong.")
    return data


def tensors_problem(path: Path) -> str | None:
    """What is wrong with an existing weights file; it is read again only if it has changed since the last call."""
    return _tensors_problem(path, _stamp(path), _stamp(checksum_path(path)))


@lru_cache(maxsize=4096)
def _tensors_problem(path: Path, data: _Stamp, checksum: _Stamp) -> str | None:
    try:
        read_tensors(path)
    except DamagedTensors as error:
        return str(error).removesuffix(".")
    return None


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
