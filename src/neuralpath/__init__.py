"""Gates, paths and kernels of ReLU networks."""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

__version__ = _version("neuralpath")

if TYPE_CHECKING:
    from neuralpath.gates import HardGate as HardGate
    from neuralpath.gates import LeakyGate as LeakyGate
    from neuralpath.gates import LinearGate as LinearGate
    from neuralpath.gates import SoftGate as SoftGate
    from neuralpath.graph.forward import Gates as Gates
    from neuralpath.graph.path_graph import PathGraph as PathGraph
    from neuralpath.graph.path_graph import output as output
    from neuralpath.graph.support import ReplayMismatch as ReplayMismatch
    from neuralpath.graph.support import SupportReport as SupportReport
    from neuralpath.graph.support import UnsupportedOperation as UnsupportedOperation
    from neuralpath.graph.trace import supported as supported
    from neuralpath.graph.trace import trace as trace

# Where each public name lives. Imports are lazy, so that the command line answers without loading torch.
_EXPORTS = {
    "Gates": "graph.forward",
    "HardGate": "gates",
    "LeakyGate": "gates",
    "LinearGate": "gates",
    "PathGraph": "graph.path_graph",
    "ReplayMismatch": "graph.support",
    "SoftGate": "gates",
    "SupportReport": "graph.support",
    "UnsupportedOperation": "graph.support",
    "output": "graph.path_graph",
    "supported": "graph.trace",
    "trace": "graph.trace",
}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'neuralpath' has no attribute {name!r}")
    return getattr(import_module(f"neuralpath.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
