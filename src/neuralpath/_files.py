"""Files that are there whole or not at all."""

import os
import threading
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Put a file in its place whole, and return when it is on the disk."""
    # A name of its own for each writer: two processes may write the same file at once, and the later one stays.
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
        os.fsync(folder)  # else the name may be lost where the power fails
    finally:
        os.close(folder)
