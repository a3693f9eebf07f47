"""Gates, paths and kernels of ReLU networks."""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

__version__ = _version("neuralpath")

if TYPE_CHECKING:
    from neuralpath import data as data
    from neuralpath import experiments as experiments
    from neuralpath import nets as nets
    from neuralpath import training as training
    from neuralpath.diagnostics import LabelEnergySplit as LabelEnergySplit
    from neuralpath.diagnostics import alignment as alignment
    from neuralpath.diagnostics import centred_alignment as centred_alignment
    from neuralpath.diagnostics import condition_number as condition_number
    from neuralpath.diagnostics import label_energy as label_energy
    from neuralpath.diagnostics import label_energy_by_eigenvector as label_energy_by_eigenvector
    from neuralpath.diagnostics import spectrum as spectrum
    from neuralpath.gates import HardGate as HardGate
    from neuralpath.gates import LeakyGate as LeakyGate
    from neuralpath.gates import LinearGate as LinearGate
    from neuralpath.gates import SoftGate as SoftGate
    from neuralpath.gating.network import GatedNetwork as GatedNetwork
    from neuralpath.gating.regimes import decouple as decouple
    from neuralpath.gating.swapping import recorded_gates as recorded_gates
    from neuralpath.gating.swapping import run_with_gates as run_with_gates
    from neuralpath.gating.transforms import Tile as Tile
    from neuralpath.gating.value_inputs import RandomImage as RandomImage
    from neuralpath.graph.forward import Gates as Gates
    from neuralpath.graph.path_graph import PathGraph as PathGraph
    from neuralpath.graph.path_graph import output as output
    from neuralpath.graph.support import ReplayMismatch as ReplayMismatch
    from neuralpath.graph.support import SupportReport as SupportReport
    from neuralpath.graph.support import UnsupportedOperation as UnsupportedOperation
    from neuralpath.graph.trace import supported as supported
    from neuralpath.graph.trace import trace as trace
    from neuralpath.machines.cholesky import SingularKernel as SingularKernel
    from neuralpath.machines.classifier import KernelClassifier as KernelClassifier
    from neuralpath.machines.leave_one_out import LeaveOneOut as LeaveOneOut
    from neuralpath.machines.leave_one_out import RidgePath as RidgePath
    from neuralpath.machines.regressor import KernelRegressor as KernelRegressor
    from neuralpath.machines.sketched import SketchClassifier as SketchClassifier
    from neuralpath.machines.sketched import SketchRegressor as SketchRegressor
    from neuralpath.machines.solving import SolveReport as SolveReport
    from neuralpath.named_kernels import named_tiles as named_tiles
    from neuralpath.readings.counts import active_paths as active_paths
    from neuralpath.readings.counts import path_norm as path_norm
    from neuralpath.readings.counts import path_overlap as path_overlap
    from neuralpath.readings.counts import shared_paths as shared_paths
    from neuralpath.readings.gate_statistics import always_open_gates as always_open_gates
    from neuralpath.readings.gate_statistics import base_kernels as base_kernels
    from neuralpath.readings.gate_statistics import dead_gates as dead_gates
    from neuralpath.readings.gate_statistics import gate_distance as gate_distance
    from neuralpath.readings.gate_statistics import overlap_profile as overlap_profile
    from neuralpath.readings.limit.kernel import limit_output_kernel as limit_output_kernel
    from neuralpath.readings.limit.kernel import limit_output_kernel_tiles as limit_output_kernel_tiles
    from neuralpath.readings.limit.kernel import limit_path_kernel as limit_path_kernel
    from neuralpath.readings.limit.kernel import limit_path_kernel_tiles as limit_path_kernel_tiles
    from neuralpath.readings.limit.kernel import limit_tangent_kernel as limit_tangent_kernel
    from neuralpath.readings.limit.kernel import limit_tangent_kernel_tiles as limit_tangent_kernel_tiles
    from neuralpath.readings.limit.parts import LimitParts as LimitParts
    from neuralpath.readings.limit.parts import limit_tangent_parts as limit_tangent_parts
    from neuralpath.readings.limit.parts import limit_tangent_parts_tiles as limit_tangent_parts_tiles
    from neuralpath.readings.limit.quadrature import ByQuadrature as ByQuadrature
    from neuralpath.readings.nearest import Neighbours as Neighbours
    from neuralpath.readings.nearest import nearest as nearest
    from neuralpath.readings.pairs.kernel import expected_tangent_kernel as expected_tangent_kernel
    from neuralpath.readings.pairs.kernel import expected_tangent_kernel_tiles as expected_tangent_kernel_tiles
    from neuralpath.readings.pairs.kernel import path_kernel as path_kernel
    from neuralpath.readings.pairs.kernel import path_kernel_tiles as path_kernel_tiles
    from neuralpath.readings.pairs.variances import FanVariance as FanVariance
    from neuralpath.readings.paths import path_features as path_features
    from neuralpath.readings.paths import path_values as path_values
    from neuralpath.readings.sensitivity import sensitive_gates as sensitive_gates
    from neuralpath.readings.sensitivity import sensitive_paths as sensitive_paths
    from neuralpath.readings.sketch import path_sketch as path_sketch
    from neuralpath.readings.sketch import sketched_kernel as sketched_kernel
    from neuralpath.readings.subnetworks import residual_subnetwork as residual_subnetwork
    from neuralpath.readings.subnetworks import subnetwork as subnetwork
    from neuralpath.readings.subnetworks import subnetwork_kernel as subnetwork_kernel
    from neuralpath.stored_kernels import store_kernel as store_kernel
    from neuralpath.stored_kernels import verify_kernel as verify_kernel
    from neuralpath.tangent.kernel import tangent_kernel as tangent_kernel
    from neuralpath.tangent.kernel import tangent_kernel_tiles as tangent_kernel_tiles
    from neuralpath.tangent.parts import TangentParts as TangentParts
    from neuralpath.tangent.parts import tangent_parts as tangent_parts
    from neuralpath.theory.concentration import Concentration as Concentration
    from neuralpath.theory.concentration import concentration as concentration
    from neuralpath.theory.concentration import fitted_power as fitted_power
    from neuralpath.theory.concentration import printed_variance_bound as printed_variance_bound
    from neuralpath.theory.concentration import spectrum_ratio as spectrum_ratio
    from neuralpath.theory.conditioning import eigenvalue_bound as eigenvalue_bound
    from neuralpath.theory.dynamics import KernelDynamics as KernelDynamics
    from neuralpath.theory.dynamics import Steps as Steps
    from neuralpath.theory.switching import GateSwitches as GateSwitches
    from neuralpath.theory.switching import SwitchRecorder as SwitchRecorder
    from neuralpath.theory.switching import gate_switches as gate_switches
    from neuralpath.theory.value_kernel import random_weights as random_weights
    from neuralpath.theory.value_kernel import value_kernel as value_kernel
    from neuralpath.tiles.store import StoredKernel as StoredKernel
    from neuralpath.tiles.store import open_kernel as open_kernel
    from neuralpath.training.information import GatingInformation as GatingInformation
    from neuralpath.training.information import gating_information as gating_information

