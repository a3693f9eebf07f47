"""The manual builds without a warning, loads nothing from elsewhere, and its links lead somewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest

from docs.pages import PAGES, ROOT

LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}


class Page(HTMLParser):
    """What a page loads, where it links to, and which anchors it has."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.links, self.anchors = [], [], set()
        self.formulas, self.styles = 0, []
        self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag in LOADING and values.get(LOADING[tag]):
            self.loads.append(values[LOADING[tag]])
        if tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(values["href"])
        if tag == "a" and values.get("href") is not None:
            self.links.append(values["href"])
        if values.get("id"):
            self.anchors.add(values["id"])
        self.formulas += tag == "math"
        self._in_style = tag == "style"

    def handle_data(self, data):
        if self._in_style:
            self.styles.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html")) if path.name != "404.html"}, folder


@pytest.mark.slow
def test_every_page_is_built_with_its_formulas(site):
    pages, folder = site
    assert {path.relative_to(folder).with_suffix(".md") for path in pages} == {
        page.relative_to(ROOT / "docs") for page in PAGES
    }
    assert pages[folder / "theory.html"].formulas > 200
    for path in pages:
        assert "arithmatex" not in path.read_text()


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site):
    pages, folder = site
    for path, page in pages.items():
        assert page.loads
        for address in page.loads:
            parts = urlsplit(address)
            assert not parts.scheme or parts.scheme == "data", f"{path.name} loads {address}"
            assert not parts.netloc, f"{path.name} loads {address}"
            if not parts.scheme:
                assert (path.parent / unquote(parts.path)).is_file(), f"{path.name} loads {address}"
        assert not any("//" in style and "url(" in style for style in page.styles)
    for sheet in folder.rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet


@pytest.mark.slow
def test_links_lead_to_pages_and_anchors(site):
    pages, _ = site
    seen = 0
    for path, page in pages.items():
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme in ("http", "https"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target in pages, f"{path.name} links to {address}"
            if parts.fragment:
                seen += 1
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.name} links to {address}"
    assert seen > 200


@pytest.mark.slow
def test_search_works_from_the_disk(site, browser):
    """In a browser, with the page opened as a file: no server, and no worker that a browser would start for it."""
    _, folder = site
    for name in ("index.html", "api/kernels.html"):
        page = browser.new_page(viewport={"width": 1300, "height": 900})
        failed = []
        page.on("pageerror", lambda error, failed=failed: failed.append(error))
        page.goto((folder / name).as_uri())
        page.locator(".md-search__input").click()
        page.keyboard.type("jitter")
        found = page.locator(".md-search-result__link").first
        found.wait_for()
        assert (folder.as_uri() + "/") in found.get_attribute("href")
        assert not failed
        page.close()
