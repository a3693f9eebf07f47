"""One run, from its lock to its record, and executors of runs: this process, several, or a Dask cluster."""

import errno
import multiprocessing
import os
import platform
import shutil
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

from neuralpath._cluster import ClusterError, connect
from neuralpath._files import AlreadyLocked
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.task import RunError, Task
from neuralpath.training import Terminated

GRACE = 60.0  # seconds that a process gets to save its run when it is asked to stop
READY = "ready"  # message of a process that has been imported and serves
# Torch's number of threads belongs to the process, so a run that sets it would change another one beside it.
_ONE_AT_A_TIME = threading.Lock()
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
_PACKAGES = ("neuralpath", "torch", "numpy", "numba", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Outcome:
    """How a run ended: ``busy`` means that another process does it, ``unwritable`` that the disk failed."""

    kind: Literal["finished", "busy", "failed", "interrupted", "unwritable"]
    message: str = ""
    seconds: float = 0.0


def run_task(task: Task, store: Store, weights: tuple[str, ...] = (), command: str = "") -> Outcome:
    """Do a run with one thread, unless it is finished and has the weights that others will read; how it ended."""
    start = time.perf_counter()
    try:
        with _ONE_AT_A_TIME, store.lock(task):
            return Outcome("finished") if store.is_finished(task, weights) else _run_locked(task, store, command, start)
    except AlreadyLocked:
        return Outcome("busy")
    except (KeyboardInterrupt, Terminated):
        return Outcome("interrupted", seconds=time.perf_counter() - start)
    except Exception as error:
        if (disk_error := _disk_error(error)) is None:
            raise
        return Outcome("unwritable", f"{store.folder(task)} cannot be written to: {disk_error.strerror}")


def _run_locked(task: Task, store: Store, command: str, start: float) -> Outcome:
    from neuralpath.training import CheckpointError, torch_threads  # with torch, which listing runs does not need

    provenance = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "versions": {name: version(name) for name in _PACKAGES},
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }
    directory = store.directory(task)
    hint = "the run is repeated, and `neuralpath papers export` replaces the record"
    notes = [f"{problem}: {hint}" for problem in store.problems_in_records(task)] + store.begin(task)
    try:
        with torch_threads(1):
            try:
                result = task.run(directory)
            except CheckpointError as error:
                if _disk_error(error) is not None:
                    raise
                notes += [store.quarantine(task, str(error).removesuffix(".")), *store.begin(task)]
                result = task.run(directory)
        seconds = time.perf_counter() - start
        store.write(task, "finished", result=result, provenance={**provenance, "seconds": round(seconds, 3)})
        shutil.rmtree(directory.checkpoints, ignore_errors=True)  # which only an unfinished run needs
        return Outcome("finished", "; ".join(notes), seconds)
    except Exception as error:
        if _disk_error(error) is not None:
            raise
        message = f"{type(error).__name__}: {error}"
        store.write(task, "failed", error=message, trace=traceback.format_exc(), provenance=provenance)
        return Outcome("failed", "; ".join([*notes, message]), time.perf_counter() - start)


