import os
import shutil

import jaxtyping
import pytest
from hypothesis import settings

# The same examples in every run: a failure here is a failure everywhere.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture
def without_type_checks(monkeypatch):
    """Users have no type checks at run time, and meet the package's own messages."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium of the system; without it the tests skip, or fail where it is required."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for found in map(shutil.which, names) if found), None)
    if path is None:
        reason = "tests in a browser need chromium: apt-get install chromium"
        if os.environ.get("NEURALPATH_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        print(f"skipped: {reason}")
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()
