"""Losses and accuracies: sums while they are being counted, and the record of an epoch."""

import math
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from neuralpath.training.objectives import Objective

FLUSH = 64
"""Steps between two counts of correct answers: one count of many rows costs what a count of few does."""


class NonFiniteLoss(ArithmeticError):
    """The loss became NaN or infinite; ``batch`` counts the batches that were added before it."""

    def __init__(self, value: float, batch: int) -> None:
        super().__init__(f"the loss of batch {batch} is {value}")
        self.value = value
        self.batch = batch


@dataclass(frozen=True)
class Measurement:
    """Mean loss and share of correct answers over some examples."""

    loss: float
    accuracy: float


@dataclass(frozen=True)
class EpochMetrics:
    """What was measured in one epoch; ``epoch`` counts from 1. Times play no part in comparisons."""

    epoch: int
    train: Measurement
    test: Measurement | None
    seconds: float = field(default=0.0, compare=False)


class Sums:
    """Loss and correct answers summed over batches, in an order that does not depend on when they are counted.

    Losses are added one by one in double precision; correct answers are integers, so they may be counted late,
    many batches at once. A sum that is stopped and goes on later is the same, bit for bit.
    """

    def __init__(
        self, objective: Objective, loss: float = 0.0, n_correct: int = 0, n_examples: int = 0, n_batches: int = 0
    ) -> None:
        self._objective = objective
        self._loss = loss
        self._n_correct = n_correct
        self._n_examples = n_examples
        self._n_batches = n_batches
        self._pending: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(
        self,
        loss: Float[Tensor, ""],
        outputs: Float[Tensor, "batch n_outputs"],
        targets: Shaped[Tensor, "batch ..."],
    ) -> None:
        """Add a batch. On the processor a loss that is not finite is met at once, else at the next count.

        Raises: NonFiniteLoss.
        """
        if loss.device.type == "cpu" and not math.isfinite(value := loss.item()):
            raise NonFiniteLoss(value, self._n_batches)
        self._pending.append((loss.detach(), outputs.detach(), targets))
        self._n_batches += 1
        if len(self._pending) == FLUSH:
            self.flush()

    def flush(self) -> None:
        """Count what has been added since the last count.

        Raises: NonFiniteLoss.
        """
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        losses = torch.stack([loss for loss, _, _ in pending]).tolist()
        for index, (value, (_, outputs, _)) in enumerate(zip(losses, pending, strict=True)):
            if not math.isfinite(value):
                raise NonFiniteLoss(value, self._n_batches - len(pending) + index)
            self._loss += value * len(outputs)
            self._n_examples += len(outputs)
        together = torch.cat([outputs for _, outputs, _ in pending]), torch.cat([t for _, _, t in pending])
        self._n_correct += int(self._objective.n_correct(*together))

    def as_json(self) -> dict[str, float | int]:
        """The sums so far; the constructor takes them back."""
        self.flush()
        return {
            "loss": self._loss, "n_correct": self._n_correct,
            "n_examples": self._n_examples, "n_batches": self._n_batches,
        }  # fmt: skip

    def mean(self) -> Measurement:
        """Means over all examples."""
        self.flush()
        if self._n_examples == 0:
            raise ValueError("the loader gave no batches: it must be one that can be read again for every epoch.")
        return Measurement(self._loss / self._n_examples, self._n_correct / self._n_examples)


def best_epoch(history: tuple[EpochMetrics, ...]) -> EpochMetrics | None:
    """The first epoch of the highest test accuracy; of the highest training accuracy where there is no test data."""
    tested = [metrics for metrics in history if metrics.test is not None]
    if tested:
        return max(tested, key=lambda m: m.test.accuracy if m.test is not None else 0.0)
    return max(history, key=lambda m: m.train.accuracy, default=None)
