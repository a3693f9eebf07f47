"""A piece of task: all that its result depends on, what it needs of other pieces, and how it is done."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from neuralpath._configs import to_json

if TYPE_CHECKING:
    from neuralpath.papers.runs.calibration import Calibration
    from neuralpath.papers.runs.run_directory import RunDirectory

FORMAT = 1
"""Of tasks, records and run directories; part of every fingerprint."""

_NAME_CHARACTERS = re.compile(r"[^A-Za-z0-9.+=_-]+")


@dataclass(frozen=True)
class Task(ABC):
    """What one run does. Subclasses are frozen dataclasses of plain values, of other such records and of other tasks.

    Equal tasks give equal results, byte for byte: everything that matters is a field, seeds included, and nothing else
    is (no paths, no number of processes). A task that is a field of another is one run, shared by all that need it.
    """

    @property
    @abstractmethod
    def label(self) -> str:
        """A few readable words for people, such as ``fc-w128-d6 FL adam seed 0``."""

    @property
    def weights_read(self) -> tuple["Weights", ...]:
        """The weights of other runs that this one reads: all that are among its fields."""
        return tuple(_weights_in(getattr(self, part.name) for part in fields(self)))

    @property
    def dependencies(self) -> tuple["Task", ...]:
        """Tasks that must be finished before, because their weights are read."""
        return tuple(dict.fromkeys(weights.work for weights in self.weights_read))

    @property
    def n_steps(self) -> int:
        """Lines of metrics that the run writes, for the progress that is shown; an upper bound."""
        return 1

    @abstractmethod
    def run(self, directory: "RunDirectory") -> dict[str, Any]:
        """Do it, or go on where an interrupted run was; the result as plain JSON values, small."""

    @abstractmethod
    def seconds(self, calibration: "Calibration") -> float:
        """Estimate of the time on one core, from measured speeds."""

    @abstractmethod
    def memory(self) -> int:
        """Estimate of the peak memory in bytes, the libraries themselves (about 400 MB) not counted."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that the result depends on."""
        return hashlib.sha256(canonical({"format": FORMAT, "work": to_json(self)})).hexdigest()

    @cached_property
    def name(self) -> str:
        """Name of the run's directory: the label, and enough of the fingerprint to tell any two apart."""
        return f"{_NAME_CHARACTERS.sub('-', self.label).strip('-')}-{self.fingerprint[:10]}"


@dataclass(frozen=True)
class Weights:
    """The weights of another run: ``best`` is the epoch of the best test accuracy, or ``last``, or ``epoch-10``."""

    work: Task
    which: str = "last"


def _weights_in(values: Iterable[Any]) -> Iterator[Weights]:
    for value in values:
        if isinstance(value, Weights):
            yield value
        elif isinstance(value, tuple):
            yield from _weights_in(value)


def canonical(value: Any) -> bytes:
    """JSON with one spelling for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def with_dependencies(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    """The tasks and all that they need, each once, what is needed before what needs it."""
    ordered: dict[str, Task] = {}

    def add(task: Task) -> None:
        if task.name not in ordered:
            for needed in task.dependencies:
                add(needed)
            ordered[task.name] = task

    for task in tasks:
        add(task)
    return tuple(ordered.values())
