"""A progress bar with the remaining time, shown only when a computation is long."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PATIENCE = 3.0
"""Expected seconds above which a bar appears on a terminal."""

Step = Callable[[int], None]
"""Reports that this many more units are done."""


class LabeledStep(Protocol):
    """A `Step` that can also change the text before the bar."""

    def __call__(self, amount: int, label: str | None = None) -> None: ...


@contextmanager
def progress_bar(total: int, label: str, show: bool | None = None) -> Iterator[LabeledStep]:
    """A function that reports finished units to a bar on the error stream.

    Args:
        total: Number of units in all.
        label: Text before the bar.
        show: Whether to show the bar; None: only on a terminal, once the whole looks longer than a few seconds.
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


def format_time(seconds: float) -> str:
    """A duration as text.

    >>> format_time(0.25), format_time(90), format_time(150), format_time(7260)
    ('0.2 s', '90 s', '2 min', '2 h 1 min')
    """
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
