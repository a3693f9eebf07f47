from .checkpoints import (
    CheckpointError as CheckpointError,
    CheckpointWarning as CheckpointWarning,
    load_weights as load_weights,
)
from .config import (
    SGD as SGD,
    Adam as Adam,
    Constant as Constant,
    Cosine as Cosine,
    PiecewiseLinear as PiecewiseLinear,
    RMSprop as RMSprop,
    StepDecay as StepDecay,
    TrainingConfig as TrainingConfig,
)
from .information import GatingInformation as GatingInformation, gating_information as gating_information
from .interrupts import Terminated as Terminated
from .loop import train as train
from .metrics import (
    EpochMetrics as EpochMetrics,
    Measurement as Measurement,
    TrainingDiverged as TrainingDiverged,
    TrainingMoment as TrainingMoment,
    TrainingResult as TrainingResult,
)

# isort: split
# Used by other folders of the package; not public.
from .batches import derive_seed as derive_seed
from .config import Precision as Precision
from .context import torch_threads as torch_threads
from .label_energies import ENERGY_JITTER as ENERGY_JITTER, gates_energy as gates_energy
from .metrics import Hook as Hook
