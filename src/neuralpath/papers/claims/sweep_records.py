"""The records that claims are checked against: the sweeps of a folder with the results of their finished runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from neuralpath.papers.experiments import Results, Sweep
from neuralpath.papers.runs import Store, Task, results_of, with_dependencies

Kind = TypeVar("Kind", bound=Task)

SMOKE = "smoke"
"""Preset that tests the machinery on digits in seconds; no claim is checked against its runs."""


@dataclass(frozen=True)
class SweepRecords:
    """A sweep and the results of its finished runs."""

    sweep: Sweep
    results: Results
    tasks: tuple[Task, ...]
    """All runs, including those that other runs depend on."""

    @property
    def progress(self) -> str:
        """Finished runs, such as ``12 of 89``."""
        return f"{sum(task in self.results for task in self.tasks)} of {len(self.tasks)}"


@dataclass(frozen=True)
class Records:
    """All sweeps of a folder by the name of their experiment."""

    sweeps: Mapping[str, tuple[SweepRecords, ...]]
    smoke_only: frozenset[str] = frozenset()
    """Experiments that were run only with the preset ``smoke``, which does not count."""

    def of(self, experiment: str) -> tuple[SweepRecords, ...]:
        """The sweeps of an experiment."""
        return self.sweeps.get(experiment, ())

    def n_missing(self, experiment: str) -> int:
        """Number of runs without a result; a run of several sweeps counts once."""
        return len({task for one in self.of(experiment) for task in one.tasks if task not in one.results})

    def is_finished(self, experiment: str) -> bool:
        """Whether the experiment was run and no run is missing."""
        return bool(self.of(experiment)) and not self.n_missing(experiment)


def read_records(sweeps: Sequence[Sweep], store: Store) -> Records:
    """Read the results of all sweeps, apart from those that only test the machinery.

    Args:
        sweeps: The sweeps of a folder.
        store: The runs of the folder.
    """
    records: dict[str, list[SweepRecords]] = {}
    for sweep in sweeps:
        if SMOKE not in (sweep.preset, sweep.experiment.preset_of(sweep.config)):
            tasks = with_dependencies(sweep.tasks)
            one = SweepRecords(sweep, results_of(tasks, store), tasks)
            records.setdefault(sweep.experiment.name, []).append(one)
    smoke_only = frozenset(sweep.experiment.name for sweep in sweeps if sweep.experiment.name not in records)
    return Records({name: tuple(several) for name, several in records.items()}, smoke_only)


def runs(results: Results, kind: type[Kind], **fields: Any) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """Finished runs of one type whose fields have these values."""
    for task, result in results.items():
        if isinstance(task, kind) and all(getattr(task, name) == value for name, value in fields.items()):
            yield task, result


def by_seed(results: Results, kind: type[Task], **fields: Any) -> dict[int, dict[str, Any]]:
    """Results of the same runs by seed."""
    return {task.seed: result for task, result in runs(results, kind, **fields)}  # type: ignore[attr-defined]


def values_of(results: Results, kind: type[Task], name: str, **fields: Any) -> list[Any]:
    """The values of one field in these runs, in rising order."""
    return sorted({getattr(task, name) for task, _ in runs(results, kind, **fields)})
