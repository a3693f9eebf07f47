"""The directory of a run: its metrics, its weights with checksums, and its checkpoints."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralpath._files import write_atomically
from neuralpath._hashing import sha256
from neuralpath.papers.runs.task import RunError, Task

if TYPE_CHECKING:
    from torch import Tensor

METRICS = "metrics.jsonl"
WEIGHTS = "weights"


class DamagedTensors(RunError):
    """A weights file is not what was written; the message names it."""


@dataclass(frozen=True)
class RunDirectory:
    """The directory of one run, as its task sees it."""

    folder: Path
    find_weights: Callable[[Task, str], Path]
    """Finds the file with weights of another run, such as its ``last``."""
    data_dir: Path | None = None
    """Folder with the data sets; None for the default places."""

    @property
    def checkpoints(self) -> Path:
        """Folder for the checkpoints of `neuralpath.training.train`; it is removed when the run is finished."""
        return self.folder / "checkpoints"

    def add_metrics(self, step: int, values: Mapping[str, Any]) -> None:
        """Append plain JSON values of a step, such as an epoch; of a step that is written twice the later counts."""
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
        """Save tensors as ``last``, ``best`` or, say, ``epoch-10``, with a checksum, for the runs that read them."""
        from safetensors.torch import save

        folder = self.folder / WEIGHTS
        folder.mkdir(exist_ok=True)
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_tensors(folder / f"{which}.safetensors", save(whole))

    def weights_of(self, task: Task, which: str) -> "dict[str, Tensor]":
        """The weights of another run; FileNotFoundError if there are none, `DamagedTensors` if they have changed."""
        from safetensors.torch import load

        # Copies, in memory that torch aligns: vector code may round differently on other alignments.
        return {name: tensor.clone() for name, tensor in load(read_tensors(self.find_weights(task, which))).items()}


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
    write_atomically(checksum_path(path), f"{sha256(data)}  {path.name}\n".encode())
    write_atomically(path, data)


def read_tensors(path: Path) -> bytes:
    """The bytes of a safetensors file, checked against its checksum; `DamagedTensors` if either is missing or wrong."""
    try:
        data = path.read_bytes()
        checksum = re.fullmatch(r"([0-9a-f]{64}) [ *][^\n]+\n?", checksum_path(path).read_text(errors="replace"))
    except OSError as error:
        raise DamagedTensors(f"{error.filename or path} cannot be read: {error.strerror}.") from error
    if checksum is None:
        raise DamagedTensors(f"{path} is damaged: {checksum_path(path).name} has no checksum.")
    if sha256(data) != checksum[1]:
        raise DamagedTensors(f"{path} is damaged: its checksum is wrong.")
    return data


def tensors_problem(path: Path) -> str | None:
    """What is wrong with a weights file."""
    try:
        read_tensors(path)
    except DamagedTensors as error:
        return str(error).removesuffix(".")
    return None
