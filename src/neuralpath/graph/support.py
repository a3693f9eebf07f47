"""What ``trace`` could not read, and where it stands in the user's code."""

from dataclasses import dataclass

from neuralpath.graph.table import align


@dataclass(frozen=True, slots=True)
class Unreadable:
    """One operation that cannot be read as part of a path graph."""

    operation: str
    reason: str
    module: str  # path of the module that runs it; "" is the model itself
    line: str  # file and line in the user's code, where torch knows them

    def __str__(self) -> str:
        place = f" in module {self.module!r}" if self.module else ""
        return f"{self.operation}{place}{f' ({self.line})' if self.line else ''}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SupportReport:
    """Whether a model can be read, and if not, everything that stands in the way."""

    model: str
    n_nodes: int
    gate_names: tuple[str, ...]
    unreadable: tuple[Unreadable, ...] = ()
    notes: tuple[str, ...] = ()  # what is read but not by every reading
    error: str = ""  # why the model could not even be looked at

    @property
    def ok(self) -> bool:
        """Whether ``trace`` would succeed."""
        return not self.unreadable and not self.error

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.error:
            return f"{self.model} cannot be read: {self.error}"
        if self.ok:
            head = f"{self.model} can be read: {self.n_nodes} nodes, {len(self.gate_names)} gate layers."
            return "\n".join([head, *(f"note: {note}" for note in self.notes)])
        rows = [(u.operation, u.module or "(model)", u.line, u.reason) for u in self.unreadable]
        head = f"{self.model} cannot be read: {len(rows)} operation(s) are not supported."
        return f"{head}\n{align([('operation', 'module', 'line', 'why'), *rows])}"


class UnsupportedOperation(ValueError):
    """A model has operations that cannot be read; ``report`` lists all of them."""

    def __init__(self, report: SupportReport) -> None:
        super().__init__(str(report))
        self.report = report


class ReplayMismatch(ValueError):
    """The graph does not compute what the model computes: the reading would be wrong, so there is none."""
