# isort: split
# Used by other folders of the package; not public.
from .records import (
    ARCHIVE as ARCHIVE,
    Archive as Archive,
    DamagedRecord as DamagedRecord,
    archives as archives,
    check_record as check_record,
    read_archive as read_archive,
    write_archive as write_archive,
)
from .run_directory import (
    WEIGHTS as WEIGHTS,
    DamagedTensors as DamagedTensors,
    RunDirectory as RunDirectory,
    read_metrics as read_metrics,
    read_tensors as read_tensors,
    tensors_problem as tensors_problem,
    write_tensors as write_tensors,
)
from .store import Store as Store, check_format as check_format
from .sweep import problems_of as problems_of, results_of as results_of, sweep_store as sweep_store
from .task import (
    FORMAT as FORMAT,
    RunError as RunError,
    Task as Task,
    Weights as Weights,
    fingerprint_of as fingerprint_of,
    with_dependencies as with_dependencies,
)
