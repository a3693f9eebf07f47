"""What a run is told, tells its hooks, and gives back."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from neuralpath.training.metrics import EpochMetrics, best_epoch


class TrainingDiverged(ArithmeticError):
    """The loss or a weight became NaN or infinite."""


@dataclass(frozen=True, eq=False)
class TrainingMoment:
    """What a hook is given: the model, in evaluation mode, after ``epoch`` finished epochs (0: before training)."""

    model: nn.Module
    epoch: int
    step: int
    metrics: EpochMetrics | None
    """Of the epoch that has just finished; None before training."""


Hook = Callable[[TrainingMoment], None]


@dataclass(frozen=True)
class SaveEvery:
    """How often a checkpoint is written: after so many seconds or steps, whichever comes first; None is never.

    >>> SaveEvery(seconds=None, steps=100).steps
    100
    """

    seconds: float | None = 60.0
    steps: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("steps", self.steps)):
            if value is not None and not value > 0:
                raise ValueError(f"`{name}` between two checkpoints must be positive, got {value!r}.")


@dataclass(frozen=True)
class TrainingResult:
    """What a run has measured; the trained weights are in the model."""

    history: tuple[EpochMetrics, ...]
    n_steps: int
    stopped_early: bool
    """Whether the training accuracy that was asked for ended the run."""

    @property
    def last(self) -> EpochMetrics | None:
        """The last epoch; None for a run of no epochs."""
        return self.history[-1] if self.history else None

    @property
    def best(self) -> EpochMetrics | None:
        """The first epoch of the highest test accuracy (training accuracy, where there is no test data)."""
        return best_epoch(self.history)
