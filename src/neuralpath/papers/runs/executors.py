"""Where runs run on this machine: in this process, or in several that live through many runs."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from neuralpath.papers.runs.execution import Outcome, run_task
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.task import RunError, Task

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

GRACE = 60.0
"""Seconds that a process gets to save its run when it is asked to stop."""


READY = "ready"
"""What a process says when it has been imported and serves."""


@runtime_checkable
class Executor(Protocol):
    """Does runs; entered before use, and left when all is done or given up."""

    @property
    def n_free(self) -> int:
        """How many more runs can be started now."""

    def start(self, task: Task, weights: tuple[str, ...]) -> None:
        """Begin a run; ``weights`` are those that other runs will read."""

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        """Runs that have ended, after at most so long."""

    def stop(self) -> None:
        """Ask what is running to save itself, and wait for that."""


class InlineExecutor:
    """One run after the other, here."""

    def __init__(self, store: Store, command: str) -> None:
        self._store = store
        self._command = command
        self._waiting: list[tuple[Task, tuple[str, ...]]] = []

    @property
    def n_free(self) -> int:
        """As `Executor.n_free`."""
        return 1 - len(self._waiting)

    def start(self, task: Task, weights: tuple[str, ...]) -> None:
        """As `Executor.start`."""
        self._waiting.append((task, weights))

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        """As `Executor.wait`; the run is done now."""
        if not self._waiting:
            time.sleep(seconds)
            return []
        task, weights = self._waiting.pop()
        return [(task, run_task(task, self._store, weights, self._command))]

    def stop(self) -> None:
        """As `Executor.stop`."""


class ProcessExecutor:
    """Several processes, each with one run at a time. One that dies costs its run only, and is replaced."""

    def __init__(self, n: int, store: Store, command: str) -> None:
        self._n = n
        self._store = store
        self._command = command
        self._workers: list[_Worker] = []

    @property
    def n_free(self) -> int:
        """As `Executor.n_free`."""
        return self._n - sum(worker.task is not None for worker in self._workers)

    def start(self, task: Task, weights: tuple[str, ...]) -> None:
        """As `Executor.start`."""
        for idle in [worker for worker in self._workers if worker.task is None]:
            try:
                return idle.give(task, weights)
            except OSError:  # it has died while it had nothing to do
                self._workers.remove(idle)
        self._workers.append(_Worker(self._store, self._command))
        self._workers[-1].give(task, weights)

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        """As `Executor.wait`."""
        busy = [worker for worker in self._workers if worker.task is not None]
        if not busy:
            time.sleep(seconds)
            return []
        ready = wait([worker.connection for worker in busy], seconds)
        return list(self._ended([worker for worker in busy if worker.connection in ready]))

    def stop(self) -> None:
        """As `Executor.stop`."""
        for worker in self._workers:
            worker.terminate()
        deadline = time.monotonic() + GRACE
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        self._workers.clear()

    def _ended(self, workers: "list[_Worker]") -> Iterator[tuple[Task, Outcome]]:
        for worker in workers:
            task = worker.task
            assert task is not None
            outcome = worker.take()
            if outcome == READY:
                continue
            if outcome is None:  # the process is gone
                self._workers.remove(worker)
                if not worker.has_begun:
                    raise RunError(
                        f"{worker.epitaph()} before it could begin. A script that does a sweep in several processes "
                        'must call it under `if __name__ == "__main__":`, since each of them imports the script; '
                        "`jobs=1` needs no other process."
                    )
                outcome = Outcome("failed", worker.epitaph())
                self._store.fail(task, outcome.message, "", {})
            assert isinstance(outcome, Outcome)
            yield task, outcome


class _Worker:
    """A process that does runs, as its parent sees it."""

    def __init__(self, store: Store, command: str) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the threads of torch and numba half alive
        self.connection, theirs = context.Pipe()
        self.task: Task | None = None
        self.has_begun = False
        self._process: SpawnProcess = context.Process(target=_serve, args=(theirs, store, command), daemon=True)
        self._process.start()
        theirs.close()

    def give(self, task: Task, weights: tuple[str, ...]) -> None:
        self.task = task
        self.connection.send((task, weights))

    def take(self) -> Outcome | str | None:
        """What the process says: that it is ready, or how its run has ended; None if it has died."""
        try:
            message: Outcome | str = self.connection.recv()
        except (EOFError, OSError):
            return None
        if isinstance(message, Outcome):
            self.task = None
        else:
            self.has_begun = True
        return message

    def epitaph(self) -> str:
        self._process.join(5.0)
        code = self._process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return f"the process of the run was ended by {name}" + (
                " (too little memory?)" if name == "SIGKILL" else ""
            )
        return f"the process of the run ended with status {code}"

    def terminate(self) -> None:
        if self.task is None:
            self.connection.close()  # it ends by itself
        else:
            self._process.terminate()

    def join(self, seconds: float) -> None:
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(connection: Connection, store: Store, command: str) -> None:
    """Do the runs that come; the life of a process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection.send(READY)
    while True:
        try:
            task, weights = connection.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        outcome = run_task(task, store, weights, command)
        try:
            connection.send(outcome)
        except OSError:
            return
        if outcome.kind == "interrupted":
            return


def _end_with_parent() -> None:
    """When the parent is gone, save the run and end: nobody would know of this process."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
