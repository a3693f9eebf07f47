"""`neuralpath kernel` with stores: resumed, verified, and refused with one line."""

import errno
import os
import sys
from typing import get_args

import numpy as np
import pytest
import torch

from neuralpath import data, nets
from neuralpath.cli import main
from neuralpath.commands import kernel as command
from neuralpath.kernels import Kernel, TiledKernel, open_kernel, tangent_kernel

ARGUMENTS = ["kernel", "fc", "--data", "digits", "--count", "1200", "--set", "width=8", "depth=3"]
"""A kernel of 6 tiles of 512 x 512, the blocks of a fully connected network."""

SMALL = ["kernel", "fc", "--data", "digits", "--count", "40", "--set", "width=8", "depth=3"]


@pytest.fixture
def folder(tmp_path, capsys):
    assert main([*ARGUMENTS, "--store", str(tmp_path / "K.zarr")]) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'K.zarr'}\n"
    assert err.startswith("720,600 pairs in 6 tiles of 512 x 512; ")
    assert err.count("\n") == 1
    return tmp_path / "K.zarr"


@pytest.mark.parametrize("name", get_args(command.KernelName))
def test_every_name_is_a_kernel(name):
    model = nets.FC(4, width=8, depth=3)
    kernel = command.make_kernel(name, model, normalize=False)
    assert isinstance(kernel, Kernel)
    assert kernel(torch.rand(3, 4)).shape == (3, 3)


def test_a_store_is_the_same_kernel_as_a_file(folder, tmp_path):
    assert main([*ARGUMENTS, "--out", str(tmp_path / "K.npy")]) == 0
    assert np.array_equal(np.load(tmp_path / "K.npy"), open_kernel(folder))


def test_two_processes_that_write_one_file_do_not_share_a_part(tmp_path, monkeypatch):
    """The other one is in the middle of its work, and then goes on writing."""
    other = tmp_path / "K.npy.1.part"
    parts = []
    monkeypatch.setattr(command, "_write_npy", lambda tiles, part, label: parts.append(part) or part.write_bytes(b"K"))
    other.write_bytes(b"half")
    assert main([*ARGUMENTS, "--out", str(tmp_path / "K.npy")]) == 0
    [part] = parts
    assert part.name.startswith(f"K.npy.{os.getpid()}-")
    assert other.read_bytes() == b"half"


def test_weights_in_double_precision_are_not_rounded(tmp_path):
    torch.manual_seed(5)
    model = nets.FC((1, 8, 8), width=8, depth=3).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    torch.save(model.state_dict(), tmp_path / "w.pt")
    arguments = [*SMALL, "--double", "--kernel", "tangent", "--weights", str(tmp_path / "w.pt")]
    assert main([*arguments, "--out", str(tmp_path / "K.npy")]) == 0
    x = data.load("digits").train.images[:40].double()
    expected = tangent_kernel(model, x).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "K.npy"), expected, rtol=1e-12, atol=1e-12 * expected.max())


def test_weights_that_are_no_real_numbers_are_refused(tmp_path, capsys):
    state = nets.FC((1, 8, 8), width=8, depth=3).state_dict()
    torch.save({name: tensor.to(torch.complex64) for name, tensor in state.items()}, tmp_path / "w.pt")
    assert main([*ARGUMENTS, "--weights", str(tmp_path / "w.pt"), "--out", str(tmp_path / "K.npy")]) == 1
    assert "holds torch.complex64, not real numbers" in capsys.readouterr().err


def test_a_model_that_ends_the_program_is_named(tmp_path, capsys):
    file = tmp_path / "quits.py"
    lines = (
        "import sys",
        "from torch import nn",
        "class Quits(nn.Linear):",
        "    def forward(self, x):",
        "        sys.exit()",
    )
    file.write_text("\n".join(lines) + "\ndef make():\n    return Quits(64, 2)\n")
    place = ["--data", "digits", "--count", "5", "--out", str(tmp_path / "K.npy")]
    assert main(["kernel", f"{file}:make", "--kernel", "tangent", *place]) == 1
    assert "sys.exit(None) while it ran" in capsys.readouterr().err


