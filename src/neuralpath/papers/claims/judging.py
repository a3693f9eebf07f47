"""From claims and evidence to verdicts."""

from dataclasses import dataclass, replace

from neuralpath.papers.claims.analyses import ANALYSES, analysis
from neuralpath.papers.claims.checks import Aspect, Check, Claim
from neuralpath.papers.claims.claim_verdict import ClaimVerdict, Verdict
from neuralpath.papers.claims.compared import counted
from neuralpath.papers.claims.costs import Costs
from neuralpath.papers.claims.every_claim import CLAIMS
from neuralpath.papers.claims.evidence import Evidence, gather
from neuralpath.papers.claims.rules import verdict_of
from neuralpath.papers.experiments import fitting_results, read_sweeps
from neuralpath.papers.runs import Store

EXACT = "exact"
FEW = 3
"""Checks that a cell of the table lists; more are counted, and listed below the table."""


@dataclass(frozen=True)
class Judged:
    """A claim with everything that its verdict rests on."""

    claim: Claim
    aspects: tuple[Aspect, ...]
    verdict: Verdict
    reason: str

    @property
    def differs(self) -> bool:
        """Whether some check that decides says no, or one is in doubt: then an analysis is due."""
        return any("no" in aspect.outcomes or aspect.doubts for aspect in self.aspects)

    @property
    def by_tests(self) -> bool:
        """Whether it holds by tests alone, whatever was run."""
        return self.verdict == "holds" and all(aspect.name == EXACT for aspect in self.aspects)

    @property
    def row(self) -> ClaimVerdict:
        """For tables."""
        cells = {
            name: "\n".join(filter(None, (_cell(aspect, name) for aspect in self.aspects)))
            for name in ("paper", "ours", "difference")
        }
        paper = "\n".join(filter(None, (self.claim.source, self.claim.printed, cells["paper"])))
        return ClaimVerdict(
            self.claim.number, self.claim.text, paper, cells["ours"] or "-", cells["difference"] or "-", self.verdict,
            self.reason,
        )  # fmt: skip


def judge(claim: Claim, evidence: Evidence) -> Judged:
    """Judge one claim."""
    aspects: list[Aspect] = []
    if claim.exact is not None:
        aspects.append(Aspect(EXACT, (Check("by tests", claim.exact.figure, "yes"),)))
    if claim.judge is not None:
        for aspect in claim.judge(evidence):
            # Sweeps that overlap have the same runs, and give the same checks.
            aspects.append(replace(aspect, checks=tuple(dict.fromkeys(aspect.checks))))
    # What was asked for and not run may say otherwise.
    is_finished = not any(evidence.unfinished(name) for name in claim.experiments)
    verdict = verdict_of(tuple(aspects), is_finished=is_finished)
    reason = _reason(claim, tuple(aspects), evidence)
    if verdict == "not tested here" and any(aspect.outcomes for aspect in aspects):
        reason = f"What was checked speaks against it; what was not could still speak for it. {reason}"
    return Judged(claim, tuple(aspects), verdict, reason)


def judge_all(evidence: Evidence) -> tuple[Judged, ...]:
    """Judge every claim.

    Raises: MisfitResults.
    """
    with fitting_results("the claims are not judged"):
        return tuple(judge(claim, evidence) for claim in CLAIMS)


def claim_verdicts(store: Store) -> tuple[ClaimVerdict, ...]:
    """The verdicts on all claims from the runs of a folder, with the costs and analyses that it keeps, for the page.

    None where all its sweeps only try the machinery out.

    Raises: RunError if the folder holds no sweeps.
    """
    sweeps, _ = read_sweeps(store.out)
    evidence = gather(sweeps, store, Costs.read(store.out))
    if not evidence.found:
        return ()
    folder = store.out / ANALYSES
    return tuple(replace(one.row, analysis=analysis(one.claim.number, folder)) for one in judge_all(evidence))


