import os
import shutil

import pytest

from neuralpath.cli import main
from neuralpath.runs.store import Store
from report.small_runs import SMALL, small_sweep, write_made_up


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder with two finished runs, a network and weights behind its gates."""
    folder = tmp_path_factory.mktemp("report") / "runs"
    assert main(["run", "regimes", "--out", str(folder), "--jobs", "1", *SMALL]) == 0
    return folder


@pytest.fixture(scope="session")
def store(runs):
    return Store(runs, runs)


@pytest.fixture(scope="session")
def many_runs(tmp_path_factory):
    """A folder with made-up records of more than 200 runs."""
    return write_made_up(tmp_path_factory.mktemp("many") / "runs", small_sweep(n_seeds=23))


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium of the system; without it the tests skip, or fail where it is required."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for found in map(shutil.which, names) if found), None)
    if path is None:
        reason = "the page's browser tests need chromium: apt-get install chromium"
        if os.environ.get("NEURALPATH_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        print(f"skipped: {reason}")
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()
