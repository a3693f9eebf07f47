# isort: split
# Used by other folders of the package; not public.
from .calibration import Calibration as Calibration
from .execution import is_finished as is_finished
from .run_directory import WEIGHTS as WEIGHTS, RunDirectory as RunDirectory, read_metrics as read_metrics
from .store import (
    ABOUT as ABOUT,
    RECORD as RECORD,
    DamagedRecord as DamagedRecord,
    RunError as RunError,
    Store as Store,
    read_about as read_about,
    read_record as read_record,
)
from .sweep import problems_of as problems_of, results_of as results_of, run_tasks as run_tasks
from .task import Task as Task, Weights as Weights, canonical as canonical, with_dependencies as with_dependencies
from .tensors import (
    DamagedTensors as DamagedTensors,
    damage as damage,
    read_tensors as read_tensors,
    write_tensors as write_tensors,
)
