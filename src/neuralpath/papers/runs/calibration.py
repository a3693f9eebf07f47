"""Measured speeds of this machine, from which the cost of runs is estimated."""

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

from neuralpath import __version__
from neuralpath._files import write_atomically
from neuralpath.papers.runs.task import canonical

LONG = 1.0
"""Seconds from which a piece is timed once."""


class Calibration:
    """Seconds of short pieces of task, measured once with one thread and kept in a file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._about = hashlib.sha256(canonical([__version__, platform.processor(), platform.node(), os.cpu_count()]))
        self._known = self._read()

    def seconds(self, what: str, prepare: Callable[[], Callable[[], object]], repeats: int = 3) -> float:
        """The least time of a piece of task; from the file where it has been measured.

        ``prepare`` makes the piece, and does what belongs to its first call only (compilation); it is not timed.
        """
        if what not in self._known:
            self._known[what] = _least_time(prepare, repeats)
            self._write()
        return self._known[what]

    def _read(self) -> dict[str, float]:
        try:
            stored = json.loads(self._path.read_text()) if self._path is not None else {}
            return dict(stored["seconds"]) if stored.get("machine") == self._about.hexdigest() else {}
        except (OSError, ValueError, KeyError, AttributeError):
            return {}  # measured anew: nothing is lost but a few seconds

    def _write(self) -> None:
        if self._path is None:
            return
        content = {"machine": self._about.hexdigest(), "seconds": self._known}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, json.dumps(content, indent=1).encode())
        except OSError:
            self._path = None  # a cache that cannot be written is measured anew next time


def _least_time(prepare: Callable[[], Callable[[], object]], repeats: int) -> float:
    import torch

    from neuralpath.training import threads_kept

    with threads_kept(1), torch.random.fork_rng():
        piece = prepare()
        first = _time(piece)
        if first > LONG:
            return first  # what the first touch of memory adds is small beside it
        return min(_time(piece) for _ in range(repeats))


def _time(piece: Callable[[], object]) -> float:
    begin = time.perf_counter()
    piece()
    return time.perf_counter() - begin
