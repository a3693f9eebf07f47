"""Files that are not what they should be: each gives one clear line and changes nothing on disk."""

import gzip
import os
import pickle
import tarfile
from pathlib import Path

import pytest

from neuralpath import data

IMAGES = "train-images-idx3-ubyte.gz"


class Bomb:
    """Unpickling this would make a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def refusal(name: str, folder: Path, sources) -> str:
    with pytest.raises(data.DataError) as caught:
        data.load(name, data_dir=folder, sources=sources)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{name}: ")
    assert f"neuralpath data fetch {name}" in message
    (result,) = [result for result in data.check(folder, sources=sources) if result.name == name]
    assert result.status != "found"
    assert f"neuralpath data fetch {name}" in result.detail
    return message


def member(name: str, **attributes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for attribute, value in attributes.items():
        setattr(info, attribute, value)
    return info


@pytest.mark.parametrize("n_kept", [1, 5, 20, -1])
def test_truncated_gzip(tiny_idx, tmp_path: Path, unchanged, n_kept: int) -> None:
    tiny_idx.write(tmp_path)
    path = tmp_path / IMAGES
    path.write_bytes(path.read_bytes()[:n_kept])
    unchanged()
    message = refusal("tiny", tmp_path, tiny_idx.sources)
    assert str(path) in message
    assert ("truncated or damaged" in message) == (n_kept != 1)  # one byte does not show that it is gzip


def test_damaged_gzip(tiny_idx, tmp_path: Path, unchanged) -> None:
    tiny_idx.write(tmp_path)
    packed = bytearray((tmp_path / IMAGES).read_bytes())
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / IMAGES).write_bytes(packed)
    unchanged()
    assert IMAGES in refusal("tiny", tmp_path, tiny_idx.sources)


def test_wrong_magic_number(tiny_idx, tmp_path: Path, unchanged) -> None:
    tiny_idx.write(tmp_path)
    (tmp_path / IMAGES).write_bytes(tiny_idx.packed["train-labels-idx1-ubyte.gz"])
    unchanged()
    assert "expected the magic number 2051, found 2049" in refusal("tiny", tmp_path, tiny_idx.sources)


def test_wrong_count(tiny_idx, tmp_path: Path, unchanged) -> None:
    tiny_idx.write(tmp_path)
    contents = bytearray(tiny_idx.contents["train-images-idx3-ubyte"])
    contents[7] = 7
    (tmp_path / IMAGES).write_bytes(gzip.compress(contents))
    unchanged()
    assert all(shape in refusal("tiny", tmp_path, tiny_idx.sources) for shape in ("7x3x5", "6x3x5"))


@pytest.mark.parametrize(("change", "held"), [(-1, "105 bytes"), (1, "more than 106 bytes")])
def test_fewer_or_more_bytes_than_announced(tiny_idx, tmp_path: Path, unchanged, change: int, held: str) -> None:
    tiny_idx.write(tmp_path)
    contents = tiny_idx.contents["train-images-idx3-ubyte"]
    assert len(contents) == 106
    changed = contents[:change] if change < 0 else contents + bytes(change)
    (tmp_path / IMAGES).write_bytes(gzip.compress(changed))
    unchanged()
    assert f"has {held}, expected 106" in refusal("tiny", tmp_path, tiny_idx.sources)


def test_one_changed_pixel(tiny_idx, tmp_path: Path, unchanged) -> None:
    tiny_idx.write(tmp_path)
    contents = bytearray(tiny_idx.contents["train-images-idx3-ubyte"])
    contents[-1] ^= 1
    (tmp_path / IMAGES).write_bytes(gzip.compress(contents))
    unchanged()
    assert "its SHA256 is wrong" in refusal("tiny", tmp_path, tiny_idx.sources)


def test_gzip_that_unpacks_to_far_too_much(tiny_idx, tmp_path: Path, unchanged) -> None:
    tiny_idx.write(tmp_path)
    bomb = gzip.compress(tiny_idx.contents["train-images-idx3-ubyte"] + bytes(50_000_000))
    (tmp_path / IMAGES).write_bytes(bomb)
    unchanged()
    assert "more than 106 bytes" in refusal("tiny", tmp_path, tiny_idx.sources)


def test_missing_file(tiny_idx, tmp_path: Path, unchanged) -> None:
    tiny_idx.write(tmp_path / "tiny")
    (tmp_path / "tiny" / IMAGES).unlink()
    unchanged()
    message = refusal("tiny", tmp_path, tiny_idx.sources)
    assert f"{tmp_path / 'tiny'} is incomplete: train-images-idx3-ubyte is missing" in message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_named_pipe_does_not_block(tiny_idx, tmp_path: Path) -> None:
    tiny_idx.write(tmp_path / "tiny")
    (tmp_path / "tiny" / IMAGES).unlink()
    os.mkfifo(tmp_path / "tiny" / IMAGES)
    assert "is missing" in refusal("tiny", tmp_path, tiny_idx.sources)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_in_place_of_idx_is_not_run(tiny_idx, tmp_path: Path, unchanged, protocol: int) -> None:
    tiny_idx.write(tmp_path)
    dangerous = pickle.dumps(Bomb(tmp_path / "exploded"), protocol)
    (tmp_path / IMAGES).write_bytes(gzip.compress(dangerous))
    unchanged()
    message = refusal("tiny", tmp_path, tiny_idx.sources)
    assert "expected the magic number" in message
    assert ("Python pickle" in message) == (protocol >= 2)


def test_pickle_in_place_of_a_batch_is_not_run(tiny_cifar, tmp_path: Path, unchanged) -> None:
    for name, contents in tiny_cifar.contents.items():
        (tmp_path / name).write_bytes(contents)
    (tmp_path / "two.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    unchanged()
    message = refusal("small", tmp_path, tiny_cifar.sources)
    assert "two.bin" in message
    assert "Python pickle" in message


def test_pickle_of_the_right_size_is_not_run(tiny_cifar, tmp_path: Path, unchanged) -> None:
    for name, contents in tiny_cifar.contents.items():
        (tmp_path / name).write_bytes(contents)
    dangerous = pickle.dumps(Bomb(Path("x")))
    size = len(tiny_cifar.contents["two.bin"])
    (tmp_path / "two.bin").write_bytes((dangerous + bytes(size))[:size])
    unchanged()
    assert "its SHA256 is wrong" in refusal("small", tmp_path, tiny_cifar.sources)


@pytest.mark.parametrize("name", ["small-python.tar.gz", "small-py"])
@pytest.mark.parametrize("folder", ["", "small"])
def test_python_version_is_refused_by_name(tiny_cifar, tmp_path: Path, unchanged, name: str, folder: str) -> None:
    path = tmp_path / folder / name
    path.parent.mkdir(exist_ok=True)
    if name.endswith("py"):
        path.mkdir()
        (path / "data_batch_1").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    else:
        path.write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    unchanged()
    message = refusal("small", tmp_path, tiny_cifar.sources)
    assert f"{path} is the pickled Python version" in message
    assert "get small-binary.tar.gz with `neuralpath data fetch small --data-dir" in message


def test_folder_of_the_python_version_is_refused(tiny_cifar, tmp_path: Path, unchanged) -> None:
    (tmp_path / "small-py").mkdir()
    unchanged()
    assert "pickled Python version" in refusal("small", tmp_path / "small-py", tiny_cifar.sources)


def test_renamed_python_version_is_refused(tiny_cifar, tmp_path: Path, unchanged) -> None:
    dangerous = pickle.dumps(Bomb(tmp_path / "exploded"))
    archive = tiny_cifar.tar((member("small-py/data_batch_1", size=len(dangerous)), dangerous))
    (tmp_path / "small-binary.tar.gz").write_bytes(archive)
    unchanged()
    message = refusal("small", tmp_path, tiny_cifar.sources)
    assert "pickled Python version" in message


def test_real_names_of_the_python_versions_are_known(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz").touch()
    (tmp_path / "cifar-100-python").mkdir()
    with pytest.raises(data.DataError, match=r"cifar-10-binary\.tar\.gz with `neuralpath data fetch cifar10 "):
        data.find("cifar10", tmp_path)
    with pytest.raises(data.DataError, match=r"cifar-100-binary\.tar\.gz .* https://www\.cs\.toronto\.edu"):
        data.find("cifar100", tmp_path)


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "small-bin/../../escaped", "C:\\escaped", "..\\escaped"])
def test_tar_with_a_path_outside_its_folder(tiny_cifar, tmp_path: Path, unchanged, name: str) -> None:
    archive = tiny_cifar.tar((member(name, size=4), b"evil"))
    (tmp_path / "small-binary.tar.gz").write_bytes(archive)
    unchanged()
    message = refusal("small", tmp_path, tiny_cifar.sources)
    assert f"its member {name!r} points outside the archive's folder" in message


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_tar_with_a_link_or_device(tiny_cifar, tmp_path: Path, unchanged, kind: bytes) -> None:
    info = member("small-bin/extra", type=kind, linkname="/etc/hostname")
    (tmp_path / "small-binary.tar.gz").write_bytes(tiny_cifar.tar((info, b"")))
    unchanged()
    assert "is a link or a device, not a file" in refusal("small", tmp_path, tiny_cifar.sources)


def test_tar_with_a_missing_member(tiny_cifar, tmp_path: Path, unchanged) -> None:
    (tmp_path / "small-binary.tar.gz").write_bytes(tiny_cifar.tar(skip="two.bin"))
    unchanged()
    assert "lacks small-bin/two.bin" in refusal("small", tmp_path, tiny_cifar.sources)


def test_tar_with_a_double_member(tiny_cifar, tmp_path: Path, unchanged) -> None:
    again = tiny_cifar.contents["two.bin"]
    archive = tiny_cifar.tar((member("small-bin/two.bin", size=len(again)), again))
    (tmp_path / "small-binary.tar.gz").write_bytes(archive)
    unchanged()
    assert "small-bin/two.bin twice" in refusal("small", tmp_path, tiny_cifar.sources)


def test_tar_with_a_member_of_another_size(tiny_cifar, tmp_path: Path, unchanged) -> None:
    archive = tiny_cifar.tar((member("small-bin/two.bin", size=2), b"ab"), skip="two.bin")
    (tmp_path / "small-binary.tar.gz").write_bytes(archive)
    unchanged()
    assert "two.bin has 2 bytes, expected 39" in refusal("small", tmp_path, tiny_cifar.sources)


def test_tar_with_a_changed_member(tiny_cifar, tmp_path: Path, unchanged) -> None:
    archive = tiny_cifar.tar((member("small-bin/two.bin", size=39), bytes(39)), skip="two.bin")
    (tmp_path / "small-binary.tar.gz").write_bytes(archive)
    unchanged()
    message = refusal("small", tmp_path, tiny_cifar.sources)
    assert "small-binary.tar.gz: two.bin" in message
    assert "SHA256" in message


@pytest.mark.parametrize("n_kept", [0, 1, 30, 200])
def test_truncated_tar(tiny_cifar, tmp_path: Path, unchanged, n_kept: int) -> None:
    archive = tiny_cifar.tar()
    path = tmp_path / "small-binary.tar.gz"
    path.write_bytes(archive[:n_kept])
    unchanged()
    assert str(path) in refusal("small", tmp_path, tiny_cifar.sources)


def test_truncated_uncompressed_tar(tiny_cifar, tmp_path: Path, unchanged) -> None:
    (tmp_path / "small-binary.tar").write_bytes(gzip.decompress(tiny_cifar.tar())[:520])
    unchanged()
    assert "is not a complete tar archive" in refusal("small", tmp_path, tiny_cifar.sources)


def test_tar_that_unpacks_to_far_too_much(tiny_cifar, tmp_path: Path, unchanged) -> None:
    filler = bytes(20_000_000)
    archive = tiny_cifar.tar((member("small-bin/filler", size=len(filler)), filler))
    (tmp_path / "small-binary.tar.gz").write_bytes(archive)
    unchanged()
    assert "unpacks to far more" in refusal("small", tmp_path, tiny_cifar.sources)


def test_something_else_with_the_name_of_the_archive(tiny_cifar, tmp_path: Path, unchanged) -> None:
    (tmp_path / "small-binary.tar.gz").write_bytes(b"<html>Not found</html>" * 100)
    unchanged()
    assert "is not a complete tar archive" in refusal("small", tmp_path, tiny_cifar.sources)


def test_incomplete_cifar_folder(tiny_cifar, tmp_path: Path, unchanged) -> None:
    (tmp_path / "small-bin").mkdir()
    (tmp_path / "small-bin" / "one.bin").write_bytes(tiny_cifar.contents["one.bin"])
    unchanged()
    assert "is incomplete: two.bin is missing" in refusal("small", tmp_path, tiny_cifar.sources)
