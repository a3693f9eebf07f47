"""Losses and accuracies, and the results of a training run."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath.training.batches import Batch
from neuralpath.training.objectives import Objective

Forward = Callable[[Batch], Float[Tensor, "batch n_outputs"]]
"""From a batch to the outputs of a model."""

COUNTED_AT_ONCE = 64
"""Batches whose correct answers are counted together: one count of many rows costs as much as one of few."""


class TrainingDiverged(ArithmeticError):
    """The loss or a weight became NaN or infinite."""


class NonFiniteLoss(ArithmeticError):
    """The loss of a batch is NaN or infinite; ``batch`` counts the batches before it."""

    def __init__(self, value: float, batch: int) -> None:
        super().__init__(f"the loss of batch {batch} is {value}")
        self.value = value
        self.batch = batch


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
    """Loss and correct answers summed over batches.

    Losses are added one by one in double precision. Correct answers are integers, so they are counted later, for many
    batches at once.
    """

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._loss = 0.0
        self._n_correct = 0
        self._n_examples = 0
        self._n_batches = 0
        self._pending: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(
        self, loss: Float[Tensor, ""], outputs: Float[Tensor, "batch n_outputs"], targets: Shaped[Tensor, "batch ..."]
    ) -> None:
        """Add a batch.

        Raises: NonFiniteLoss; on the CPU at once, on other devices, which are not waited for, at the next count.
        """
        if loss.device.type == "cpu" and not math.isfinite(value := loss.item()):
            raise NonFiniteLoss(value, self._n_batches)
        self._pending.append((loss.detach(), outputs.detach(), targets))
        self._n_batches += 1
        if len(self._pending) == COUNTED_AT_ONCE:
            self._count()

    def mean(self) -> Measurement:
        """Means over all examples.

        Raises: NonFiniteLoss; ValueError if there was no batch.
        """
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


def evaluate(model: nn.Module, forward: Forward, batches: Iterable[Batch], objective: Objective) -> Measurement:
    """Mean loss and accuracy of a model in evaluation mode.

    Raises: NonFiniteLoss.
    """
    was_training = model.training
    model.eval()
    sums = MetricSums(objective)
    try:
        with torch.no_grad():
            for batch in batches:
                outputs = forward(batch)
                sums.add(objective.loss(outputs, batch.targets), outputs, batch.targets)
    finally:
        model.train(was_training)
    return sums.mean()
