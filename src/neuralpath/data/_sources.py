"""The known data sets: their files, the published checksums, and the addresses for downloads, from `sources.toml`."""

import difflib
import math
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from neuralpath._hashing import digest_of

EMBEDDED = "digits"  # comes with scikit-learn, so there is no file to find or to download


class DataError(ValueError):
    """A data set is missing, damaged, refused or could not be downloaded; the message says what to do."""


class DamagedFile(DataError):
    """A file exists, but its contents are wrong."""


class PickledData(DataError):
    """Only the pickled version of a data set is there, which is never opened."""


@dataclass(frozen=True, slots=True)
class Checksum:
    """A published checksum.

    Args:
        algorithm: Name of the hash function.
        digest: Its value, in hexadecimal digits.
    """

    algorithm: Literal["md5", "sha256"]
    digest: str

    def matches(self, contents: bytes) -> bool:
        """Whether these are the bytes of the file."""
        return digest_of(contents, self.algorithm) == self.digest


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a data set, uncompressed.

    Args:
        name: Name of the file.
        shape: Shape of its array of bytes, number of examples first.
        checksum: Checksum of the uncompressed contents.
    """

    name: str
    shape: tuple[int, ...]
    checksum: Checksum

    @property
    def n_values(self) -> int:
        """Number of bytes without any header."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Download:
    """One file as it is offered for download.

    Args:
        name: Name of the file, which is appended to the address of a mirror.
        size: Number of bytes.
        checksum: Checksum of the file as it is downloaded.
    """

    name: str
    size: int
    checksum: Checksum


@dataclass(frozen=True, kw_only=True)
class _Source:
    """The description of a data set: what the two file formats have in common."""

    name: str
    """Name of the data set."""
    class_names: tuple[str, ...]
    """Names of its classes, in the order of the labels."""
    folders: tuple[str, ...]
    """Folders that are searched below a data folder, besides the folder itself."""
    downloads: tuple[Download, ...]
    """The files to download."""
    mirrors: tuple[str, ...]
    """Addresses that the names of the downloads are appended to."""
    refused: tuple[str, ...] = ()
    """Names of files and folders of the pickled version, which is never opened."""

    def fetch_command(self, data_dir: str | os.PathLike[str] | None = None) -> str:
        """The command that downloads the data set, for messages."""
        flag = "" if data_dir is None else f" --data-dir {shlex.quote(os.fspath(data_dir))}"
        return f"`neuralpath data fetch {self.name}{flag}`"

    def pickled_refusal(self, path: str, command: str) -> str:
        """The message that refuses the pickled version and names the one that can be read."""
        problem = f"{path} is the pickled Python version, which is refused because unpickling can run code"
        return f"{self.name}: {problem}; get {self.downloads[0].name} with {command} or from {self.mirrors[0]}."


@dataclass(frozen=True, kw_only=True)
class IdxSource(_Source):
    """A data set of four idx files, each compressed with gzip or not.

    Args:
        train_images, train_labels: Files of the training examples.
        test_images, test_labels: Files of the test examples.
    """

    train_images: DataFile
    train_labels: DataFile
    test_images: DataFile
    test_labels: DataFile

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files of the data set."""
        return (self.train_images, self.train_labels, self.test_images, self.test_labels)


@dataclass(frozen=True, kw_only=True)
class CifarSource(_Source):
    """A data set in CIFAR's binary layout: each record has label bytes, then a plane of red, green and blue.

    Args:
        archives: Names that the tar archive may have.
        member_folder: The folder that the archive unpacks to.
        n_label_bytes: Label bytes of a record; the last one is the label.
        side: Height and width of an image.
        train, test: Files of the training and of the test examples.
    """

    archives: tuple[str, ...]
    member_folder: str
    n_label_bytes: int
    side: int
    train: tuple[DataFile, ...]
    test: tuple[DataFile, ...]

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files of the data set."""
        return self.train + self.test


Source: TypeAlias = IdxSource | CifarSource


def _read_source(name: str, entry: Mapping[str, Any]) -> Source:
    """A data set of ``sources.toml``, whose lists become tuples and records."""
    settings: dict[str, Any] = {"name": name}
    for key, value in entry.items():
        if key == "downloads":
            settings[key] = tuple(Download(file, size, _read_checksum(digest)) for file, size, digest in value)
        elif key in ("train", "test"):
            settings[key] = tuple(map(_read_file, value))
        elif key.startswith(("train_", "test_")):
            settings[key] = _read_file(value)
        else:
            settings[key] = tuple(value) if isinstance(value, list) else value
    return CifarSource(**settings) if "archives" in entry else IdxSource(**settings)


def _read_file(row: Sequence[Any]) -> DataFile:
    return DataFile(row[0], tuple(row[1]), _read_checksum(row[2]))


def _read_checksum(text: str) -> Checksum:
    algorithm, digest = text.split(":")
    return Checksum("md5" if algorithm == "md5" else "sha256", digest)


_TABLE = tomllib.loads(Path(__file__).with_name("sources.toml").read_text("utf-8"))
SOURCES: Mapping[str, Source] = MappingProxyType({name: _read_source(name, entry) for name, entry in _TABLE.items()})


def names(sources: Mapping[str, Source] = SOURCES) -> tuple[str, ...]:
    """Names of the data sets that `load` knows.

    Args:
        sources: Descriptions of the known data sets.

    >>> names()
    ('digits', 'mnist', 'fashion-mnist', 'cifar10', 'cifar100')
    """
    return (EMBEDDED, *sources)


def lookup(name: str, sources: Mapping[str, Source]) -> Source:
    """The description of a data set. The embedded digits have none."""
    if name == EMBEDDED:
        raise DataError(f"{EMBEDDED} comes with scikit-learn and has no file of its own: load it directly.")
    if name not in sources:
        close = difflib.get_close_matches(name, names(sources), n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise DataError(f"No data set is called {name!r}; known are {', '.join(names(sources))}.{hint}")
    return sources[name]
