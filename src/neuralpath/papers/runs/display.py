"""The progress display of a sweep: live bars on a terminal, plain lines elsewhere."""

import sys
from datetime import timedelta

from rich.console import Console, Group
from rich.live import Live
from rich.progress import MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from neuralpath.papers.runs.executors import Outcome
from neuralpath.papers.runs.run_directory import read_metrics
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.task import Task

_DAY = 86_400.0  # the seconds from which rich takes the speed of a bar: one step of a run may take an hour


class Display:
    """Progress of a sweep on standard error, from the metrics that the runs of all processes write.

    Of the tasks ``n_waiting`` are to be done, and ``n_failed`` have failed before. ``show``: True for live bars, False
    for nothing, None for live bars on a terminal and plain lines elsewhere.
    """

    def __init__(
        self, store: Store, tasks: tuple[Task, ...], n_waiting: int, show: bool | None, *, n_failed: int = 0
    ) -> None:
        self._store = store
        self._n_tasks = len(tasks)
        self._n_finished, self._n_failed = len(tasks) - n_waiting - n_failed, n_failed
        self._running: dict[str, tuple[Task, TaskID]] = {}
        self._elsewhere: set[str] = set()
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._is_silent = show is False
        scores = TextColumn("{task.fields[scores]}")
        columns = TextColumn("{task.description}"), MofNCompleteColumn(), scores, TimeElapsedColumn()
        self._bars = Progress(*columns, TimeRemainingColumn(), console=self._console, speed_estimate_period=_DAY)
        self._all = self._bars.add_task("all runs", total=len(tasks), completed=len(tasks) - n_waiting, scores="")
        is_live = sys.stderr.isatty() if show is None else show
        self._live = Live(self, console=self._console, refresh_per_second=2) if is_live else None

    def __enter__(self) -> "Display":
        if self._live is not None:
            self._live.start()
        else:
            self._print(self._headline())
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def started(self, task: Task) -> None:
        """A run starts here."""
        n_steps_before = len(read_metrics(self._store.folder(task)))
        bar = self._bars.add_task(task.label, total=task.n_steps, completed=n_steps_before, scores="")
        self._running[task.name] = task, bar
        self._elsewhere.discard(task.name)

    def busy(self, task: Task) -> None:
        """Another process is doing a run."""
        self._remove(task)
        if task.name not in self._elsewhere:
            self._elsewhere.add(task.name)
            self._print(f"another process is doing {task.name}")

    def ended(self, task: Task, outcome: Outcome) -> None:
        """A run has ended."""
        self._remove(task)
        self._bars.advance(self._all)
        self._n_finished += outcome.kind == "finished"
        self._n_failed += outcome.kind != "finished"
        took = f" in {timedelta(seconds=round(outcome.seconds))}" if outcome.seconds > 0 else ""
        message = f": {outcome.message}" if outcome.message else ""
        done = f"[{self._n_finished + self._n_failed}/{self._n_tasks}]"
        self._print(f"{done} {outcome.kind} {task.name}{took}{message}")

    def __rich__(self) -> Group:
        for task, bar in list(self._running.values()):
            metrics = read_metrics(self._store.folder(task))
            last = metrics[-1].items() if metrics else ()
            scores = (f"{name.removesuffix('_accuracy')} {v:.1%}" for name, v in last if name.endswith("accuracy"))
            self._bars.update(bar, completed=len(metrics), scores=" ".join(scores))
        return Group(Text(self._headline()), self._bars.get_renderable())

    def _remove(self, task: Task) -> None:
        if task.name in self._running:
            self._bars.remove_task(self._running.pop(task.name)[1])

    def _headline(self) -> str:
        counts = {"running": len(self._running), "failed": self._n_failed, "elsewhere": len(self._elsewhere)}
        parts = [f"{count} {state}" for state, count in counts.items() if count]
        return ", ".join([f"{self._n_finished} of {self._n_tasks} runs finished", *parts])

    def _print(self, line: str) -> None:
        if not self._is_silent:
            self._console.print(line, markup=False)
