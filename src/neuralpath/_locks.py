"""Locks between processes, released by the operating system however the process ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such locks: there, two processes are not kept apart
    fcntl = None  # type: ignore[assignment]


class AlreadyLocked(RuntimeError):
    """Another process holds the lock."""


@contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Hold the only lock on a file or folder, without waiting for it.

    Args:
        path: An existing folder, or a file, which is created if it is missing and never removed.

    Raises:
        AlreadyLocked: Another process, or another thread of this one, holds the lock.
        OSError: The path cannot be opened.
    """
    handle = _open_locked(path)
    try:
        yield
    finally:
        os.close(handle)


def _open_locked(path: Path) -> int:
    while True:
        is_folder = path.is_dir()
        handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before us may have renamed or removed the file after we opened it: then this lock guards
            # nothing, and the path has to be opened again.
            if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        except BlockingIOError as error:
            os.close(handle)
            raise AlreadyLocked(f"another process uses {path}.") from error
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
