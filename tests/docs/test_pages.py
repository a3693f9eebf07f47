"""Every command and code block of the manual runs, and prints what the page shows."""

import pytest
import torch

from docs.pages import DOCS, PAGES
from markdown_blocks import SHOWN_ONLY, read_blocks, run_page

# All blocks that are not run, by page, with what they are marked with and their first line. `network` needs the
# internet, `cluster` several machines, and `suite` is what runs this.
NOT_RUN = [
    ("cluster.md", "cluster", "neuralpath kernel fc --data mnist --set width=128 depth=6 --store K.zarr --cluster"),
    ("cluster.md", "cluster", "dask scheduler --host 127.0.0.1 --port 8786"),
    ("cluster.md", "cluster", "dask worker tcp://127.0.0.1:8786 --nworkers 8 --nthreads 1"),
    ("cluster.md", "cluster", "from dask_jobqueue import SLURMCluster"),
    ("cluster.md", "cluster", "srun dask worker --scheduler-file scheduler.json --nthreads 1"),
    ("cluster.md", "cluster", "from dask_kubernetes.operator import KubeCluster"),
    ("index.md", "network", "pip install --constraint constraints.txt torch==2.13.0"),
    ("index.md", "suite", "make demo"),
    ("index.md", "network", "neuralpath data fetch mnist"),
]


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _runs(page):
    return any(not block.mark and block.language not in SHOWN_ONLY for block in read_blocks(page.read_text()))


WITH_BLOCKS = [page for page in PAGES if _runs(page)]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(DOCS)))
def test_blocks_run_and_print_what_follows_them(page, tmp_path, monkeypatch, one_thread):
    monkeypatch.setenv("COLUMNS", "120")
    assert run_page(read_blocks(page.read_text()), tmp_path) > 0


def test_the_blocks_that_are_not_run_are_these():
    found = []
    for page in PAGES:
        blocks = [block for block in read_blocks(page.read_text()) if block.mark]
        found += [(str(page.relative_to(DOCS)), block.mark, block.text.splitlines()[0]) for block in blocks]
    assert len(found) == len(NOT_RUN)
    for (page, mark, line), (known_page, known_mark, start) in zip(found, NOT_RUN, strict=True):
        assert (page, mark) == (known_page, known_mark)
        assert line.startswith(start)


def test_pages_with_blocks_are_there():
    assert len(WITH_BLOCKS) >= 8
