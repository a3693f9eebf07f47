from .conditioning import eigenvalue_bound as eigenvalue_bound
from .counts import (
    log_active_paths as log_active_paths,
    log_shared_paths as log_shared_paths,
    path_norm as path_norm,
    path_overlap as path_overlap,
)
from .enumeration import path_features as path_features, path_values as path_values
from .gate_statistics import (
    always_open_gates as always_open_gates,
    base_kernels as base_kernels,
    dead_gates as dead_gates,
    gate_distance as gate_distance,
    open_counts as open_counts,
    overlap_profile as overlap_profile,
)
from .neighbors import Neighbors as Neighbors, nearest as nearest
from .sensitivity import log_sensitive_paths as log_sensitive_paths, sensitive_gates as sensitive_gates
from .sketch import path_sketch as path_sketch, sketched_kernel as sketched_kernel
from .subnetworks import (
    residual_adds as residual_adds,
    residual_subnetwork as residual_subnetwork,
    subnetwork as subnetwork,
    subnetwork_kernel as subnetwork_kernel,
)
from .switching import GateSwitches as GateSwitches, SwitchRecorder as SwitchRecorder, gate_switches as gate_switches
