"""Training: one loop for every model, with checkpoints from which a run goes on exactly."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuralpath.training.checkpoints import CheckpointError as CheckpointError
    from neuralpath.training.checkpoints import CheckpointWarning as CheckpointWarning
    from neuralpath.training.config import SGD as SGD
    from neuralpath.training.config import Adam as Adam
    from neuralpath.training.config import RMSprop as RMSprop
    from neuralpath.training.config import TrainingConfig as TrainingConfig
    from neuralpath.training.interrupts import Terminated as Terminated
    from neuralpath.training.loop import train as train
    from neuralpath.training.metrics import EpochMetrics as EpochMetrics
    from neuralpath.training.metrics import Measurement as Measurement
    from neuralpath.training.records import SaveEvery as SaveEvery
    from neuralpath.training.records import TrainingDiverged as TrainingDiverged
    from neuralpath.training.records import TrainingMoment as TrainingMoment
    from neuralpath.training.records import TrainingResult as TrainingResult
    from neuralpath.training.schedules import Constant as Constant
    from neuralpath.training.schedules import Cosine as Cosine
    from neuralpath.training.schedules import PiecewiseLinear as PiecewiseLinear
    from neuralpath.training.schedules import Steps as Steps
    from neuralpath.training.snapshot import load_weights as load_weights

# Lazy, so that a command line made from the configs answers without loading torch.
_EXPORTS = {
    "Adam": "config",
    "CheckpointError": "checkpoints",
    "CheckpointWarning": "checkpoints",
    "Constant": "schedules",
    "Cosine": "schedules",
    "EpochMetrics": "metrics",
    "Measurement": "metrics",
    "PiecewiseLinear": "schedules",
    "RMSprop": "config",
    "SGD": "config",
    "SaveEvery": "records",
    "Steps": "schedules",
    "Terminated": "interrupts",
    "TrainingConfig": "config",
    "TrainingDiverged": "records",
    "TrainingMoment": "records",
    "TrainingResult": "records",
    "load_weights": "snapshot",
    "train": "loop",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'neuralpath.training' has no attribute {name!r}")
    return getattr(import_module(f"neuralpath.training.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
