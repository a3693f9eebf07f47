"""Compiled loops run on torch's threads, and leave torch's setting alone."""

import os
import subprocess
import sys

import pytest
import torch

import neuralpath as npath
from neuralpath import nets
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
