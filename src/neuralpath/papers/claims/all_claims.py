"""All claims: checked against the records of a folder, and written as the page `CLAIMS.md`."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from neuralpath.papers.claims import accuracy_claims, fitting_claims, kernel_claims
from neuralpath.papers.claims.bounds import MARGIN, MIN_ORDERS, MIN_SEEDS, NAMED_DIFFERENCE, SIGMAS, SINGLE_SEED_ERROR
from neuralpath.papers.claims.estimates import false_alarms
from neuralpath.papers.claims.rows import VERDICTS, ClaimRow, Records, claim_row, claim_texts
from neuralpath.papers.experiments import NAMES, fitting_results, get

ANALYSES = "analyses"  # folder of hand-written texts, a Markdown file for each claim that our figures do not confirm

# By number, a function that takes the records and returns the row of an empirical claim
CLAIMS: dict[str, Callable[[Records], ClaimRow]] = {
    name.upper(): value
    for module in (accuracy_claims, fitting_claims, kernel_claims)
    for name, value in vars(module).items()
    if re.fullmatch(r"c\d+", name)
}

_LOCAL_OPTIONS = ("--jobs", "--cluster", "--records", "--data-dir", "--out")  # these depend on the machine

_HEAD = f"""# The claims of the papers, checked

`neuralpath papers claims` makes this page from the records beside it.

The test suite verifies exact claims. Empirical claims are compared with runs, each by a rule that is fixed in
`src/neuralpath/papers/claims/` and printed below; `bounds.py` there says which bounds the papers do not name and
were chosen here. Accuracies are test accuracies in per cent, differences are in points and paired by seed. Brackets
hold 95 % confidence intervals over seeds, by Student's t. The printed figures are those of the papers' networks,
also where ours are smaller.

- "Above", or "above by some points", is *supported* if the mean is above by {SIGMAS:g} standard errors,
  *contradicted* if {SIGMAS:g} standard errors more would not bring it there (if no points are named: to the least
  difference worth naming, {NAMED_DIFFERENCE:g} points of accuracy, for all else 0), *doubtful* if it is below by
  {MARGIN:g} standard error, and *inconclusive* otherwise.
- "Within bounds" is *supported* if the mean plus and minus {MARGIN:g} standard error is inside, *contradicted* if
  the mean is outside by {SIGMAS:g} standard errors, *doubtful* if by {MARGIN:g}, and *inconclusive* otherwise.
- {SIGMAS:g} standard errors of {MIN_SEEDS} seeds are weaker than they sound, because few seeds estimate their own
  spread badly. Without any difference, randomness alone exceeds them in {100 * false_alarms(SIGMAS, MIN_SEEDS):.1f}
  % of comparisons, with many seeds in {100 * false_alarms(SIGMAS, 1000):.1f} %. If the truth lies on a bound, a
  comparison is supported in {50 * false_alarms(MARGIN, MIN_SEEDS):.0f} % of cases. One comparison proves little,
  and among the many of this page some outcomes are random.
- With a single seed, as on CIFAR-10, the standard error of a difference is taken as {SINGLE_SEED_ERROR:g} points.
- Comparisons with fewer than {MIN_SEEDS} seeds (except on CIFAR-10, where the number is printed) or {MIN_ORDERS}
  orders of gates do not count.
- A claim **holds** if all its parts have comparisons that count, no run of its experiments is missing, all
  comparisons that count support it and none is doubtful. It **does not hold** if all parts have comparisons, no run
  is missing and all that count contradict it. It **holds in part** if some support it while others contradict it,
  are doubtful or are missing. Otherwise it is **not tested here**: nothing counts, or all that counts contradicts
  the claim while something is missing that could support it.
