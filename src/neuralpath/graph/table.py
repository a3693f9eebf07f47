"""A graph as a table for people: node, kind, shape, weights, gates."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neuralpath.graph import nodes as n

if TYPE_CHECKING:
    from neuralpath.graph.path_graph import PathGraph

_HEADER = ("node", "kind", "shape", "weights", "gates", "reads")


def graph_table(graph: "PathGraph") -> str:
    """The table that ``print(graph)`` shows."""
    rows = [_row(node) for node in graph.nodes]
    weights = sum(p.numel() for p in graph.params.values())
    gates = sum(node.n_units for node in graph.gate_nodes)
    summary = f"{len(rows)} nodes, {weights:,} parameters, {gates:,} gates in {len(graph.gate_nodes)} layers"
    return "\n".join([align([_HEADER, *rows]), summary])


def align(rows: Sequence[Sequence[str]]) -> str:
    """Rows as text in columns, the first row underlined."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in [lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def _row(node: n.Node) -> tuple[str, ...]:
    shape = "x".join(map(str, node.shape)) or "scalar"
    return (
        node.name,
        node.kind.replace("_", " "),
        shape,
        _weights(node),
        _gates(node),
        ", ".join(node.inputs),
    )


def _weights(node: n.Node) -> str:
    match node:
        case n.LinearNode():
            size = "x".join(map(str, node.weight_shape))
            return f"{node.weight} {size}" + (f" in {node.groups} groups" if node.groups > 1 else "")
        case n.BiasNode():
            return f"{node.value} {'x'.join(map(str, node.value_shape)) or '1'}"
        case n.ScaleNode():
            return f"times {node.factor}"
        case n.ConstantNode():
            return f"{node.value}"
        case _:
            return ""


def _gates(node: n.Node) -> str:
    match node:
        case n.GateNode(slope=slope) if slope is not None:
            return f"{node.n_units:,} leaky({slope})"
        case n.GateNode():
            return f"{node.n_units:,} {type(node.gate).__name__.removesuffix('Gate').lower()}"
        case n.MaxPoolNode():
            return f"{node.n_units:,} arg max of {'x'.join(str(t.shape[1]) for t in node.tables)}"
        case n.ActivationNode():
            return f"not a gate: {node.operation}"
        case _:
            return ""
