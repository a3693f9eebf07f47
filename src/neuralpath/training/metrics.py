"""Losses and accuracies, and the results of a training run."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn

from neuralpath._checks import describe
from neuralpath.training.config import TrainingConfig

Labels = Int64[Tensor, " batch"] | Float[Tensor, " batch"]
Outputs = Float[Tensor, "batch n_outputs"]
Targets = Shaped[Tensor, "batch ..."]

COUNTED_AT_ONCE = 64  # batches whose correct answers are counted together, which costs as much as for one batch


class TrainingDiverged(ArithmeticError):
    """The loss or a weight became NaN or infinite."""


@dataclass(eq=False)
class NonFiniteLoss(ArithmeticError):
    """The loss of a batch is NaN or infinite; ``batch`` counts the batches before it."""

    value: float
    batch: int


@dataclass(frozen=True)
class Objective:
    """The loss that training minimizes, and the count of correct answers.

    Labels are class numbers, or -1 and +1 for one output. The answer is the class with the largest output, or the sign
    of the output, where 0 counts as -1. The loss of an example is one of four:

        cross-entropy   log sum exp(outputs) - outputs[label]    log(1 + exp(-label * output))
        squared         |outputs - one-hot vector|^2 / 2         (output - label)^2 / 2
    """

    squared: bool
    signs: bool  # whether labels are -1 and +1
    n_outputs: int
    dtype: torch.dtype  # of the outputs

    def targets(self, labels: Labels, name: str = "labels") -> Targets:
        """The tensor that the loss compares outputs with: classes, one-hot vectors, or a column of -1 and +1."""
        n = self.n_outputs
        if self.signs and n != 1:
            raise ValueError(f"`{name}` of -1 and +1 need one output, the model has {n}; use class numbers (int64).")
        valid = (labels == 1) | (labels == -1) if self.signs else (labels >= 0) & (labels < n)
        if not bool(valid.all()):
            index, count = int(torch.nonzero(~valid)[0, 0]), int((~valid).sum())
            limits, hint = f"lie between 0 and {n - 1}, because the model has {n} outputs", ""
            if self.signs:
                limits, hint = "be -1 or +1", " Class numbers must be int64, `labels.long()`."
            elif n == 1:
                hint = " Labels for one output are -1 and +1, as floats."
            got = f"{labels[index].item()} at index {index}, and {count} such in all"
            raise ValueError(f"`{name}` must {limits}, got {got}.{hint}")
        if self.signs:
            return labels[:, None].to(self.dtype)
        return F.one_hot(labels, n).to(self.dtype) if self.squared else labels

    def loss(self, outputs: Outputs, targets: Targets) -> Float[Tensor, ""]:
        """The mean over the examples."""
        if self.squared:
            return F.mse_loss(outputs, targets, reduction="sum") * (0.5 / len(outputs))
        return F.softplus(-targets * outputs).mean() if self.signs else F.cross_entropy(outputs, targets)

    def n_correct(self, outputs: Outputs, targets: Targets) -> Int64[Tensor, ""]:
        """Number of correct answers."""
        if self.signs:
            return ((outputs > 0) == (targets > 0)).sum()
        return (outputs.argmax(1) == (targets.argmax(1) if self.squared else targets)).sum()


def objective_for(config: TrainingConfig, labels: Shaped[Tensor, " _"], output: Float[Tensor, "_ _"]) -> Objective:
    """The objective for the loss of the config, labels of this dtype, and a model with this output."""
    if labels.dtype != torch.int64 and not labels.is_floating_point():
        raise TypeError(f"`labels` must be class numbers (int64) or floats -1 and +1, got {describe(labels)}.")
    return Objective(config.loss == "squared", labels.is_floating_point(), output.shape[1], output.dtype)


@dataclass(frozen=True)
class Measurement:
    """Mean loss and accuracy over a set of examples.

    Args:
        loss: Mean loss.
        accuracy: Share of correct answers, from 0 to 1.
    """

    loss: float
    accuracy: float


@dataclass(frozen=True)
class EpochMetrics:
    """Metrics of one epoch. Comparisons ignore the time.

    Args:
        epoch: Number of the epoch, from 1.
        train: Metrics on the training data, as ``TrainingConfig.train_metrics`` says.
        test: Metrics on the test data; None if they were not measured in this epoch.
        seconds: Duration of the epoch, with its measurements.
    """

    epoch: int
    train: Measurement
    test: Measurement | None
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, eq=False)
class TrainingMoment:
    """The state of a run when a hook is called.

    Args:
        model: The model, in evaluation mode.
        epoch: Number of finished epochs; 0 before training.
        step: Number of finished steps.
        metrics: Metrics of the epoch that has just finished; None before training.
    """

    model: nn.Module
    epoch: int
    step: int
    metrics: EpochMetrics | None


Hook = Callable[[TrainingMoment], None]


@dataclass(frozen=True)
class TrainingResult:
    """The metrics of a training run. The trained weights are in the model.

    Args:
        history: Metrics of each epoch.
        n_steps: Number of optimizer steps.
        stopped_early: Whether the run ended because the training accuracy reached ``stop_at_train_accuracy``.
    """

    history: tuple[EpochMetrics, ...]
    n_steps: int
    stopped_early: bool

    @property
    def last(self) -> EpochMetrics | None:
        """The last epoch; None for a run of no epochs."""
        return self.history[-1] if self.history else None

    @property
    def best(self) -> EpochMetrics | None:
        """The first epoch with the highest test accuracy; training accuracy if there is no test data."""
        tested = [(metrics.test.accuracy, metrics) for metrics in self.history if metrics.test is not None]
        scored = tested or [(metrics.train.accuracy, metrics) for metrics in self.history]
        return max(scored, key=lambda pair: pair[0])[1] if scored else None


class MetricSums:
    """Loss and correct answers summed over batches: losses one by one in double precision, answers for many at once."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._loss = 0.0
        self._n_correct = 0
        self._n_examples = 0
        self._n_batches = 0
        self._pending: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, loss: Float[Tensor, ""], outputs: Outputs, targets: Targets) -> None:
        """Add a batch."""
        # Other devices are not waited for: they show a loss that is not finite at the next count.
        if loss.device.type == "cpu" and not math.isfinite(value := loss.item()):
            raise NonFiniteLoss(value, self._n_batches)
        self._pending.append((loss.detach(), outputs.detach(), targets))
        self._n_batches += 1
        if len(self._pending) == COUNTED_AT_ONCE:
            self._count()

    def mean(self) -> Measurement:
        """Means over all examples."""
        if self._pending:
            self._count()
        if self._n_examples == 0:
            raise ValueError("the loader gave no batches: it must be possible to iterate over it in every epoch.")
        return Measurement(self._loss / self._n_examples, self._n_correct / self._n_examples)

    def _count(self) -> None:
        pending, self._pending = self._pending, []
        losses = torch.stack([loss for loss, _, _ in pending]).tolist()
        for index, (value, (_, outputs, _)) in enumerate(zip(losses, pending, strict=True)):
            if not math.isfinite(value):
                raise NonFiniteLoss(value, self._n_batches - len(pending) + index)
            self._loss += value * len(outputs)
            self._n_examples += len(outputs)
        outputs, targets = (torch.cat([entry[part] for entry in pending]) for part in (1, 2))
        self._n_correct += int(self._objective.n_correct(outputs, targets))
