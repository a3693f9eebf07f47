"""The contents of the page: the sweeps of a folder, the status of their runs, and their tables and figures."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

from neuralpath.papers.experiments import DataSpec, HeatMaps, MisfitResults, SummaryItem, Sweep, read_sweeps
from neuralpath.papers.runs import Store, Task, problems_of, read_metrics, with_dependencies

State = Literal["finished", "failed", "begun", "not begun", "damaged"]
Versions = tuple[tuple[str, str], ...]  # names of packages with their versions


@dataclass(frozen=True)
class RunStatus:
    """One run: its progress, and how and when it was done."""

    task: Task
    state: State
    n_steps: int  # that are done
    about: Mapping[str, Any]  # start, command, seconds and versions; empty if the run is not finished
    error: str = ""
    headline: str = ""  # the result of a training run in a few words


@dataclass(frozen=True)
class SweepContents:
    """A sweep, its runs with their dependencies, and the tables and figures of the finished ones."""

    sweep: Sweep
    runs: tuple[RunStatus, ...]
    summary: tuple[SummaryItem, ...]

    @property
    def n_finished(self) -> int:
        """Number of finished runs."""
        return sum(run.state == "finished" for run in self.runs)


@dataclass(frozen=True)
class Contents:
    """All sweeps of a folder, and messages about unreadable files."""

    sweeps: tuple[SweepContents, ...]
    problems: tuple[str, ...]

    @property
    def runs(self) -> list[RunStatus]:
        """The runs of all sweeps, each once."""
        return list({run.task.name: run for sweep in self.sweeps for run in sweep.runs}.values())

    @property
    def versions(self) -> dict[Versions, int]:
        """The sets of package versions that runs were done with, and how many runs each, the most used first."""
        return dict(Counter(versions_of(run.about) for run in self.runs if run.about).most_common())


def versions_of(about: Mapping[str, Any]) -> Versions:
    """Package versions of a run, in the order of the names, Python's first."""
    return (("python", str(about.get("python", "?"))), *sorted(dict(about.get("versions", {})).items()))


def read_contents(store: Store) -> Contents:
    """Read the sweeps of the store's folder; a folder without any is refused."""
    sweeps, problems = read_sweeps(store.out)
    tasks = with_dependencies(tuple(task for sweep in sweeps for task in sweep.tasks))
    problems += problems_of(tasks, store)
    contents = []
    for sweep in sweeps:
        runs = tuple(_state(task, store) for task in with_dependencies(sweep.tasks))
        try:
            summary = tuple(_with_classes(item, sweep.config) for item in sweep.summary(store))
        except MisfitResults as error:
            problems.append(str(error))
            summary = ()
        contents.append(SweepContents(sweep, runs, summary))
    return Contents(tuple(contents), tuple(problems))


def settings_of(task: Any) -> dict[str, Any]:
    """The settings of a run as plain values; other runs among them by their names, since they have their own entry."""
    return {field.name: _plain(getattr(task, field.name)) for field in fields(task)}


def _with_classes(item: SummaryItem, config: Any) -> SummaryItem:
    """Rows of a two-class task by the names of its classes; the labels in its records are -1 and 1."""
    data = getattr(config, "data", None)
    if not isinstance(item, HeatMaps) or item.classes is None or not isinstance(data, DataSpec) or data.classes is None:
        return item
    negative, positive = data.classes
    return replace(item, classes=tuple(positive if sign > 0 else negative for sign in item.classes))


def _plain(value: Any) -> Any:
    if isinstance(value, Task):
        return value.name
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **settings_of(value)}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return value


def _state(task: Task, store: Store) -> RunStatus:
    record = store.record(task)
    if record is not None:
        best = (record["result"] or {}).get("best")
        accuracy = best.get("test_accuracy") if isinstance(best, dict) else None
        headline = f"{100 * accuracy:.2f} %" if isinstance(accuracy, float) else ""
        return RunStatus(task, "finished", task.n_steps, record["provenance"], headline=headline)
    n_steps = len(read_metrics(store.folder(task)))
    if (failure := store.failure(task)) is not None:
        return RunStatus(task, "failed", n_steps, {}, error=failure)
    is_damaged = store.problem(task) is not None
    return RunStatus(task, "damaged" if is_damaged else "begun" if n_steps else "not begun", n_steps, {})
