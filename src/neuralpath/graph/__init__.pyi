from .outputs import output as output
from .path_graph import PathGraph as PathGraph
from .reports import (
    ReplayMismatch as ReplayMismatch,
    SupportReport as SupportReport,
    UnsupportedOperation as UnsupportedOperation,
)
from .tracing import as_graph as as_graph, supported as supported, trace as trace
from .walking import Gates as Gates

# isort: split
# Used by other folders of the package; not public.
from . import nodes as nodes
from .counting import no_paths_through as no_paths_through
from .gate_checks import check_gates as check_gates
from .nodes import (
    OUTSIDE as OUTSIDE,
    ActivationNode as ActivationNode,
    ComputedOperand as ComputedOperand,
    Operand as Operand,
    State as State,
    Window as Window,
    batch_norm_scale as batch_norm_scale,
    batch_norm_shift as batch_norm_shift,
    gather_positions as gather_positions,
    incidence as incidence,
    own_names as own_names,
    parameters_of as parameters_of,
    per_channel as per_channel,
)
from .path_graph import (
    CHUNK_BYTES as CHUNK_BYTES,
    GATES_CHUNK as GATES_CHUNK,
    check_graph as check_graph,
    check_input as check_input,
    chosen_output as chosen_output,
    common_dtype as common_dtype,
    compute_gates as compute_gates,
    outputs_share_paths as outputs_share_paths,
    refuse_repeated as refuse_repeated,
    refuse_tied as refuse_tied,
)
from .replay import run as run
from .reports import align as align
from .tracing import checked_graph as checked_graph, report_on as report_on
from .walking import Forward as Forward, Values as Values, walk as walk
