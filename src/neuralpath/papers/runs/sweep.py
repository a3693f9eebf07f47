"""A sweep: many runs, in the order that their needs ask for, each done once, by however many processes."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuralpath.papers.runs.display import Display
from neuralpath.papers.runs.executors import Executor, InThisProcess, Processes
from neuralpath.papers.runs.run_task import Outcome, is_finished
from neuralpath.papers.runs.store import DamagedRecord, RunError, Store
from neuralpath.papers.runs.work import Work, with_needs

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

    works: tuple[Work, ...]
    waiting: dict[str, Work] = field(default_factory=dict)
    running: dict[str, Work] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, str] = field(default_factory=dict)
    """Runs that cannot begin because one that they need has failed; its name."""
    busy: dict[str, float] = field(default_factory=dict)
    """When runs that other processes do were last looked at."""


def perform(
    works: Sequence[Work],
    out: Path | str,
    *,
    jobs: int = 1,
    records: Path | None = None,
    data_dir: Path | None = None,
    cluster: str | None = None,
    retry_failed: bool = False,
    progress: bool | None = None,
    command: str = "",
) -> dict[Work, dict[str, Any]]:
    """Do runs and all that they need; the results of ``works``.

    Finished runs are not repeated, interrupted ones go on where they were. Several calls, in this process or in others,
    may work on one output folder: each run is done by one of them.

    Args:
        works: The runs that are wanted.
        out: The output folder; every run has a directory in it.
        jobs: Processes, each with one thread; 1 is this process.
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
    state = _make_state(with_needs(tuple(works)), store, retry_failed)
    with Display(store, state.works, set(state.waiting), progress, n_failed=len(state.failed)) as display:
        executor = _make_executor(jobs, len(state.waiting), store, command, cluster)
        try:
            _drive(state, store, executor, display)
        except KeyboardInterrupt as error:
            raise SweepInterrupted("the sweep was interrupted; the same command goes on.") from error
        finally:
            executor.stop()
    if state.failed or state.blocked:
        raise SweepFailed(_describe_failures(state), state.failed)
    return results_of(tuple(works), store)


def results_of(works: tuple[Work, ...], store: Store) -> dict[Work, dict[str, Any]]:
    """Results of those works that are finished; damaged records count as none."""
    results = {}
    for work in works:
        try:
            result = store.result(work)
        except DamagedRecord:
            result = None
        if result is not None:
            results[work] = result
    return results


def problems_of(works: tuple[Work, ...], store: Store) -> list[str]:
    """What is damaged of the runs that are therefore not finished; `perform` puts it aside and repeats them.

    Of weights, those are looked at that an unfinished run will read.
    """
    wanted = wanted_weights(works, store)
    waiting = [work for work in works if not is_finished(store, work, wanted.get(work.name, ()))]
    found = (store.problem(work, wanted.get(work.name, ())) for work in waiting)
    return [f"{problem}: `neuralpath run` repeats the run" for problem in found if problem is not None]


def _make_executor(jobs: int, n_runs: int, store: Store, command: str, cluster: str | None) -> Executor:
    if cluster is not None:
        from neuralpath.papers.runs.on_dask import OnDask

        return OnDask(cluster, store, command)
    if jobs == 1 or n_runs <= 1:
        return InThisProcess(store, command)
    return Processes(min(jobs, n_runs), store, command)


def _make_state(works: tuple[Work, ...], store: Store, retry_failed: bool) -> _State:
    state = _State(works)
    wanted = wanted_weights(works, store)
    for work in works:
        if is_finished(store, work, wanted.get(work.name, ())):
            continue
        failure = None if retry_failed else store.failure(work)
        if failure is not None:
            state.failed[work.name] = failure["error"]
        else:
            state.waiting[work.name] = work
    return state


def wanted_weights(works: tuple[Work, ...], store: Store) -> dict[str, tuple[str, ...]]:
    """For every run the weights that unfinished runs will read; only for these is a finished run done again."""
    wanted: dict[str, set[str]] = {}
    for work in reversed(works):  # what is needed comes before what needs it
        if not is_finished(store, work, tuple(sorted(wanted.get(work.name, ())))):
            for weights in work.weights_read:
                wanted.setdefault(weights.work.name, set()).add(weights.which)
    return {name: tuple(sorted(which)) for name, which in wanted.items()}


def _drive(state: _State, store: Store, executor: Executor, display: Display) -> None:
    wanted = wanted_weights(state.works, store)
    while state.waiting or state.running:
        _block(state, display)
        for work in _ready(state):
            if executor.n_free < 1:
                break
            executor.start(work, wanted.get(work.name, ()))
            state.running[work.name] = state.waiting.pop(work.name)
            display.started(work)
        for work, outcome in executor.wait(_POLL):
            del state.running[work.name]
            _take(state, work, outcome, display)


def _take(state: _State, work: Work, outcome: Outcome, display: Display) -> None:
    if outcome.kind == "busy":
        state.waiting[work.name] = work
        state.busy[work.name] = time.monotonic()
        display.busy(work)
        return
    if outcome.kind == "unwritable":
        raise RunError(f"{outcome.message}. Finished runs are kept; the same command goes on.")
    if outcome.kind == "interrupted":
        raise KeyboardInterrupt
    if outcome.kind == "failed":
        state.failed[work.name] = outcome.message
    display.ended(work, outcome)


def _ready(state: _State) -> list[Work]:
    """Runs whose needs are finished; those that another process was doing a moment ago come last."""
    unfinished = state.waiting.keys() | state.running.keys()
    ready = [work for work in state.waiting.values() if not any(need.name in unfinished for need in work.needs)]
    now = time.monotonic()
    ready = [work for work in ready if now - state.busy.get(work.name, 0.0) >= _POLL]
    return sorted(ready, key=lambda work: state.busy.get(work.name, 0.0))


def _block(state: _State, display: Display) -> None:
    """Take out what needs a failed run."""
    for work in tuple(state.waiting.values()):
        cause = next((need.name for need in work.needs if need.name in state.failed | state.blocked), None)
        if cause is not None:
            del state.waiting[work.name]
            state.blocked[work.name] = cause
            display.ended(work, Outcome("failed", f"it needs {cause}, which has failed"))


def _describe_failures(state: _State) -> str:
    lines = [f"{name}: {error}" for name, error in state.failed.items()]
    lines += [f"{name}: needs {cause}" for name, cause in state.blocked.items()]
    return f"{len(lines)} of {len(state.works)} runs have failed; --retry-failed does them again.\n  " + "\n  ".join(
        lines
    )
