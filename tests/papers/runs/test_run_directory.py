"""Files of tensors and their checksums."""

import hashlib

import pytest
import torch
from safetensors.torch import load, save

from neuralpath.papers.runs import run_directory
from neuralpath.papers.runs.run_directory import (
    DamagedTensors,
    checksum_path,
    read_tensors,
    tensors_problem,
    write_tensors,
)

DATA = save({"x": torch.arange(1000.0)})
OTHER = save({"x": torch.arange(1000.0) + 1})


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "last.safetensors"
    write_tensors(path, DATA)
    return path


def overwrite(path):
    """As many bytes as before, in the middle, and a header that still fits."""
    data = bytearray(path.read_bytes())
    data[-2000:-1000] = bytes(1000)
    path.write_bytes(data)


def test_a_file_has_its_checksum_beside_it_as_sha256sum_writes_it(file):
    assert read_tensors(file) == DATA
    assert tensors_problem(file) is None
    assert checksum_path(file).read_text() == f"{hashlib.sha256(DATA).hexdigest()}  last.safetensors\n"


def test_overwritten_bytes_are_found_though_the_file_still_loads(file):
    overwrite(file)
    load(file.read_bytes())
    assert "last.safetensors is damaged: its checksum is wrong" in tensors_problem(file)
    with pytest.raises(DamagedTensors, match=r"last\.safetensors is damaged: its checksum is wrong\."):
        read_tensors(file)


@pytest.mark.parametrize("size", [0, 4, 50, len(DATA) - 1])
def test_a_file_that_is_cut_off_is_found(file, size):
    file.write_bytes(DATA[:size])
    assert "its checksum is wrong" in tensors_problem(file)


def test_a_file_without_a_checksum_is_not_read(file):
    checksum_path(file).unlink()
    with pytest.raises(DamagedTensors, match=r"last\.safetensors\.sha256 cannot be read"):
        read_tensors(file)


@pytest.mark.parametrize("noted", [b"", b"none\n", b"\xff\xfe", b"0" * 63 + b"  last.safetensors\n"])
def test_a_checksum_that_is_none_vouches_for_nothing(file, noted):
    checksum_path(file).write_bytes(noted)
    assert "last.safetensors.sha256 has no checksum" in tensors_problem(file)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(DamagedTensors, match=r"folder\.safetensors cannot be read: Is a directory"):
        read_tensors(tmp_path / "folder.safetensors")


def test_what_was_found_is_remembered_only_while_the_file_stays(file):
    assert tensors_problem(file) is None
    overwrite(file)
    assert tensors_problem(file) is not None
    write_tensors(file, OTHER)
    assert tensors_problem(file) is None
    assert read_tensors(file) == OTHER


def test_a_kill_between_the_two_files_never_leaves_a_pair_that_disagrees(file, monkeypatch):
    real = run_directory.write_atomically

    def killed(path, data):
        if path == file:
            raise KeyboardInterrupt
        real(path, data)

    monkeypatch.setattr(run_directory, "write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        write_tensors(file, OTHER)
    assert not file.exists()
    monkeypatch.undo()
    write_tensors(file, OTHER)
    assert read_tensors(file) == OTHER
