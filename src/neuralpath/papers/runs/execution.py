"""One run, from lock to record, in whatever process or machine it is done."""

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

from neuralpath.papers.runs.store import DamagedRecord, Store
from neuralpath.papers.runs.task import Task
from neuralpath.training import CheckpointError, Terminated

Kind = Literal["finished", "busy", "failed", "interrupted", "unwritable"]

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
_PACKAGES = ("neuralpath", "torch", "numpy", "numba", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Outcome:
    """How a run ended: ``busy`` is in the hands of another process, ``unwritable`` stopped for want of disk."""

    kind: Kind
    message: str = ""
    seconds: float = 0.0


def is_finished(store: Store, task: Task, weights: tuple[str, ...] = ()) -> bool:
    """Whether a run has a good record, and good weights of those that are still wanted of it."""
    try:
        if store.result(task) is None:
            return False
    except DamagedRecord:
        return False  # `run_task` says so and puts it aside
    return all(store.weights_path(task, which) is not None for which in weights)


def run_task(task: Task, store: Store, weights: tuple[str, ...] = (), command: str = "") -> Outcome:
    """Do a run unless it is finished, with one thread; mistakes of the task become an outcome, not an error."""
    begun = time.perf_counter()
    try:
        with store.lock(task) as ours:
            if not ours:
                return Outcome("busy")
            if is_finished(store, task, weights):
                return Outcome("finished")
            notes = [
                f"{problem}: the run is repeated, and `neuralpath papers export` puts the new file in its place"
                for problem in store.damaged_among_records(task, weights)
            ]
            return _run_locked(task, store, command, begun, notes)
    except (KeyboardInterrupt, Terminated):
        return Outcome("interrupted", seconds=time.perf_counter() - begun)
    except Exception as error:
        if not is_unwritable(error):
            raise
        return Outcome("unwritable", f"{store.folder(task)} cannot be written to: {reason(error)}")


def _run_locked(task: Task, store: Store, command: str, begun: float, notes: list[str]) -> Outcome:
    """Do the run; ``notes`` is what the outcome says of damage, of which more may be found here."""
    about = {"started": datetime.now(UTC).isoformat(timespec="seconds"), "command": command, **_surroundings()}
    notes += _begun(task, store)
    try:
        try:
            result = _result(task, store)
        except CheckpointError as error:
            if is_unwritable(error):
                raise
            notes += [store.put_aside(task, str(error).removesuffix(".")), *_begun(task, store)]
            result = _result(task, store)
        seconds = time.perf_counter() - begun
        store.finish(task, result, {**about, "seconds": round(seconds, 3)})
        store.directory(task).clear_checkpoints()
        return Outcome("finished", "; ".join(notes), seconds)
    except Exception as error:
        if is_unwritable(error):
            raise
        text = f"{type(error).__name__}: {error}"
        store.fail(task, text, traceback.format_exc(), about)
        return Outcome("failed", "; ".join([*notes, text]), time.perf_counter() - begun)


def _begun(task: Task, store: Store) -> list[str]:
    message = store.begin(task)
    return [] if message is None else [message]


def _result(task: Task, store: Store) -> dict[str, Any]:
    from neuralpath.training import threads_kept

    with threads_kept(1):
        return task.run(store.directory(task))


def is_unwritable(error: BaseException) -> bool:
    """Whether the disk was the trouble and not the run; errors of files may be wrapped in others."""
    return any(isinstance(link, OSError) and link.errno in _UNWRITABLE for link in _chain(error))


def reason(error: BaseException) -> str:
    """What the system says of the trouble."""
    return next((link.strerror for link in _chain(error) if isinstance(link, OSError) and link.strerror), str(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _surroundings() -> dict[str, Any]:
    versions = {name: version(name) for name in _PACKAGES}
    return {
        "versions": versions,
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }
