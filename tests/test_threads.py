"""Compiled loops run on torch's threads, and leave torch's setting alone."""

import pytest
import torch

import neuralpath as npath
from neuralpath import nets
from neuralpath.bits.compiled import n_threads


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
