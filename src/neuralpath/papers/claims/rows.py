"""The row of a claim, from the records of sweeps: the papers' figure, ours with its interval, the verdict and why."""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeVar, get_args

from neuralpath.papers.claims.estimates import Comparison, counted
from neuralpath.papers.experiments import Results, Sweep
from neuralpath.papers.runs import Store, Task, results_of, with_dependencies

Verdict = Literal["holds", "holds in part", "does not hold", "not tested here"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

SMOKE = "smoke"  # preset that tests the machinery on digits in seconds; no claim is checked against its runs
_FEW = 3  # comparisons that a cell lists one by one; more are summarized here and listed below the table

Kind = TypeVar("Kind", bound=Task)
Part = list[Comparison]  # a part of a claim: its comparisons in all settings that were run


@dataclass(frozen=True)
class SweepRecords:
    """A sweep, the results of its finished runs, and all its runs with those that they depend on."""

    sweep: Sweep
    results: Results
    tasks: tuple[Task, ...]

    @property
    def config(self) -> Any:
        """The settings of the sweep."""
        return self.sweep.config

    @property
    def progress(self) -> str:
        """Finished runs, such as ``12 of 89``."""
        return f"{sum(task in self.results for task in self.tasks)} of {len(self.tasks)}"

    def runs(self, kind: type[Kind], **fields: Any) -> Iterator[tuple[Kind, dict[str, Any]]]:
        """Finished runs of one type whose fields have these values."""
        for task, result in self.results.items():
            if isinstance(task, kind) and all(getattr(task, name) == value for name, value in fields.items()):
                yield task, result

    def by_seed(self, kind: type[Task], *entries: str, **fields: Any) -> dict[int, Any]:
        """Results of the same runs by seed, or one entry of them, such as ``"distance", "dependent"``."""
        values: dict[int, Any] = {task.seed: result for task, result in self.runs(kind, **fields)}  # type: ignore[attr-defined]
        for name in entries:
            values = {seed: value[name] for seed, value in values.items()}
        return values

    def values_of(self, kind: type[Task], name: str, **fields: Any) -> list[Any]:
        """The values of one field in the same runs, in rising order."""
        return sorted({getattr(task, name) for task, _ in self.runs(kind, **fields)})


@dataclass(frozen=True)
class Records:
    """All sweeps of a folder by the name of their experiment, and experiments that only have smoke runs."""

    sweeps: Mapping[str, tuple[SweepRecords, ...]]
    smoke_only: frozenset[str] = frozenset()

    def of(self, experiment: str) -> tuple[SweepRecords, ...]:
        """The sweeps of an experiment."""
        return self.sweeps.get(experiment, ())

    def n_missing(self, experiment: str) -> int:
        """Number of runs without a result; a run of several sweeps counts once."""
        return len({task for sweep in self.of(experiment) for task in sweep.tasks if task not in sweep.results})

    def is_finished(self, experiment: str) -> bool:
        """Whether the experiment was run and no run is missing."""
        return bool(self.of(experiment)) and not self.n_missing(experiment)


def read_records(sweeps: Sequence[Sweep], store: Store) -> Records:
    """Read the results of all sweeps of a folder from its store, apart from those that only test the machinery."""
    records: dict[str, tuple[SweepRecords, ...]] = {}
    for sweep in sweeps:
        if SMOKE not in (sweep.preset, sweep.experiment.preset_of(sweep.config)):
            tasks, name = with_dependencies(sweep.tasks), sweep.experiment.name
            records[name] = (*records.get(name, ()), SweepRecords(sweep, results_of(tasks, store), tasks))
    return Records(records, frozenset(sweep.experiment.name for sweep in sweeps).difference(records))


@dataclass(frozen=True)
class ClaimRow:
    """A claim of the papers and the result of checking it."""

    number: str  # such as ``C9``
    claim: str
    paper: str  # where the papers say it, and their figures; here and in the next two, one line for each part
    ours: str
    difference: str
    verdict: Verdict
    reason: str
    source: str = ""  # sections, tables and figures of the papers
    rule: str = ""  # for comparisons with runs, in words
    experiments: tuple[str, ...] = ()
    parts: Mapping[str, Sequence[Comparison]] | None = None  # the comparisons by the name of the part
    analysis: str = ""  # why ours differs, if it does: Markdown text, written by hand

    @property
    def comparisons(self) -> list[Comparison]:
        """All comparisons of all parts."""
        return [comparison for part in (self.parts or {}).values() for comparison in part]

    @property
    def differs(self) -> bool:
        """Whether a comparison contradicts the claim or is doubtful; then an analysis is due."""
        return any(comparison.is_doubtful or comparison.contradicts for comparison in self.comparisons)

    @property
    def is_exact(self) -> bool:
        """Whether the test suite alone verifies the claim, whatever was run."""
        return self.verdict == "holds" and not self.experiments


@cache
def claim_texts() -> dict[str, dict[str, Any]]:
    """The texts of all claims by number, from `claims.toml`."""
    return tomllib.loads(files("neuralpath.papers.claims").joinpath("claims.toml").read_text(encoding="utf-8"))


def claim(*names: str) -> Callable[[Callable[..., None]], Callable[[Records], ClaimRow]]:
    """Make the function that checks a claim from one, named by its number, that adds comparisons to each named part."""

    def decorate(compare: Callable[..., None]) -> Callable[[Records], ClaimRow]:
        def check(records: Records) -> ClaimRow:
            parts: dict[str, Part] = {name: [] for name in names}
            compare(records, *parts.values())
            return claim_row(compare.__name__.upper(), records, parts)

        return check

    return decorate


def claim_row(number: str, records: Records, comparisons: Mapping[str, Iterable[Comparison]]) -> ClaimRow:
    """Put the comparisons of a claim, by the name of the part, together: cells, verdict and reason."""
    texts = claim_texts()[number]
    exact, experiments = texts.get("exact", ""), tuple(texts.get("experiments", ()))
    # Of equal comparisons, from sweeps that overlap, one remains.
    parts = {name: tuple(dict.fromkeys(part)) for name, part in comparisons.items()}
    is_finished = all(map(records.is_finished, experiments))
    verdict = verdict_of(list(parts.values()), exact=bool(exact), is_finished=is_finished)
    reason = _reason(parts, records, texts)
    if verdict == "not tested here" and any(item.counts for part in parts.values() for item in part):
        reason = f"The comparisons contradict the claim; the missing ones could still support it. {reason}"

    def cell(column: str, *first: str) -> str:
        return "\n".join(filter(None, (*first, *(_cell(name, part, column) for name, part in parts.items()))))

    ours = cell("ours", f"verified by the test suite: {exact}" if exact else "") or "-"
    figures = (cell("paper", texts["source"], texts.get("printed", "")), ours, cell("difference") or "-")
    about = (texts["source"], texts.get("rule", ""), experiments)
    return ClaimRow(number, texts["claim"], *figures, verdict, reason, *about, parts)


def verdict_of(parts: Iterable[Sequence[Comparison]], *, exact: bool = False, is_finished: bool = True) -> Verdict:
    """The verdict from the comparisons of a claim's parts, by the rule at the head of `CLAIMS.md`.

    ``exact``: the test suite verifies a part of it; ``is_finished``: no run is missing.
    """
    by_part = [{comparison.outcome for comparison in part if comparison.counts} for part in parts]
    outcomes = set().union(*by_part, {"supports"} if exact else ())
    is_whole = is_finished and all(by_part)
    if "supports" in outcomes:
        is_doubtful = any(comparison.is_doubtful for part in parts for comparison in part)
        return "holds" if outcomes == {"supports"} and is_whole and not is_doubtful else "holds in part"
    return "does not hold" if outcomes and is_whole else "not tested here"


def _cell(name: str, part: Sequence[Comparison], column: str) -> str:
    """The text of one part in one column; many comparisons are summarized."""
    filled = [item for item in part if getattr(item, column)]
    if not filled:
        return ""
    if len(part) <= _FEW:
        figures = []
        for item in filled:
            mark = "; does not count" if item.excluded else f"; {item.outcome}"
            mark = mark if column == "ours" and not item.counts else ""
            figures.append(f"{getattr(item, column)} [{item.where}{mark}]")
        return f"{name}: {', '.join(figures)}"
    words = [_extent(part, column)]
    if column == "ours":
        n_counting, n_doubtful = (sum(getattr(item, name) for item in part) for name in ("counts", "is_doubtful"))
        n_supporting = n_counting - sum(item.contradicts for item in part)
        words.append(f"{n_supporting} of {n_counting} support it" if n_counting else f"none of {len(part)} counts")
        if n_counting and n_doubtful:
            words.append(f"{n_doubtful} doubtful")
        if n_counting and (others := len(part) - n_counting - n_doubtful):
            words.append(f"{others} more do not count")
    return f"{name}: {', '.join(filter(None, words))}" if any(words) else ""


def _extent(part: Sequence[Comparison], column: str) -> str:
    """The least and the largest figure in a column; empty if the units differ."""
    figures: list[tuple[float, str]] = []
    for item in part:
        ours, printed = item.value, item.printed
        difference = None if ours is None or printed is None else ours - printed
        figure = {"paper": printed, "ours": ours, "difference": difference}[column]
        figures += [] if figure is None else [(figure, item.unit)]
    units, numbers = {unit for _, unit in figures}, [figure for figure, _ in figures]
    return f"{units.pop()} {min(numbers):.3g} to {max(numbers):.3g}".strip() if len(units) == 1 else ""


def _reason(parts: Mapping[str, Sequence[Comparison]], records: Records, texts: Mapping[str, Any]) -> str:
    """Why the verdict is what it is: what contradicts the claim, what is inconclusive, what is missing."""
    sentences = ["Verified by the test suite."] if texts.get("exact") else []
    if counting := [item for part in parts.values() for item in part if item.counts]:
        n_supporting = sum(item.outcome == "supports" for item in counting)
        sentences.append(f"{n_supporting} of {counted(len(counting), 'comparison')} support it.")
    for name, part in parts.items():
        if against := [item.where for item in part if item.contradicts]:
            sentences.append(f"Contradicted, {name}: {_listed(against)}.")
        if doubts := [item.where for item in part if item.is_doubtful]:
            sentences.append(f"Doubtful, {name}: {_listed(doubts)}.")
    for name, part in parts.items():
        if not any(item.counts or item.is_doubtful for item in part):
            open_ones = [item.where for item in part if not item.excluded]
            reasons = [f"inconclusive ({_listed(open_ones)})"] if open_ones else []
            reasons += sorted({item.excluded for item in part if item.excluded})
            why = "; ".join(reasons) or texts.get("untested", {}).get(name) or "no finished runs for it"
            sentences.append(f"Not tested, {name}: {why}.")
    for name in texts.get("experiments", ()):
        if n_missing := records.n_missing(name):
            sentences.append(f"`{name}` is not finished: {counted(n_missing, 'run')} missing.")
        elif name in records.smoke_only:
            sentences.append(f"`{name}` was run only with the preset smoke, which does not count.")
        elif not records.of(name):
            sentences.append(f"`{name}` was not run.")
    return " ".join(sentences)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")
