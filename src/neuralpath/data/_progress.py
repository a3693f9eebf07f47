"""Telling how far a download has come."""

from collections.abc import Callable
from typing import TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

Report: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of the file, the bytes that are there and the bytes that there will be."""


def progress_bar() -> Progress:
    """Progress display for :func:`fetch`, on the error stream; use it as a context manager.

    >>> with progress_bar() as bar:
    ...     as_report(bar)("a file", 10, 10)
    """
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def as_report(progress: Report | Progress | None) -> Report:
    """Make one kind of reporter from the kinds that users may give."""
    if progress is None:
        return lambda name, done, total: None
    if isinstance(progress, Progress):
        return _report_to(progress)
    return progress


def _report_to(display: Progress) -> Report:
    tasks: dict[str, TaskID] = {}

    def report(name: str, done: int, total: int) -> None:
        if name not in tasks:
            tasks[name] = display.add_task(name, total=total)
        display.update(tasks[name], completed=done)

    return report
