"""What every experiment's module gives: its config, presets, tasks, and what they show."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from neuralpath.papers.experiments.parts import is_part_of
from neuralpath.papers.experiments.summary_items import SummaryItem
from neuralpath.papers.runs import Task

Preset = Literal["smoke", "cpu", "paper"]
PRESETS: tuple[Preset, ...] = ("smoke", "cpu", "paper")

Results = Mapping[Task, dict[str, Any]]
"""Results of the tasks that are finished; the others are missing."""


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the papers."""

    name: str
    description: str
    """One line for the list."""
    source: str
    """Where the papers have it, such as ``P0 table 4, P1 table 2``."""
    config: type
    presets: Mapping[Preset, Any]
    """A config for each scale; what is reduced against the papers says so in the config's docstring or ``reduced``."""
    reduced: Mapping[Preset, str]
    """How the preset differs from what the papers did, in a sentence; for the smaller presets."""
    tasks: Callable[[Any], tuple[Task, ...]]
    """The runs of a config; what they need is found through them."""
    summary: Callable[[Any, Results], tuple[SummaryItem, ...]]
    """Tables and figures from the results so far; it must accept any subset of finished tasks, none included."""

    def run(self, config: Any, out: Path | str, **where: Any) -> tuple[SummaryItem, ...]:
        """Do all runs of a config in a folder, and give what they show.

        ``where`` are the settings of `run_tasks`: ``jobs``, ``records``, ``data_dir``,
        ``cluster``.
        """
        from neuralpath.papers.experiments.sweeps import (  # which reads experiments by name, and so imports this
            Sweep,
            run,
        )

        return run(Sweep(self, config, self.preset_of(config)), Path(out), **where)

    def preset_of(self, config: Any) -> str:
        """Name of the preset that a config is, or is some parts of; empty where there is none."""
        return next((name for name in PRESETS if is_part_of(config, self.presets[name])), "")

    def __post_init__(self) -> None:
        if set(self.presets) != set(PRESETS):
            raise ValueError(f"{self.name}: `presets` must be {', '.join(PRESETS)}.")
