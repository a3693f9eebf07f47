"""When checkpoints are written, and how a run is taken up from them."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from neuralpath.training.checkpoints import Checkpoint, CheckpointFolder
from neuralpath.training.identity import check_same_run
from neuralpath.training.records import SaveEvery
from neuralpath.training.snapshot import RunState, take_snapshot


class Saver:
    """Writes checkpoints of a run to a folder; without a folder it does nothing. Enter it before use."""

    def __init__(self, folder: Path | None, every: SaveEvery, about: Mapping[str, Any], device: torch.device) -> None:
        self._folder = folder
        self._checkpoints = None if folder is None else CheckpointFolder(folder)
        self._every = every
        self._about = about
        self._device = device
        self._stack = ExitStack()
        self._time = time.perf_counter()
        self._step: int | None = None  # of the newest checkpoint

    def __enter__(self) -> "Saver":
        if self._checkpoints is not None:
            self._stack.enter_context(self._checkpoints)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def newest(self) -> Checkpoint | None:
        """The checkpoint to go on from, if there is one.

        Raises: CheckpointError if it is of another run or none is good.
        """
        saved = None if self._checkpoints is None else self._checkpoints.newest()
        if saved is not None:
            check_same_run(self._about, saved.values["about"], self._folder)
            self._step = saved.values["step"]
        return saved

    def is_due(self, step: int) -> bool:
        """Whether it is time for a checkpoint after this step."""
        if self._checkpoints is None:
            return False
        if self._every.steps is not None and step - (self._step or 0) >= self._every.steps:
            return True
        return self._every.seconds is not None and time.perf_counter() - self._time >= self._every.seconds

    def save(self, state: RunState) -> None:
        """Write a checkpoint."""
        if self._checkpoints is not None:
            self._checkpoints.write(take_snapshot(state, self._device, self._about))
            self._step = state.step
            self._time = time.perf_counter()

    def __str__(self) -> str:
        if self._checkpoints is None:
            return "no checkpoint was kept, as no `folder` was given"
        if self._step is None:
            return f"no checkpoint had been written to {self._folder} yet"
        return f"the last good checkpoint in {self._folder} is of step {self._step}"
