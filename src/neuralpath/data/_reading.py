"""Safe reading of data files: bounded in size, checked against published checksums, never unpickled.

A file may be anything: truncated, compressed to explode, a pickle under another name, a tar archive with links. Each of
these is refused with one line that names the file and the problem. Archives are read in memory and never unpacked to
the disk.
"""

import gzip
import io
import math
import os
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO, cast

import numpy as np
from jaxtyping import UInt8

from neuralpath.data._sources import CifarSource, DamagedFile, DataFile, IdxSource, PickledData, Source

_GZIP_MAGIC = b"\x1f\x8b"
_PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")  # protocols 2 to 5
_UNSIGNED_BYTE = 0x08  # third byte of an idx file's magic number: the type of the values
_OTHER_MEMBERS = 16 << 20  # bytes allowed for readme, class names and padding of a tar archive; they are far smaller


def read_verified(source: Source, path: Path) -> dict[str, UInt8[np.ndarray, "..."]]:
    """The array of every file of a data set, by file name, each with its published checksum.

    ``path`` is the folder of the files, or the archive, whose own checksum is not compared: it may be packed again.
    """
    arrays = {}
    try:
        files = _read_folder(source, path)
        if isinstance(source, CifarSource) and not os.path.isdir(path):
            files = _read_archive(source, path)
        parse = parse_idx if isinstance(source, IdxSource) else _parse_records
        for file, name, contents in files:
            arrays[file.name] = parse(name, contents, file.shape)  # more precise in messages than a wrong checksum
            if not file.checksum.matches(contents):
                algorithm = file.checksum.algorithm.upper()
                raise DamagedFile(f"{name} differs from the published file: its {algorithm} is wrong.")
    except DamagedFile as error:
        raise DamagedFile(f"{source.name}: {error} Move it away and run {source.fetch_command()}.") from error
    except PickledData as error:
        raise PickledData(source.pickled_refusal(str(error), source.fetch_command())) from error
    return arrays


def file_path(source: Source, folder: Path, file: DataFile) -> Path | None:
    """The path of a file; idx files may be compressed, and some copies have a dot in place of the hyphen."""
    names = [file.name]
    if isinstance(source, IdxSource):
        dotted = file.name.replace("-idx", ".idx")
        names = [f"{file.name}.gz", file.name, f"{dotted}.gz", dotted]
    return next((folder / name for name in names if os.path.isfile(folder / name)), None)


def read_file(source: Source, path: Path, file: DataFile) -> bytes:
    """The uncompressed contents of a file, or one byte more than it should have if it is longer."""
    header = 4 + 4 * len(file.shape) if isinstance(source, IdxSource) else 0
    with _unpacked(path) as stream:
        return stream.read(header + file.n_values + 1)


def parse_idx(name: str, contents: bytes, shape: Sequence[int]) -> UInt8[np.ndarray, "..."]:
    """The array of an uncompressed idx file, which must have this shape; messages call it ``name``.

    The layout is: four bytes of magic number (0, 0, type of the values, number of axes), four bytes for the size of
    each axis, most significant byte first, then one byte for each value.
    """
    shape, start = tuple(shape), 4 + 4 * len(shape)
    expected, magic = _UNSIGNED_BYTE << 8 | len(shape), int.from_bytes(contents[:4], "big")
    if len(contents) < 4 or magic != expected:
        actual = f"{magic}" if len(contents) >= 4 else f"only {len(contents)} bytes"
        numbers = f"expected the magic number {expected}, found {actual}{_pickle_hint(contents)}"
        raise DamagedFile(f"{name} is not an idx file with {len(shape)} axes: {numbers}.")
    header = tuple(int.from_bytes(contents[at : at + 4], "big") for at in range(4, start, 4))
    if header != shape and len(contents) >= start:
        stated, required = ("x".join(map(str, sizes)) for sizes in (header, shape))
        raise DamagedFile(f"{name} has {stated} values by its header, expected {required}.")
    return _parse_records(name, contents, shape, start)


