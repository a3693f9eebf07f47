"""The page as one file: everything that it needs is in it, and it asks for nothing else."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from urllib.parse import quote

from neuralpath import __version__
from neuralpath._files import write_atomically
from neuralpath.papers.claims import ClaimRow
from neuralpath.papers.experiments import HeatMaps, Table
from neuralpath.papers.report import assets
from neuralpath.papers.report.contents import Contents, SweepContents, read_contents
from neuralpath.papers.report.drawings import draw
from neuralpath.papers.report.guide import papers_html, regimes_html
from neuralpath.papers.report.kernel_picture import kernel_picture
from neuralpath.papers.report.markup import json_script, plural, text
from neuralpath.papers.report.network import ExplorerNetwork, NoNetwork, export, find_network
from neuralpath.papers.report.payloads import Figure
from neuralpath.papers.report.sections import (
    Files,
    claims_html,
    figures_of,
    notices_html,
    shown_html,
    sweep_anchor,
    sweep_html,
)
from neuralpath.papers.runs import Store

# The browser itself keeps the promise that no request leaves the page.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; base-uri 'none'; form-action 'none'"
)

KERNEL_ANCHOR = "path-kernel"


@dataclass(frozen=True)
class Written:
    """What `write_report` has put where."""

    page: Path
    n_bytes: int
    n_figures: int
    """Figures that were written as files of their own; the page has them all in any case."""
    figures: Path | None
    problems: tuple[str, ...]
    explorer: str
    """The network of the gate explorer, or why there is none."""


def write_report(
    store: Store, page: Path, *, figures: Path | None = None, claims: Sequence[ClaimRow] = (),
    problems: Sequence[str] = (), title: str = "", kernel: HeatMaps | None = None, summary: Sequence[Table] = (),
) -> Written:  # fmt: skip
    """Write the page for the runs of a store, and every figure as PDF and PNG into the folder ``figures``.

    The page is one file of about 5 MB, most of it plotly.js, that opens from disk and makes no request. With
    ``figures`` it links to the files there. ``problems`` are messages to show beside those of reading the folder.
    ``kernel`` is the picture of the path kernel, by default that of the network to look into; ``summary`` are tables
    that sum up the regimes.

    Raises: RunError if the store's folder holds no runs; MissingExtra without plotly or matplotlib; OSError if the page
    or the figures cannot be written.
    """
    plotly = assets.plotly()
    if figures is not None:
        assets.require("matplotlib")
    contents = read_contents(store)
    page.parent.mkdir(parents=True, exist_ok=True)
    network = find_network(contents.sweeps, store)
    if kernel is None and isinstance(network, ExplorerNetwork):
        try:
            kernel = kernel_picture(network)
        except OverflowError as error:
            problems = (*problems, f"there is no picture of the path kernel: {error}")
    contents = replace(contents, problems=(*contents.problems, *problems))
    drawn = {figure_anchor: figure for sweep in contents.sweeps for figure_anchor, figure in figures_of(sweep).items()}
    if kernel is not None:
        drawn[KERNEL_ANCHOR] = kernel
    files = {} if figures is None else _draw_all(drawn, figures, page)
    whole = page_html(
        contents, network, plotly, files=files, claims=claims, title=title, kernel=kernel, summary=summary
    ).encode(errors="replace")  # a command may hold a file name that is no text
    write_atomically(page, whole)
    explorer = network.reason if isinstance(network, NoNetwork) else network.name
    return Written(page, len(whole), len(files), figures, contents.problems, explorer)


def page_html(
    contents: Contents, network: ExplorerNetwork | NoNetwork, plotly: str, *, files: Files | None = None,
    claims: Sequence[ClaimRow] = (), title: str = "", kernel: HeatMaps | None = None,
    summary: Sequence[Table] = (),
) -> str:  # fmt: skip
    """The page's text; ``plotly`` is the source of plotly.js.

    What can be read without knowing the papers comes first: the claims, the picture of the kernel, the explorer, the
    regimes; then the other experiments.
    """
    heading = title or "Gates, paths and kernels: results"
    contents = replace(contents, sweeps=tuple(sorted(contents.sweeps, key=lambda one: not _is_regimes(one))))
    versions = tuple(contents.versions)
    files = files or {}
    sweeps = "".join(sweep_html(sweep, files, versions) for sweep in contents.sweeps)
    explorer = f'<section id="explorer"><h2>Gate explorer</h2>{_explorer(network)}</section>'
    has_network = isinstance(network, ExplorerNetwork)
    parts = {
        "title": text(heading), "policy": text(POLICY), "style": assets.read("page.css"),
        "lead": _lead(contents, has_network), "navigation": _navigation(contents, claims, kernel, has_network),
        "notices": notices_html(contents), "claims": claims_html(claims),
        "kernel": "" if kernel is None else _kernel(kernel, files), "explorer": explorer if has_network else "",
        "regimes": regimes_html(summary) if contents.sweeps else "", "sweeps": sweeps,
        "no_explorer": "" if has_network else explorer, "papers": papers_html(), "version": text(__version__),
        "date": date.today().isoformat(), "plotly": plotly, "import_map": assets.import_map(),
    }  # fmt: skip
    pieces = assets.read("page.html").split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [parts[name.strip()], rest]
    return "".join(filled)


def _draw_all(figures: Mapping[str, Figure], folder: Path, page: Path) -> dict[str, tuple[str, ...]]:
    folder.mkdir(parents=True, exist_ok=True)
    return {
        anchor: tuple(_address(path, page) for path in draw(figure, folder, anchor))
        for anchor, figure in figures.items()
    }


def _address(path: Path, page: Path) -> str:
    """Relative to the page, so that both can be moved together."""
    return quote(Path(os.path.relpath(path.resolve(), page.resolve().parent)).as_posix())


def _lead(contents: Contents, has_network: bool) -> str:
    runs = {run.task.name: run for sweep in contents.sweeps for run in sweep.runs}
    done = sum(run.state == "finished" for run in runs.values())
    told = text(f"{plural(len(contents.sweeps), 'experiment')}, {done:,} of {plural(len(runs), 'run')} finished")
    return f'{told} · <a href="#explorer">look into a network</a>' if has_network else told


def _is_regimes(sweep: SweepContents) -> bool:
    return sweep.sweep.experiment.name == "regimes"


def _kernel(kernel: HeatMaps, files: Files) -> str:
    figure = shown_html(kernel, KERNEL_ANCHOR, files)
    return f'<section id="kernel"><h2>Which images are alike to the network</h2>{figure}</section>'


def _navigation(
    contents: Contents, claims: Sequence[ClaimRow], kernel: HeatMaps | None, has_network: bool
) -> str:  # fmt: skip
    """Links to all sections, in their order."""
    explorer = ("explorer", "Gate explorer")
    links = [
        *([("claims", "Claims and verdicts")] if claims else []),
        *([("kernel", "Path kernel")] if kernel is not None else []),
        *([explorer] if has_network else []),
        *([("five-regimes", "Gates and weights")] if contents.sweeps else []),
    ]
    named = [f'<li><a href="#{anchor}">{words}</a></li>' for anchor, words in links]
    for sweep in contents.sweeps:
        preset = f"<small> {text(sweep.sweep.preset)}</small>" if sweep.sweep.preset else ""
        named.append(f'<li><a href="#{sweep_anchor(sweep)}">{text(sweep.sweep.experiment.name)}{preset}</a></li>')
    last = [("papers", "The papers")] if has_network else [explorer, ("papers", "The papers")]
    return "".join([*named, *(f'<li><a href="#{anchor}">{words}</a></li>' for anchor, words in last)])


def _explorer(network: ExplorerNetwork | NoNetwork) -> str:
    if isinstance(network, NoNetwork):
        return (
            f'<p class="empty">There is no network to look into: {text(network.reason)}. A run of '
            "<code>neuralpath papers run regimes</code> into the same folder trains one; its weights stay in the "
            "folder.</p>"
        )
    return assets.read("explorer.html") + json_script(export(network), 'id="explorer-network"')
