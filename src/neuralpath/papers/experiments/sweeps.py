"""Experiments in an output folder: what was asked for, what is finished, and what it shows."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from neuralpath import __version__
from neuralpath._configs import from_json, to_json
from neuralpath._files import write_atomically
from neuralpath.papers.experiments.experiment import Experiment
from neuralpath.papers.experiments.parts import is_part_of
from neuralpath.papers.experiments.registry import get
from neuralpath.papers.experiments.settings import check_seeds
from neuralpath.papers.experiments.summary_items import SummaryItem
from neuralpath.papers.runs import RunError, Store, Task, canonical, results_of, run_tasks

SWEEPS = "sweeps"


class MisfitResults(RunError):
    """Results that are whole and that this version can make nothing of: of another one, or of odd settings."""


@contextmanager
def fitting_results(what_is_not: str) -> Iterator[None]:
    """Say what is not done where results do not have the form that is expected."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise MisfitResults(f"{what_is_not}: results do not fit this version ({reason})") from error


@dataclass(frozen=True)
class Sweep:
    """An experiment with a config."""

    experiment: Experiment
    config: Any
    preset: str = ""
    command: str = ""
    version: str = __version__

    def __post_init__(self) -> None:
        check_seeds(self.config)

    @property
    def name(self) -> str:
        """Name of the sweep's file: the experiment, and a part of the hash of its config."""
        return f"{self.experiment.name}-{hashlib.sha256(canonical(to_json(self.config))).hexdigest()[:10]}"

    @property
    def whole(self) -> "Sweep":
        """The sweep of all parts of its preset where this one has only some of them, else the sweep itself."""
        preset = self._preset_config
        if preset is None or self.config == preset or not is_part_of(self.config, preset):
            return self
        return replace(
            self, config=preset, command=f"neuralpath papers run {self.experiment.name} --preset {self.preset}"
        )

    @property
    def reduced(self) -> str:
        """How it is smaller than what the papers did; where flags have changed its preset, that they have."""
        preset = self._preset_config
        if preset is None:
            return ""
        if self.whole.config != preset:
            return f"the preset {self.preset} with other settings, which are in the command"
        return next((text for name, text in self.experiment.reduced.items() if name == self.preset), "")

    @property
    def _preset_config(self) -> Any:
        return next((config for name, config in self.experiment.presets.items() if name == self.preset), None)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The runs that are wanted; what these need comes on top."""
        return self.experiment.tasks(self.config)

    def summary(self, store: Store) -> tuple[SummaryItem, ...]:
        """Tables and figures of what is finished.

        Raises: MisfitResults.
        """
        with fitting_results(f"{self.name} is not shown"):
            return self.experiment.summary(self.config, results_of(self.tasks, store))

    def write(self, folder: Path) -> None:
        """Note in a folder of runs what was asked for.

        A call from Python has no command and may have no preset: those that are noted there already stay.

        Raises: RunError.
        """
        path = folder / SWEEPS / f"{self.name}.json"
        kept = self._kept(path)
        content = {
            "experiment": self.experiment.name, "preset": self.preset or kept.preset, "config": to_json(self.config),
            "command": self.command or kept.command, "version": self.version,
        }  # fmt: skip
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"
            write_atomically(path, text.encode())
        except OSError as error:
            raise RunError(f"the folder {folder} cannot be written to: {error.strerror}.") from error

    def _kept(self, path: Path) -> "Sweep":
        """The sweep of the same config that is noted already; this one where there is none that can be read."""
        try:
            return _read_sweep(path)
        except _UNREADABLE:
            return self


def run(sweep: Sweep, out: Path, **where: Any) -> tuple[SummaryItem, ...]:
    """Do all runs of an experiment, and give what they show; ``where`` are the settings of `run_tasks`."""
    tasks = sweep.tasks
    store = Store(out, where.get("records"), where.get("data_dir"))
    store.make()
    sweep.write(out)
    run_tasks(tasks, out, command=sweep.command, **where)
    return sweep.summary(store)


def read_sweeps(folder: Path) -> tuple[list[Sweep], list[str]]:
    """The sweeps of a folder, and a message for each that this version cannot read.

    Raises: RunError if the folder holds none.
    """
    files = sorted((folder / SWEEPS).glob("*.json"))
    if not files:
        raise RunError(
            f"{folder} holds no runs of an experiment; `neuralpath papers run NAME --out {folder}` makes some."
        )
    sweeps, problems = [], []
    for path in files:
        try:
            sweeps.append(_read_sweep(path))
        except _UNREADABLE as error:
            problems.append(f"{path} cannot be read: {error}")
    return sweeps, problems


_UNREADABLE = (OSError, ValueError, KeyError, TypeError, RecursionError)
"""What reading the file of a sweep may raise, however it is damaged."""


def _read_sweep(path: Path) -> Sweep:
    kept = json.loads(path.read_bytes())
    if not isinstance(kept, dict):
        raise ValueError("it holds no settings of an experiment.")
    if wrong := [name for name in ("preset", "command", "version") if not isinstance(kept[name], str)]:
        raise ValueError(f"`{wrong[0]}` must be a string, got {kept[wrong[0]]!r}.")
    experiment = get(kept["experiment"])
    config: Any = from_json(experiment.config, kept["config"])
    return Sweep(experiment, config, kept["preset"], kept["command"], kept["version"])
