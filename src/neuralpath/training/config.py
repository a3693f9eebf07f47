"""The settings of a training run, as frozen dataclasses that can be flags, be hashed and be compared."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from neuralpath._configs import ADDED_LATER
from neuralpath.training.schedules import Constant, Schedule


@dataclass(frozen=True)
class Adam:
    """The optimizer Adam (Kingma & Ba 2014), or AdamW with ``decoupled``.

    Args:
        lr: Learning rate, before the factor of the schedule.
        betas: Decay of the running means of the gradient and of its square.
        eps: Added to the denominator.
        weight_decay: Factor of the weights that is added to the gradient.
        decoupled: Whether weights decay directly instead of through the gradient (AdamW).

    >>> Adam(lr=3e-4, weight_decay=0.01, decoupled=True).lr
    0.0003
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False

    def __post_init__(self) -> None:
        _check_common(self.lr, self.weight_decay)
        _check_number("eps", self.eps, least=0.0)
        if not isinstance(self.betas, Sequence) or len(self.betas) != 2 or not all(0 <= b < 1 for b in self.betas):
            raise ValueError(f"`betas` must be two numbers from 0 to below 1, got {self.betas!r}.")


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, with or without momentum.

    Args:
        lr: Learning rate, before the factor of the schedule.
        momentum: Share of the last step that is added to the next.
        nesterov: Whether to use Nesterov momentum.
        weight_decay: Factor of the weights that is added to the gradient.

    >>> SGD(lr=0.1, momentum=0.9, nesterov=True).momentum
    0.9
    """

    lr: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _check_common(self.lr, self.weight_decay)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"`momentum` must lie from 0 to below 1, got {self.momentum!r}.")
        if self.nesterov and self.momentum == 0:
            raise ValueError("`nesterov` needs a `momentum` above 0, such as 0.9.")


@dataclass(frozen=True)
class RMSprop:
    """The optimizer RMSprop, which divides steps by a running root mean square of the gradient.

    Args:
        lr: Learning rate, before the factor of the schedule.
        alpha: Decay of the running mean of the squared gradient.
        eps: Added to the denominator.
        momentum: Share of the last step that is added to the next.
        weight_decay: Factor of the weights that is added to the gradient.

    >>> RMSprop(lr=1e-3).alpha
    0.99
    """

    lr: float = 1e-3
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _check_common(self.lr, self.weight_decay)
        _check_number("eps", self.eps, least=0.0)
        for name, value in (("alpha", self.alpha), ("momentum", self.momentum)):
            if not 0 <= value < 1:
                raise ValueError(f"`{name}` must lie from 0 to below 1, got {value!r}.")


OptimizerConfig = Adam | SGD | RMSprop

Precision = Literal["full", "bfloat16"]


@dataclass(frozen=True)
class TrainingConfig:
    """All settings of a training run, besides the model, the data and the augmentation.

    On one machine and with one number of threads, equal settings give equal weights, bit for bit.

    Args:
        epochs: Number of passes over the training data.
        batch_size: Examples in a training batch.
        optimizer: `Adam`, `SGD` or `RMSprop`, with its settings.
        schedule: Factor of the learning rate as a function of the epoch.
        loss: For labels -1 and +1 with one output: the logistic loss, or half the squared distance to the label. For
            class numbers: the cross-entropy of the softmax, or half the squared distance to the one-hot vector. The
            mean over examples in all cases.
        seed: Seed of the order of batches, of dropout and of augmentation.
        stop_at_train_accuracy: End after the first epoch whose training accuracy reaches this share, such as 0.999.
        train_metrics: Where training loss and accuracy come from. "running": the forward passes of the epoch, at no
            cost, while the weights change. "evaluated": one more pass over the training data at the end of the epoch,
            in evaluation mode.
        evaluate_every: Measure the test data every N epochs, and after the last.
        evaluation_batch_size: Examples in a batch for measurements.
        drop_last: Leave out a last batch that is smaller than the others (batch norm cannot train on one example).
        threads: Threads of torch during training; None for the current number at the start of the run.
        gate_memory: Bytes for fixed gates; None for half of the free memory. Gates that do not fit are computed again
            for each batch, which may round a pre-activation near 0 to the other side.
        precision: Precision of the forward and backward passes of a float32 network. "bfloat16" rounds products
            (torch's autocast): an epoch of convolutions is 1.6 times as fast on CPUs with instructions for it. Weights,
            steps, fixed gates and measurements are in full precision in both cases; the "running" metrics are those of
            the passes.

    >>> config = TrainingConfig(epochs=10, optimizer=SGD(0.1, momentum=0.9), seed=3)
    >>> config.epochs, config.batch_size
    (10, 32)
    """

    epochs: int = 20
    batch_size: int = 32
    optimizer: OptimizerConfig = field(default_factory=Adam)
    schedule: Schedule = field(default_factory=Constant)
    loss: Literal["cross-entropy", "squared"] = "cross-entropy"
    seed: int = 0
    stop_at_train_accuracy: float | None = None
    train_metrics: Literal["running", "evaluated"] = "running"
    evaluate_every: int = 1
    evaluation_batch_size: int = 256
    drop_last: bool = False
    threads: int | None = None
    gate_memory: int | None = None
    precision: Precision = field(default="full", metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        least = {"epochs": 0, "batch_size": 1, "evaluate_every": 1, "evaluation_batch_size": 1, "seed": 0}
        optional = {"threads": 1, "gate_memory": 1}
        for name, smallest in {**least, **optional}.items():
            value = getattr(self, name)
            if value is not None or name not in optional:
                object.__setattr__(self, name, _checked_integer(name, value, smallest))
        _check_instance("optimizer", self.optimizer, get_args(OptimizerConfig))
        _check_instance("schedule", self.schedule, get_args(Schedule))
        _check_choice("loss", self.loss, ("cross-entropy", "squared"))
        _check_choice("precision", self.precision, ("full", "bfloat16"))
        _check_choice("train_metrics", self.train_metrics, ("running", "evaluated"))
        target = self.stop_at_train_accuracy
        if target is not None:
            _check_plain("stop_at_train_accuracy", target)
            if not 0 < target <= 1:
                raise ValueError(f"`stop_at_train_accuracy` must be a share above 0 and at most 1, got {target!r}.")


def _check_common(lr: float, weight_decay: float) -> None:
    _check_number("lr", lr, least=0.0)
    _check_number("weight_decay", weight_decay, least=0.0)


def _check_number(name: str, value: float, least: float) -> None:
    _check_plain(name, value)
    if not least <= value < float("inf"):  # a NaN fails here too
        raise ValueError(f"`{name}` must be a finite number of at least {least:g}, got {value!r}.")


def _check_plain(name: str, value: object) -> None:
    """Refuse numbers of numpy and torch, which JSON cannot store."""
    if not isinstance(value, int | float):
        raise TypeError(f"`{name}` must be a plain number, such as float(value), got {value!r}.")


def _checked_integer(name: str, value: Any, least: int) -> int:
    """A plain integer, also from those of numpy and torch."""
    try:
        plain = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        plain = None
    if plain is None or plain < least:
        raise ValueError(f"`{name}` must be an integer of at least {least}, got {value!r}.")
    return plain


def _check_instance(name: str, value: object, classes: tuple[type, ...]) -> None:
    if not isinstance(value, classes):
        known = ", ".join(f"{cls.__name__}(...)" for cls in classes)
        raise TypeError(f"`{name}` must be one of {known} of `neuralpath.training`, got {value!r}.")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {value!r}.")
