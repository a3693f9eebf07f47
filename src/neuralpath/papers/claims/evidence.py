"""What there is to judge by: the sweeps of a folder with their results, and what is missing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from neuralpath.papers.claims.costs import Costs
from neuralpath.papers.experiments import NAMES, Results, Sweep, get
from neuralpath.papers.runs import Store, Work, results_of, with_needs

Kind = TypeVar("Kind", bound=Work)

MACHINERY = "smoke"
"""Sweeps of this preset try the machinery out, on digits in seconds; no claim is judged by them."""


@dataclass(frozen=True)
class Found:
    """A sweep and the results of its finished runs."""

    sweep: Sweep
    results: Results
    works: tuple[Work, ...]
    """All runs, what they need included."""

    @property
    def unfinished(self) -> tuple[Work, ...]:
        """Runs without a result."""
        return tuple(work for work in self.works if work not in self.results)


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

    def unfinished(self, name: str) -> tuple[Work, ...]:
        """Runs of an experiment that are asked for and not finished."""
        if not self.of(name):
            return self.not_begun[name].unfinished if name in self.not_begun else ()
        return tuple(dict.fromkeys(work for found in self.of(name) for work in found.unfinished))


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
    works = with_needs(sweep.works)
    return Found(sweep, results_of(works, store), works)


def runs(results: Results, kind: type[Kind], **wanted: Any) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """Finished runs of one kind whose fields have these values."""
    for work, result in results.items():
        if isinstance(work, kind) and all(getattr(work, name) == value for name, value in wanted.items()):
            yield work, result


def by_seed(results: Results, kind: type[Work], **wanted: Any) -> dict[int, dict[str, Any]]:
    """The same by their seed."""
    return {work.seed: result for work, result in runs(results, kind, **wanted)}  # type: ignore[attr-defined]


def values_of(results: Results, kind: type[Work], name: str, **wanted: Any) -> list[Any]:
    """The values that a field of the finished runs has, in rising order."""
    return sorted({getattr(work, name) for work, _ in runs(results, kind, **wanted)})
