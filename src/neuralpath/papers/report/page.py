"""The page as one file that holds everything it needs and requests nothing else."""

import os
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from importlib import import_module, resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from neuralpath import __version__
from neuralpath._files import write_atomically
from neuralpath.papers.claims import ClaimRow, counted
from neuralpath.papers.experiments import HeatMaps, Table
from neuralpath.papers.report import sections
from neuralpath.papers.report.contents import Contents, read_contents
from neuralpath.papers.report.drawings import draw
from neuralpath.papers.report.explorer import ExplorerNetwork, export, find_network, kernel_picture
from neuralpath.papers.report.markup import json_script, text
from neuralpath.papers.runs import Store

SCRIPTS = ("main", "theme", "figures", "layouts", "pictures", "base64")
EXPLORER = (
    *("network", "paths", "neighbors", "thumbnails", "image_list"),
    *("drawing_pad", "fitting", "gate_grids", "readout", "explorer"),
)
MODULES = (*(f"{name}.js" for name in SCRIPTS), *(f"explorer/{name}.js" for name in EXPLORER))  # in ``assets``
PREFIX = "neuralpath/"  # of the modules' names in the import map


class MissingExtra(RuntimeError):
    """A package of the extra `report` is not installed."""


def read_asset(name: str) -> str:
    """The text of a file in the folder ``assets``."""
    return resources.files("neuralpath.papers.report").joinpath("assets", name).read_text(encoding="utf-8")


def plotly_source() -> str:
    """The source of plotly.js, from the installed package."""
    source: str = require("plotly.offline").get_plotlyjs()
    if "</script" in source.lower():
        raise ValueError("this version of plotly.js contains the end of a script element and cannot be embedded.")
    return source