def test_a_store_is_resumed_and_verified(folder, capsys):
    whole = open_kernel(folder).to_array()
    (folder / "c" / "0" / "1").unlink()
    assert main([*ARGUMENTS, "--verify", str(folder), "--tiles", "2"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "5 of 6 tiles are stored; 5 have the right checksum",
        "The store is not complete: run the command that began it, which resumes from these tiles.",
        "2 computed again: 2 equal bit for bit",
    ]
    assert main([*ARGUMENTS, "--store", str(folder)]) == 0
    assert "5 of them are stored" in capsys.readouterr().err
    assert np.array_equal(open_kernel(folder), whole)
    (folder / "c" / "0" / "1").write_bytes(b"nothing")
    assert main([*ARGUMENTS, "--verify", str(folder)]) == 1
    assert f"damaged: {folder / 'c' / '0' / '1'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--store", "{folder}", "--seed", "3"], "weights (layers.linear1.weight, "),
        (["--store", "{folder}", "--normalize"], "normalize (was False, is True)"),
        (["--verify", "{folder}", "--double"], "inputs (was 1200x1x8x8 float32"),
        (["--verify", "none.zarr"], "none.zarr"),
        (["--store", "a.zarr", "--out", "b.npy"], "give one of --store, --out and --verify, got --store and --out"),
        ([], "give one of --store, --out and --verify, got none of them"),
        (["--out", "K.npy", "--cluster", "x.json"], "--cluster and --threads are for --store"),
        (["--store", "a.zarr", "--threads", "0"], "--threads must be 1 or more"),
        (["--store", "a.zarr", "--cluster", "x.json"], "'x.json' is neither the address of a scheduler"),
        (["--verify", "{folder}", "--tiles", "-1"], "--tiles must be 0 or more"),
        (["--out", "{folder}/zarr.json/K.npy"], "cannot be written: {folder}/zarr.json is not a folder"),
        (["--store", "a.zarr", "--kernel", "tangent", "--normalize"], "--normalize is for --kernel path"),
    ],
)
def test_mistakes_are_one_line(more, message, folder, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main([*ARGUMENTS, *(word.format(folder=folder) for word in more)]) == 1
    error = capsys.readouterr().err
    assert message.format(folder=folder) in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["K.zarr"]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("K.npy", "K.npy cannot be written: it is a folder; give --out the name of a file.\n"),
        ("file/deeper/K.npy", "file/deeper/K.npy cannot be written: file is not a folder.\n"),
    ],
)
def test_a_place_that_no_file_can_be_put_at_is_refused_before_any_work(place, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "K.npy").mkdir()
    (tmp_path / "file").touch()

    def work(*_, **__):
        raise AssertionError

    monkeypatch.setattr(command.KernelCommand, "load_data", work)
    monkeypatch.setattr(command.KernelCommand, "load_model", work)
    assert main([*ARGUMENTS, "--out", place]) == 1
    assert capsys.readouterr().err.endswith(message)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["K.npy", "file"]
    assert list((tmp_path / "K.npy").iterdir()) == []


@pytest.mark.parametrize("n_tiles", [0, 4])
def test_an_interruption_tells_what_is_stored(n_tiles, tmp_path, capsys, monkeypatch):
    assembled, left = TiledKernel.assembled, iter(range(n_tiles))

    def interrupted(*arguments):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return assembled(*arguments)

    monkeypatch.setattr(TiledKernel, "assembled", interrupted)
    folder = tmp_path / "K.zarr"
    assert main([*ARGUMENTS, "--store", str(folder)]) == 130
    assert f"{n_tiles} of 6 tiles are finished in {folder}" in capsys.readouterr().err
    monkeypatch.undo()
    assert main([*ARGUMENTS, "--verify", str(folder)]) == 1
    assert f"{n_tiles} of 6 tiles are stored" in capsys.readouterr().out


def test_an_interruption_before_the_first_tile_leaves_nothing(tmp_path, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("neuralpath.kernels.path.path_kernel.pair_tiles", interrupted)
    assert main([*ARGUMENTS, "--store", str(tmp_path / "K.zarr")]) == 130
    assert "K.zarr has not been begun" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_nothing_is_left(tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "neuralpath.kernels.storage.zarr_array", raising=False)
    monkeypatch.delattr("neuralpath.kernels.storage.zarr_array", raising=False)
    monkeypatch.setitem(sys.modules, "zarr", None)
    assert main([*ARGUMENTS, "--store", str(tmp_path / "K.zarr")]) == 1
    assert "pip install zarr" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_before_the_work(tmp_path, capsys, monkeypatch):
    """Through a mapped file the process would be killed by a signal, in the middle."""

    def full(descriptor, offset, size):
        assert size > 40 * 40 * 4
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(TiledKernel, "__iter__", lambda self: pytest.fail("the work was begun"))
    assert main([*ARGUMENTS, "--out", str(tmp_path / "K.npy")]) == 1
    assert capsys.readouterr().err == f"neuralpath: {tmp_path / 'K.npy'} cannot be written: No space left on device.\n"
    assert list(tmp_path.iterdir()) == []
