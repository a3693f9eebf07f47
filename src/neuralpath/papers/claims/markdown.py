"""The page `CLAIMS.md`: the table, then for every claim its rule, its checks, the tests and the commands."""

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from neuralpath.papers.claims.analyses import analysis
from neuralpath.papers.claims.checks import Aspect, Check
from neuralpath.papers.claims.claim_verdict import VERDICTS
from neuralpath.papers.claims.evidence import Evidence
from neuralpath.papers.claims.judging import EXACT, Judged
from neuralpath.papers.claims.rules import (
    MARGIN,
    MIN_ORDERS,
    MIN_SEEDS,
    NAMED_DIFFERENCE,
    SIGMAS,
    SINGLE_SEED_ERROR,
    chance_of,
)
from neuralpath.papers.experiments import NAMES, Sweep, get

_WHERE_OPTIONS = ("--jobs", "--cluster", "--records", "--data-dir", "--out")


def claims_markdown(judged: Sequence[Judged], evidence: Evidence, analyses: Path | None = None) -> str:
    """The whole page; ``analyses`` is the folder of texts that are put under their claims."""
    checked = "; `make test` checks that it fits them" if _is_repository(analyses) else ""
    parts = [_HEAD.format(checked=checked), f"{summary(judged)}.\n", _table(judged), "## Claim by claim\n"]
    parts += [_section(one, evidence, analyses) for one in judged]
    parts += ["## What was run, and what was not\n", _left_out(evidence)]
    return "\n".join(parts)


_HEAD = f"""# What became of the papers' claims

This page is made from the records beside it by `neuralpath papers claims`{{checked}}.

Exact statements are settled by tests. Empirical ones are judged by runs, each by a rule that is fixed in
`src/neuralpath/papers/claims/` and printed below; bounds that the papers do not name were chosen here,
and `rules.py` says which. Accuracies are test accuracies in per cent, differences are in
points and paired by seed, ± is the standard error. The printed figures are those of the papers' networks, also where
ours are smaller.

- That one thing is above another, or above it by some points, is *yes* where the mean is above by {SIGMAS:g} standard
  errors, *no* where {SIGMAS:g} standard errors more would not bring it there (where no points are named: to the least
  difference worth naming, {NAMED_DIFFERENCE:g} points of accuracy, for all else 0), *doubtful* where it is below by
  {MARGIN:g} standard error, else *open*.
- That something lies within bounds is *yes* where the mean plus and minus {MARGIN:g} standard error does, *no* where
  the mean is outside by {SIGMAS:g} standard errors, *doubtful* where by {MARGIN:g}, else *open*.
- {SIGMAS:g} standard errors of {MIN_SEEDS} seeds are less than they sound: so few seeds tell their own spread badly.
  Where there is no difference, chance alone gives as much, up or down, in {100 * chance_of(SIGMAS, MIN_SEEDS):.1f} % of
  checks, with many seeds in {100 * chance_of(SIGMAS, 1000):.1f} %. Where the truth lies on a bound, a check says
  that it is within in {50 * chance_of(MARGIN, MIN_SEEDS):.0f} %. So one check proves little, and among the many
  of this page some are chance.
- With a single seed, as on CIFAR-10, the error of a difference is taken as {SINGLE_SEED_ERROR:g} points.
- Checks with fewer than {MIN_SEEDS} seeds (CIFAR-10 excepted, where the number is told) or {MIN_ORDERS} orders of gates
  are shown and do not decide.
- A claim **holds** if all its parts were checked, no run of its experiments is missing, all checks that decide say yes
  and none is doubtful. It **does not hold** if all its parts were checked, no run is missing and all that decide say
  no. It **holds in part** if some say yes, and others no, or some are doubtful, or something is missing. Else it is
  **not tested here**: no check decides, or those that do say no while something is missing that could say yes; then it
  says what speaks against the claim.
"""


def _is_repository(analyses: Path | None) -> bool:
    """Whether the page is the one that is kept in the repository, which a test compares with its records."""
    return analyses is not None and (analyses.parents[1] / "tests" / "papers" / "test_results.py").is_file()


def summary(judged: Sequence[Judged]) -> str:
    """How many claims have which verdict; those that tests settle, whatever was run, are counted apart."""
    n_by_tests = sum(one.by_tests for one in judged)
    counts = Counter(one.verdict for one in judged if not one.by_tests)
    by_runs = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    return f"{n_by_tests} hold by tests alone; of the other {len(judged) - n_by_tests}: {by_runs}"


