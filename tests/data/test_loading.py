from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from neuralpath import data


def assert_holds(dataset: data.Dataset, tiny) -> None:
    for split, part in ((dataset.train, "train"), (dataset.test, "t10k")):
        pixels = tiny.arrays[f"{part}-images-idx3-ubyte"]
        assert split.images.dtype == torch.float32
        assert split.labels.dtype == torch.int64
        np.testing.assert_array_equal(split.images.numpy(), pixels[:, None].astype(np.float32) / np.float32(255))
        np.testing.assert_array_equal(split.labels.numpy(), tiny.arrays[f"{part}-labels-idx1-ubyte"])


def assert_holds_records(dataset: data.Dataset, tiny) -> None:
    n_label_bytes = tiny.source.n_label_bytes
    train = np.concatenate([tiny.records["one.bin"], tiny.records["two.bin"]])
    for split, records in ((dataset.train, train), (dataset.test, tiny.records["last.bin"])):
        assert split.images.shape == (len(records), 3, 2, 2)
        np.testing.assert_array_equal(split.labels.numpy(), records[:, n_label_bytes - 1])
        for image, record in zip(split.images.numpy(), records, strict=True):
            red, green, blue = record[n_label_bytes:].reshape(3, 4)
            for plane, values in zip(image, (red, green, blue), strict=True):
                np.testing.assert_array_equal(plane.ravel(), values.astype(np.float32) / np.float32(255))


def test_digits_are_split_as_documented() -> None:
    from sklearn.datasets import load_digits

    digits = data.load("digits")
    reference = load_digits()
    assert (len(digits.train), len(digits.test), digits.n_classes) == (1437, 360, 10)
    assert digits.train.images.shape[1:] == (1, 8, 8)
    assert (float(digits.train.images.min()), float(digits.train.images.max())) == (0.0, 1.0)
    np.testing.assert_array_equal(digits.test.images[1, 0].numpy() * 16, reference.images[5])
    np.testing.assert_array_equal(digits.train.images[4, 0].numpy() * 16, reference.images[6])
    np.testing.assert_array_equal(digits.test.labels.numpy(), reference.target[::5])


def test_known_names() -> None:
    assert data.names() == ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100")


def test_tables_of_the_real_sets_are_consistent() -> None:
    for source in data.SOURCES.values():
        assert len(set(source.class_names)) == (100 if source.name == "cifar100" else 10)
        for item in (*source.files, *source.downloads):
            assert len(item.checksum.digest) == {"md5": 32, "sha256": 64}[item.checksum.algorithm]
    assert list(data.SOURCES["cifar100"].class_names) == sorted(data.SOURCES["cifar100"].class_names)
    assert [file.n_values for file in data.SOURCES["cifar10"].files] == [30_730_000] * 6
    assert [file.n_values for file in data.SOURCES["cifar100"].files] == [153_700_000, 30_740_000]


@pytest.mark.parametrize("folder", ["", "tiny", "TINY/raw"])
def test_compressed_idx(tiny_idx, tmp_path: Path, folder: str) -> None:
    tiny_idx.write(tmp_path / folder)
    dataset = data.load("tiny", data_dir=tmp_path, sources=tiny_idx.sources)
    assert dataset.class_names == ("a", "b", "c")
    assert_holds(dataset, tiny_idx)


@pytest.mark.parametrize("hyphen", ["-idx", ".idx"])
def test_uncompressed_idx(tiny_idx, tmp_path: Path, hyphen: str) -> None:
    for name, contents in tiny_idx.contents.items():
        (tmp_path / name.replace("-idx", hyphen)).write_bytes(contents)
    assert_holds(data.load("tiny", data_dir=str(tmp_path), sources=tiny_idx.sources), tiny_idx)


def test_gzip_is_told_by_contents_not_by_name(tiny_idx, tmp_path: Path) -> None:
    for name, contents in tiny_idx.contents.items():
        (tmp_path / f"{name}.gz").write_bytes(contents)
    assert_holds(data.load("tiny", data_dir=tmp_path, sources=tiny_idx.sources), tiny_idx)


def test_another_compression_of_the_same_contents_is_fine(tiny_idx, tmp_path: Path) -> None:
    import gzip

    for name, contents in tiny_idx.contents.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(contents, compresslevel=0, mtime=12345))
    assert_holds(data.load("tiny", data_dir=tmp_path, sources=tiny_idx.sources), tiny_idx)


@pytest.mark.parametrize("folder", ["", "small"])
@pytest.mark.parametrize("prefix", ["", "./"])
def test_cifar_archive_even_packed_anew(tiny_cifar, tmp_path: Path, folder: str, prefix: str) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "small-binary.tar.gz").write_bytes(tiny_cifar.tar(prefix=prefix))
    assert_holds_records(data.load("small", data_dir=tmp_path, sources=tiny_cifar.sources), tiny_cifar)


def test_cifar_archive_without_compression(tiny_cifar, tmp_path: Path) -> None:
    import gzip

    (tmp_path / "small-binary.tar").write_bytes(gzip.decompress(tiny_cifar.tar()))
    assert_holds_records(data.load("small", data_dir=tmp_path, sources=tiny_cifar.sources), tiny_cifar)


@pytest.mark.parametrize("folder", ["", "small", "small-bin", "small/small-bin"])
def test_cifar_folder(tiny_cifar, tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for name, contents in tiny_cifar.contents.items():
        (tmp_path / folder / name).write_bytes(contents)
    assert_holds_records(data.load("small", data_dir=tmp_path, sources=tiny_cifar.sources), tiny_cifar)


def test_the_last_label_byte_counts(tiny_cifar_with_coarse_labels, tmp_path: Path) -> None:
    tiny = tiny_cifar_with_coarse_labels
    (tmp_path / "small-binary.tar.gz").write_bytes(tiny.tar())
    coarse = np.concatenate([tiny.records["one.bin"], tiny.records["two.bin"]])[:, 0]
    dataset = data.load("small", data_dir=tmp_path, sources=tiny.sources)
    assert dataset.train.labels.tolist() != coarse.tolist()  # else the test would prove nothing
    assert_holds_records(dataset, tiny)


def test_loading_changes_nothing_on_disk(tiny_cifar, tmp_path: Path, unchanged) -> None:
    (tmp_path / "small-binary.tar.gz").write_bytes(tiny_cifar.tar())
    unchanged()
    data.load("small", data_dir=tmp_path, sources=tiny_cifar.sources)


def test_unknown_name_gets_a_hint() -> None:
    with pytest.raises(data.DataError, match=r"No data set is called 'minst'; known are digits, .*mean mnist\?"):
        data.load("minst")


def test_split_of_unequal_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="got 2 and 3"):
        # Not through the constructor: the shape checks that tests switch on would speak first.
        data.Split.__post_init__(SimpleNamespace(images=torch.zeros(2, 1, 1, 1), labels=torch.zeros(3)))


def test_label_without_a_class_is_refused() -> None:
    split = data.Split(torch.zeros(2, 1, 1, 1), torch.tensor([0, 2]))
    with pytest.raises(ValueError, match=r"`train` labels of x must lie between 0 and 1,.* got 0 to 2"):
        data.Dataset("x", split, split, ("a", "b"))
