"""What ``trace`` could not read, and where it stands in the user's code."""

from dataclasses import dataclass

from neuralpath.graph.table import align

_ATTENTION = frozenset({"scaled_dot_product_attention", "bmm"})


@dataclass(frozen=True, slots=True)
class Unreadable:
    """One operation that cannot be read as part of a path graph, or what else about the model stands in the way."""

    operation: str
    reason: str
    module: str = ""  # path of the module that runs it; "" is the model itself
    line: str = ""  # file and line in the user's code, where torch knows them
    final: bool = False  # whether no way of writing it has paths

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
        # What cannot be helped comes first: there is no use in mending the rest.
        ordered = sorted(self.unreadable, key=lambda u: not u.final)
        rows = [(u.operation, u.module or "(model)", u.line, u.reason) for u in ordered]
        things = f"{len(rows)} things stand" if len(rows) > 1 else "1 thing stands"
        lines = [f"{self.model} cannot be read: {things} in the way."]
        lines.append(align([("operation", "module", "line", "why"), *rows]))
        if final := {u.operation for u in ordered if u.final}:
            what = "attention" if final & _ATTENTION else " and ".join(sorted(final))
            lines.append(f"{what} cannot be read as paths, however written; `tangent_kernel(model, x)` still works.")
        return "\n".join(lines)


class UnsupportedOperation(ValueError):
    """A model cannot be read; ``report`` lists everything that stands in the way."""

    def __init__(self, report: SupportReport) -> None:
        super().__init__(str(report))
        self.report = report


class ReplayMismatch(ValueError):
    """The graph does not compute what the model computes: the reading would be wrong, so there is none."""


def first_line(error: Exception) -> str:
    """What an error of another library says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
