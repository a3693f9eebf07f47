"""Atomic file writes: a reader sees the whole file or none of it."""

import os
import threading
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file under its final name only once all its bytes are on the disk.

    Args:
        path: File to create or replace. Its folder must exist.
        data: The whole contents.
    """
    # Each writer has a temporary name of its own: two processes may write one file at once, and the last one wins.
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # without this, a power failure may lose the new name
    finally:
        os.close(folder)
