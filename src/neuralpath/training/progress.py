"""The progress bar of a run: on a terminal only, drawn a few times a second, from the loop itself."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from neuralpath.training.metrics import EpochMetrics

INTERVAL = 0.2
"""Seconds between two drawings. A thread that draws, as rich has one, would take time from the steps."""


class _Throughput(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Steps a second."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} steps/s", style="progress.data.speed")


class TrainingBar:
    """Shows the epoch, the throughput, the time that is left and the last accuracies, on the error stream."""

    def __init__(self, n_steps: int, done: int, n_epochs: int, show: bool | None) -> None:
        self._shown = sys.stderr.isatty() if show is None else show
        self._n_epochs = n_epochs
        self._done = done
        self._drawn = 0.0
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), _Throughput(), TimeRemainingColumn(),
            TextColumn("{task.fields[accuracies]}"),
            console=Console(stderr=True), transient=True, auto_refresh=False,
        )  # fmt: skip
        self._task = self._bar.add_task("training", total=n_steps, completed=done, accuracies="")

    def __enter__(self) -> "TrainingBar":
        if self._shown:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._bar.stop()

    def step(self) -> None:
        """One more step has been done."""
        self._done += 1
        if self._shown and (now := time.perf_counter()) - self._drawn > INTERVAL:
            self._drawn = now
            self._bar.update(self._task, completed=self._done, refresh=True)

    def epoch(self, metrics: EpochMetrics) -> None:
        """An epoch has been measured."""
        if self._shown:
            test = "" if metrics.test is None else f", test {metrics.test.accuracy:.2%}"
            self._bar.update(
                self._task, description=f"epoch {metrics.epoch}/{self._n_epochs}",
                completed=self._done, accuracies=f"train {metrics.train.accuracy:.2%}{test}", refresh=True,
            )  # fmt: skip
