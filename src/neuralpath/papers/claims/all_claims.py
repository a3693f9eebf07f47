"""All claims of the papers: one function for each empirical claim; the test suite alone verifies the others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from neuralpath.papers.claims.fitting_claims import c2, c15, c16
from neuralpath.papers.claims.gate_claims import c11, c23, c24, c25, c30, c34
from neuralpath.papers.claims.kernel_claims import c6, c12, c13, c26, c37
from neuralpath.papers.claims.noise_claims import c31, c32, c33
from neuralpath.papers.claims.regime_claims import c8, c9, c10, c14, c27, c28
from neuralpath.papers.claims.rows import ClaimRow, claim_row, claim_texts
from neuralpath.papers.claims.sweep_records import Records
from neuralpath.papers.claims.width_claims import c4, c17, c22, c29, c35, c36
from neuralpath.papers.experiments import fitting_results

ANALYSES = "analyses"
"""Folder of hand-written texts about claims that our figures do not confirm: one Markdown file for each claim."""

_FUNCTIONS = (c2, c4, c6, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, c22, c23, c24, c25, c26, c27, c28, c29, c30)
CLAIMS: dict[str, Callable[[Records], ClaimRow]] = {
    claim.__name__.upper(): claim for claim in (*_FUNCTIONS, c31, c32, c33, c34, c35, c36, c37)
}
"""By number, a function that takes the records and returns the row of an empirical claim."""


def check_claim(number: str, records: Records) -> ClaimRow:
    """Check one claim.

    Args:
        number: Such as ``C9``.
        records: The records of a folder.
    """
    return CLAIMS[number](records) if number in CLAIMS else claim_row(number, records, {})


def check_claims(records: Records, analyses: Path | None = None) -> tuple[ClaimRow, ...]:
    """Check every claim of the papers.

    Args:
        records: The records of a folder.
        analyses: Folder of hand-written analyses, which are added to the rows.

    Raises:
        MisfitResults: If a record does not have the form that this version expects.
    """
    with fitting_results("the claims are not checked"):
        rows = [check_claim(number, records) for number in claim_texts()]
    return tuple(replace(row, analysis=_analysis(row.number, analyses)) for row in rows)


def _analysis(number: str, folder: Path | None) -> str:
    path = None if folder is None else folder / f"{number}.md"
    return path.read_text(encoding="utf-8", errors="replace").strip() if path is not None and path.exists() else ""
