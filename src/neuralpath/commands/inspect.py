"""`neuralpath inspect`: a model as a path graph."""

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tyro

from neuralpath.commands.errors import UserError
from neuralpath.commands.models import load_model

if TYPE_CHECKING:
    from neuralpath.graph import PathGraph, SupportReport


@dataclass(frozen=True)
class InspectCommand:
    """Show a model as a path graph: its nodes, gates and number of paths, and unsupported operations."""

    model: tyro.conf.Positional[str]
    """`file.py:NAME`, where NAME is a torch module or a callable that returns one; or one of: fc, vconv, gconv,
    circular-cnn, residual-fc, davidnet."""
    input_shape: tuple[int, ...]
    """Shape of one example, such as `3 32 32`, or `784`."""
    set: tuple[str, ...] = ()
    """Arguments of the callable, such as `width=128 depth=6`."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def run(self) -> int:
        """Print the graph, or the report of unsupported operations."""
        import torch

        import neuralpath as npath
        from neuralpath.graph import report_on

        if not self.input_shape or min(self.input_shape) < 1:
            sizes = " ".join(map(str, self.input_shape))
            raise UserError(f"--input-shape takes sizes from 1 up, such as `3 32 32`, got `{sizes}`.")
        model = load_model(self.model, self.input_shape, self.set)
        try:
            example = torch.rand(1, *self.input_shape, generator=torch.Generator().manual_seed(0))
        except (RuntimeError, OverflowError) as error:
            size = f"{math.prod(self.input_shape):,}"
            raise UserError(f"--input-shape: one example of {size} numbers is too large to make.") from error
        try:
            graph = npath.trace(model, example)
        except npath.UnsupportedOperation as error:
            print(json.dumps(_report_record(error.report), indent=2) if self.json else error.report)
            return 1
        except (TypeError, ValueError) as error:
            raise UserError(str(error)) from error
        except SystemExit as stop:  # otherwise the model would end the program silently
            raise UserError(f"{self.model} called sys.exit({stop.code!r}) while it ran.") from stop
        report = report_on(graph)
        print(json.dumps(_graph_record(graph, report), indent=2) if self.json else _graph_text(graph, report))
        return 0


def _paths(graph: "PathGraph") -> int | None:
    from neuralpath.graph import ActivationNode

    return None if any(isinstance(node, ActivationNode) for node in graph.nodes) else graph.n_paths


def _graph_text(graph: "PathGraph", report: "SupportReport") -> str:
    count = _paths(graph)
    words = "no path goes through an activation that is not a gate" if count is None else f"{count:,}"
    if count is not None and count > 10**15:
        words = f"about 10^{math.log10(count):.1f} ({len(str(count))} digits)"
    return f"{graph}\npaths into one output: {words}\n{report}"


def _report_record(report: "SupportReport") -> dict[str, Any]:
    names = ("operation", "module", "line", "reason")
    places = [{name: getattr(problem, name) for name in names} for problem in report.unsupported]
    return {"model": report.model, "supported": report.ok, "unreadable": places, "notes": list(report.notes)}


def _graph_record(graph: "PathGraph", report: "SupportReport") -> dict[str, Any]:
    entries = ("name", "kind", "shape", "inputs")  # tuples become lists in JSON
    return {
        **_report_record(report),
        "n_paths": _paths(graph),
        "n_parameters": sum(p.numel() for p in graph.params.values()),
        "gates": {node.name: node.n_units for node in graph.gate_nodes},
        "nodes": [{entry: getattr(node, entry) for entry in entries} for node in graph.nodes],
    }
