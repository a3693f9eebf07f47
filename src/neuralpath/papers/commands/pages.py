"""`neuralpath papers claims` and `report`, and `neuralpath demo`: the commands that write a page."""

from dataclasses import dataclass
from pathlib import Path

from neuralpath.commands import UserError, check_seed, user_errors
from neuralpath.papers.commands.results import FolderCommand, open_store, print_damage, print_problems, read_folder


@dataclass(frozen=True, kw_only=True)
class ClaimsCommand(FolderCommand):
    """Check every claim of the papers against the runs of a folder, and write the table."""

    out: Path | None = None
    """Page to write; `CLAIMS.md` in the folder by default."""

    def run(self) -> int:
        """Write the table and print the number of claims for each verdict."""
        from neuralpath._files import write_atomically
        from neuralpath.papers.claims import ANALYSES, check_claims, claims_markdown, read_records, verdict_counts
        from neuralpath.papers.runs import with_dependencies

        store, sweeps = open_store(self.folder, self.records), read_folder(self.folder)
        print_damage(with_dependencies(tuple(task for sweep in sweeps for task in sweep.tasks)), store)
        records = read_records(sweeps, store)
        rows = check_claims(records, self.folder / ANALYSES)
        page = self.out or self.folder / "CLAIMS.md"
        try:
            write_atomically(page, claims_markdown(rows, records).encode())
        except OSError as error:
            raise UserError(f"{page} cannot be written: {error.strerror}.") from error
        print(f"{page}: {verdict_counts(rows)}")
        return 0


@dataclass(frozen=True, kw_only=True)
class ReportCommand(FolderCommand):
    """Write the results of a folder as one self-contained HTML page, with an interactive gate explorer."""

    out: Path | None = None
    """Page to write; `report.html` in the folder by default."""
    figures: Path | None = None
    """Folder for every figure as PDF and PNG; `figures` beside the page by default."""
    no_figures: bool = False
    """Write only the page, no figure files."""
    data_dir: Path | None = None
    """Folder with the data of the gate explorer's network; then $NEURALPATH_DATA and the cache folder."""

    def run(self) -> int:
        """Write the page and print its path and size."""
        if self.no_figures and self.figures is not None:
            raise UserError("--figures and --no-figures exclude each other; give one of them.")
        store = open_store(self.folder, self.records, self.data_dir)
        from neuralpath.papers.claims import ANALYSES, ClaimRow, check_claims, counted, read_records
        from neuralpath.papers.experiments import MisfitResults, read_sweeps
        from neuralpath.papers.report import MissingExtra, write_report

        page = self.out or self.folder / "report.html"
        figures = None if self.no_figures else self.figures or page.parent / "figures"
        if page.is_dir():
            raise UserError(f"--out {page} is a folder; name a file in it, such as {page / 'report.html'}.")
        if figures is not None and figures.exists() and not figures.is_dir():
            raise UserError(f"the figures cannot be written: {figures} is a file, not a folder.")
        try:
            claims: tuple[ClaimRow, ...] = ()
            problems: tuple[str, ...] = ()
            try:
                records = read_records(read_sweeps(self.folder)[0], store)
                if records.sweeps:  # smoke runs are compared with no claim
                    claims = check_claims(records, self.folder / ANALYSES)
            except MisfitResults as error:  # records of another version; the page says so and has no verdicts
                problems = (str(error),)
            with user_errors(MissingExtra):
                written = write_report(store, page, figures=figures, claims=claims, problems=problems)
        except OSError as error:
            # The page is first written to a temporary file, whose name means nothing to the reader.
            path = page if str(error.filename).endswith(".part") else error.filename or page
            raise UserError(f"{path} cannot be read or written: {error.strerror}.") from error
        print_problems(written.problems)
        print(f"{page}: {written.n_bytes / 1e6:.1f} MB")
        if figures is not None:
            print(f"{figures}: {counted(written.n_figures, 'figure')} as PDF and PNG")
        return 0


@dataclass(frozen=True)
class DemoCommand:
    """Train a small network on scikit-learn's digits, show its gates, paths and kernels, and write a page."""

    out: Path = Path("demo")
    """Folder for the page, the figures and the runs; finished runs in it are not repeated."""
    seed: int = 0
    """Seed of the weights and of the order of the examples."""

    def run(self) -> int:
        """Run the demonstration."""
        check_seed(self.seed)
        from neuralpath.papers.report import MissingExtra, require

        with user_errors(MissingExtra):
            for package in ("matplotlib", "plotly"):  # before the folder is made and anything is trained
                require(package)
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {self.out} cannot be a folder for the figures: {error.strerror}.") from error
        from neuralpath.papers import demo

        demo.run(self.out, self.seed)
        return 0
