"""Many runs: each once, after its dependencies, by any number of processes."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuralpath.papers.runs.display import Display
from neuralpath.papers.runs.executors import DaskExecutor, Executor, InlineExecutor, Outcome, ProcessExecutor
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.task import RunError, Task, with_dependencies

_POLL = 0.5  # seconds between two looks at what other processes have done


def sweep_store(
    tasks: Sequence[Task],
    store: Store,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    retry_failed: bool = False,
    progress: bool | None = None,
    command: str = "",
) -> None:
    """Do runs in a store, in ``jobs`` processes of one thread (1: in this one), or on a Dask cluster that sees it.

    ``progress`` is as `Display` takes it; ``command`` is what the user has typed, for the provenance. Finished runs are
    kept, whatever ends the sweep: a `RunError` if the disk fails at once, or if runs fail after all others are done.
    """
    if jobs < 1:
        raise ValueError(f"`jobs` must be at least 1, got {jobs}.")
    store.make()
    tasks = with_dependencies(tasks)
    weights = _weights_to_read(tasks, store)
    state = _State()
    for task in tasks:
        if not store.is_finished(task, weights.get(task.name, ())):
            if not retry_failed and (error := store.failure(task)) is not None:
                state.failed[task.name] = error
            else:
                state.waiting[task.name] = task
    with Display(store, tasks, len(state.waiting), progress, n_failed=len(state.failed)) as display:
        executor: Executor
        if cluster is not None:
            executor = DaskExecutor(cluster, store, command)
        elif jobs == 1 or len(state.waiting) <= 1:
            executor = InlineExecutor(store, command)
        else:
            executor = ProcessExecutor(min(jobs, len(state.waiting)), store, command)
        try:
            state.drive(executor, display, weights)
        finally:
            executor.stop()
    lines = [f"{name}: {error}" for name, error in state.failed.items()]
    lines += [f"{name}: needs {cause}" for name, cause in state.blocked.items()]
    if lines:
        head = f"{len(lines)} of {len(tasks)} runs have failed; --retry-failed repeats them."
        raise RunError("\n  ".join([head, *lines]))


def results_of(tasks: Sequence[Task], store: Store) -> dict[Task, dict[str, Any]]:
    """Results of the finished tasks; damaged records count as missing."""
    return {task: result for task in tasks if (result := store.result(task)) is not None}


def problems_of(tasks: Sequence[Task], store: Store) -> list[str]:
    """What is damaged of runs that therefore count as unfinished; `sweep_store` repeats them.

    The weights of a finished run are checked only if an unfinished run will read them.
    """
    weights = _weights_to_read(tasks, store)
    unfinished = [task for task in tasks if not store.is_finished(task, weights.get(task.name, ()))]
    problems = (store.problem(task) for task in unfinished)
    return [f"{problem}: `neuralpath papers run` repeats the run" for problem in problems if problem is not None]


def _weights_to_read(tasks: Sequence[Task], store: Store) -> dict[str, tuple[str, ...]]:
    """For each run the weights that unfinished runs will read; only for these is a finished run repeated."""
    weights: dict[str, set[str]] = {}
    for task in reversed(tasks):  # dependencies come before what reads them
        if not store.is_finished(task, sorted(weights.get(task.name, ()))):
            for read in task.weights_read:
                weights.setdefault(read.task.name, set()).add(read.which)
    return {name: tuple(sorted(which)) for name, which in weights.items()}


@dataclass
class _State:
    """The unfinished runs of a sweep by name."""

    waiting: dict[str, Task] = field(default_factory=dict)
    running: dict[str, Task] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    """Runs that cannot begin because a dependency has failed, with its name."""
    busy: dict[str, float] = field(default_factory=dict)
    """When a run was last found to be done by another process."""

    def drive(self, executor: Executor, display: Display, weights: Mapping[str, tuple[str, ...]]) -> None:
        """Start runs and wait for them until none is left."""
        while self.waiting or self.running:
            self._block(display)
            for task in self._ready():
                if executor.n_free < 1:
                    break
                executor.start(task, weights.get(task.name, ()))
                self.running[task.name] = self.waiting.pop(task.name)
                display.started(task)
            for task, outcome in executor.wait(_POLL):
                del self.running[task.name]
                if outcome.kind == "busy":
                    self.waiting[task.name] = task
                    self.busy[task.name] = time.monotonic()
                    display.busy(task)
                    continue
                if outcome.kind == "unwritable":
                    raise RunError(f"{outcome.message}. Finished runs are kept; the same command resumes the sweep.")
                if outcome.kind == "interrupted":
                    raise KeyboardInterrupt
                if outcome.kind == "failed":
                    self.failed[task.name] = outcome.message
                display.ended(task, outcome)

    def _ready(self) -> list[Task]:
        """Runs whose dependencies are finished; those that another process was doing a moment ago come last."""
        unfinished, latest = self.waiting.keys() | self.running.keys(), time.monotonic() - _POLL
        ready = [
            task
            for name, task in self.waiting.items()
            if self.busy.get(name, 0.0) <= latest and unfinished.isdisjoint(need.name for need in task.dependencies)
        ]
        return sorted(ready, key=lambda task: self.busy.get(task.name, 0.0))

    def _block(self, display: Display) -> None:
        """Take out the runs with a failed dependency."""
        for name, task in tuple(self.waiting.items()):
            cause = next((need.name for need in task.dependencies if need.name in self.failed | self.blocked), None)
            if cause is not None:
                del self.waiting[name]
                self.blocked[name] = cause
                display.ended(task, Outcome("failed", f"it needs {cause}, which has failed"))
