"""A peer in an environment of its own: a process that stays alive and is asked line by line, so that calls alternate.

It is given its arrays when it starts, and is warm when the constructor returns.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

PROGRAM = Path(__file__).with_name("neural_tangents_peer.py")

RECIPE = """neural-tangents runs in an environment of its own, with Python 3.11:

    python3.11 -m venv ENV
    ENV/bin/python -m pip install --no-deps -r tests/reference/requirements.txt

then give --neural-tangents ENV/bin/python."""


class Peer:
    """neural-tangents at work on some arrays; neural_tangents_peer.py says what it can do, and its options.

    ``versions`` are those of its packages; ``peak_memory`` is what its first call took in bytes at its peak, beyond
    what the process held after compilation.
    """

    def __init__(self, python: str, what: str, arrays: dict[str, np.ndarray], **options: object) -> None:
        self._folder = tempfile.TemporaryDirectory()
        given = Path(self._folder.name) / "given.npz"
        np.savez(given, **arrays)
        flags = [f"--{name}={value}" for name, value in options.items()]
        try:
            self._process = subprocess.Popen(
                [python, PROGRAM, what, f"--given={given}", *flags],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            first = self._answer()
        except (OSError, EOFError) as error:
            raise SystemExit(f"{python} does not run neural-tangents ({error}).\n{RECIPE}") from error
        self.peak_memory: int = first.pop("peak_bytes")
        self.versions: dict[str, str] = first

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(f"the peer ended with code {self._process.wait()}; its messages are above")
        return json.loads(line)

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._answer()

    def seconds(self) -> float:
        """Time of one call."""
        return self._ask("time")["seconds"]

    def kernels(self) -> dict[str, np.ndarray]:
        """What it computes, by name."""
        path = Path(self._folder.name) / "answer.npz"
        self._ask(f"answer {path}")
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()