def _disk_error(error: BaseException | None) -> OSError | None:
    """The failure of the disk that caused an error, which may be wrapped in others."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:
            return error
        error = error.__cause__ or error.__context__
    return None


@dataclass
class InlineExecutor:
    """One run after the other, in this process."""

    store: Store
    command: str
    _waiting: list[tuple[Task, tuple[str, ...]]] = field(default_factory=list)

    @property
    def n_free(self) -> int:
        """How many more runs can be started now."""
        return 1 - len(self._waiting)

    def start(self, task: Task, weights: tuple[str, ...]) -> None:
        """Start a run; ``weights`` are those that other runs will read."""
        self._waiting.append((task, weights))

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        """The runs that have ended, after waiting for at most this many seconds; here, this does the run."""
        if not self._waiting:
            time.sleep(seconds)
            return []
        task, weights = self._waiting.pop()
        return [(task, run_task(task, self.store, weights, self.command))]

    def stop(self) -> None:
        """Ask the running tasks to save their state, and wait for them."""


@dataclass
class ProcessExecutor:
    """Several processes, each with one run at a time. A process that dies costs only its run, and is replaced."""

    n_processes: int
    store: Store
    command: str
    _workers: "list[_Worker]" = field(default_factory=list)

    @property
    def n_free(self) -> int:
        return self.n_processes - sum(worker.task is not None for worker in self._workers)

    def start(self, task: Task, weights: tuple[str, ...]) -> None:
        for idle in [worker for worker in self._workers if worker.task is None]:
            try:
                return idle.give(task, weights)
            except OSError:  # it has died while idle
                self._workers.remove(idle)
        self._workers.append(_Worker(self.store, self.command))
        self._workers[-1].give(task, weights)

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        busy = [worker for worker in self._workers if worker.task is not None]
        ready = wait([worker.connection for worker in busy], seconds)
        outcomes = []
        for worker in [worker for worker in busy if worker.connection in ready]:
            task = worker.task
            assert task is not None
            try:
                answer = worker.connection.recv()
            except (EOFError, OSError):  # the process is gone
                self._workers.remove(worker)
                answer = Outcome("failed", worker.exit_reason())
                self.store.write(task, "failed", error=answer.message, trace="", provenance={})
            if answer == READY:
                worker.is_ready = True
            else:
                worker.task = None
                outcomes.append((task, answer))
        return outcomes

    def stop(self) -> None:
        for worker in self._workers:
            if worker.task is None:
                worker.connection.close()  # it ends by itself
            else:
                worker.process.terminate()
        deadline = time.monotonic() + GRACE
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers.clear()


class _Worker:
    """The parent's side of a process that does runs."""

    def __init__(self, store: Store, command: str) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the threads of torch and numba half alive
        self.connection, theirs = context.Pipe()
        self.task: Task | None = None
        self.is_ready = False
        self.process = context.Process(target=_serve, args=(theirs, store, command), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, task: Task, weights: tuple[str, ...]) -> None:
        self.task = task
        self.connection.send((task, weights))

    def exit_reason(self) -> str:
        self.process.join(5.0)
        code = self.process.exitcode
        reason = f"ended with status {code}"
        if code is not None and code < 0:
            memory = " (too little memory?)" if -code == signal.SIGKILL else ""
            reason = f"was ended by {signal.Signals(-code).name}{memory}"
        if not self.is_ready:
            raise RunError(
                f"the process of the run {reason} before it could begin. A script with such a sweep must call it under "
                '`if __name__ == "__main__":`, since each of them imports the script; `jobs=1` needs no other process.'
            )
        return f"the process of the run {reason}"


def _serve(connection: Connection, store: Store, command: str) -> None:
    """The main loop of a process: do the runs that the parent sends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection.send(READY)
    while True:
        try:
            task, weights = connection.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        outcome = run_task(task, store, weights, command)
        with suppress(OSError):  # if the parent is gone, the next `recv` fails too
            connection.send(outcome)
        if outcome.kind == "interrupted":
            return


def _end_with_parent() -> None:
    """End when the parent is gone, after saving the run: nobody else knows of this process."""
    if (parent := multiprocessing.parent_process()) is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


class DaskExecutor:
    """The workers of a Dask cluster that see the output folder and the data, each with one run at a time.

    A lost worker costs the steps since the last checkpoint: its lock is released, and the scheduler gives the run to
    another worker. Runs that workers are doing when a sweep is interrupted continue to their end.
    """

    def __init__(self, cluster: str, store: Store, command: str) -> None:
        # Workers have other current directories.
        out, records, data_dir = store.out.resolve(), store.records, store.data_dir
        self._store = Store(out, records and records.resolve(), data_dir and data_dir.resolve())
        self._command = command
        self._running: dict[Any, Task] = {}  # by Dask's future
        try:
            self._client = connect(cluster)
        except ClusterError as error:
            raise RunError(str(error)) from error
        # A worker that is lost at this moment answers with an error, which says nothing about the folder.
        if any(sees is False for sees in self._client.run(Path.is_dir, out, on_error="return").values()):
            self._client.close()
            raise RunError(
                f"some workers of the cluster do not see the folder {out}: it must lie on a file system that all of "
                "them share."
            )

    @property
    def n_free(self) -> int:
        return len(self._client.scheduler_info(n_workers=-1)["workers"]) - len(self._running)

    def start(self, task: Task, weights: tuple[str, ...]) -> None:
        # Not pure: a busy run is submitted again, and must not get the outcome of before.
        future = self._client.submit(run_task, task, self._store, weights, self._command, key=None, pure=False)
        self._running[future] = task

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        from distributed import wait as wait_for

        if self._running:
            with self._client.as_current(), suppress(TimeoutError):
                wait_for(list(self._running), timeout=seconds, return_when="FIRST_COMPLETED")
        else:
            time.sleep(seconds)
        outcomes = []
        for future in [future for future in self._running if future.done()]:
            error = None if future.status == "finished" else future.exception()
            outcome = future.result() if error is None else Outcome("failed", f"{type(error).__name__}: {error}")
            outcomes.append((self._running.pop(future), outcome))
        return outcomes

    def stop(self) -> None:
        self._client.cancel(list(self._running))  # those that have not started
        self._client.close()


Executor = InlineExecutor | ProcessExecutor | DaskExecutor
