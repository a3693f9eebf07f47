"""Runs on a Dask cluster whose workers see the output folder and the data."""

import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from neuralpath._cluster import ClusterError, connect
from neuralpath.papers.runs.execution import Outcome, run_task
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.task import RunError, Task

if TYPE_CHECKING:
    from distributed import Future

_ONE_AT_A_TIME = threading.Lock()
"""In a worker: the number of torch's threads belongs to the process, and a run that changed it would change others."""


class DaskExecutor:
    """One task for each run, as many at a time as there are workers.

    A worker that is lost costs the steps since the last checkpoint: its lock goes with it, and the scheduler gives the
    run to another one. Runs that workers are doing when a sweep is interrupted go on to their end by themselves.
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
        # A worker that is lost at this moment answers with an error, which is no answer about the folder.
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
        # Not pure: a run that was busy is asked for again, and must not be answered with the outcome of before.
        future = self._client.submit(_execute, task, self._store, weights, self._command, key=None, pure=False)
        self._running[future] = task

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        """As `Executor.wait`."""
        from distributed import wait

        if self._running:
            with self._client.as_current(), suppress(TimeoutError):
                wait(list(self._running), timeout=seconds, return_when="FIRST_COMPLETED")
        else:
            threading.Event().wait(seconds)
        return [(self._running.pop(future), _outcome(future)) for future in list(self._running) if future.done()]

    def stop(self) -> None:
        """As `Executor.stop`: runs that have not begun are taken back."""
        self._client.cancel(list(self._running))
        self._client.close()


def _execute(task: Task, store: Store, weights: tuple[str, ...], command: str) -> Outcome:
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
