"""Compiled loops run on torch's threads, and leave torch's setting alone."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

import neuralpath as npath
from neuralpath import nets
from neuralpath._loops import compiled
from neuralpath._loops.compiled import n_threads


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("model", [nets.FC((1, 6, 6), 16, 3), nets.GCONV((1, 6, 6), 3, channels=(8, 8))])
def test_a_kernel_does_not_change_the_thread_count_of_torch(threads, model, count):
    x = torch.rand(5, 1, 6, 6)
    graph = npath.trace(model, x[:1])
    expected = npath.path_kernel(graph, x)
    threads(count)
    assert torch.equal(npath.path_kernel(graph, x), expected)
    assert torch.get_num_threads() == count
    assert n_threads() <= count


FIRST_CALL = """
import numba, torch
import neuralpath as npath
from neuralpath import nets
from neuralpath._loops import compiled

counts = []
set_count = numba.set_num_threads
numba.set_num_threads = lambda count: (counts.append(count), set_count(count))
x = torch.rand(7, 3, 8, 8)
npath.path_kernel(npath.trace(nets.GCONV((3, 8, 8), 3, channels=(8, 8)), x[:1]), x)
assert counts[0] == 1, counts
assert torch.get_num_threads() == 1
"""


def test_the_first_parallel_loop_of_a_process_runs_on_no_more_threads_than_torch():
    # Numba starts its threads at the first call and raises torch's count; buffers were made for one thread.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", FIRST_CALL], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_error_in_a_thread_is_raised(monkeypatch):
    monkeypatch.setattr(compiled, "n_threads", lambda: 2)
    seen = []

    def run(rows, buffer):
        seen.append(rows)
        if rows.start == 4:
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        compiled.side_by_side(run, 5, 2, lambda: (torch.empty(1),))
    assert sorted((rows.start, rows.stop) for rows in seen) == [(0, 2), (2, 4), (4, 5)]


def test_after_an_interruption_no_other_block_is_begun(monkeypatch):
    monkeypatch.setattr(compiled, "n_threads", lambda: 2)
    seen, begun = [], threading.Event()

    def run(rows, buffer):
        seen.append(rows.start)
        if threading.current_thread() is threading.main_thread():
            begun.wait(10)
            raise KeyboardInterrupt
        begun.set()
        time.sleep(0.2)

    with pytest.raises(KeyboardInterrupt):
        compiled.side_by_side(run, 100, 1, lambda: (torch.empty(1),))
    assert len(seen) == 2
    compiled.side_by_side(lambda rows, buffer: seen.append(rows.start), 3, 1, lambda: (torch.empty(1),))
    assert sorted(seen[2:]) == [0, 1, 2]  # and the threads serve on


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(monkeypatch):
    monkeypatch.setattr(compiled, "n_threads", lambda: 2)
    make_buffers = lambda: (torch.empty(1),)  # noqa: E731
    compiled.side_by_side(lambda rows, buffer: None, 4, 1, make_buffers)
    child = os.fork()
    if child == 0:
        try:
            compiled.side_by_side(lambda rows, buffer: time.sleep(0.01), 4, 1, make_buffers)
            os._exit(0)
        finally:
            os._exit(1)
    deadline = time.monotonic() + 60
    while (found := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    assert os.waitstatus_to_exitcode(found[1]) == 0
