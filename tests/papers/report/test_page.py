"""The page as text: all tables, all runs, nothing from outside."""

import json
import re
import tomllib
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path, PurePath

import pytest

import neuralpath.papers.report
from neuralpath.cli import main
from neuralpath.papers.claims.rows import VERDICTS, ClaimRow
from neuralpath.papers.experiments import finished, regimes
from neuralpath.papers.experiments.registry import get
from neuralpath.papers.experiments.summary_items import Table
from neuralpath.papers.report.contents import Contents, read_contents
from neuralpath.papers.report.explorer import find_network, kernel_picture
from neuralpath.papers.report.markup import cell_html
from neuralpath.papers.report.page import MODULES, PREFIX, page_html, plotly_source, read_asset, write_report
from neuralpath.papers.report.sections import PAPERS, REGIMES, sweep_anchor
from papers.report.small_runs import contents_of_every_kind, figures_of_every_kind, some_claims

PLOTLY = "/* plotly */"


class Page(HTMLParser):
    """Addresses, identifiers, elements and the text of a page."""

    def __init__(self, source):
        super().__init__()
        self.addresses, self.ids, self.open, self.text = [], [], [], ""
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "poster", "srcset"):
                self.addresses.append(value)
            if name == "id":
                self.ids.append(value)
        if tag not in ("meta", "link", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"{tag} ends where another element is open"

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data + " "


def page_of(contents, **more):
    return page_html(contents, "no run", PLOTLY, **more)


@pytest.fixture(scope="module")
def whole(store):
    return page_html(read_contents(store), "no run", PLOTLY)


def test_every_table_of_the_experiments_is_there(whole, store):
    text = Page(whole).text
    for sweep in read_contents(store).sweeps:
        for item in sweep.summary:
            assert item.title in text
            for row in getattr(item, "rows", ()):
                for cell in (cell for cell in row if cell is not None):
                    assert unescape(re.sub("<[^>]+>", "", cell_html(cell))).split("(")[0].strip() in text


def test_the_page_is_well_formed_and_all_its_places_exist(whole):
    for source in (whole, page_of(contents_of_every_kind(), claims=some_claims())):
        page = Page(source)
        assert page.open == []
        assert len(page.ids) == len(set(page.ids))
        assert {address[1:] for address in page.addresses if address.startswith("#")} <= set(page.ids)


def test_nothing_comes_from_outside(whole):
    page = Page(whole)
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    style = read_asset("page.css")
    assert "url(" not in style
    assert "@import" not in style
    for name in MODULES:
        source = read_asset(name)
        assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|importScripts|https?://", source), name


def test_modules_import_only_what_is_in_the_page():
    known = {f"{PREFIX}{name}" for name in MODULES}
    for name in MODULES:
        assert set(re.findall(r'from "([^"]+)"', read_asset(name))) <= known, name


def test_every_asset_is_used_and_comes_with_the_package():
    folder = Path(neuralpath.papers.report.__file__).parent
    found = {
        path.relative_to(folder / "assets").as_posix() for path in (folder / "assets").rglob("*") if path.is_file()
    }
    assert found == {*MODULES, "page.html", "page.css", "explorer.html"}
    project = Path(__file__).parents[3] / "pyproject.toml"
    patterns = tomllib.loads(project.read_text())["tool"]["setuptools"]["package-data"]["neuralpath.papers.report"]
    for name in found:
        assert any(PurePath(f"assets/{name}").match(pattern) for pattern in patterns), name


def test_figures_are_values_that_a_script_can_read():
    source = page_of(contents_of_every_kind())
    figures = re.findall(r'<figure class="shown figure".*?<script type="application/json">(.*?)</script>', source, re.S)
    kinds = [json.loads(figure)["kind"] for figure in figures]
    assert kinds == ["curves", "curves", "curves", "distribution", "heat-maps", "heat-maps", "pictures"]
    assert json.loads(figures[0])["curves"][0]["name"] == "one <seed>"


def test_words_of_runs_cannot_become_elements():
    source = page_of(contents_of_every_kind())
    assert "<no>" not in source
    assert "<seed>" not in source
    assert "A &lt;table&gt;" in source


def test_a_missing_figure_is_named():
    text = Page(page_of(contents_of_every_kind())).text
    missing = text.index("Nothing yet")
    assert "This figure is missing: no finished run has values for it yet." in text[missing:]
    assert len(figures_of_every_kind()) == 9


def as_label_energy(sweep):
    """A sweep under the name of another experiment, without anything to show."""
    return replace(sweep, sweep=replace(sweep.sweep, experiment=get("label-energy")), summary=())


def place_of(source, *anchors):
    return [source.index(f'id="{anchor}"') for anchor in anchors]


def test_what_a_newcomer_can_read_comes_first(store):
    contents = read_contents(store)
    network = find_network(contents.sweeps, store)
    regimes_sweep, other = contents.sweeps[0], as_label_energy(contents.sweeps[0])
    both = Contents((other, regimes_sweep), ())
    kernel = kernel_picture(network)
    source = page_html(both, network, PLOTLY, claims=some_claims(), kernel=kernel)
    experiments = (sweep_anchor(regimes_sweep), sweep_anchor(other))
    anchors = ("claims", "kernel", "explorer", "five-regimes", *experiments, "papers")
    places = place_of(source, *anchors)
    assert places == sorted(places)
    linked = re.findall(r'<li><a href="#([^"]+)">', source)
    assert linked == list(anchors)


def test_without_a_network_the_explorer_does_not_stand_in_the_way(whole):
    explorer, papers, regimes = place_of(whole, "explorer", "papers", "five-regimes")
    assert regimes < explorer < papers
    assert 'id="kernel"' not in whole


def test_papers_and_regimes_are_explained_once(whole):
    text = Page(whole).text
    theory = (Path(__file__).parents[3] / "docs" / "theory.md").read_text()
    for name, (title, authors) in PAPERS.items():
        assert text.count(title) == 1
        assert f"| {name} | {title} | {authors} |" in theory
    for words in ("decoupled learning", "fixed learned", "fixed random, independent", "fixed random, dependent"):
        assert text.count(words) == 1
    assert [row[0].split(",")[0] for row in REGIMES.rows] == list(regimes.ALL)
    assert '<a href="#papers">P0 table 4, P1 table 2</a>' in whole
    assert "without a connection" in text


def test_that_all_runs_are_finished_is_said_once(whole, store):
    sweep = read_contents(store).sweeps[0]
    tasks = sweep.sweep.tasks
    said = finished(tasks, {task: {} for task in tasks})
    assert any(item.note.endswith(said) for item in sweep.summary)
    assert "runs are finished" not in whole
    assert whole.count("all runs finished") == 1


def test_the_label_energy_is_defined_and_does_not_rank(store):
    energy = as_label_energy(read_contents(store).sweeps[0])
    text = " ".join(Page(page_of(Contents((energy,), ()))).text.split())
    assert (
        "The label energy is \u03bd = y \u22a4 (H + jitter) \u22121 y, for the path kernel H scaled to trace 1" in text
    )
    assert "does not rank different networks" in text
    assert "The share of the labels is the part of the squared length of y" in text
    assert "smaller is better" not in text


def test_a_summary_of_the_regimes_stands_beside_their_explanation():
    table = Table("In brief", ("regime", "accuracy"), (("FL", "96.3%"),), "* y' (H + jitter)^-1 y")
    source = page_of(contents_of_every_kind(), summary=(table,))
    assert source.index("The five regimes") < source.index("In brief") < source.index('class="sweep"')
    assert "* y<sup>&top;</sup> (H + jitter)<sup>&minus;1</sup> y" in source


def test_claims_have_their_verdicts_and_their_number():
    text = Page(page_of(contents_of_every_kind(), claims=some_claims())).text
    for claim in some_claims():
        assert claim.claim in text
    assert all(verdict in text for verdict in VERDICTS)
    assert "Claims and verdicts" not in Page(page_of(contents_of_every_kind())).text


def test_claims_are_reached_from_their_verdicts():
    page = Page(page_of(contents_of_every_kind(), claims=some_claims()))
    for claim in some_claims():
        anchor = f"claim-{claim.number.lower()}"
        assert anchor in page.ids
        assert page.addresses.count(f"#{anchor}") == 1


def test_every_part_of_a_claim_has_a_line_of_its_own():
    claim = ClaimRow("C1", "two parts", "P0", "first: 1\nsecond: 2", "-", "holds", "")
    source = page_of(contents_of_every_kind(), claims=[claim])
    assert "<dt>ours</dt><dd>first: 1</dd><dd>second: 2</dd>" in source
    assert "<dt>difference</dt>" not in source


def test_details_of_a_run_have_settings_command_and_versions(whole, store):
    for run in read_contents(store).sweeps[0].runs:
        assert run.task.name in whole
        assert f"torch {run.about['versions']['torch']}" in whole
    gated = next(run.task for run in read_contents(store).sweeps[0].runs if run.task.dependencies)
    assert (
        f"&quot;task&quot;: &quot;{gated.dependencies[0].name}&quot;" in whole
    )  # a run among the settings by its name
    assert "command: neuralpath papers run regimes" in whole


def test_two_hundred_runs_stay_small(many_runs, tmp_path):
    written = write_report(many_runs, tmp_path / "page.html")
    assert written.n_bytes < 15_000_000
    assert written.n_bytes - len(plotly_source()) < 1_500_000
    assert written.page.read_text().count('<span class="state finished">') >= 200


def test_command_writes_the_page_and_every_figure(runs, tmp_path, capsys):
    page, figures = tmp_path / "deep" / "page.html", tmp_path / "figures"
    assert main(["papers", "report", str(runs), "--out", str(page), "--figures", str(figures)]) == 0
    printed = capsys.readouterr().out
    assert f"{page}: 5" in printed
    assert ": 2 figures as PDF and PNG" in printed
    source = page.read_text()
    assert "Plotly" in source
    assert 'id="explorer-network"' in source
    assert 'id="path-kernel"' in source
    drawn = re.findall(r'<figure class="shown figure" id="([^"]+)"', source)
    assert drawn
    for anchor in drawn:
        assert (figures / f"{anchor}.pdf").read_bytes().startswith(b"%PDF")
        assert (figures / f"{anchor}.png").read_bytes().startswith(b"\x89PNG")
        assert f'href="../figures/{anchor}.pdf"' in source


def test_the_page_goes_into_the_folder_by_default(runs, tmp_path, capsys):
    import shutil

    copy = shutil.copytree(runs, tmp_path / "runs")
    assert main(["papers", "report", str(copy), "--no-figures"]) == 0
    assert (copy / "report.html").exists()
    assert not (copy / "figures").exists()
    assert "figure" not in capsys.readouterr().out


def test_a_page_without_sweeps_still_says_what_could_not_be_read():
    text = Page(page_of(Contents((), ("sweeps/x.json cannot be read: <bad>",)))).text
    assert "sweeps/x.json cannot be read: <bad>" in text
    assert "There is no network to explore: no run." in text
