"""Files of tensors: each with its checksum in a small file beside it, and checked whenever it is read."""

import hashlib
import re
from functools import lru_cache
from pathlib import Path

from neuralpath._files import write_atomically
from neuralpath.papers.runs.errors import RunError

_SUM = re.compile(r"([0-9a-f]{64}) [ *][^\n]+\n?")

Stamp = tuple[int, int, int] | None
"""When a file was written, its size and its inode; None of a file that is not there."""


class DamagedTensors(RunError):
    """A file of tensors is not what was written; the message names it."""


def sum_path(path: Path) -> Path:
    """The file that holds the checksum, as ``sha256sum --check`` reads it."""
    return path.with_name(f"{path.name}.sha256")


def write_tensors(path: Path, data: bytes) -> None:
    """Put a safetensors file in its place, and its checksum beside it.

    The two never disagree: the file of before goes first, and the new one comes last. A kill in between leaves no file,
    which its run writes again, since it is not finished.
    """
    path.unlink(missing_ok=True)
    write_atomically(sum_path(path), f"{hashlib.sha256(data).hexdigest()}  {path.name}\n".encode())
    write_atomically(path, data)


def read_tensors(path: Path) -> bytes:
    """The bytes of a safetensors file, after a check.

    Files from before there were checksums must at least be whole: their header must fit their length.

    Raises: DamagedTensors.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedTensors(f"{path} cannot be read: {error.strerror}.") from error
    problem = _problem(path, data)
    if problem is not None:
        raise DamagedTensors(f"{path} is damaged: {problem}.")
    return data


def damage(path: Path) -> str | None:
    """What is wrong with a file of tensors that is there; it is read again only where it has changed since."""
    return _damage(path, _stamp(path), _stamp(sum_path(path)))


@lru_cache(maxsize=4096)
def _damage(path: Path, written: Stamp, summed: Stamp) -> str | None:
    try:
        read_tensors(path)
    except DamagedTensors as error:
        return str(error).removesuffix(".")
    return None


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _problem(path: Path, data: bytes) -> str | None:
    from safetensors import SafetensorError, deserialize

    beside = sum_path(path)
    try:
        noted = _SUM.fullmatch(beside.read_text(errors="replace"))
    except FileNotFoundError:
        try:
            deserialize(data)
        except SafetensorError as error:
            return f"it is no whole file of tensors ({error})"
        return None
    except OSError as error:
        return f"its checksum in {beside.name} cannot be read ({error.strerror})"
    if noted is None:
        return f"{beside.name} holds no checksum"
    return None if hashlib.sha256(data).hexdigest() == noted[1] else "its checksum is wrong"
