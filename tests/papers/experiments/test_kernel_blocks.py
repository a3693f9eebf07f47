"""Blocks of a kernel that an interrupted run has kept: taken as they are, or computed anew where they are damaged."""

import pytest
import torch

from neuralpath.papers.experiments.kernel_tasks import _kept
from neuralpath.papers.runs.store import Store
from neuralpath.training.checkpoints import CheckpointWarning
from papers.runs.small_tasks import Counting

BLOCK = torch.arange(600.0, dtype=torch.float64).reshape(20, 30)


@pytest.fixture
def directory(tmp_path):
    store, task = Store(tmp_path), Counting("blocks")
    store.make()
    store.begin(task)
    return store.directory(task)


def never():
    raise AssertionError("it was kept")


def test_a_block_is_computed_once(directory):
    assert torch.equal(_kept(directory, "own-0", lambda: BLOCK), BLOCK)
    assert torch.equal(_kept(directory, "own-0", never), BLOCK)


def overwritten(data):
    return data[:-100] + bytes(100)


def cut(data):
    return data[:200]


def emptied(data):
    return b""


@pytest.mark.parametrize(
    ("damaged", "has_sum"), [(overwritten, True), (cut, True), (emptied, True), (cut, False), (emptied, False)]
)
def test_a_damaged_block_is_named_and_computed_anew(directory, damaged, has_sum):
    _kept(directory, "own-0", lambda: BLOCK)
    file = directory.checkpoints / "own-0.safetensors"
    file.write_bytes(damaged(file.read_bytes()))
    if not has_sum:
        (directory.checkpoints / "own-0.safetensors.sha256").unlink()
    with pytest.warns(CheckpointWarning, match=r"own-0\.safetensors.* (is damaged|cannot be read): .*computed anew"):
        assert torch.equal(_kept(directory, "own-0", lambda: BLOCK), BLOCK)
    assert torch.equal(_kept(directory, "own-0", never), BLOCK)
