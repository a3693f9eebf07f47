"""How the papers train, as a few plain values, and the data that a seed sees."""

from dataclasses import dataclass, field, replace
from typing import Literal

from neuralpath._configs import ADDED_LATER
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.training import SGD, Adam, Precision, TrainingConfig


@dataclass(frozen=True)
class Recipe:
    """Optimiser, rate, batches and epochs; all else as in the papers: a constant rate, cross-entropy."""

    optimiser: Literal["adam", "sgd"] = "adam"
    rate: float = 3e-4
    batch_size: int = 32
    epochs: int = 40
    precision: Precision = field(default="full", metadata=ADDED_LATER)
    """The papers' is full; bfloat16 makes an epoch of convolutions 1.6 times as fast (`benchmarks/precision.py`)."""

    def __post_init__(self) -> None:
        if self.optimiser not in ("adam", "sgd"):
            raise ValueError(f"`optimiser` must be adam or sgd, got {self.optimiser!r}.")
        self.training()  # which refuses bad numbers by their names

    @property
    def label(self) -> str:
        """For tables: the optimiser as the papers spell it."""
        return {"adam": "Adam", "sgd": "SGD"}[self.optimiser]

    def training(self) -> TrainingConfig:
        """For all epochs; the training accuracy is that of the epoch's own passes."""
        made = Adam(self.rate) if self.optimiser == "adam" else SGD(self.rate)
        return TrainingConfig(epochs=self.epochs, batch_size=self.batch_size, optimiser=made, precision=self.precision)

    def training_until(self, accuracy: float, epochs: int, measured_every: int = 1) -> TrainingConfig:
        """Until the training accuracy, measured by a pass of its own after each epoch, reaches a share.

        Where test data are measured every so many epochs only, the training accuracy is that of the epoch's own passes.
        """
        return replace(
            self.training(), epochs=epochs, stop_at_train_accuracy=accuracy, evaluate_every=measured_every,
            train_metrics="evaluated" if measured_every == 1 else "running",
        )  # fmt: skip


def data_of_seed(data: DataSpec, seed: int) -> DataSpec:
    """The data of a run: what is drawn (a subset, random labels, noise) is drawn with the run's seed.

    A variant and the true data of the same seed are then of the same subset, and the whole true data are the same for
    all seeds, so that a network trained on them is shared.
    """
    is_drawn = data.n_train is not None or data.n_test is not None or data.variant != "true" or data.noise > 0
    return replace(data, seed=seed if is_drawn else 0)
