"""Locks, digests and atomic writes, which every folder of the package uses."""

import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

from neuralpath._files import AlreadyLocked, exclusive_lock, write_atomically
from neuralpath._hashing import json_digest, tensor_digest, tensors_digest, text_digest, weights_digest

HOLD = """
import sys
from pathlib import Path
from neuralpath._files import exclusive_lock
with exclusive_lock(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["file", "folder"])
def path(request, tmp_path):
    path = tmp_path / "held"
    if request.param == "folder":
        path.mkdir()
    return path


def test_a_lock_keeps_other_processes_out_until_the_process_ends(path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "locked\n"
    with pytest.raises(AlreadyLocked, match="held"), exclusive_lock(path):
        pass
    holder.kill()
    holder.communicate()
    with exclusive_lock(path):
        pass


def test_a_lock_is_released_after_an_error(path):
    with pytest.raises(ZeroDivisionError), exclusive_lock(path):
        _ = 1 / 0
    with exclusive_lock(path), pytest.raises(AlreadyLocked), exclusive_lock(path):
        pass


def test_two_writers_leave_one_whole_file(tmp_path):
    path = tmp_path / "file"
    contents = [bytes([i]) * 100_000 for i in range(4)]
    threads = [threading.Thread(target=write_atomically, args=(path, data)) for data in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]


def test_digests_that_records_depend_on():
    # Computed by the first edition: a change here makes every stored record another one.
    module = nn.Linear(2, 1)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 2.0]]))
        module.bias.fill_(3.0)
    x = torch.arange(6.0).reshape(2, 3)
    assert tensors_digest(x, x.bool()) == "1e11990415343cd00d76a8a2293f40f8310c57a9695dd78b69c16c1f0fc03f7c"
    assert weights_digest(module) == "3db7aa1e7b733aa3b39a4ada4c3d5e8bca5dcf5ef10da51b590bc44dd9d73195"
    assert json_digest({"b": [1, 2.5], "a": None}) == "e57f5d37865437a82e1108bafb4e5213dfe7e9085f5c253341ebbab30cac5faf"
    assert text_digest("neuralpath") == "71971b66f49475a97235d14e9667cafd0cb55da978035ee3a913bf9d5c82ac0f"
    assert tensor_digest(x.T) == tensor_digest(x.T.contiguous())
    assert tensor_digest(torch.tensor(1.0, dtype=torch.bfloat16)).startswith("scalar bfloat16 ")
