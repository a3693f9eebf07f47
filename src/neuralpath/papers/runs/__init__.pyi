# isort: split
# Used by other folders of the package; not public.
from .calibration import Calibration as Calibration
from .place import WEIGHTS as WEIGHTS, Place as Place, read_metrics as read_metrics
from .run_task import is_finished as is_finished
from .store import (
    ABOUT as ABOUT,
    RECORD as RECORD,
    DamagedRecord as DamagedRecord,
    RunError as RunError,
    Store as Store,
    read_about as read_about,
    read_record as read_record,
)
from .sweep import perform as perform, problems_of as problems_of, results_of as results_of
from .tensors import (
    DamagedTensors as DamagedTensors,
    damage as damage,
    read_tensors as read_tensors,
    write_tensors as write_tensors,
)
from .work import Weights as Weights, Work as Work, canonical as canonical, with_needs as with_needs
