"""A progress bar with the remaining time, shown only when a computation is long."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PATIENCE = 3.0
"""Expected seconds above which a bar appears on a terminal."""

Step = Callable[[int], None]
"""Reports that this many more units are done."""


@contextmanager
def progress_bar(total: int, label: str, show: bool | None = None) -> Iterator[Step]:
    """A function that reports finished units to a bar on the error stream.

    Args:
        total: Number of units in all.
        label: Text before the bar.
        show: Whether to show the bar; None: only on a terminal, once the whole looks longer than a few seconds.

    """
    columns = TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    start, done, task = time.perf_counter(), 0, None

    def step(amount: int) -> None:
        nonlocal done, task
        done += amount
        if task is None and show is not False:
            expected = (time.perf_counter() - start) * total / max(done, 1)
            if show or (expected > PATIENCE and sys.stderr.isatty()):
                bar.start()
                task = bar.add_task(label, total=total)
        if task is not None:
            bar.update(task, completed=done)

    try:
        yield step
    finally:
        if task is not None:
            bar.stop()
