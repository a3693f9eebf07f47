"""What there is to judge by: the sweeps of a folder with their results, and what is missing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from neuralpath.papers.claims.costs import Costs
from neuralpath.papers.experiments import NAMES, Results, Sweep, get
from neuralpath.papers.runs import Store, Task, results_of, with_dependencies

Kind = TypeVar("Kind", bound=Task)

MACHINERY = "smoke"
"""Sweeps of this preset try the machinery out, on digits in seconds; no claim is judged by them."""


@dataclass(frozen=True)
class Found:
    """A sweep and the results of its finished runs."""

    sweep: Sweep
    results: Results
    tasks: tuple[Task, ...]
    """All runs, what they need included."""

    @property
    def unfinished(self) -> tuple[Task, ...]:
        """Runs without a result."""
        return tuple(task for task in self.tasks if task not in self.results)


@dataclass(frozen=True)
class Evidence:
    """Sweeps by the name of their experiment, and what the experiments without one would need."""

    found: Mapping[str, tuple[Found, ...]]
    not_begun: Mapping[str, Found]
    """Where there is no sweep of an experiment: its preset `cpu`, by which nothing is judged."""
    costs: Costs
    set_aside: Mapping[str, str] = field(default_factory=dict)
    """Experiments of which there are only sweeps by which nothing is judged, with their preset."""

    def with_costs(self, costs: Costs) -> "Evidence":
        """The same with other costs."""
        return replace(self, costs=costs)

    def of(self, name: str) -> tuple[Found, ...]:
        """The sweeps of an experiment."""
        return self.found.get(name, ())

    def unfinished(self, name: str) -> tuple[Task, ...]:
        """Runs of an experiment that are asked for and not finished."""
        if not self.of(name):
            return self.not_begun[name].unfinished if name in self.not_begun else ()
        return tuple(dict.fromkeys(task for found in self.of(name) for task in found.unfinished))


def gather(sweeps: list[Sweep], store: Store, costs: Costs) -> Evidence:
    """Read the results of all sweeps; those that only try the machinery out are left aside."""
    found: dict[str, list[Found]] = {}
    for sweep in sweeps:
        if not _is_machinery(sweep):
            found.setdefault(sweep.experiment.name, []).append(_found(sweep, store))
    not_begun = {
        name: _found(Sweep(get(name), get(name).presets["cpu"], "cpu"), store) for name in NAMES if name not in found
    }
    set_aside = {sweep.experiment.name: MACHINERY for sweep in sweeps if sweep.experiment.name not in found}
    return Evidence({name: tuple(several) for name, several in found.items()}, not_begun, costs, set_aside)


def _is_machinery(sweep: Sweep) -> bool:
    """Whether a sweep only tries the machinery out, by its preset or by settings that are those of this preset."""
    return MACHINERY in (sweep.preset, sweep.experiment.preset_of(sweep.config))


def _found(sweep: Sweep, store: Store) -> Found:
    tasks = with_dependencies(sweep.tasks)
    return Found(sweep, results_of(tasks, store), tasks)


def runs(results: Results, kind: type[Kind], **wanted: Any) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """Finished runs of one kind whose fields have these values."""
    for task, result in results.items():
        if isinstance(task, kind) and all(getattr(task, name) == value for name, value in wanted.items()):
            yield task, result


def by_seed(results: Results, kind: type[Task], **wanted: Any) -> dict[int, dict[str, Any]]:
    """The same by their seed."""
    return {task.seed: result for task, result in runs(results, kind, **wanted)}  # type: ignore[attr-defined]


def values_of(results: Results, kind: type[Task], name: str, **wanted: Any) -> list[Any]:
    """The values that a field of the finished runs has, in rising order."""
    return sorted({getattr(task, name) for task, _ in runs(results, kind, **wanted)})
