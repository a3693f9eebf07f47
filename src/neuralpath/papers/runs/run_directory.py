"""What a run sees of the disk: its own directory, and the weights of the runs that it needs."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralpath.papers.runs.task import Task
from neuralpath.papers.runs.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from torch import Tensor

METRICS = "metrics.jsonl"
WEIGHTS = "weights"
CHECKPOINTS = "checkpoints"

FindWeights = Callable[[Task, str], Path]
"""Where the file is that holds the weights of a task; the second argument says which of them."""


class RunDirectory:
    """The directory of a run, for the task that is done in it."""

    def __init__(self, folder: Path, find_weights: FindWeights, data_dir: Path | None = None) -> None:
        self.folder = folder
        self.data_dir = data_dir
        self._find_weights = find_weights

    @property
    def checkpoints(self) -> Path:
        """Folder for `neuralpath.training.train`; it is removed when the run is finished."""
        return self.folder / CHECKPOINTS

    def add_metrics(self, step: int, values: Mapping[str, Any]) -> None:
        """Add a line. A run that goes on after a kill may add the same step again; the later line counts."""
        line = json.dumps({"step": step, **values}, allow_nan=False).encode() + b"\n"
        with (self.folder / METRICS).open("a+b") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a full disk has cut the last line: this one must not become its end
                    line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """All steps so far in their order, each once."""
        return read_metrics(self.folder)

    def save_weights(self, which: str, tensors: "Mapping[str, Tensor]") -> None:
        """Keep tensors for the runs that need them, such as ``last``, ``best`` or ``epoch-10``, with a checksum."""
        from safetensors.torch import save

        folder = self.folder / WEIGHTS
        folder.mkdir(exist_ok=True)
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_tensors(folder / f"{which}.safetensors", save(whole))

    def weights_of(self, task: Task, which: str) -> "dict[str, Tensor]":
        """The weights that a needed run has kept.

        Raises:
            FileNotFoundError: If it has kept none of that name.
            neuralpath.papers.runs.tensors.DamagedTensors: If they are not what was written.

        """
        from safetensors.torch import load

        # Copies, in memory that torch aligns: vector code may round differently on other alignments.
        return {name: tensor.clone() for name, tensor in load(read_tensors(self._find_weights(task, which))).items()}

    def clear_checkpoints(self) -> None:
        """Remove what only an unfinished run needs."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run; a line that a kill has cut off, or that is none, is passed over."""
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
