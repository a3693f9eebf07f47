"""The page as one file: everything that it needs is in it, and it asks for nothing else."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from urllib.parse import quote

from neuralpath import __version__
from neuralpath._atomic import write_atomically
from neuralpath.experiments.claim_verdict import ClaimVerdict
from neuralpath.report import assets
from neuralpath.report.contents import Contents, read_contents
from neuralpath.report.drawings import draw
from neuralpath.report.markup import json_script, plural, text
from neuralpath.report.network import ExplorerNetwork, NoNetwork, export, find_network
from neuralpath.report.sections import Files, claims_html, figures_of, notices_html, sweep_anchor, sweep_html
from neuralpath.runs.store import Store

# The browser itself keeps the promise that no request leaves the page.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class Written:
    """What `write_report` has put where."""

    page: Path
    n_bytes: int
    n_figures: int
    figures: Path | None
    problems: tuple[str, ...]
    explorer: str
    """The network of the gate explorer, or why there is none."""


def write_report(
    store: Store, page: Path, *, figures: Path | None = None, claims: Sequence[ClaimVerdict] = (),
    problems: Sequence[str] = (), title: str = "",
) -> Written:  # fmt: skip
    """Write the page for the runs of a store, and every figure as PDF and PNG into the folder ``figures``.

    The page is one file of about 5 MB, most of it plotly.js, that opens from disk and makes no request. With
    ``figures`` it links to the files there. ``problems`` are messages to show beside those of reading the folder.

    Raises: RunError if the store's folder holds no runs; MissingExtra without plotly or matplotlib; OSError if the page
    or the figures cannot be written.
    """
    plotly = assets.plotly()
    if figures is not None:
        assets.require("matplotlib")
    contents = read_contents(store)
    contents = replace(contents, problems=(*contents.problems, *problems))
    page.parent.mkdir(parents=True, exist_ok=True)
    files = {} if figures is None else _draw_all(contents, figures, page)
    network = find_network(contents.sweeps, store)
    whole = page_html(contents, network, plotly, files=files, claims=claims, title=title).encode()
    write_atomically(page, whole)
    n_figures = sum(len(figures_of(sweep)) for sweep in contents.sweeps)
    explorer = network.reason if isinstance(network, NoNetwork) else network.name
    return Written(page, len(whole), n_figures, figures, contents.problems, explorer)


def page_html(
    contents: Contents, network: ExplorerNetwork | NoNetwork, plotly: str, *, files: Files | None = None,
    claims: Sequence[ClaimVerdict] = (), title: str = "",
) -> str:  # fmt: skip
    """The page's text; ``plotly`` is the source of plotly.js."""
    heading = title or "Gates, paths and kernels: results"
    versions = tuple(contents.versions)
    sweeps = "".join(sweep_html(sweep, files or {}, versions) for sweep in contents.sweeps)
    parts = {
        "title": text(heading), "policy": text(POLICY), "style": assets.read("page.css"), "lead": _lead(contents),
        "navigation": _navigation(contents, claims), "notices": notices_html(contents), "claims": claims_html(claims),
        "sweeps": sweeps, "explorer": _explorer(network), "version": text(__version__),
        "date": date.today().isoformat(), "plotly": plotly, "import_map": assets.import_map(),
    }  # fmt: skip
    pieces = assets.read("page.html").split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [parts[name.strip()], rest]
    return "".join(filled)


def _draw_all(contents: Contents, folder: Path, page: Path) -> dict[str, tuple[str, ...]]:
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for sweep in contents.sweeps:
        for anchor, figure in figures_of(sweep).items():
            paths = draw(figure, folder, anchor)
            files[anchor] = tuple(_address(path, page) for path in paths)
    return files


def _address(path: Path, page: Path) -> str:
    """Relative to the page, so that both can be moved together."""
    return quote(Path(os.path.relpath(path.resolve(), page.resolve().parent)).as_posix())


def _lead(contents: Contents) -> str:
    runs = {run.work.name: run for sweep in contents.sweeps for run in sweep.runs}
    done = sum(run.state == "finished" for run in runs.values())
    return text(f"{plural(len(contents.sweeps), 'experiment')}, {done:,} of {plural(len(runs), 'run')} finished")


def _navigation(contents: Contents, claims: Sequence[ClaimVerdict]) -> str:
    first = '<li><a href="#claims">Claims and verdicts</a></li>' if claims else ""
    return first + "".join(
        f'<li><a href="#{sweep_anchor(sweep)}">{text(sweep.sweep.experiment.name)}'
        f"{f'<small> {text(sweep.sweep.preset)}</small>' if sweep.sweep.preset else ''}</a></li>"
        for sweep in contents.sweeps
    )


def _explorer(network: ExplorerNetwork | NoNetwork) -> str:
    if isinstance(network, NoNetwork):
        return (
            f'<p class="empty">There is no network to look into: {text(network.reason)}. A run of '
            "<code>neuralpath run regimes</code> into the same folder trains one; its weights stay in the folder.</p>"
        )
    return assets.read("explorer.html") + json_script(export(network), 'id="explorer-network"')
