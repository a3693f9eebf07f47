"""What a claim is judged by: single checks, grouped by what the claim says."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

from neuralpath.papers.runs import Task

if TYPE_CHECKING:
    from neuralpath.papers.claims.evidence import Evidence

Outcome = Literal["yes", "no", "open", "doubtful"]
"""Whether the claim holds in one setting; `open` where chance does not let one say, `doubtful` where what was found
contradicts the claim and chance may still be why."""


@dataclass(frozen=True)
class Check:
    """One figure of ours in one setting, beside the papers' where they print one."""

    where: str
    """The setting, such as ``mnist fc-w128-d6 Adam``."""
    ours: str
    outcome: Outcome
    paper: str = ""
    difference: str = ""
    value: float | None = None
    """Our figure alone, where several checks are told together,"""
    printed: float | None = None
    """and the papers'."""
    _: KW_ONLY
    value_is: str = ""
    """What our figure is where it is not what the aspect's name says, such as ``a factor of``."""
    aside: str = ""
    """Why it is shown and does not decide, such as too few seeds."""

    @property
    def decides(self) -> bool:
        """Whether it says yes or no, and counts."""
        return self.outcome in ("yes", "no") and not self.aside


@dataclass(frozen=True)
class Aspect:
    """One thing that a claim says, with the checks of it in all settings that were run."""

    name: str
    checks: tuple[Check, ...]
    missing: str = ""
    """Where it was not checked for another reason than missing runs: that reason."""
    would_take: tuple[Task, ...] = ()
    """Runs that would check it and that no preset for this scale has; their cost is told where nothing decides."""

    @property
    def outcomes(self) -> set[Outcome]:
        """Of the checks that decide."""
        return {check.outcome for check in self.checks if check.decides}

    @property
    def doubts(self) -> tuple[Check, ...]:
        """The checks because of which one cannot say that the claim holds everywhere."""
        return tuple(check for check in self.checks if check.outcome == "doubtful" and not check.aside)


Judge = Callable[["Evidence"], tuple[Aspect, ...]]


@dataclass(frozen=True)
class Exact:
    """Tests that settle an exact statement."""

    tests: tuple[str, ...]
    """As pytest names them, from the repository's root: ``tests/file.py::test_name``."""
    figure: str
    """The deviation that they allow."""


@dataclass(frozen=True)
class Claim:
    """A claim of the papers, and how it is judged."""

    number: str
    text: str
    source: str
    """Where the papers say it."""
    rule: str = ""
    """The rule for runs, in words."""
    printed: str = ""
    """The papers' own figure, where it is not that of single checks."""
    exact: Exact | None = None
    experiments: tuple[str, ...] = ()
    judge: Judge | None = None

    def __post_init__(self) -> None:
        if (self.judge is None) != (not self.experiments):
            raise ValueError(f"{self.number}: experiments and a rule for them go together.")
        if self.exact is None and self.judge is None:
            raise ValueError(f"{self.number}: a claim is judged by tests or by runs.")
