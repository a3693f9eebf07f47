"""What a run sees of the disk: its own directory, and the weights of the runs that it needs."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuralpath._atomic import write_atomically
from neuralpath.runs.work import Work

if TYPE_CHECKING:
    from torch import Tensor

METRICS = "metrics.jsonl"
WEIGHTS = "weights"
PICTURES = "pictures"
CHECKPOINTS = "checkpoints"

FindWeights = Callable[[Work, str], Path]
"""Where the file is that holds the weights of a work; the second argument says which of them."""


class Place:
    """The directory of a run, for the work that is done in it."""

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
        line = json.dumps({"step": step, **values}, allow_nan=False)
        with (self.folder / METRICS).open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """All steps so far in their order, each once."""
        return read_metrics(self.folder)

    def save_weights(self, which: str, tensors: "Mapping[str, Tensor]") -> None:
        """Keep tensors for the runs that need them, such as ``last``, ``best`` or ``epoch-10``."""
        from safetensors.torch import save

        folder = self.folder / WEIGHTS
        folder.mkdir(exist_ok=True)
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_atomically(folder / f"{which}.safetensors", save(whole))

    def weights_of(self, work: Work, which: str) -> "dict[str, Tensor]":
        """The weights that a needed run has kept.

        Raises: FileNotFoundError if it has kept none of that name.
        """
        from safetensors.torch import load

        # Copies, in memory that torch aligns: vector code may round differently on other alignments.
        return {name: tensor.clone() for name, tensor in load(self._find_weights(work, which).read_bytes()).items()}

    def save_arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Keep numpy arrays that are too big for the record, such as pictures of hidden layers, for the report."""
        import numpy as np
        from safetensors.numpy import save

        folder = self.folder / PICTURES
        folder.mkdir(exist_ok=True)
        whole = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
        write_atomically(folder / f"{name}.safetensors", save(whole))

    def clear_checkpoints(self) -> None:
        """Remove what only an unfinished run needs."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run; a line that a kill has cut off is passed over."""
    try:
        lines = (folder / METRICS).read_text().splitlines()
    except FileNotFoundError:
        return []
    steps: dict[int, dict[str, Any]] = {}
    for line in lines:
        try:
            values = json.loads(line)
            steps[values["step"]] = values
        except (ValueError, KeyError, TypeError):
            continue
    return [steps[step] for step in sorted(steps)]
