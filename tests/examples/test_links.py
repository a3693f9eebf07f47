"""Links inside the repository lead somewhere: from the README, the pages beside it and those of the examples."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HTML = re.compile(r"(?:src|srcset|href)=\"([^\"]+)\"")
_CODE = re.compile(r"(```+).*?\1", re.DOTALL)


def links_of(text):
    """Targets of Markdown links and of HTML attributes, outside of code blocks."""
    prose = _CODE.sub("", text)
    return _LINK.findall(prose) + _HTML.findall(prose)


def anchors_of(text):
    """The names under which GitHub finds a page's headings."""
    headings = re.findall(r"^#+ (.*)$", _CODE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page, root):
    """What a page links to that is not there."""
    text = (root / page).read_text()
    broken = []
    for target in links_of(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = (root / page).parent / path if path else root / page
        if not file.exists() or (anchor and anchor not in anchors_of(file.read_text())):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    assert broken_links(page, ROOT) == []


def test_the_pages_have_links_to_check():
    assert all(len(links_of((ROOT / page).read_text())) >= 3 for page in PAGES if page != "CHANGELOG.md")


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "there.md").write_text("# A heading, here\n")
    (tmp_path / "page.md").write_text(
        "[1](there.md) [2](gone.md) [3](there.md#a-heading-here) [4](there.md#no-heading) [5](https://example.org/x)\n"
        '<img src="no.png">\n```\n[6](in-code.md)\n```\n# Own\n[7](#own)\n'
    )
    assert broken_links("page.md", tmp_path) == ["gone.md", "there.md#no-heading", "no.png"]


def test_scripts_behind_the_benchmark_figures_are_there():
    rows = re.findall(r"^\|.*\| `(\w+\.py)[^`]*` \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(rows) >= 8
    for name in rows:
        assert (ROOT / "benchmarks" / name).is_file()
        assert (ROOT / "benchmarks" / "results" / name.replace(".py", ".json")).is_file()
