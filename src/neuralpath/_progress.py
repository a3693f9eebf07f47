"""A progress bar with the remaining time, shown only when a computation is long."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PATIENCE = 3.0  # expected seconds above which a bar appears on a terminal
Step = Callable[[int], None]  # reports that this many more units are done


class LabeledStep(Protocol):
    """A `Step` that can also change the text before the bar."""

    def __call__(self, amount: int, label: str | None = None) -> None: ...


@contextmanager
def progress_bar(total: int, label: str, show: bool | None = None) -> Iterator[LabeledStep]:
    """A function that reports finished units, ``total`` in all, to a bar on the error stream.

    ``show`` may force or forbid the bar; None: only on a terminal, once the whole looks longer than a few seconds.
    """
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    start, done, task, text = time.perf_counter(), 0, None, label

    def step(amount: int, label: str | None = None) -> None:
        nonlocal done, task, text
        done += amount
        text = label or text
        if task is None and show is not False:
            expected = (time.perf_counter() - start) * total / max(done, 1)
            if show or (expected > PATIENCE and sys.stderr.isatty()):
                bar.start()
                task = bar.add_task(text, total=total)
        if task is not None:
            bar.update(task, completed=done, description=text)

    try:
        yield step
    finally:
        if task is not None:
            bar.stop()