"""


def check_claim(number: str, records: Records) -> ClaimRow:
    """Check one claim, such as ``C9``; the test suite alone verifies those that are not among `CLAIMS`."""
    return CLAIMS[number](records) if number in CLAIMS else claim_row(number, records, {})


def check_claims(records: Records, analyses: Path | None = None) -> tuple[ClaimRow, ...]:
    """Check every claim of the papers, and add the hand-written analyses of a folder to the rows."""
    with fitting_results("the claims are not checked"):
        rows = [check_claim(number, records) for number in claim_texts()]
    paths = () if analyses is None else analyses.glob("*.md")
    texts = {path.stem: path.read_text("utf-8", "replace") for path in paths}
    return tuple(replace(row, analysis=texts.get(row.number, "").strip()) for row in rows)


def claims_markdown(rows: Sequence[ClaimRow], records: Records) -> str:
    """The whole page, from the rows of all claims and the records that they were checked against."""
    columns = ("number", "claim", "paper", "ours", "difference", "verdict")
    cells = []
    for row in rows:
        figures = (cell.replace("\n", "; ") for cell in (row.paper, row.ours, row.difference))
        cells.append((row.number, row.claim, *figures, f"**{row.verdict}**"))
    head = (_HEAD, f"{verdict_counts(rows)}.\n", _table(columns, cells), "## Claim by claim\n")
    return "\n".join((*head, *(_section(row, records) for row in rows), "## What was run\n", _what_was_run(records)))


def verdict_counts(rows: Sequence[ClaimRow]) -> str:
    """How many claims have which verdict; those that the test suite alone verifies are counted apart."""
    n_exact = sum(row.is_exact for row in rows)
    counts = Counter(row.verdict for row in rows if not row.is_exact)
    others = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    return f"{n_exact} verified by the test suite; the other {len(rows) - n_exact}: {others}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""A Markdown table; characters that would end a cell are escaped.

    >>> print(_table(("a",), [("|x|",)]))
    | a |
    | --- |
    | \|x\| |
    <BLANKLINE>
    """
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in (columns, ["---"] * len(columns), *cells))


def _section(row: ClaimRow, records: Records) -> str:
    """One claim: its rule, the commands of its runs, and all comparisons."""
    lines = [f"### {row.number}: {row.claim}", "", f"**{row.verdict}** ({row.source}). {row.reason}", ""]
    if row.rule:
        lines += [f"Rule: {row.rule}", ""]
    if row.experiments:
        lines += ["Runs:", "", *(f"- {line}" for name in row.experiments for line in _runs(name, records)), ""]
    cells = []
    for name, part in (row.parts or {}).items():
        for item in part:
            outcome = f"does not count: {item.excluded}" if item.excluded else item.outcome
            cells.append((name, item.where, item.paper or "-", item.ours, item.difference or "-", outcome))
    if cells:
        lines.append(_table(("part", "setting", "paper", "ours", "difference", "outcome"), cells))
    if row.analysis:
        lines += ["Why ours differs:", "", row.analysis, ""]
    return "\n".join(lines)


def _runs(experiment: str, records: Records) -> list[str]:
    """The commands of an experiment's runs, without options of one machine, and how many runs are finished."""
    lines = []
    for sweep_records in records.of(experiment):
        sweep = sweep_records.sweep
        origin = f"`{experiment}` with its own settings, run from Python"
        if sweep.command or sweep.preset:
            origin = f"`{portable(sweep.command or f'neuralpath papers run {experiment} --preset {sweep.preset}')}`"
        lines.append(f"{origin}: {sweep_records.progress} runs are finished (`{sweep.name}`)")
    is_smoke = experiment in records.smoke_only
    state = "not run, except with the preset smoke, which does not count" if is_smoke else "not run"
    return lines or [f"`neuralpath papers run {experiment} --preset cpu --out runs`: {state}"]


def portable(command: str) -> str:
    """A command with the output folder `runs` and without options that depend on the machine.

    >>> portable("neuralpath papers run regimes --preset cpu --jobs 2 --out somewhere --data-dir=data")
    'neuralpath papers run regimes --preset cpu --out runs'
    """
    command = re.sub(r"^neuralpath (?=run )", "neuralpath papers ", command)  # the form in older records
    words, arguments = [], iter(shlex.split(command))
    for argument in arguments:
        option, _, value = argument.partition("=")
        if option not in _LOCAL_OPTIONS:
            words.append(argument)
        elif not value:
            next(arguments, None)
    return shlex.join([*words, "--out", "runs"])


def _what_was_run(records: Records) -> str:
    rows = []
    for name in NAMES:
        for sweep in records.of(name):
            rows.append((name, sweep.sweep.preset or "-", sweep.progress, sweep.sweep.reduced or "-"))
        if not records.of(name):
            preset = "smoke only" if name in records.smoke_only else "not run"
            rows.append((name, preset, "-", get(name).reduced.get("cpu", "-")))
    return _table(("experiment", "preset", "runs finished", "how it is smaller than the papers'"), rows)
