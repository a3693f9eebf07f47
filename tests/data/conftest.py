"""Small data sets in the real formats, made here, with checksums of their own."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from neuralpath.data import Checksum, CifarSource, DataFile, Download, IdxSource


def _sha256(contents: bytes) -> Checksum:
    return Checksum("sha256", hashlib.sha256(contents).hexdigest())


class TinyIdx:
    """An idx data set of 6 training and 4 test images of 3 x 5 pixels, in 3 classes."""

    def __init__(self, name: str = "tiny", seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.arrays = {
            "train-images-idx3-ubyte": rng.integers(0, 256, (6, 3, 5), dtype=np.uint8),
            "train-labels-idx1-ubyte": rng.integers(0, 3, 6, dtype=np.uint8),
            "t10k-images-idx3-ubyte": rng.integers(0, 256, (4, 3, 5), dtype=np.uint8),
            "t10k-labels-idx1-ubyte": rng.integers(0, 3, 4, dtype=np.uint8),
        }
        self.contents = {
            key: (0x0800 + array.ndim).to_bytes(4, "big")
            + b"".join(size.to_bytes(4, "big") for size in array.shape)
            + array.tobytes()
            for key, array in self.arrays.items()
        }
        self.packed = {f"{key}.gz": gzip.compress(contents, mtime=0) for key, contents in self.contents.items()}
        files = {key: DataFile(key, array.shape, _sha256(self.contents[key])) for key, array in self.arrays.items()}
        self.source = IdxSource(
            name=name,
            class_names=("a", "b", "c"),
            folders=(name, f"{name.upper()}/raw"),
            train_images=files["train-images-idx3-ubyte"],
            train_labels=files["train-labels-idx1-ubyte"],
            test_images=files["t10k-images-idx3-ubyte"],
            test_labels=files["t10k-labels-idx1-ubyte"],
            downloads=tuple(Download(key, len(packed), _sha256(packed)) for key, packed in self.packed.items()),
            mirrors=("http://127.0.0.1:9/none/",),
            refused=("tiny.pkl.gz",),
        )
        self.sources = {name: self.source}

    def write(self, folder: Path) -> Path:
        """Write the compressed files."""
        folder.mkdir(parents=True, exist_ok=True)
        for key, packed in self.packed.items():
            (folder / key).write_bytes(packed)
        return folder


class TinyCifar:
    """A data set in CIFAR's layout: two training batches of 3, one test batch of 2, images of 2 x 2 pixels."""

    def __init__(self, n_label_bytes: int) -> None:
        rng = np.random.default_rng(n_label_bytes)
        self.records = {}
        for key, count in (("one.bin", 3), ("two.bin", 3), ("last.bin", 2)):
            labels = rng.integers(0, 4, (count, n_label_bytes), dtype=np.uint8)
            pixels = rng.integers(0, 256, (count, 12), dtype=np.uint8)
            self.records[key] = np.concatenate([labels, pixels], axis=1)
        self.contents = {key: array.tobytes() for key, array in self.records.items()}
        files = [DataFile(key, array.shape, _sha256(array.tobytes())) for key, array in self.records.items()]
        archive = self.tar()
        self.source = CifarSource(
            name="small",
            class_names=("p", "q", "r", "s"),
            folders=("small",),
            archives=("small-binary.tar.gz", "small-binary.tar"),
            member_folder="small-bin",
            n_label_bytes=n_label_bytes,
            side=2,
            train=tuple(files[:2]),
            test=tuple(files[2:]),
            downloads=(Download("small-binary.tar.gz", len(archive), _sha256(archive)),),
            mirrors=("http://127.0.0.1:9/none/",),
            refused=("small-python.tar.gz", "small-py"),
        )
        self.sources = {"small": self.source}

    def tar(self, *extra: tuple[tarfile.TarInfo, bytes], skip: str = "", prefix: str = "") -> bytes:
        """Pack the members, and others after them, as a compressed tar archive."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for key, contents in self.contents.items():
                if key != skip:
                    info = tarfile.TarInfo(f"{prefix}small-bin/{key}")
                    info.size = len(contents)
                    archive.addfile(info, io.BytesIO(contents))
            for info, contents in extra:
                archive.addfile(info, io.BytesIO(contents))
        return gzip.compress(packed.getvalue(), mtime=0)


@pytest.fixture
def tiny_idx() -> TinyIdx:
    return TinyIdx()


@pytest.fixture
def other_idx() -> TinyIdx:
    """A second idx data set, with files of the same names."""
    return TinyIdx("other", seed=1)


@pytest.fixture
def tiny_cifar() -> TinyCifar:
    return TinyCifar(n_label_bytes=1)


@pytest.fixture
def tiny_cifar_with_coarse_labels() -> TinyCifar:
    return TinyCifar(n_label_bytes=2)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own; no test looks into the user's."""
    base = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    monkeypatch.delenv("NEURALPATH_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return base / "neuralpath"


def _state(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in [folder, *sorted(folder.rglob("*"))]
    }


@pytest.fixture
def unchanged(tmp_path: Path, cache: Path) -> Iterator[Callable[[], None]]:
    """Call it when the files are there: the test then fails if anything on disk has changed in the end."""
    taken = []
    yield lambda: taken.append((_state(tmp_path), _state(cache.parent)))
    assert taken, "the test must say when the files are there"
    assert (_state(tmp_path), _state(cache.parent)) == taken[0]
