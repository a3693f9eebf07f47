"""A sweep: many runs, in the order that their needs ask for, each done once, by however many processes."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuralpath.papers.runs.display import Display
from neuralpath.papers.runs.execution import Outcome, is_finished
from neuralpath.papers.runs.executors import Executor, InlineExecutor, ProcessExecutor
from neuralpath.papers.runs.store import DamagedRecord, RunError, Store
from neuralpath.papers.runs.task import Task, with_dependencies

_POLL = 0.5  # seconds between two looks at what other processes have done


class SweepFailed(RunError):
    """Some runs have failed; ``failed`` has their errors by name."""

    def __init__(self, message: str, failed: Mapping[str, str]) -> None:
        super().__init__(message)
        self.failed = dict(failed)


class SweepInterrupted(KeyboardInterrupt):
    """A sweep was stopped by a signal; what was running is saved."""


@dataclass
class _State:
    """What is known of the runs of a sweep."""

    tasks: tuple[Task, ...]
    waiting: dict[str, Task] = field(default_factory=dict)
    running: dict[str, Task] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    """Runs that cannot begin because one that they need has failed; its name."""
    busy: dict[str, float] = field(default_factory=dict)
    """When runs that other processes do were last looked at."""


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
    """Do runs and all that they need; the results of ``tasks``.

    Finished runs are not repeated, interrupted ones go on where they were. Several calls, in this process or in others,
    may task on one output folder: each run is done by one of them.

    Args:
        tasks: The runs that are wanted.
        out: The output folder; every run has a directory in it.
        jobs: ProcessExecutor, each with one thread; 1 is this process.
        records: A folder of records in which finished runs count too.
        data_dir: Folder with the data sets.
        cluster: Address or scheduler file of a Dask cluster that sees the same ``out``; ``jobs`` is not used then.
        retry_failed: Do runs again that have failed before.
        progress: Whether to show a live table; by default on a terminal, else plain lines.
        command: What the user has typed, for the files that say how a run was made.

    Raises:
        RunError: If ``out`` cannot be written to, or the disk is full. What is finished is kept.
        SweepFailed: If runs have failed, after all others are done.
        SweepInterrupted: On Ctrl-C or SIGTERM.

    """
    if jobs < 1:
        raise ValueError(f"`jobs` must be at least 1, got {jobs}.")
    store = Store(Path(out), records, data_dir)
    store.make()
    state = _make_state(with_dependencies(tuple(tasks)), store, retry_failed)
    with Display(store, state.tasks, set(state.waiting), progress, n_failed=len(state.failed)) as display:
        executor = _make_executor(jobs, len(state.waiting), store, command, cluster)
        try:
            _drive(state, store, executor, display)
        except KeyboardInterrupt as error:
            raise SweepInterrupted("the sweep was interrupted; the same command goes on.") from error
        finally:
            executor.stop()
    if state.failed or state.blocked:
        raise SweepFailed(_describe_failures(state), state.failed)
    return results_of(tuple(tasks), store)


def results_of(tasks: tuple[Task, ...], store: Store) -> dict[Task, dict[str, Any]]:
    """Results of those tasks that are finished; damaged records count as none."""
    results = {}
    for task in tasks:
        try:
            result = store.result(task)
        except DamagedRecord:
            result = None
        if result is not None:
            results[task] = result
    return results


def problems_of(tasks: tuple[Task, ...], store: Store) -> list[str]:
    """What is damaged of the runs that are therefore not finished; `run_tasks` puts it aside and repeats them.

    Of weights, those are looked at that an unfinished run will read.
    """
    wanted = wanted_weights(tasks, store)
    waiting = [task for task in tasks if not is_finished(store, task, wanted.get(task.name, ()))]
    found = (store.problem(task, wanted.get(task.name, ())) for task in waiting)
    return [f"{problem}: `neuralpath papers run` repeats the run" for problem in found if problem is not None]


def _make_executor(jobs: int, n_runs: int, store: Store, command: str, cluster: str | None) -> Executor:
    if cluster is not None:
        from neuralpath.papers.runs.dask_executor import DaskExecutor

        return DaskExecutor(cluster, store, command)
    if jobs == 1 or n_runs <= 1:
        return InlineExecutor(store, command)
    return ProcessExecutor(min(jobs, n_runs), store, command)


def _make_state(tasks: tuple[Task, ...], store: Store, retry_failed: bool) -> _State:
    state = _State(tasks)
    wanted = wanted_weights(tasks, store)
    for task in tasks:
        if is_finished(store, task, wanted.get(task.name, ())):
            continue
        failure = None if retry_failed else store.failure(task)
        if failure is not None:
            state.failed[task.name] = failure["error"]
        else:
            state.waiting[task.name] = task
    return state


def wanted_weights(tasks: tuple[Task, ...], store: Store) -> dict[str, tuple[str, ...]]:
    """For every run the weights that unfinished runs will read; only for these is a finished run done again."""
    wanted: dict[str, set[str]] = {}
    for task in reversed(tasks):  # what is needed comes before what needs it
        if not is_finished(store, task, tuple(sorted(wanted.get(task.name, ())))):
            for weights in task.weights_read:
                wanted.setdefault(weights.work.name, set()).add(weights.which)
    return {name: tuple(sorted(which)) for name, which in wanted.items()}


def _drive(state: _State, store: Store, executor: Executor, display: Display) -> None:
    wanted = wanted_weights(state.tasks, store)
    while state.waiting or state.running:
        _block(state, display)
        for task in _ready(state):
            if executor.n_free < 1:
                break
            executor.start(task, wanted.get(task.name, ()))
            state.running[task.name] = state.waiting.pop(task.name)
            display.started(task)
        for task, outcome in executor.wait(_POLL):
            del state.running[task.name]
            _take(state, task, outcome, display)


def _take(state: _State, task: Task, outcome: Outcome, display: Display) -> None:
    if outcome.kind == "busy":
        state.waiting[task.name] = task
        state.busy[task.name] = time.monotonic()
        display.busy(task)
        return
    if outcome.kind == "unwritable":
        raise RunError(f"{outcome.message}. Finished runs are kept; the same command goes on.")
    if outcome.kind == "interrupted":
        raise KeyboardInterrupt
    if outcome.kind == "failed":
        state.failed[task.name] = outcome.message
    display.ended(task, outcome)


def _ready(state: _State) -> list[Task]:
    """Runs whose needs are finished; those that another process was doing a moment ago come last."""
    unfinished = state.waiting.keys() | state.running.keys()
    ready = [task for task in state.waiting.values() if not any(need.name in unfinished for need in task.dependencies)]
    now = time.monotonic()
    ready = [task for task in ready if now - state.busy.get(task.name, 0.0) >= _POLL]
    return sorted(ready, key=lambda task: state.busy.get(task.name, 0.0))


def _block(state: _State, display: Display) -> None:
    """Take out what needs a failed run."""
    for task in tuple(state.waiting.values()):
        cause = next((need.name for need in task.dependencies if need.name in state.failed | state.blocked), None)
        if cause is not None:
            del state.waiting[task.name]
            state.blocked[task.name] = cause
            display.ended(task, Outcome("failed", f"it needs {cause}, which has failed"))


def _describe_failures(state: _State) -> str:
    lines = [f"{name}: {error}" for name, error in state.failed.items()]
    lines += [f"{name}: needs {cause}" for name, cause in state.blocked.items()]
    return f"{len(lines)} of {len(state.tasks)} runs have failed; --retry-failed does them again.\n  " + "\n  ".join(
        lines
    )
