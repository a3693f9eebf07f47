"""The progress display of a sweep: a live table on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from neuralpath._progress import format_time
from neuralpath.papers.runs.executors import Outcome
from neuralpath.papers.runs.run_directory import read_metrics
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.task import Task

_REFRESH_PER_SECOND = 2


class Display:
    """Progress of a sweep on standard error, from the metrics that the runs of all processes write.

    Args:
        store: Where the runs are.
        tasks: All runs of the sweep.
        n_waiting: Number of runs that are to be done.
        show: Whether to show a live table; None: on a terminal, else plain lines; False: nothing.
        n_failed: Runs that have failed before.
    """

    def __init__(
        self, store: Store, tasks: tuple[Task, ...], n_waiting: int, show: bool | None, *, n_failed: int = 0
    ) -> None:
        self._store = store
        self._n_tasks = len(tasks)
        self._n_finished, self._n_failed = len(tasks) - n_waiting - n_failed, n_failed
        self._seconds: list[float] = []
        self._running: dict[str, tuple[Task, float, int]] = {}  # the task, its start, and steps that were done before
        self._elsewhere: set[str] = set()
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._is_silent = show is False
        is_live = sys.stderr.isatty() if show is None else show
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
        self._running[task.name] = task, time.monotonic(), len(read_metrics(self._store.folder(task)))
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
        took = f" in {format_time(outcome.seconds)}" if outcome.seconds > 0 else ""
        if outcome.kind == "finished":
            self._n_finished += 1
            self._seconds += [outcome.seconds] if took else []
        else:
            self._n_failed += 1
        message = f": {outcome.message}" if outcome.message else ""
        done = f"[{self._n_finished + self._n_failed}/{self._n_tasks}]"
        self._print(f"{done} {outcome.kind} {task.name}{took}{message}")

    def __rich__(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for heading in ("run", "step", "last", "for", "left"):
            table.add_column(heading, justify="left" if heading in ("run", "last") else "right", no_wrap=True)
        for task, begun, n_before in list(self._running.values()):
            metrics, elapsed = read_metrics(self._store.folder(task)), time.monotonic() - begun
            n_new = len(metrics) - n_before
            left = format_time(elapsed / n_new * (task.n_steps - len(metrics))) if n_new > 0 else ""
            last = metrics[-1].items() if metrics else ()
            scores = (f"{name.removesuffix('_accuracy')} {v:.1%}" for name, v in last if name.endswith("accuracy"))
            step = f"{len(metrics)}/{task.n_steps}"
            table.add_row(task.label, step, " ".join(scores), format_time(elapsed), left)
        return Group(Text(self._headline()), table)

    def _headline(self) -> str:
        parts = [f"{self._n_finished} of {self._n_tasks} runs finished"]
        counts = {"running": len(self._running), "failed": self._n_failed, "elsewhere": len(self._elsewhere)}
        parts += [f"{count} {state}" for state, count in counts.items() if count]
        if self._seconds and self._running:  # from the mean time of the runs that have ended here
            n_remaining = self._n_tasks - self._n_finished - self._n_failed
            mean = sum(self._seconds) / len(self._seconds)
            parts.append(f"about {format_time(mean * n_remaining / len(self._running))} left")
        return ", ".join(parts)

    def _print(self, line: str) -> None:
        if not self._is_silent:
            self._console.print(line, markup=False)
