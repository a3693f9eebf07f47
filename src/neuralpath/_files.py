"""Files: atomic writes, and locks between processes."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such locks: there, two processes are not kept apart
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to; at the end it replaces the file at ``path``, and after an error it is removed."""
    # Each writer has a temporary name of its own: two processes may write one file at once, and the last one wins.
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file under its final name only once all its bytes are on the disk: a reader sees all of it or none."""
    with replacing(path) as part, part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # without this, a power failure may lose the new name
    finally:
        os.close(folder)


class AlreadyLocked(RuntimeError):
    """Another process holds the lock."""


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the only lock on a folder, or on a file, which is created if it is missing, without waiting for it.

    The operating system releases it however the process ends. Other processes and threads get `AlreadyLocked`.
    """
    while True:
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                if fcntl is not None:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise AlreadyLocked(f"another process uses {path}.") from error
            # The holder before us may have renamed or removed the file after we opened it: then this lock guards
            # nothing, and the path has to be opened again.
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                yield
                return
        finally:
            os.close(handle)
