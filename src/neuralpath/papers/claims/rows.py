"""The row of a claim: the papers' figure, ours with its interval, the verdict and the reason for it."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from neuralpath.papers.claims.estimates import Comparison, counted
from neuralpath.papers.claims.sweep_records import Records

Verdict = Literal["holds", "holds in part", "does not hold", "not tested here"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

_FEW = 3
"""Comparisons that a cell lists one by one; more are summarized here and listed below the table."""

Parts = Mapping[str, Sequence[Comparison]]
"""The parts of a claim by name, each with its comparisons in all settings that were run."""


@dataclass(frozen=True)
class ClaimRow:
    """A claim of the papers and the result of checking it."""

    number: str
    """Such as ``C9``."""
    claim: str
    paper: str
    """Where the papers say it, and their figures; in this and the next two fields one line for each part."""
    ours: str
    difference: str
    verdict: Verdict
    reason: str
    source: str = ""
    """Sections, tables and figures of the papers."""
    rule: str = ""
    """The rule for comparisons with runs, in words."""
    experiments: tuple[str, ...] = ()
    parts: Parts | None = None
    analysis: str = ""
    """Why ours differs, if it does: Markdown text, written by hand."""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"`verdict` of {self.number} must be one of {', '.join(VERDICTS)}; got {self.verdict!r}.")

    @property
    def comparisons(self) -> list[Comparison]:
        """All comparisons of all parts."""
        return [one for part in (self.parts or {}).values() for one in part]

    @property
    def differs(self) -> bool:
        """Whether a comparison contradicts the claim or is doubtful; then an analysis is due."""
        return any(one.is_doubtful or (one.counts and one.outcome == "contradicts") for one in self.comparisons)

    @property
    def is_exact(self) -> bool:
        """Whether the test suite alone verifies the claim, whatever was run."""
        return self.verdict == "holds" and not self.experiments


def claim_row(
    number: str,
    records: Records,
    parts: Mapping[str, Iterable[Comparison]],
    *,
    untested: Mapping[str, str] | None = None,
) -> ClaimRow:
    """Put the comparisons of a claim together: cells, verdict and reason.

    Args:
        number: Number of the claim in `claims.toml`, which holds its texts.
        records: The records that the comparisons were made with.
        parts: Comparisons by the name of the part of the claim. Sweeps that overlap give the same comparison twice;
            one of them is kept.
        untested: For a part without comparisons: why, if the reason is not that runs are missing.
    """
    texts = claim_texts()[number]
    exact, experiments = texts.get("exact", ""), tuple(texts.get("experiments", ()))
    unique = {name: tuple(dict.fromkeys(several)) for name, several in parts.items()}
    is_finished = all(map(records.is_finished, experiments))
    verdict = verdict_of(list(unique.values()), exact=bool(exact), is_finished=is_finished)
    reason = _reason(unique, exact, records, experiments, untested or {})
    if verdict == "not tested here" and any(one.counts for part in unique.values() for one in part):
        reason = f"The comparisons contradict the claim; the missing ones could still support it. {reason}"

    def cell(column: str, *first: str) -> str:
        return "\n".join(filter(None, (*first, *(_cell(name, part, column) for name, part in unique.items()))))

    return ClaimRow(
        number,
        texts["claim"],
        paper=cell("paper", texts["source"], texts.get("printed", "")),
        ours=cell("ours", f"verified by the test suite: {exact}" if exact else "") or "-",
        difference=cell("difference") or "-",
        verdict=verdict,
        reason=reason,
        source=texts["source"],
        rule=texts.get("rule", ""),
        experiments=experiments,
        parts=unique,
    )


@cache
def claim_texts() -> dict[str, dict[str, Any]]:
    """The texts of all claims by number, from `claims.toml`."""
    return tomllib.loads(files("neuralpath.papers.claims").joinpath("claims.toml").read_text(encoding="utf-8"))


def verdict_of(parts: Iterable[Sequence[Comparison]], *, exact: bool = False, is_finished: bool = True) -> Verdict:
    """The verdict on a claim.

    Args:
        parts: The comparisons of each part of the claim.
        exact: Whether the test suite verifies a part of the claim.
        is_finished: Whether no run of the claim's experiments is missing.

    Returns:
        ``holds``: every part has a comparison that counts, no run is missing, all that count support the claim and none
        is doubtful. ``does not hold``: the same, but all contradict it. ``holds in part``: some support it, and others
        contradict it, are doubtful or missing. Otherwise ``not tested here``, also if all that count contradict the
        claim while something is missing that could support it.
    """
    outcomes = [{one.outcome for one in part if one.counts} for part in parts]
    found = {outcome for part in outcomes for outcome in part} | ({"supports"} if exact else set())
    is_whole = is_finished and all(outcomes)
    if "supports" in found:
        is_doubtful = any(one.is_doubtful for part in parts for one in part)
        return "holds" if found == {"supports"} and is_whole and not is_doubtful else "holds in part"
    return "does not hold" if found and is_whole else "not tested here"


def _cell(name: str, part: Sequence[Comparison], column: str) -> str:
    """The text of one part in one column; many comparisons are summarized."""
    filled = [one for one in part if getattr(one, column)]
    if not filled:
        return ""
    if len(part) <= _FEW:
        entries = (f"{getattr(one, column)} [{one.where}{_standing(one, column)}]" for one in filled)
        return f"{name}: {', '.join(entries)}"
    extent = _extent(part, column)
    if column != "ours":
        return f"{name}: {extent}" if extent else ""
    n_counting = sum(one.counts for one in part)
    n_doubtful = sum(one.is_doubtful for one in part)
    n_supporting = sum(one.counts and one.outcome == "supports" for one in part)
    words = [f"{n_supporting} of {n_counting} support it" if n_counting else f"none of {len(part)} counts"]
    if n_counting and n_doubtful:
        words.append(f"{n_doubtful} doubtful")
    if n_counting and (others := len(part) - n_counting - n_doubtful):
        words.append(f"{others} more do not count")
    return f"{name}: {', '.join(filter(None, (extent, *words)))}"


def _standing(one: Comparison, column: str) -> str:
    """Mark a figure of ours that neither supports nor contradicts the claim."""
    if column != "ours" or one.counts:
        return ""
    return "; does not count" if one.excluded else f"; {one.outcome}"


def _extent(part: Sequence[Comparison], column: str) -> str:
    """The least and the largest figure in a column; empty if the units differ."""
    numbers = [(figure, one.unit) for one in part if (figure := _figure(one, column)) is not None]
    units = {unit for _, unit in numbers}
    if len(units) != 1:
        return ""
    least, most = (choose(figure for figure, _ in numbers) for choose in (min, max))
    return f"{units.pop()} {least:.3g} to {most:.3g}".strip()


def _figure(one: Comparison, column: str) -> float | None:
    if column != "difference":
        return one.value if column == "ours" else one.printed
    return None if one.value is None or one.printed is None else one.value - one.printed


def _reason(parts: Parts, exact: str, records: Records, experiments: Sequence[str], untested: Mapping[str, str]) -> str:
    """Why the verdict is what it is: what contradicts the claim, what is inconclusive, what is missing."""
    sentences = ["Verified by the test suite."] if exact else []
    if counting := [one for part in parts.values() for one in part if one.counts]:
        n_supporting = sum(one.outcome == "supports" for one in counting)
        sentences.append(f"{n_supporting} of {counted(len(counting), 'comparison')} support it.")
    for name, part in parts.items():
        if against := [one.where for one in part if one.counts and one.outcome == "contradicts"]:
            sentences.append(f"Contradicted, {name}: {_listed(against)}.")
        if doubts := [one.where for one in part if one.is_doubtful]:
            sentences.append(f"Doubtful, {name}: {_listed(doubts)}.")
    for name, part in parts.items():
        if not any(one.counts or one.is_doubtful for one in part):
            open_ones = [one.where for one in part if not one.excluded]
            reasons = [f"inconclusive ({_listed(open_ones)})"] if open_ones else []
            reasons += sorted({one.excluded for one in part if one.excluded})
            why = "; ".join(reasons) or untested.get(name) or "no finished runs for it"
            sentences.append(f"Not tested, {name}: {why}.")
    for name in experiments:
        if n_missing := records.n_missing(name):
            sentences.append(f"`{name}` is not finished: {counted(n_missing, 'run')} missing.")
        elif name in records.smoke_only:
            sentences.append(f"`{name}` was run only with the preset smoke, which does not count.")
        elif not records.of(name):
            sentences.append(f"`{name}` was not run.")
    return " ".join(sentences)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")
