"""Reading a file that may be anything, gzip included, without ever reading more than was expected."""

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neuralpath.data._errors import DamagedFile
from neuralpath.data._sources import Checksum, DataFile

_GZIP_MAGIC = b"\x1f\x8b"
_PICKLE_STARTS = (
    b"\x80\x02",
    b"\x80\x03",
    b"\x80\x04",
    b"\x80\x05",
)  # what pickle protocols 2 to 5 begin with
_BLOCK = 1 << 20


class Bounded:
    """A stream that refuses to yield more than `limit` bytes: a small archive can unpack to any size."""

    def __init__(self, stream: io.BufferedIOBase, path: Path, limit: int) -> None:
        self._stream = stream
        self._path = path
        self._left = limit

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes."""
        wanted = self._left + 1 if size < 0 else min(size, self._left + 1)
        block = self._stream.read(wanted)
        self._left -= len(block)
        if self._left < 0:
            raise DamagedFile(f"{self._path} unpacks to far more than the data set holds.")
        return block


@contextmanager
def unpacked(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a regular file for reading, through gzip where its first bytes say so.

    Raises: DamagedFile, also while the stream is being read.
    """
    if not os.path.isfile(path):  # a pipe or a device would block or never end
        raise DamagedFile(f"{path} is not a regular file.")
    try:
        with path.open("rb") as file:
            is_gzip = file.peek(2)[:2] == _GZIP_MAGIC
            if is_gzip:
                with gzip.GzipFile(fileobj=file) as stream:
                    yield stream
            else:
                yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedFile(f"{path} is truncated or damaged: its gzip data cannot be unpacked.") from error
    except OSError as error:
        raise DamagedFile(f"{path} cannot be read: {error.strerror or error}.") from error


def read_at_most(path: Path, n_bytes: int) -> bytes:
    """Read the uncompressed contents of a file, or one byte more than `n_bytes` of them if it is longer."""
    with unpacked(path) as stream:
        return stream.read(n_bytes + 1)


def require_size(where: str, contents: bytes, n_bytes: int) -> None:
    """Refuse contents of another size than expected."""
    if len(contents) != n_bytes:
        held = f"more than {n_bytes}" if len(contents) > n_bytes else f"{len(contents)}"
        raise DamagedFile(f"{where} holds {held} bytes, expected {n_bytes}{pickle_hint(contents)}.")


def require_checksum(where: str, contents: bytes, file: DataFile) -> None:
    """Refuse contents that are not, byte for byte, what was published."""
    if not file.checksum.matches([contents]):
        algorithm = file.checksum.algorithm.upper()
        raise DamagedFile(f"{where} has other contents than were published: its {algorithm} is wrong.")


def pickle_hint(contents: bytes) -> str:
    """Say so if the contents look like a pickle."""
    return " (it looks like a Python pickle, which is never opened)" if is_pickle(contents) else ""


def is_pickle(contents: bytes) -> bool:
    """Tell whether the contents begin like a pickle; they are never unpickled to find out."""
    return contents[:2] in _PICKLE_STARTS


def file_matches(path: Path, checksum: Checksum) -> bool:
    """Tell whether a file, as it lies there, has this checksum."""
    with path.open("rb") as file:
        return checksum.matches(iter(lambda: file.read(_BLOCK), b""))
