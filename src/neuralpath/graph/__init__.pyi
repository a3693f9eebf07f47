from .forward import Gates as Gates
from .outputs import output as output
from .path_graph import PathGraph as PathGraph
from .support import (
    ReplayMismatch as ReplayMismatch,
    SupportReport as SupportReport,
    UnsupportedOperation as UnsupportedOperation,
)
from .tracing import as_graph as as_graph, supported as supported, trace as trace

# isort: split
# Used by other folders of the package; not public.
from . import linear_maps as linear_maps, nodes as nodes
from .counting import no_paths_through as no_paths_through
from .finite import FiniteForward as FiniteForward, check_tensors as check_tensors
from .forward import Forward as Forward, Values as Values
from .geometry import OUTSIDE as OUTSIDE, Window as Window, incidence as incidence
from .linear_maps import gather_positions as gather_positions
from .nodes import ActivationNode as ActivationNode
from .operands import (
    Call as Call,
    Operand as Operand,
    State as State,
    batch_norm_scale as batch_norm_scale,
    batch_norm_shift as batch_norm_shift,
    parameters_of as parameters_of,
    per_channel as per_channel,
)
from .outputs import (
    chosen_output as chosen_output,
    outputs_share_paths as outputs_share_paths,
    refuse_repeated as refuse_repeated,
    refuse_tied as refuse_tied,
)
from .path_graph import (
    CHUNK_BYTES as CHUNK_BYTES,
    GATES_CHUNK as GATES_CHUNK,
    check_gates as check_gates,
    check_graph as check_graph,
    check_input as check_input,
    common_dtype as common_dtype,
)
from .replay import run as run
from .table import align as align
from .tracing import report_on as report_on
from .tying import own_names as own_names, tensor_places as tensor_places
from .walking import walk as walk
