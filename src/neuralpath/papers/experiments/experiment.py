"""Experiments and sweeps: what an experiment's module defines, and an experiment with a config in a folder."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from neuralpath import __version__
from neuralpath._configs import to_json
from neuralpath._files import write_atomically
from neuralpath.papers.experiments.settings import check_seeds, is_part_of
from neuralpath.papers.experiments.summary_items import SummaryItem
from neuralpath.papers.runs import FORMAT, RunError, Store, Task, results_of, sweep_store

PRESETS = ("smoke", "cpu", "paper")

SWEEPS = "sweeps"  # folder of the sweeps' files in an output folder
Results = Mapping[Task, dict[str, Any]]  # of the finished tasks; the others are missing


class MisfitResults(RunError):
    """Results that are whole but do not have the form that this version expects."""


@contextmanager
def fitting_results(consequence: str) -> Iterator[None]:
    """Turn errors about the form of results into `MisfitResults`, with what is not done in consequence."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise MisfitResults(f"{consequence}: results do not fit this version ({reason})") from error


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the papers; a module of this folder defines it, and `registry.NAMES` lists it."""

    name: str
    description: str  # one line for the list
    source: str  # the place in the papers, such as ``P0 table 4, P1 table 2``
    config: type  # the class of its configs, a frozen dataclass
    presets: Mapping[str, Any]  # a config for each scale of `PRESETS`
    reduced: Mapping[str, str]  # how a smaller preset differs from what the papers did, in a sentence
    tasks: Callable[[Any], tuple[Task, ...]]  # the runs of a config; their dependencies come on top
    summary: Callable[[Any, Results], tuple[SummaryItem, ...]]
    """Tables and figures from the results so far; it must accept any subset of finished tasks, none included."""

    def run(self, config: Any, out: Path | str, **options: Any) -> tuple[SummaryItem, ...]:
        """Do all runs of a config in a folder.

        Args:
            config: An instance of the experiment's config class, such as one of its presets.
            out: The output folder.
            **options: ``records`` and ``data_dir`` of `Store`, and options of `sweep_store`: ``jobs``, ``cluster``, …

        Returns:
            The tables and figures.
        """
        return Sweep(self, config, self.preset_of(config)).run(Path(out), **options)

    def preset_of(self, config: Any) -> str:
        """Name of the preset that a config equals, or of which it has some parts; empty if there is none."""
        return next((name for name in PRESETS if is_part_of(config, self.presets[name])), "")


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
        """The experiment, and a part of the hash of its config."""
        from neuralpath._hashing import json_digest

        return f"{self.experiment.name}-{json_digest(to_json(self.config))[:10]}"

    @property
    def whole(self) -> "Sweep":
        """The sweep of all parts of its preset, if this one has only some of them; else the sweep itself."""
        preset = self.experiment.presets.get(self.preset)
        if self.config == preset or not is_part_of(self.config, preset):
            return self
        command = f"neuralpath papers run {self.experiment.name} --preset {self.preset}"
        return replace(self, config=preset, command=command)

    @property
    def reduced(self) -> str:
        """How it is smaller than what the papers did, or that flags have changed its preset."""
        if self.preset in PRESETS and self.whole.config != self.experiment.presets[self.preset]:
            return f"the preset {self.preset} with other settings, which are in the command"
        return self.experiment.reduced.get(self.preset, "")

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The runs; their dependencies come on top."""
        return self.experiment.tasks(self.config)

    def summary(self, store: Store) -> tuple[SummaryItem, ...]:
        """Tables and figures of the finished runs; `MisfitResults` if they do not have the form expected here."""
        with fitting_results(f"{self.name} is not shown"):
            return self.experiment.summary(self.config, results_of(self.tasks, store))

    def run(
        self, out: Path, *, records: Path | None = None, data_dir: Path | None = None, **options: Any
    ) -> tuple[SummaryItem, ...]:
        """Do all runs in a folder; the options are those of `sweep_store`, the result is the summary."""
        store = Store(out, records, data_dir)
        store.make()
        self.write(out)
        sweep_store(self.tasks, store, command=self.command, **options)
        return self.summary(store)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, from which `registry.sweep_from_json` makes the sweep again."""
        texts = {"preset": self.preset, "command": self.command, "version": self.version}
        return {"format": FORMAT, "experiment": self.experiment.name, "config": to_json(self.config), **texts}

    def write(self, folder: Path) -> None:
        """Write the sweep's file in an output folder.

        A call from Python has no command and may have no preset; those of an earlier call are kept then.
        """
        path = folder / SWEEPS / f"{self.name}.json"
        entries = self.to_json()
        for name in ("preset", "command"):
            with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
                entries[name] = entries[name] or str(json.loads(path.read_bytes())[name])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, (json.dumps(entries, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())
        except OSError as error:
            raise RunError(f"the folder {folder} cannot be written to: {error.strerror}.") from error
