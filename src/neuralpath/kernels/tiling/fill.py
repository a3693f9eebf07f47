"""Filling a kernel matrix tile by tile, with a progress bar for long work."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jaxtyping import Float
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from neuralpath.kernels.tiling.plan import Plan, Tile

PATIENCE = 3.0
"""Seconds of expected work above which a bar appears on a terminal."""

Step = Callable[[int], None]


@contextmanager
def progress_bar(total: int, what: str, show: bool | None = None) -> Iterator[Step]:
    """A function that is told of finished work, and shows a bar with the remaining time on the error stream.

    ``show`` None: only on a terminal, and only once the work looks longer than a few seconds.
    """
    bar = Progress(
        TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    begun, done, task = time.perf_counter(), 0, None

    def step(amount: int) -> None:
        nonlocal done, task
        done += amount
        if task is None and show is not False:
            expected = (time.perf_counter() - begun) * total / max(done, 1)
            if show or (expected > PATIENCE and sys.stderr.isatty()):
                bar.start()
                task = bar.add_task(what, total=total)
        if task is not None:
            bar.update(task, completed=done)

    try:
        yield step
    finally:
        if task is not None:
            bar.stop()


def fill(
    out: Float[Tensor, "*kernels rows columns"],
    plan: Plan,
    compute: Callable[[Tile], Float[Tensor, "*kernels _rows _columns"]],
    *,
    what: str = "kernel",
    show: bool | None = None,
) -> None:
    """Compute every tile into ``out``; the lower half of a symmetric kernel is a copy of the upper, exactly."""
    with progress_bar(plan.n_pairs, what, show) as step:
        for tile in plan.tiles():
            values = compute(tile)
            if plan.symmetric and tile.rows != tile.columns:
                out[..., tile.columns, tile.rows] = values.mT
            out[..., tile.rows, tile.columns] = values
            step(tile.n_pairs(plan.symmetric))
