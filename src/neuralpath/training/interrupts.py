"""SIGTERM as an exception; without torch, because the command line imports it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(SystemExit):
    """SIGTERM stopped the run. Unless it is caught, the process ends with status 143, as shells expect.

    Args:
        message: Where the run stopped.
    """

    def __init__(self, message: str = "terminated by SIGTERM") -> None:
        super().__init__(128 + signal.SIGTERM)
        self._message = message

    def __str__(self) -> str:
        return self._message


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM, as Python raises KeyboardInterrupt on Ctrl-C."""
    # Python delivers signals to the main thread only. A handler of the program, or a signal that it ignores, stays.
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
