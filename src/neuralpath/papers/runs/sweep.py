"""Many runs: each once, after its dependencies, by any number of processes."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuralpath.papers.runs.display import Display
from neuralpath.papers.runs.execution import Outcome
from neuralpath.papers.runs.executors import DaskExecutor, Executor, InlineExecutor, ProcessExecutor
from neuralpath.papers.runs.records import DamagedRecord
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.task import RunError, Task, with_dependencies

_POLL = 0.5
"""Seconds between two looks at what other processes have done."""


class SweepFailed(RunError):
    """Runs have failed; ``failed`` has their errors by name."""

    def __init__(self, message: str, failed: Mapping[str, str]) -> None:
        super().__init__(message)
        self.failed = dict(failed)


class SweepInterrupted(KeyboardInterrupt):
    """A signal has stopped a sweep; the state of the running tasks is saved."""


@dataclass
class _State:
    """The runs of a sweep by their state."""

    tasks: tuple[Task, ...]
    weights: Mapping[str, tuple[str, ...]]
    """For each run the weights that unfinished runs will read."""
    waiting: dict[str, Task] = field(default_factory=dict)
    running: dict[str, Task] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    """Runs that cannot begin because a dependency has failed, with its name."""
    busy: dict[str, float] = field(default_factory=dict)
    """When a run was last found to be done by another process."""


def run_tasks(
    tasks: Sequence[Task],
    out: Path | str,
    *,
    jobs: int = 1,
    records: Path | None = None,
    data_dir: Path | None = None,
    cluster: str | None = None,
    retry_failed: bool = False,
    progress: bool | None = None,
    command: str = "",
) -> dict[Task, dict[str, Any]]:
    """Do runs and everything they depend on.

    Finished runs are not repeated, and interrupted runs are resumed. Several calls, in this process or in others, may
    use one output folder: each run is done by one of them.

    Args:
        tasks: The runs.
        out: The output folder; every run has a directory in it.
        jobs: Processes, each with one thread; 1 is this process.
        records: A folder of records in which finished runs count too.
        data_dir: Folder with the data sets.
        cluster: Address or scheduler file of a Dask cluster that sees the same ``out``; ``jobs`` is not used then.
        retry_failed: Repeat runs that have failed before.
        progress: Whether to show a live table; by default on a terminal, else plain lines.
        command: What the user has typed, for the provenance.

    Returns:
        The results of ``tasks``.

    Raises:
        RunError: If ``out`` cannot be written to, or the disk is full. Finished runs are kept.
        SweepFailed: If runs have failed, after all others are done.
        SweepInterrupted: On Ctrl-C or SIGTERM.
    """
    store = Store(Path(out), records, data_dir)
    sweep_store(tasks, store, jobs=jobs, cluster=cluster, retry_failed=retry_failed, progress=progress, command=command)
    return results_of(tasks, store)


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
    """Do runs in a store; arguments and errors are those of `run_tasks`."""
    if jobs < 1:
        raise ValueError(f"`jobs` must be at least 1, got {jobs}.")
    store.make()
    state = _make_state(with_dependencies(tasks), store, retry_failed)
    with Display(store, state.tasks, set(state.waiting), progress, n_failed=len(state.failed)) as display:
        executor = _make_executor(jobs, len(state.waiting), store, command, cluster)
        try:
            _drive(state, executor, display)
        except KeyboardInterrupt as error:
            raise SweepInterrupted("the sweep was interrupted; the same command resumes it.") from error
        finally:
            executor.stop()
    if state.failed or state.blocked:
        raise SweepFailed(_describe_failures(state), state.failed)


def results_of(tasks: Sequence[Task], store: Store) -> dict[Task, dict[str, Any]]:
    """Results of the finished tasks; damaged records count as missing."""
    results = {}
    for task in tasks:
        try:
            result = store.result(task)
        except DamagedRecord:
            result = None
        if result is not None:
            results[task] = result
    return results


def problems_of(tasks: Sequence[Task], store: Store) -> list[str]:
    """What is damaged of runs that therefore count as unfinished; `run_tasks` repeats them.

    Of weights, only those are checked that an unfinished run will read.
    """
    weights = _weights_to_read(tasks, store)
    unfinished = [task for task in tasks if not store.is_finished(task, weights.get(task.name, ()))]
    problems = (store.problem(task, weights.get(task.name, ())) for task in unfinished)
    return [f"{problem}: `neuralpath papers run` repeats the run" for problem in problems if problem is not None]


def _make_executor(jobs: int, n_runs: int, store: Store, command: str, cluster: str | None) -> Executor:
    if cluster is not None:
        return DaskExecutor(cluster, store, command)
    if jobs == 1 or n_runs <= 1:
        return InlineExecutor(store, command)
    return ProcessExecutor(min(jobs, n_runs), store, command)


def _make_state(tasks: tuple[Task, ...], store: Store, retry_failed: bool) -> _State:
    state = _State(tasks, _weights_to_read(tasks, store))
    for task in tasks:
        if store.is_finished(task, state.weights.get(task.name, ())):
            continue
        error = None if retry_failed else store.failure(task)
        if error is not None:
            state.failed[task.name] = error
        else:
            state.waiting[task.name] = task
    return state


def _weights_to_read(tasks: Sequence[Task], store: Store) -> dict[str, tuple[str, ...]]:
    """For each run the weights that unfinished runs will read; only for these is a finished run repeated."""
    weights: dict[str, set[str]] = {}
    for task in reversed(tasks):  # dependencies come before what reads them
        if not store.is_finished(task, sorted(weights.get(task.name, ()))):
            for read in task.weights_read:
                weights.setdefault(read.task.name, set()).add(read.which)
    return {name: tuple(sorted(which)) for name, which in weights.items()}


def _drive(state: _State, executor: Executor, display: Display) -> None:
    while state.waiting or state.running:
        _block(state, display)
        for task in _ready(state):
            if executor.n_free < 1:
                break
            executor.start(task, state.weights.get(task.name, ()))
            state.running[task.name] = state.waiting.pop(task.name)
            display.started(task)
        for task, outcome in executor.wait(_POLL):
            del state.running[task.name]
            _handle(state, task, outcome, display)


def _handle(state: _State, task: Task, outcome: Outcome, display: Display) -> None:
    if outcome.kind == "busy":
        state.waiting[task.name] = task
        state.busy[task.name] = time.monotonic()
        display.busy(task)
        return
    if outcome.kind == "unwritable":
        raise RunError(f"{outcome.message}. Finished runs are kept; the same command resumes the sweep.")
    if outcome.kind == "interrupted":
        raise KeyboardInterrupt
    if outcome.kind == "failed":
        state.failed[task.name] = outcome.message
    display.ended(task, outcome)


def _ready(state: _State) -> list[Task]:
    """Runs whose dependencies are finished; those that another process was doing a moment ago come last."""
    unfinished = state.waiting.keys() | state.running.keys()
    ready = [task for task in state.waiting.values() if not any(need.name in unfinished for need in task.dependencies)]
    now = time.monotonic()
    ready = [task for task in ready if now - state.busy.get(task.name, 0.0) >= _POLL]
    return sorted(ready, key=lambda task: state.busy.get(task.name, 0.0))


def _block(state: _State, display: Display) -> None:
    """Take out the runs with a failed dependency."""
    for task in tuple(state.waiting.values()):
        cause = next((need.name for need in task.dependencies if need.name in state.failed | state.blocked), None)
        if cause is not None:
            del state.waiting[task.name]
            state.blocked[task.name] = cause
            display.ended(task, Outcome("failed", f"it needs {cause}, which has failed"))


def _describe_failures(state: _State) -> str:
    lines = [f"{name}: {error}" for name, error in state.failed.items()]
    lines += [f"{name}: needs {cause}" for name, cause in state.blocked.items()]
    head = f"{len(lines)} of {len(state.tasks)} runs have failed; --retry-failed repeats them."
    return "\n  ".join([head, *lines])
