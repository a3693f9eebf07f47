from . import (
    data as data,
    estimators as estimators,
    gating as gating,
    graph as graph,
    kernels as kernels,
    nets as nets,
    papers as papers,
    paths as paths,
    training as training,
)
from .estimators import (
    KernelClassifier as KernelClassifier,
    KernelRegressor as KernelRegressor,
    SketchClassifier as SketchClassifier,
    SketchRegressor as SketchRegressor,
)
from .gates import HardGate as HardGate, LeakyGate as LeakyGate, LinearGate as LinearGate, SoftGate as SoftGate
from .gating import (
    GatedNetwork as GatedNetwork,
    decouple as decouple,
    recorded_gates as recorded_gates,
    run_with_gates as run_with_gates,
)
from .graph import (
    Gates as Gates,
    PathGraph as PathGraph,
    ReplayMismatch as ReplayMismatch,
    SupportReport as SupportReport,
    UnsupportedOperation as UnsupportedOperation,
    output as output,
    supported as supported,
    trace as trace,
)
from .kernels import (
    ExpectedTangentKernel as ExpectedTangentKernel,
    FanVariance as FanVariance,
    Kernel as Kernel,
    KernelDynamics as KernelDynamics,
    LimitKernel as LimitKernel,
    LinearKernel as LinearKernel,
    PathKernel as PathKernel,
    StoredKernel as StoredKernel,
    TangentKernel as TangentKernel,
    alignment as alignment,
    centered_alignment as centered_alignment,
    expected_tangent_kernel as expected_tangent_kernel,
    label_energy as label_energy,
    limit_output_kernel as limit_output_kernel,
    limit_path_kernel as limit_path_kernel,
    limit_tangent_kernel as limit_tangent_kernel,
    limit_tangent_parts as limit_tangent_parts,
    open_kernel as open_kernel,
    path_kernel as path_kernel,
    spectrum as spectrum,
    tangent_kernel as tangent_kernel,
    tangent_parts as tangent_parts,
)
from .paths import (
    SwitchRecorder as SwitchRecorder,
    always_open_gates as always_open_gates,
    base_kernels as base_kernels,
    dead_gates as dead_gates,
    gate_distance as gate_distance,
    gate_switches as gate_switches,
    log_active_paths as log_active_paths,
    log_sensitive_paths as log_sensitive_paths,
    log_shared_paths as log_shared_paths,
    nearest as nearest,
    overlap_profile as overlap_profile,
    path_features as path_features,
    path_norm as path_norm,
    path_overlap as path_overlap,
    path_sketch as path_sketch,
    path_values as path_values,
    sensitive_gates as sensitive_gates,
    sketched_kernel as sketched_kernel,
    subnetwork as subnetwork,
)
from .training import gating_information as gating_information

__version__: str
