"""From the results of runs that differ in the seed to cells and curves; what is not finished is left out."""

from collections.abc import Iterable, Mapping, Sequence

from neuralpath.papers.experiments.experiment import Results
from neuralpath.papers.experiments.statistics import Spread
from neuralpath.papers.experiments.summary_items import Curve
from neuralpath.papers.runs import Task


def spread(values: Iterable[float | None], decimals: int | None = None) -> Spread | None:
    """Mean and spread of the values that are there, shown with so many decimals; None where there are none."""
    known = [value for value in values if value is not None]
    return Spread.of(known, decimals) if known else None


def mean_curve(name: str, runs: Sequence[Mapping[float, float | None]]) -> Curve | None:
    """The mean of several runs against x, with its deviation; points that only some runs have count as they are."""
    points = {x: spread(run.get(x) for run in runs) for x in sorted({x for run in runs for x in run})}
    known = {x: point for x, point in points.items() if point is not None}
    if not known:
        return None
    several = all(point.deviation is not None for point in known.values())
    deviation = tuple(point.deviation or 0.0 for point in known.values()) if several else None
    return Curve(name, tuple(known), tuple(point.mean for point in known.values()), deviation)


def curves(named: Mapping[str, Sequence[Mapping[float, float | None]]]) -> tuple[Curve, ...]:
    """A mean curve for each name that has a finished run."""
    drawn = (mean_curve(name, runs) for name, runs in named.items())
    return tuple(curve for curve in drawn if curve is not None)


def finished(tasks: Sequence[Task], results: Results) -> str:
    """How many of the runs are there, for the note under a table."""
    done = sum(task in results for task in tasks)
    return f"{done} of {len(tasks)} runs are finished."
