"""What developers rely on: the hooks run what `make lint` runs, and the versions of the project agree."""

import re
import tomllib
from pathlib import Path

import yaml

import neuralpath

ROOT = Path(__file__).parents[2]


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_hooks_run_what_make_lint_runs_and_download_nothing():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    checks = {" ".join(words).strip() for words in re.findall(r"\$\(BIN\)/(\w+)(?: (\w+))?", recipe[1])}
    tools = {"ruff check", "ruff format", "mypy"}
    assert {" ".join(hook["entry"].removeprefix(".venv/bin/").split()[:2]) for hook in hooks} == tools
    assert checks == tools


def test_versions_agree():
    version = project()["version"]
    assert neuralpath.__version__ == version
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    released = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert not released or released[0] == version


def test_citation_has_what_the_format_asks_for():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["license"] == project()["license"]
    for work in citation["references"]:
        assert {"type", "title", "authors"} <= set(work)


def test_changelog_has_a_place_for_what_is_next():
    assert re.search(r"^## Unreleased$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