# Where each public name lives. Imports are lazy, so that the command line answers without loading torch.
_EXPORTS = {
    "ByQuadrature": "readings.limit.quadrature",
    "Concentration": "theory.concentration",
    "FanVariance": "readings.pairs.variances",
    "GateSwitches": "theory.switching",
    "GatedNetwork": "gating.network",
    "Gates": "graph.forward",
    "GatingInformation": "training.information",
    "HardGate": "gates",
    "KernelClassifier": "machines.classifier",
    "KernelDynamics": "theory.dynamics",
    "KernelRegressor": "machines.regressor",
    "LabelEnergySplit": "diagnostics",
    "LeakyGate": "gates",
    "LeaveOneOut": "machines.leave_one_out",
    "LimitParts": "readings.limit.parts",
    "LinearGate": "gates",
    "Neighbours": "readings.nearest",
    "PathGraph": "graph.path_graph",
    "RandomImage": "gating.value_inputs",
    "ReplayMismatch": "graph.support",
    "RidgePath": "machines.leave_one_out",
    "SingularKernel": "machines.cholesky",
    "SketchClassifier": "machines.sketched",
    "SketchRegressor": "machines.sketched",
    "SoftGate": "gates",
    "SolveReport": "machines.solving",
    "Steps": "theory.dynamics",
    "StoredKernel": "tiles.store",
    "SupportReport": "graph.support",
    "SwitchRecorder": "theory.switching",
    "TangentParts": "tangent.parts",
    "Tile": "gating.transforms",
    "UnsupportedOperation": "graph.support",
    "active_paths": "readings.counts",
    "alignment": "diagnostics",
    "always_open_gates": "readings.gate_statistics",
    "base_kernels": "readings.gate_statistics",
    "centred_alignment": "diagnostics",
    "concentration": "theory.concentration",
    "condition_number": "diagnostics",
    "dead_gates": "readings.gate_statistics",
    "decouple": "gating.regimes",
    "eigenvalue_bound": "theory.conditioning",
    "expected_tangent_kernel": "readings.pairs.kernel",
    "expected_tangent_kernel_tiles": "readings.pairs.kernel",
    "fitted_power": "theory.concentration",
    "gate_distance": "readings.gate_statistics",
    "gate_switches": "theory.switching",
    "gating_information": "training.information",
    "label_energy": "diagnostics",
    "label_energy_by_eigenvector": "diagnostics",
    "limit_output_kernel": "readings.limit.kernel",
    "limit_output_kernel_tiles": "readings.limit.kernel",
    "limit_path_kernel": "readings.limit.kernel",
    "limit_path_kernel_tiles": "readings.limit.kernel",
    "limit_tangent_kernel": "readings.limit.kernel",
    "limit_tangent_kernel_tiles": "readings.limit.kernel",
    "limit_tangent_parts": "readings.limit.parts",
    "limit_tangent_parts_tiles": "readings.limit.parts",
    "named_tiles": "named_kernels",
    "nearest": "readings.nearest",
    "open_kernel": "tiles.store",
    "output": "graph.path_graph",
    "overlap_profile": "readings.gate_statistics",
    "path_features": "readings.paths",
    "path_kernel": "readings.pairs.kernel",
    "path_kernel_tiles": "readings.pairs.kernel",
    "path_norm": "readings.counts",
    "path_overlap": "readings.counts",
    "path_sketch": "readings.sketch",
    "path_values": "readings.paths",
    "printed_variance_bound": "theory.concentration",
    "random_weights": "theory.value_kernel",
    "recorded_gates": "gating.swapping",
    "residual_subnetwork": "readings.subnetworks",
    "run_with_gates": "gating.swapping",
    "sensitive_gates": "readings.sensitivity",
    "sensitive_paths": "readings.sensitivity",
    "shared_paths": "readings.counts",
    "sketched_kernel": "readings.sketch",
    "spectrum": "diagnostics",
    "spectrum_ratio": "theory.concentration",
    "store_kernel": "stored_kernels",
    "subnetwork": "readings.subnetworks",
    "subnetwork_kernel": "readings.subnetworks",
    "supported": "graph.trace",
    "tangent_kernel": "tangent.kernel",
    "tangent_kernel_tiles": "tangent.kernel",
    "tangent_parts": "tangent.parts",
    "trace": "graph.trace",
    "value_kernel": "theory.value_kernel",
    "verify_kernel": "stored_kernels",
}

# Subpackages that are used by their own names, `neuralpath.nets.FC`.
_PACKAGES = ("data", "experiments", "nets", "training")

__all__ = ["__version__", *_EXPORTS, *_PACKAGES]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"neuralpath.{name}")
    if name not in _EXPORTS:
        raise AttributeError(f"module 'neuralpath' has no attribute {name!r}")
    return getattr(import_module(f"neuralpath.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
