import pytest

from neuralpath.cli import main
from neuralpath.papers.runs.store import Store
from papers.report.small_runs import SMALL, small_sweep, write_made_up


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder with two finished runs, a network and weights behind its gates."""
    folder = tmp_path_factory.mktemp("report") / "runs"
    assert main(["papers", "run", "regimes", "--out", str(folder), "--jobs", "1", *SMALL]) == 0
    return folder


@pytest.fixture(scope="session")
def store(runs):
    return Store(runs, runs)


@pytest.fixture(scope="session")
def many_runs(tmp_path_factory):
    """A folder with made-up records of more than 200 runs."""
    return write_made_up(tmp_path_factory.mktemp("many") / "runs", small_sweep(n_seeds=23))
