"""Executors of runs: this process, several processes, or the workers of a Dask cluster."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from neuralpath._cluster import ClusterError, connect
from neuralpath.papers.runs.execution import Outcome, run_task
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.task import RunError, Task

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from distributed import Future

GRACE = 60.0
"""Seconds that a process gets to save its run when it is asked to stop."""

READY = "ready"
"""Message of a process that has been imported and serves."""


@runtime_checkable
class Executor(Protocol):
    """Starts runs and reports how they end."""

    @property
    def n_free(self) -> int:
        """How many more runs can be started now."""

    def start(self, task: Task, weights: tuple[str, ...]) -> None:
        """Start a run; ``weights`` are those that other runs will read."""

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        """The runs that have ended, after waiting for at most this many seconds."""

    def stop(self) -> None:
        """Ask the running tasks to save their state, and wait for them."""


class InlineExecutor:
    """One run after the other, in this process."""

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
        """As `Executor.wait`; this does the run."""
        if not self._waiting:
            time.sleep(seconds)
            return []
        task, weights = self._waiting.pop()
        return [(task, run_task(task, self._store, weights, self._command))]

    def stop(self) -> None:
        """As `Executor.stop`."""


class ProcessExecutor:
    """Several processes, each with one run at a time. A process that dies costs only its run, and is replaced."""

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
            except OSError:  # it has died while idle
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
                        f"{worker.exit_reason()} before it could begin. A script with a sweep in several processes "
                        'must call it under `if __name__ == "__main__":`, since each of them imports the script; '
                        "`jobs=1` needs no other process."
                    )
                outcome = Outcome("failed", worker.exit_reason())
                self._store.fail(task, outcome.message, "", {})
            assert isinstance(outcome, Outcome)
            yield task, outcome


class _Worker:
    """The parent's side of a process that does runs."""

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
        """The next message of the process: that it is ready, or how its run has ended; None if it has died."""
        try:
            message: Outcome | str = self.connection.recv()
        except (EOFError, OSError):
            return None
        if isinstance(message, Outcome):
            self.task = None
        else:
            self.has_begun = True
        return message

    def exit_reason(self) -> str:
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
    """The main loop of a process: do the runs that the parent sends."""
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
    """End when the parent is gone, after saving the run: nobody else knows of this process."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


_ONE_AT_A_TIME = threading.Lock()
"""In a worker: torch's number of threads belongs to the process, so a run that sets it would change the others."""


class DaskExecutor:
    """The workers of a Dask cluster that see the output folder and the data, each with one run at a time.

    A lost worker costs the steps since the last checkpoint: its lock is released, and the scheduler gives the run to
    another worker. Runs that workers are doing when a sweep is interrupted continue to their end.
    """

    def __init__(self, cluster: str, store: Store, command: str) -> None:
        records = tuple(folder.resolve() for folder in store.record_folders)
        self._store = Store(store.out.resolve(), records, _resolved(store.data_dir))
        self._command = command
        self._running: dict[Future[Outcome], Task] = {}
        try:
            self._client = connect(cluster)
        except ClusterError as error:
            raise RunError(str(error)) from error
        # A worker that is lost at this moment answers with an error, which says nothing about the folder.
        if any(sees is False for sees in self._client.run(_sees, store.out.resolve(), on_error="return").values()):
            self._client.close()
            raise RunError(
                f"some workers of the cluster do not see the folder {store.out.resolve()}: it must lie on a file "
                "system that all of them share."
            )

    @property
    def n_free(self) -> int:
        """As `Executor.n_free`."""
        return len(self._client.scheduler_info(n_workers=-1)["workers"]) - len(self._running)

    def start(self, task: Task, weights: tuple[str, ...]) -> None:
        """As `Executor.start`."""
        # Not pure: a busy run is submitted again, and must not get the outcome of before.
        future = self._client.submit(_run_alone, task, self._store, weights, self._command, key=None, pure=False)
        self._running[future] = task

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        """As `Executor.wait`."""
        from distributed import wait as wait_for

        if self._running:
            with self._client.as_current(), suppress(TimeoutError):
                wait_for(list(self._running), timeout=seconds, return_when="FIRST_COMPLETED")
        else:
            threading.Event().wait(seconds)
        return [(self._running.pop(future), _outcome(future)) for future in list(self._running) if future.done()]

    def stop(self) -> None:
        """As `Executor.stop`; runs that have not started are canceled."""
        self._client.cancel(list(self._running))
        self._client.close()


def _run_alone(task: Task, store: Store, weights: tuple[str, ...], command: str) -> Outcome:
    with _ONE_AT_A_TIME:
        return run_task(task, store, weights, command)


def _outcome(future: "Future[Outcome]") -> Outcome:
    if future.status == "finished":
        outcome: Outcome = future.result()
        return outcome
    return Outcome("failed", f"{type(future.exception()).__name__}: {future.exception()}")


def _sees(folder: Path) -> bool:
    return folder.is_dir()


def _resolved(path: Path | None) -> Path | None:
    return None if path is None else path.resolve()
