"""What became of one of the papers' claims."""

from dataclasses import dataclass
from typing import Literal, get_args

Verdict = Literal["holds", "holds in part", "does not hold", "not tested here"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim, the papers' figure beside ours, and the verdict in one of four words."""

    number: str
    """Such as ``C9``."""
    claim: str
    paper: str
    """What the papers print, or where they say it; in these three a line for each part of the claim."""
    ours: str
    difference: str
    verdict: Verdict
    reason: str
    """Why, with the runs or the test behind it."""
    analysis: str = ""
    """Why ours differs, where it does: a text in Markdown, by hand."""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"`verdict` of {self.number} must be one of {', '.join(VERDICTS)}; got {self.verdict!r}.")