def require(package: str) -> Any:
    """Import a package of the extra `report`, or say how to install it."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        name = package.split(".")[0]
        if error.name is None or error.name.split(".")[0] != name:
            raise
        command = f'pip install {name} (from a clone: pip install -c constraints.txt ".[report]")'
        raise MissingExtra(f"the page needs the package {name}: {command}.") from error


def import_map() -> str:
    """An import map of the page's modules, each as a data URL.

    In a page opened from disk, a browser does not let modules import each other. With an import map of data URLs they
    can, unchanged, and no build step is needed.
    """
    sources = {f"{PREFIX}{name}": b64encode(read_asset(name).encode()).decode() for name in MODULES}
    urls = {name: f"data:text/javascript;charset=utf-8;base64,{source}" for name, source in sources.items()}
    return json_script({"imports": urls}).replace("application/json", "importmap", 1)


# Content security policy: the browser itself blocks every request of the page.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; base-uri 'none'; form-action 'none'"
)

KERNEL_ANCHOR = "path-kernel"


@dataclass(frozen=True)
class ReportFiles:
    """The files that `write_report` has written."""

    page: Path
    n_bytes: int
    n_figures: int  # also written as files; the page holds all of them
    problems: tuple[str, ...]


def write_report(
    store: Store,
    page: Path,
    *,
    figures: Path | None = None,
    claims: Sequence[ClaimRow] = (),
    problems: Sequence[str] = (),
    title: str = "",
    kernel: HeatMaps | None = None,
    summary: Sequence[Table] = (),
) -> ReportFiles:
    """Write the HTML page for the runs of a store, and its figures as PDF and PNG files.

    The page is one file of about 5 MB, most of it plotly.js. It opens from disk and makes no request. ``figures`` is
    the folder for the figure files, to which the page links; None writes only the page. ``problems`` are shown beside
    those about the folder; ``kernel`` is by default that of the explorer's network; ``summary`` is about the regimes.
    """
    plotly = plotly_source()
    if figures is not None:
        require("matplotlib")
    contents = read_contents(store)
    page.parent.mkdir(parents=True, exist_ok=True)
    network = find_network(contents.sweeps, store)
    if kernel is None and isinstance(network, ExplorerNetwork):
        try:
            kernel = kernel_picture(network)
        except OverflowError as error:
            problems = (*problems, f"there is no picture of the path kernel: {error}")
    contents = replace(contents, problems=(*contents.problems, *problems))
    files = {} if figures is None else _draw_all(contents, kernel, figures, page)
    whole = page_html(
        contents, network, plotly, files=files, claims=claims, title=title, kernel=kernel, summary=summary
    ).encode(errors="replace")  # a command may hold a file name that is not valid text
    write_atomically(page, whole)
    return ReportFiles(page, len(whole), len(files), contents.problems)


def page_html(
    contents: Contents,
    network: ExplorerNetwork | str,
    plotly: str,
    *,
    files: sections.Files | None = None,
    claims: Sequence[ClaimRow] = (),
    title: str = "",
    kernel: HeatMaps | None = None,
    summary: Sequence[Table] = (),
) -> str:
    """The page as HTML, with the arguments of `write_report` and what was read for it."""
    # Sections that need no knowledge of the papers come first: claims, path kernel, explorer, regimes.
    sweeps = sorted(contents.sweeps, key=lambda sweep: sweep.sweep.experiment.name != "regimes")
    contents, files = replace(contents, sweeps=tuple(sweeps)), files or {}
    versions = tuple(contents.versions)
    explorer = f'<section id="explorer"><h2>Gate explorer</h2>{_explorer(network)}</section>'
    picture = "" if kernel is None else sections.item_html(kernel, KERNEL_ANCHOR, files)
    has_network = isinstance(network, ExplorerNetwork)
    done = sum(run.state == "finished" for run in contents.runs)
    of_all = f"{done:,} of {counted(len(contents.runs), 'run')} finished"
    lead = text(f"{counted(len(contents.sweeps), 'experiment')}, {of_all}")
    parts = {
        "title": text(title or "Gates, paths and kernels: results"),
        "policy": text(POLICY),
        "style": read_asset("page.css"),
        "lead": lead + (' · <a href="#explorer">explore a network</a>' if has_network else ""),
        "navigation": _navigation(contents, claims, kernel, has_network),
        "notices": sections.notices_html(contents),
        "claims": sections.claims_html(claims),
        "kernel": picture and f'<section id="kernel"><h2>Which images the network treats alike</h2>{picture}</section>',
        "explorer": explorer if has_network else "",
        "regimes": sections.regimes_html(summary) if contents.sweeps else "",
        "sweeps": "".join(sections.sweep_html(sweep, files, versions) for sweep in contents.sweeps),
        "no_explorer": "" if has_network else explorer,
        "papers": sections.papers_html(),
        "version": text(__version__),
        "date": date.today().isoformat(),
        "plotly": plotly,
        "import_map": import_map(),
    }
    return re.sub(r"{{\s*(\w+)\s*}}", lambda field: parts[field[1]], read_asset("page.html"))


def _draw_all(contents: Contents, kernel: HeatMaps | None, folder: Path, page: Path) -> dict[str, tuple[str, ...]]:
    """Draw every figure into files; their paths are relative to the page, so that all can be moved together."""
    figures = {anchor: figure for sweep in contents.sweeps for anchor, figure in sections.figures_of(sweep).items()}
    if kernel is not None:
        figures[KERNEL_ANCHOR] = kernel
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for anchor, figure in figures.items():
        paths = (os.path.relpath(path.resolve(), page.resolve().parent) for path in draw(figure, folder, anchor))
        files[anchor] = tuple(quote(Path(path).as_posix()) for path in paths)
    return files


def _navigation(contents: Contents, claims: Sequence[ClaimRow], kernel: HeatMaps | None, has_network: bool) -> str:
    """Links to all sections, in order."""
    experiments = []
    for sweep in contents.sweeps:
        preset = f"<small> {text(sweep.sweep.preset)}</small>" if sweep.sweep.preset else ""
        experiments.append((True, sections.sweep_anchor(sweep), f"{text(sweep.sweep.experiment.name)}{preset}"))
    links = (
        (bool(claims), "claims", "Claims and verdicts"),
        (kernel is not None, "kernel", "Path kernel"),
        (has_network, "explorer", "Gate explorer"),
        (bool(contents.sweeps), "five-regimes", "Gates and weights"),
        *experiments,
        (not has_network, "explorer", "Gate explorer"),
        (True, "papers", "The papers"),
    )
    return "".join(f'<li><a href="#{anchor}">{words}</a></li>' for is_there, anchor, words in links if is_there)


def _explorer(network: ExplorerNetwork | str) -> str:
    if isinstance(network, ExplorerNetwork):
        return read_asset("explorer.html") + json_script(export(network), 'id="explorer-network"')
    return (
        f'<p class="empty">There is no network to explore: {text(network)}. A run of <code>neuralpath papers run '
        "regimes</code> into the same folder trains one and keeps its weights in the folder.</p>"
    )