def _parse_records(name: str, contents: bytes, shape: Sequence[int], start: int = 0) -> UInt8[np.ndarray, "..."]:
    """The array of all bytes from ``start`` on."""
    n_bytes = start + math.prod(shape)
    if len(contents) != n_bytes:
        actual = f"more than {n_bytes}" if len(contents) > n_bytes else f"{len(contents)}"
        raise DamagedFile(f"{name} has {actual} bytes, expected {n_bytes}{_pickle_hint(contents)}.")
    return np.frombuffer(contents, np.uint8, offset=start).reshape(shape)


def _pickle_hint(contents: bytes) -> str:
    is_pickle = contents[:2] in _PICKLE_STARTS
    return " (it looks like a Python pickle, which is never opened)" if is_pickle else ""


def _read_folder(source: Source, folder: Path) -> Iterator[tuple[DataFile, str, bytes]]:
    """Each file of a folder, its name in messages, and its contents."""
    for file in source.files:
        path = file_path(source, folder, file)
        if path is None:
            raise DamagedFile(f"{folder} is incomplete: {file.name} is missing.")
        yield file, str(path), read_file(source, path, file)


def _read_archive(source: CifarSource, path: Path) -> Iterator[tuple[DataFile, str, bytes]]:
    """The same from a tar archive, compressed with gzip or not."""
    sizes = {f"{source.member_folder}/{file.name}": file.n_values for file in source.files}
    contents: dict[str, bytes] = {}
    try:
        with _unpacked(path) as stream:
            bounded = cast(BinaryIO, _Bounded(stream, path, sum(sizes.values()) + _OTHER_MEMBERS))
            with tarfile.open(fileobj=bounded, mode="r|") as archive:
                for member in archive:
                    _require_harmless(path, member)
                    name = PurePosixPath(member.name)
                    if pickled := set(name.parts) & set(source.refused):
                        raise PickledData(f"{path} with its {pickled.pop()}")
                    if (size := sizes.get(str(name))) is None:
                        continue
                    if str(name) in contents:
                        raise DamagedFile(f"{path} is refused: it contains {member.name} twice.")
                    if not member.isreg() or member.size != size:
                        raise DamagedFile(f"{path}: {member.name} has {member.size} bytes, expected {size}.")
                    contents[str(name)] = cast(BinaryIO, archive.extractfile(member)).read()
    except tarfile.TarError as error:
        raise DamagedFile(f"{path} is not a complete tar archive ({error}).") from error
    if missing := [name for name in sizes if name not in contents]:
        raise DamagedFile(f"{path} lacks {', '.join(missing)}.")
    for file in source.files:
        yield file, f"{path}: {file.name}", contents.pop(f"{source.member_folder}/{file.name}")


def _require_harmless(path: Path, member: tarfile.TarInfo) -> None:
    if not (member.isreg() or member.isdir()):
        raise DamagedFile(f"{path} is refused: its member {member.name!r} is a link or a device, not a file.")
    name = PurePosixPath(member.name)
    is_outside = name.is_absolute() or PureWindowsPath(member.name).is_absolute() or ".." in name.parts
    if is_outside or "\\" in member.name:
        raise DamagedFile(f"{path} is refused: its member {member.name!r} points outside the archive's folder.")


class _Bounded:
    """A stream that yields at most ``limit`` bytes: a small archive can unpack to any size."""

    def __init__(self, stream: io.BufferedIOBase, path: Path, limit: int) -> None:
        self._stream, self._path, self._left = stream, path, limit

    def read(self, size: int = -1, /) -> bytes:
        """Read up to ``size`` bytes."""
        block = self._stream.read(self._left + 1 if size < 0 else min(size, self._left + 1))
        self._left -= len(block)
        if self._left < 0:
            raise DamagedFile(f"{self._path} unpacks to far more than the size of the data set.")
        return block


@contextmanager
def _unpacked(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a regular file for reading, through gzip if its first bytes say so."""
    if not os.path.isfile(path):  # a pipe or a device would block or never end
        raise DamagedFile(f"{path} is not a regular file.")
    try:
        with path.open("rb") as file:
            if file.peek(2)[:2] == _GZIP_MAGIC:
                with gzip.GzipFile(fileobj=file) as stream:
                    yield stream
            else:
                yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedFile(f"{path} is truncated or damaged: its gzip data cannot be unpacked.") from error
    except OSError as error:
        raise DamagedFile(f"{path} cannot be read: {error.strerror or error}.") from error