def _cell(aspect: Aspect, name: str) -> str:
    """What an aspect has to say in one column; of many checks only how many hold."""
    told = [(check.where, _standing(check, name), value) for check in aspect.checks if (value := getattr(check, name))]
    if not told:
        return ""
    if aspect.name == EXACT:
        return f"by tests: {told[0][-1]}"
    if len(aspect.checks) <= FEW:
        return f"{aspect.name}: " + ", ".join(f"{value} [{where}{standing}]" for where, standing, value in told)
    numbers = {"ours": lambda check: check.value, "paper": lambda check: check.printed}.get(name, _gap)
    reach = _reach([(number, check.value_is) for check in aspect.checks if (number := numbers(check)) is not None])
    if name != "ours":
        return f"{aspect.name}: {reach}" if reach else ""
    n_yes = sum(check.outcome == "yes" for check in aspect.checks if check.decides)
    n_deciding = sum(check.decides for check in aspect.checks)
    left = len(aspect.checks) - n_deciding
    if not n_deciding:
        return f"{aspect.name}: {reach}{', ' if reach else ''}none of {left} checks decides"
    doubts = f", {len(aspect.doubts)} doubtful" if aspect.doubts else ""
    left -= len(aspect.doubts)
    others = doubts + (f", {left} more do not decide" if left else "")
    return f"{aspect.name}: {reach}{', ' if reach else ''}holds in {n_yes} of {n_deciding}{others}"


def _standing(check: Check, name: str) -> str:
    """That a figure of ours does not decide, where it does not."""
    if name != "ours" or check.decides:
        return ""
    return "; does not decide" if check.aside else f"; {check.outcome}"


def _reach(figures: list[tuple[float, str]]) -> str:
    """The least and the largest of figures, with what they are; nothing where they are of different kinds."""
    kinds = {kind for _, kind in figures}
    if len(kinds) != 1:
        return ""
    least, most = (choose(number for number, _ in figures) for choose in (min, max))
    return f"{kinds.pop()} {least:.3g} to {most:.3g}".strip()


def _gap(check: Check) -> float | None:
    return None if check.value is None or check.printed is None else check.value - check.printed


def _reason(claim: Claim, aspects: tuple[Aspect, ...], evidence: Evidence) -> str:
    """Why the verdict is what it is: what says no, what is open, what is missing, and what that would cost."""
    said = []
    decided = [check for aspect in aspects for check in aspect.checks if check.decides and aspect.name != EXACT]
    if claim.exact is not None:
        said.append(f"Settled by {counted(len(claim.exact.tests), 'test')} of the suite.")
    if decided:
        n_yes = sum(check.outcome == "yes" for check in decided)
        said.append(f"{n_yes} of {counted(len(decided), 'check')} say yes.")
    for aspect in aspects:
        if against := [check.where for check in aspect.checks if check.decides and check.outcome == "no"]:
            said.append(f"Against it, {aspect.name}: {_listed(against)}.")
        if doubts := [check.where for check in aspect.doubts]:
            said.append(f"In doubt, {aspect.name}: {_listed(doubts)}.")
    for aspect in aspects:
        if not aspect.outcomes and not aspect.doubts:
            said.append(_untested(aspect, evidence))
    for name in claim.experiments:
        if unfinished := evidence.unfinished(name):
            needed = f"{counted(len(unfinished), 'run')} would take {evidence.costs.of(unfinished)}"
            if evidence.of(name):
                said.append(f"`{name}` is not finished: {needed}.")
            elif name in evidence.set_aside:
                said.append(
                    f"`{name}` was run with the preset {evidence.set_aside[name]} only, which tries the machinery out "
                    f"and does not count. With the preset cpu, which counts, {needed}."
                )
            else:
                said.append(f"`{name}` was not run: {needed}.")
    return " ".join(said)


def _untested(aspect: Aspect, evidence: Evidence) -> str:
    asides = sorted({check.aside for check in aspect.checks if check.aside})
    undecided = [check.where for check in aspect.checks if not check.aside]
    reasons = [f"chance does not let one say ({_listed(undecided)})"] if undecided else []
    why = "; ".join([*reasons, *asides]) or aspect.missing or "no finished runs that tell"
    cost = f" (it would take {evidence.costs.of(aspect.would_take)})" if aspect.would_take else ""
    return f"Not tested, {aspect.name}: {why}{cost}."


def _listed(names: list[str]) -> str:
    return ", ".join(names[:FEW]) + (f" and {len(names) - FEW} more" if len(names) > FEW else "")
