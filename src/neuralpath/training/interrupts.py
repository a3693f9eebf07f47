"""Ctrl-C and SIGTERM: let the step be finished, so that the run can be saved, and then stop."""

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any


class Terminated(SystemExit):
    """The run was stopped by SIGTERM; unless caught, the process ends with the status that shells expect, 143."""

    def __init__(self, message: str) -> None:
        super().__init__(128 + signal.SIGTERM)
        self._message = message

    def __str__(self) -> str:
        return self._message


class Interrupts:
    """While it is entered, the first SIGINT or SIGTERM is noted in ``received``; a second Ctrl-C stops at once.

    Python delivers signals to the main thread only, so in other threads nothing is changed. Signals that the
    process was told to ignore stay ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt("stopped at once, without saving, at the second interrupt.")
        self.received = number

    def stop(self, message: str) -> None:
        """End the run in the way that the noted signal asks for; call it with the handlers restored.

        A handler that the user had set gets the signal too.
        """
        assert self.received is not None
        previous = self._previous[self.received]
        if callable(previous) and previous is not signal.default_int_handler:
            signal.raise_signal(self.received)
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt(message)
        print(message, file=sys.stderr)
        raise Terminated(message)
