"""What can be known to fail before a sweep begins: data that are missing, memory that is too little."""

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from neuralpath._memory import available_memory, format_memory
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.papers.runs import RunError, Store, Task, is_finished, with_dependencies

LIBRARIES = 400 << 20
"""What torch and the others take in each process."""


def check_data(tasks: Iterable[Task], data_dir: Path | None) -> None:
    """Find every data set that the tasks read.

    Raises: neuralpath.data.DataError, which says how to get it.
    """
    from neuralpath import data

    names = sorted({spec.name for task in tasks for spec in _specs(task)} - {"digits"})
    for name in names:
        data.find(name, data_dir)


def check_memory(tasks: tuple[Task, ...], store: Store, jobs: int, available: int | None = None) -> None:
    """See that the ``jobs`` biggest runs fit the memory side by side.

    Raises: RunError naming the biggest and the number of jobs that would fit.
    """
    waiting = [task for task in with_dependencies(tasks) if not is_finished(store, task)]
    by_kind = {_shape(task): task for task in waiting}  # runs that differ in their seed alone take the same
    sizes = {shape: task.memory() + LIBRARIES for shape, task in by_kind.items()}
    needed = sorted((sizes[_shape(task)] for task in waiting), reverse=True)[:jobs]
    free = available_memory() if available is None else available
    if sum(needed) <= free:
        return
    biggest = max(by_kind.values(), key=lambda task: sizes[_shape(task)])
    n_fitting = sum(sum(needed[: n + 1]) <= free for n in range(len(needed)))
    way_out = f"use --jobs {n_fitting}" if n_fitting else "use a smaller preset, or a machine with more memory"
    raise RunError(
        f"{len(needed)} runs side by side need about {format_memory(sum(needed))}, and {format_memory(free)} are free; "
        f"the biggest, {biggest.label}, needs {format_memory(needed[0])}: {way_out}."
    )


def _shape(task: Task) -> tuple[Any, ...]:
    """All fields but those that do not change the size: equal shapes are estimated once."""
    kept = (getattr(task, part.name) for part in fields(task) if part.name not in ("seed", "gates", "start"))
    return (type(task), *(part for part in kept if not isinstance(part, Task)))


def _specs(value: Any) -> Iterator[DataSpec]:
    if isinstance(value, DataSpec):
        yield value
    elif isinstance(value, tuple):
        for entry in value:
            yield from _specs(entry)
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            yield from _specs(getattr(value, part.name))
