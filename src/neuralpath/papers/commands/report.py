"""`neuralpath report`: the results of a folder of runs as one page, and every figure as a file."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from neuralpath.commands import UserError
from neuralpath.papers.commands.results import record_folders

if TYPE_CHECKING:
    from neuralpath.papers.claims import ClaimVerdict
    from neuralpath.papers.runs import Store


@dataclass(frozen=True)
class Report:
    """Write the results of a folder of runs as one self-contained page, with a network to look into."""

    folder: tyro.conf.Positional[Path]
    """Output folder of `neuralpath run`, or a folder of records."""
    out: Path | None = None
    """Page to write; `report.html` in the folder by default."""
    figures: Path | None = None
    """Folder for every figure as PDF and PNG; `figures` beside the page by default."""
    no_figures: bool = False
    """Write the page alone."""
    records: Path | None = None
    """Folder of records in which finished runs count too."""
    data_dir: Path | None = None
    """Folder with the data of the network to look into; then $NEURALPATH_DATA and the cache folder."""

    def run(self) -> int:
        """Write, and say where."""
        if not self.folder.is_dir():
            what = f"{self.folder} is no folder" if self.folder.exists() else f"there is no folder {self.folder}"
            raise UserError(f"{what}; name the output folder of `neuralpath run`.")
        if self.no_figures and self.figures is not None:
            raise UserError("--figures and --no-figures cannot both be given.")
        from neuralpath.papers.report import MissingExtra, plural, write_report
        from neuralpath.papers.runs import RunError, Store

        page = self.out or self.folder / "report.html"
        figures = None if self.no_figures else self.figures or page.parent / "figures"
        if page.is_dir():
            raise UserError(f"--out {page} is a folder; name the page's file in it, such as {page / 'report.html'}.")
        if figures is not None and figures.exists() and not figures.is_dir():
            raise UserError(f"the figures cannot be written: {figures} is a file, no folder.")
        try:
            store = Store(self.folder, record_folders(self.folder, self.records), self.data_dir)
            claims, problems = _verdicts(store)
            written = write_report(store, page, figures=figures, claims=claims, problems=problems)
        except (RunError, MissingExtra) as error:
            raise UserError(str(error)) from error
        except OSError as error:
            # A page is written beside its place first, under a name that means nothing to the reader.
            place = page if str(error.filename).endswith(".part") else error.filename or page
            raise UserError(f"{place} cannot be read or written: {error.strerror}.") from error
        for problem in written.problems:
            print(f"neuralpath: {problem}", file=sys.stderr)
        print(f"{page}: {written.n_bytes / 1e6:.1f} MB")
        if figures is not None:
            print(f"{figures}: {plural(written.n_figures, 'figure')} as PDF and PNG")
        return 0


def _verdicts(store: "Store") -> "tuple[tuple[ClaimVerdict, ...], tuple[str, ...]]":
    """The verdicts on the papers' claims, or none and a message where the records are of another version."""
    from neuralpath.papers.claims import claim_verdicts
    from neuralpath.papers.experiments import MisfitResults

    try:
        return claim_verdicts(store), ()
    except MisfitResults as error:
        return (), (str(error),)
