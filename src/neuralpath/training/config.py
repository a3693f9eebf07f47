"""What determines a training run: frozen records, so that they can be flags, be hashed and be compared."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from neuralpath._configs import ADDED_LATER
from neuralpath.training.schedules import Constant, Schedule


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba 2014); with ``decoupled`` the weights decay apart from the gradient (AdamW).

    >>> Adam(lr=3e-4, weight_decay=0.01, decoupled=True).lr
    0.0003
    """

    lr: float = 1e-3
    """Learning rate before the schedule's factor."""
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
    """Stochastic gradient descent, with momentum, Nesterov's or plain.

    >>> SGD(lr=0.1, momentum=0.9, nesterov=True).momentum
    0.9
    """

    lr: float = 0.1
    """Learning rate before the schedule's factor."""
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
    """Steps divided by a running root mean square of the gradient.

    >>> RMSprop(lr=1e-3).alpha
    0.99
    """

    lr: float = 1e-3
    """Learning rate before the schedule's factor."""
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
    """Everything that the weights after training depend on, besides the model, the data and the augmentation.

    On one machine and with one number of threads, equal settings give equal weights, bit for bit.

    >>> config = TrainingConfig(epochs=10, optimizer=SGD(0.1, momentum=0.9), seed=3)
    >>> config.epochs, config.batch_size
    (10, 32)
    """

    epochs: int = 20
    batch_size: int = 32
    optimizer: OptimizerConfig = field(default_factory=Adam)
    schedule: Schedule = field(default_factory=Constant)
    loss: Literal["cross-entropy", "squared"] = "cross-entropy"
    """Labels -1 and +1 of one output take the logistic loss and the square against the label; class numbers
    take the soft-max and half the squared distance to the one-hot vector. Always the mean over examples."""
    seed: int = 0
    """Source of the order of batches, of dropout and of augmentation."""
    stop_at_train_accuracy: float | None = None
    """End after the first epoch whose training accuracy reaches this share, such as 0.999."""
    train_metrics: Literal["running", "evaluated"] = "running"
    """Training loss and accuracy: of the epoch's own forward passes, which cost nothing but mix the weights of
    the whole epoch; or of one more pass over the training data at its end, in evaluation mode."""
    evaluate_every: int = 1
    """Measure the test data every so many epochs, and after the last."""
    evaluation_batch_size: int = 256
    drop_last: bool = False
    """Leave out a last batch that is smaller than the others (batch norm cannot train on one example)."""
    threads: int | None = None
    """Threads of torch while training; by default as many as torch is set to when the run begins."""
    gate_memory: int | None = None
    """Bytes that fixed gates may take; by default half of what is free. Gates that do not fit are computed
    anew for each batch, which may round a pre-activation near 0 to the other side."""
    precision: Precision = field(default="full", metadata=ADDED_LATER)
    """Of the passes that a float32 network is trained by: full, or with products rounded to bfloat16 (torch's
    autocast), an epoch 1.6 times as fast for convolutions on processors with instructions for it. Weights, steps,
    fixed gates and all that is measured are full in both; the training loss and accuracy of ``running`` are those of
    the passes."""

    def __post_init__(self) -> None:
        for name, least in (
            ("epochs", 0), ("batch_size", 1), ("evaluate_every", 1), ("evaluation_batch_size", 1),
            ("seed", 0), ("threads", 1), ("gate_memory", 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None or name not in ("threads", "gate_memory"):
                object.__setattr__(self, name, _checked_integer(name, value, least))
        _check_kind("optimizer", self.optimizer, get_args(OptimizerConfig))
        _check_kind("schedule", self.schedule, get_args(Schedule))
        _check_choice("loss", self.loss, ("cross-entropy", "squared"))
        _check_choice("precision", self.precision, ("full", "bfloat16"))
        _check_choice("train_metrics", self.train_metrics, ("running", "evaluated"))
        target = self.stop_at_train_accuracy
        if target is not None:
            _check_plain("stop_at_train_accuracy", target)
            if not 0 < target <= 1:
                raise ValueError(f"`stop_at_train_accuracy` is a share above 0 and up to 1, got {target!r}.")


def _check_common(lr: float, weight_decay: float) -> None:
    _check_number("lr", lr, least=0.0)
    _check_number("weight_decay", weight_decay, least=0.0)


def _check_number(name: str, value: float, least: float) -> None:
    _check_plain(name, value)
    if not least <= value < float("inf"):  # a NaN fails here too
        raise ValueError(f"`{name}` must be a finite number of at least {least:g}, got {value!r}.")


def _check_plain(name: str, value: object) -> None:
    """Refuse the numbers of numpy and torch, which cannot be written down with the run."""
    if not isinstance(value, int | float):
        raise TypeError(f"`{name}` must be a plain number, such as float(value), got {value!r}.")


def _checked_integer(name: str, value: Any, least: int) -> int:
    """A plain integer, of those of numpy and torch too."""
    try:
        plain = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        plain = None
    if plain is None or plain < least:
        raise ValueError(f"`{name}` must be an integer of at least {least}, got {value!r}.")
    return plain


def _check_kind(name: str, value: object, kinds: tuple[type, ...]) -> None:
    if not isinstance(value, kinds):
        known = ", ".join(f"{kind.__name__}(...)" for kind in kinds)
        raise TypeError(f"`{name}` must be one of {known} of `neuralpath.training`, got {value!r}.")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {value!r}.")
