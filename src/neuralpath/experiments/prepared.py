"""Pieces of work to be timed, prepared only where they have not been timed before."""

from collections.abc import Callable


def prepared(prepare: Callable[[], Callable[[], object]]) -> Callable[[], object]:
    """A piece that is prepared at its first call, which warms up and is not timed; later calls run it alone."""
    ready: list[Callable[[], object]] = []

    def piece() -> object:
        if not ready:
            ready.append(prepare())
        return ready[0]()

    return piece
