"""Gates, paths and kernels of ReLU networks."""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

__version__ = _version("neuralpath")

if TYPE_CHECKING:
    from neuralpath import data as data
    from neuralpath import nets as nets
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
    from neuralpath.readings.counts import active_paths as active_paths
    from neuralpath.readings.counts import path_norm as path_norm
    from neuralpath.readings.counts import path_overlap as path_overlap
    from neuralpath.readings.counts import shared_paths as shared_paths
    from neuralpath.readings.pairs.kernel import expected_tangent_kernel as expected_tangent_kernel
    from neuralpath.readings.pairs.kernel import path_kernel as path_kernel
    from neuralpath.readings.pairs.variances import FanVariance as FanVariance
    from neuralpath.readings.paths import path_features as path_features
    from neuralpath.readings.paths import path_values as path_values

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
    "active_paths": "readings.counts",
    "output": "graph.path_graph",
    "FanVariance": "readings.pairs.variances",
    "expected_tangent_kernel": "readings.pairs.kernel",
    "path_features": "readings.paths",
    "path_kernel": "readings.pairs.kernel",
    "path_norm": "readings.counts",
    "path_overlap": "readings.counts",
    "path_values": "readings.paths",
    "shared_paths": "readings.counts",
    "supported": "graph.trace",
    "trace": "graph.trace",
}

# Subpackages that are used by their own names, `neuralpath.nets.FC`.
_PACKAGES = ("data", "nets")

__all__ = ["__version__", *_EXPORTS, *_PACKAGES]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"neuralpath.{name}")
    if name not in _EXPORTS:
        raise AttributeError(f"module 'neuralpath' has no attribute {name!r}")
    return getattr(import_module(f"neuralpath.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