def _table(judged: Sequence[Judged]) -> str:
    rows = [
        (row.number, row.claim, *map(_one_line, (row.paper, row.ours, row.difference)), f"**{row.verdict}**")
        for row in (one.row for one in judged)
    ]
    return table_markdown(("number", "claim", "paper", "ours", "difference", "verdict"), rows)


def _one_line(lines: str) -> str:
    return lines.replace("\n", "; ")


def table_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""A table; what would end a cell is written otherwise.

    >>> print(table_markdown(("a",), [("|x|",)]))
    | a |
    | --- |
    | \|x\| |
    <BLANKLINE>
    """
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |\n" for line in lines
    )


def _section(one: Judged, evidence: Evidence, analyses: Path | None) -> str:
    claim = one.claim
    lines = [f"### {claim.number}: {claim.text}", "", f"**{one.verdict}** ({claim.source}). {one.reason}", ""]
    if claim.rule:
        lines += [f"Rule: {claim.rule}", ""]
    if claim.exact is not None:
        lines += ["Tests:", "", *(f"- `{test}`" for test in claim.exact.tests), ""]
    if claim.experiments:
        lines += ["Runs:", "", *(f"- {line}" for line in runs_behind(claim.experiments, evidence)), ""]
    rows = [_row(aspect, check) for aspect in one.aspects if aspect.name != EXACT for check in aspect.checks]
    if rows:
        lines.append(table_markdown(("what", "where", "paper", "ours", "difference", "holds"), rows))
    text = analysis(claim.number, analyses)
    if text:
        lines += ["Why ours differs:", "", text, ""]
    return "\n".join(lines)


def _row(aspect: Aspect, check: Check) -> tuple[str, ...]:
    outcome = check.outcome if not check.aside else f"does not decide: {check.aside}"
    return aspect.name, check.where, check.paper or "-", check.ours, check.difference or "-", outcome


def runs_behind(experiments: Sequence[str], evidence: Evidence) -> list[str]:
    """The commands behind runs, without what is true of one machine only, and how many runs are finished."""
    lines = []
    for name in experiments:
        for found in evidence.of(name):
            done = f"{len(found.tasks) - len(found.unfinished)} of {len(found.tasks)} runs are finished"
            lines.append(f"{_origin(found.sweep)}: {done}, sweep `{found.sweep.name}`")
        if not evidence.of(name):
            aside = evidence.set_aside.get(name)
            which = "not run" if aside is None else f"not run, only the preset {aside}, which does not count"
            lines.append(f"`neuralpath papers run {name} --preset cpu --out runs`: {which}")
    return lines


def _origin(sweep: Sweep) -> str:
    """The command of a sweep; one that Python code has run with settings of its own has none."""
    if not sweep.command and not sweep.preset:
        return f"`{sweep.experiment.name}` with settings of its own, run from Python"
    return f"`{portable(sweep.command or f'neuralpath papers run {sweep.experiment.name} --preset {sweep.preset}')}`"


def portable(command: str) -> str:
    """A command with the output folder `runs`, and without options that depend on the machine.

    >>> portable("neuralpath papers run regimes --preset cpu --jobs 2 --out somewhere --data-dir=data")
    'neuralpath papers run regimes --preset cpu --out runs'
    """
    kept, words = [], iter(shlex.split(re.sub(r"^neuralpath (?=run )", "neuralpath papers ", command)))
    for word in words:
        option, _, value = word.partition("=")
        if option not in _WHERE_OPTIONS:
            kept.append(word)
        elif not value:
            next(words, None)
    return shlex.join([*kept, "--out", "runs"])


def _left_out(evidence: Evidence) -> str:
    rows = []
    for name in NAMES:
        whole = evidence.costs.of_paper(name)
        for found in evidence.of(name):
            sweep = found.sweep
            done = f"{len(found.tasks) - len(found.unfinished)} of {len(found.tasks)}"
            rows.append((name, sweep.preset or "-", done, _remaining(evidence, name), sweep.reduced or "-", whole))
        if not evidence.of(name):
            preset = f"{evidence.set_aside[name]} only" if name in evidence.set_aside else "not run"
            rows.append((name, preset, "-", _remaining(evidence, name), get(name).reduced.get("cpu", "-"), whole))
    columns = ("experiment", "preset", "runs finished", "the others would take", "how it is smaller than the papers'",
               "the papers' scale would take")  # fmt: skip
    note = "Times are estimates for one core of the machine that the runs ran on, from measured speeds.\n"
    return f"{note}\n{table_markdown(columns, rows)}"


def _remaining(evidence: Evidence, name: str) -> str:
    unfinished = evidence.unfinished(name)
    return evidence.costs.of(unfinished) if unfinished else "-"
