"""Human-readable tables: a path graph, and what ``trace`` does not support in a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuralpath.graph import nodes as n

if TYPE_CHECKING:
    from neuralpath.graph.path_graph import PathGraph

_ATTENTION = frozenset({"scaled_dot_product_attention", "bmm"})


@dataclass(frozen=True, slots=True)
class UnsupportedPart:
    """One operation, or another property of a model, that ``trace`` does not support."""

    operation: str
    reason: str
    module: str = ""  # path of the module that runs it; "" is the model itself
    line: str = ""  # file and line in the user's code, where torch knows them
    final: bool = False  # whether it has no paths in any form

    def __str__(self) -> str:
        place = f" in module {self.module!r}" if self.module else ""
        return f"{self.operation}{place}{f' ({self.line})' if self.line else ''}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SupportReport:
    """Whether ``trace`` supports a model, and if not, everything that it does not support.

    Args:
        model: Name of the model's class.
        n_nodes: Number of nodes of the path graph.
        gate_names: Names of the gate layers, in the order of the network.
        unsupported: Each unsupported operation with its module, its source line and the reason; also an unsupported
            mode or output of the model.
        notes: What ``trace`` supports but path quantities do not, such as tied weights.
        error: Why the model could not be exported at all; empty otherwise.
    """

    model: str
    n_nodes: int
    gate_names: tuple[str, ...]
    unsupported: tuple[UnsupportedPart, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether ``trace`` would succeed."""
        return not self.unsupported and not self.error

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        if self.error:
            return f"{self.model} is not supported: {self.error}"
        if self.ok:
            head = f"{self.model} is supported: {self.n_nodes} nodes, {len(self.gate_names)} gate layers."
            return "\n".join([head, *(f"note: {note}" for note in self.notes)])
        # Unfixable ones first: with one of them there is no use in fixing the others.
        ordered = sorted(self.unsupported, key=lambda u: not u.final)
        rows = [(u.operation, u.module or "(model)", u.line, u.reason) for u in ordered]
        lines = [f"{self.model} is not supported: {len(rows)} {'problems' if len(rows) > 1 else 'problem'}."]
        lines.append(align([("operation", "module", "line", "reason"), *rows]))
        if final := {u.operation for u in ordered if u.final}:
            what = "attention" if final & _ATTENTION else " and ".join(sorted(final))
            lines.append(f"{what} has no paths in any form; `tangent_kernel(model, x)` still works.")
        return "\n".join(lines)


class UnsupportedOperation(ValueError):
    """``trace`` does not support a model; ``report`` lists everything that it does not support."""

    def __init__(self, report: SupportReport) -> None:
        super().__init__(str(report))
        self.report = report


class ReplayMismatch(ValueError):
    """The path graph does not compute what the model computes, so ``trace`` returns none."""


def first_line(error: Exception) -> str:
    """The first line of an error of another library."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def graph_table(graph: "PathGraph") -> str:
    """The table that ``print(graph)`` prints: node, kind, shape, weights, gates."""
    rows = [_row(node) for node in graph.nodes]
    weights = sum(p.numel() for p in graph.params.values())
    gates = sum(node.n_units for node in graph.gate_nodes)
    summary = f"{len(rows)} nodes, {weights:,} parameters, {gates:,} gates in {len(graph.gate_nodes)} layers"
    return "\n".join([align([("node", "kind", "shape", "weights", "gates", "reads"), *rows]), summary])


def align(rows: Sequence[Sequence[str]]) -> str:
    """Rows as text in columns, the first row underlined."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in [lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def _row(node: n.Node) -> tuple[str, ...]:
    shape, weights, gates = _size(node.shape) or "scalar", "", ""
    match node:
        case n.LinearNode():
            weights = f"{node.weight} {_size(node.weight_shape)}" + f" in {node.groups} groups" * (node.groups > 1)
        case n.BiasNode():
            weights = f"{node.value} {_size(node.value_shape) or '1'}"
        case n.ScaleNode():
            weights = f"times {node.factor}"
        case n.ConstantNode():
            weights = str(node.value)
        case n.GateNode():
            name = type(node.gate).__name__.removesuffix("Gate").lower()
            gates = f"{node.n_units:,} {name if node.slope is None else f'leaky({node.slope})'}"
        case n.MaxPoolNode():
            gates = f"{node.n_units:,} arg max of {_size([table.shape[1] for table in node.tables])}"
        case n.ActivationNode():
            gates = f"not a gate: {node.operation}"
    return node.name, node.kind.replace("_", " "), shape, weights, gates, ", ".join(node.inputs)


def _size(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
