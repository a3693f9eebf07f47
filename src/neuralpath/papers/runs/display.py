"""The progress display of a sweep: a live table on a terminal, plain lines elsewhere."""

import sys
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from neuralpath._progress import format_time
from neuralpath.papers.runs.execution import Outcome
from neuralpath.papers.runs.run_directory import read_metrics
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.task import Task

_REFRESH_PER_SECOND = 2


@dataclass
class _Running:
    task: Task
    begun: float
    first_step: int
    """Steps that a resumed run had done before."""


@dataclass
class _Counts:
    finished: int = 0
    failed: int = 0
    seconds: list[float] = field(default_factory=list)


class Display:
    """Progress of a sweep on standard error, from the metrics that the runs of all processes write."""

    def __init__(
        self, store: Store, tasks: tuple[Task, ...], waiting: set[str], show: bool | None, *, n_failed: int = 0
    ) -> None:
        """Prepare the display.

        Args:
            store: Where the runs are.
            tasks: All runs of the sweep.
            waiting: Names of the runs that are to be done.
            show: Whether to show a live table; None: on a terminal, else plain lines; False: nothing.
            n_failed: Runs that have failed before.
        """
        self._store = store
        self._works = tasks
        self._counts = _Counts(finished=len(tasks) - len(waiting) - n_failed, failed=n_failed)
        self._running: dict[str, _Running] = {}
        self._elsewhere: set[str] = set()
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        is_live = show if show is not None else sys.stderr.isatty()
        self._is_silent = show is False
        self._live = Live(self, console=self._console, refresh_per_second=_REFRESH_PER_SECOND) if is_live else None

    def __enter__(self) -> "Display":
        if self._live is not None:
            self._live.start()
        else:
            self._print(self._headline())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def started(self, task: Task) -> None:
        """A run starts here."""
        done = len(read_metrics(self._store.folder(task)))
        self._running[task.name] = _Running(task, time.monotonic(), done)
        self._elsewhere.discard(task.name)

    def busy(self, task: Task) -> None:
        """Another process is doing a run."""
        self._running.pop(task.name, None)
        if task.name not in self._elsewhere:
            self._elsewhere.add(task.name)
            self._print(f"another process is doing {task.name}")

    def ended(self, task: Task, outcome: Outcome) -> None:
        """A run has ended."""
        self._running.pop(task.name, None)
        if outcome.kind == "finished":
            self._counts.finished += 1
            if outcome.seconds > 0:
                self._counts.seconds.append(outcome.seconds)
        else:
            self._counts.failed += 1
        took = f" in {format_time(outcome.seconds)}" if outcome.seconds > 0 else ""
        message = f": {outcome.message}" if outcome.message else ""
        done = f"[{self._counts.finished + self._counts.failed}/{len(self._works)}]"
        self._print(f"{done} {outcome.kind} {task.name}{took}{message}")

    def __rich__(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for heading in ("run", "step", "last", "for", "left"):
            table.add_column(heading, justify="left" if heading in ("run", "last") else "right", no_wrap=True)
        for running in list(self._running.values()):
            metrics = read_metrics(self._store.folder(running.task))
            elapsed = time.monotonic() - running.begun
            left = _seconds_left_of(running, len(metrics), elapsed)
            table.add_row(
                running.task.label,
                f"{len(metrics)}/{running.task.n_steps}",
                _last_accuracy(metrics),
                format_time(elapsed),
                "" if left is None else format_time(left),
            )
        return Group(Text(self._headline()), table)

    def _headline(self) -> str:
        n, counts = len(self._works), self._counts
        parts = [f"{counts.finished} of {n} runs finished"]
        parts += [f"{len(self._running)} running"] if self._running else []
        parts += [f"{counts.failed} failed"] if counts.failed else []
        parts += [f"{len(self._elsewhere)} elsewhere"] if self._elsewhere else []
        left = self._seconds_left()
        parts += [f"about {format_time(left)} left"] if left is not None else []
        return ", ".join(parts)

    def _seconds_left(self) -> float | None:
        """Estimate from the mean time of the runs that have ended here; None before the first has."""
        if not self._counts.seconds or not self._running:
            return None
        mean = sum(self._counts.seconds) / len(self._counts.seconds)
        n_remaining = len(self._works) - self._counts.finished - self._counts.failed
        return mean * n_remaining / len(self._running)

    def _print(self, line: str) -> None:
        if not self._is_silent:
            self._console.print(line, markup=False)


def _seconds_left_of(running: _Running, n_steps: int, elapsed: float) -> float | None:
    new = n_steps - running.first_step
    return elapsed / new * (running.task.n_steps - n_steps) if new > 0 else None


def _last_accuracy(metrics: list[dict[str, Any]]) -> str:
    """The accuracies of the last step, if it has any."""
    if not metrics:
        return ""
    values = {name: value for name, value in metrics[-1].items() if name.endswith("accuracy")}
    return " ".join(f"{name.removesuffix('_accuracy')} {value:.1%}" for name, value in values.items())
