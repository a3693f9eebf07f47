"""Tasks: everything that the result of a run depends on, and how it is computed."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from neuralpath._configs import to_json
from neuralpath._hashing import json_digest

if TYPE_CHECKING:
    from neuralpath.papers.runs.run_directory import RunDirectory

FORMAT = 2  # version of tasks, records and run folders; part of every fingerprint


class RunError(ValueError):
    """Runs cannot be stored or read; the message says why and what to do."""


@dataclass(frozen=True)
class Task(ABC):
    """One run. Subclasses are frozen dataclasses of plain values, of other such records and of other tasks.

    Equal tasks give equal results, byte for byte. Everything that matters is a field, seeds included, and nothing else
    is (no paths, no number of processes). A task that is a field of another is one run, shared by its readers.
    """

    @property
    @abstractmethod
    def label(self) -> str:
        """A short readable name, such as ``fc-w128-d6 FL adam seed 0``."""

    @property
    def weights_read(self) -> tuple["Weights", ...]:
        """The weights of other runs that this run reads: all that are among its fields."""
        return tuple(_weights_in(tuple(getattr(self, entry.name) for entry in fields(self))))

    @property
    def dependencies(self) -> tuple["Task", ...]:
        """Tasks that must be finished first, because this run reads their weights."""
        return tuple(dict.fromkeys(weights.task for weights in self.weights_read))

    @property
    def n_steps(self) -> int:
        """Upper bound of the number of lines of metrics that the run writes, for the progress display."""
        return 1

    @abstractmethod
    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        """Compute the result, as small plain JSON values, or resume an interrupted run in its directory."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that the result depends on."""
        return fingerprint_of(to_json(self))

    @cached_property
    def name(self) -> str:
        """Name of the run's directory: the label, and enough of the fingerprint to tell any two apart."""
        label = re.sub(r"[^A-Za-z0-9.+=_-]+", "-", self.label).strip("-")
        return f"{label}-{self.fingerprint[:10]}"


@dataclass(frozen=True)
class Weights:
    """The weights of another run: ``last``, ``best`` (the epoch of the best test accuracy) or, say, ``epoch-10``."""

    task: Task
    which: str = "last"


def fingerprint_of(settings: Any) -> str:
    """The fingerprint of a task from its settings, as `neuralpath._configs.to_json` gives them."""
    return json_digest({"format": FORMAT, "task": settings})


def with_dependencies(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """The tasks and everything they depend on, each once, dependencies first."""
    ordered: dict[str, Task] = {}

    def add(task: Task) -> None:
        if task.name not in ordered:
            for dependency in task.dependencies:
                add(dependency)
            ordered[task.name] = task

    for task in tasks:
        add(task)
    return tuple(ordered.values())


def _weights_in(value: Any) -> Iterator[Weights]:
    if isinstance(value, Weights):
        yield value
    elif isinstance(value, tuple):
        for entry in value:
            yield from _weights_in(entry)
