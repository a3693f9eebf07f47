"""One run, from its lock to its record, in whichever process it is done."""

import errno
import os
import platform
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal

from neuralpath._files import AlreadyLocked
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.task import Task
from neuralpath.training import CheckpointError, Terminated

OutcomeKind = Literal["finished", "busy", "failed", "interrupted", "unwritable"]

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
_PACKAGES = ("neuralpath", "torch", "numpy", "numba", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Outcome:
    """How a run ended: ``busy`` means that another process does it, ``unwritable`` that the disk failed."""

    kind: OutcomeKind
    message: str = ""
    seconds: float = 0.0


def run_task(task: Task, store: Store, weights: tuple[str, ...] = (), command: str = "") -> Outcome:
    """Do a run with one thread, unless it is finished. Errors of the task become an outcome.

    Args:
        task: The run.
        store: Where it is stored.
        weights: The weights that other runs will read.
        command: What the user has typed, for the provenance.
    """
    start = time.perf_counter()
    try:
        with store.lock(task):
            if store.is_finished(task, weights):
                return Outcome("finished")
            notes = [
                f"{problem}: the run is repeated, and `neuralpath papers export` replaces the record"
                for problem in store.problems_in_records(task, weights)
            ]
            return _run_locked(task, store, command, start, notes)
    except AlreadyLocked:
        return Outcome("busy")
    except (KeyboardInterrupt, Terminated):
        return Outcome("interrupted", seconds=time.perf_counter() - start)
    except Exception as error:
        if not is_unwritable(error):
            raise
        return Outcome("unwritable", f"{store.folder(task)} cannot be written to: {system_message(error)}")


def _run_locked(task: Task, store: Store, command: str, start: float, notes: list[str]) -> Outcome:
    """Do the run; ``notes`` are messages about damage, to which this function adds."""
    provenance = {"started": datetime.now(UTC).isoformat(timespec="seconds"), "command": command, **_environment()}
    notes += _begin(task, store)
    try:
        try:
            result = _result(task, store)
        except CheckpointError as error:
            if is_unwritable(error):
                raise
            notes += [store.quarantine(task, str(error).removesuffix(".")), *_begin(task, store)]
            result = _result(task, store)
        seconds = time.perf_counter() - start
        store.finish(task, result, {**provenance, "seconds": round(seconds, 3)})
        store.directory(task).clear_checkpoints()
        return Outcome("finished", "; ".join(notes), seconds)
    except Exception as error:
        if is_unwritable(error):
            raise
        message = f"{type(error).__name__}: {error}"
        store.fail(task, message, traceback.format_exc(), provenance)
        return Outcome("failed", "; ".join([*notes, message]), time.perf_counter() - start)


def _begin(task: Task, store: Store) -> list[str]:
    message = store.begin(task)
    return [] if message is None else [message]


def _result(task: Task, store: Store) -> dict[str, Any]:
    from neuralpath.training import torch_threads

    with torch_threads(1):
        return task.run(store.directory(task))


def is_unwritable(error: BaseException) -> bool:
    """Whether the disk caused an error, which may be wrapped in others."""
    return any(isinstance(link, OSError) and link.errno in _UNWRITABLE for link in _chain(error))


def system_message(error: BaseException) -> str:
    """The operating system's message of an error."""
    return next((link.strerror for link in _chain(error) if isinstance(link, OSError) and link.strerror), str(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _environment() -> dict[str, Any]:
    return {
        "versions": {name: version(name) for name in _PACKAGES},
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }
