"""The settings of a training run, as frozen dataclasses that can be flags, be hashed and be compared."""

import math
import operator
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, get_args

from neuralpath._configs import ADDED_LATER


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
        _check_optimizer(self)
        if not isinstance(self.betas, Sequence) or len(self.betas) != 2 or not all(0 <= b < 1 for b in self.betas):
            raise ValueError(f"`betas` must be two numbers from 0 to below 1, got {self.betas!r}.")


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, with or without momentum.

    Args:
        lr, weight_decay: As in `Adam`.
        momentum: Share of the last step that is added to the next.
        nesterov: Whether to use Nesterov momentum.

    >>> SGD(lr=0.1, momentum=0.9, nesterov=True).momentum
    0.9
    """

    lr: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _check_optimizer(self)
        if self.nesterov and self.momentum == 0:
            raise ValueError("`nesterov` needs a `momentum` above 0, such as 0.9.")


@dataclass(frozen=True)
class RMSprop:
    """The optimizer RMSprop, which divides steps by a running root mean square of the gradient.

    Args:
        lr, eps, weight_decay: As in `Adam`.
        alpha: Decay of the running mean of the squared gradient.
        momentum: As in `SGD`.

    >>> RMSprop(lr=1e-3).alpha
    0.99
    """

    lr: float = 1e-3
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _check_optimizer(self)


@dataclass(frozen=True)
class Constant:
    """The same rate throughout.

    >>> Constant().factor(3.0, 10)
    1.0
    """

    def factor(self, time: float, epochs: int) -> float:
        """The factor of the learning rate at a time in epochs, in a run of ``epochs`` epochs."""
        return 1.0


@dataclass(frozen=True)
class StepDecay:
    """The rate is multiplied by a factor at given epochs.

    Args:
        at: Epochs at which the rate changes, rising.
        factor_each: The factor at each of them.

    >>> [round(StepDecay(at=(10, 15)).factor(time, 20), 4) for time in (0.0, 10.0, 19.0)]
    [1.0, 0.1, 0.01]
    """

    at: tuple[float, ...]
    factor_each: float = 0.1

    def __post_init__(self) -> None:
        _check_times("at", self.at)
        if not 0 < self.factor_each < math.inf:
            raise ValueError(f"`factor_each` must be a positive finite number, got {self.factor_each!r}.")

    def factor(self, time: float, epochs: int) -> float:
        """The factor of the learning rate at a time in epochs, in a run of ``epochs`` epochs."""
        return self.factor_each ** bisect_right(self.at, time)


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 to ``floor`` over all epochs, after a linear warm-up.

    Args:
        floor: The factor at the end.
        warmup: Number of epochs in which the factor rises linearly from 0 to 1.

    >>> [round(Cosine(warmup=1.0).factor(time, 11), 4) for time in (0.5, 1.0, 6.0, 11.0)]
    [0.5, 1.0, 0.5, 0.0]
    """

    floor: float = 0.0
    warmup: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= 1:
            raise ValueError(f"`floor` must lie between 0 and 1, got {self.floor!r}.")
        if not 0 <= self.warmup < math.inf:
            raise ValueError(f"`warmup` must be a number of epochs of at least 0, got {self.warmup!r}.")

    def factor(self, time: float, epochs: int) -> float:
        """The factor of the learning rate at a time in epochs, in a run of ``epochs`` epochs."""
        if time < self.warmup:
            return time / self.warmup
        share = min(1.0, (time - self.warmup) / max(epochs - self.warmup, 1e-12))
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * share)) / 2


@dataclass(frozen=True)
class PiecewiseLinear:
    """Linear interpolation between points (epoch, factor), constant before the first and after the last.

    DavidNet's schedule is ``PiecewiseLinear(epochs=(0, 5, 24), factors=(0, 1, 0))``.

    Args:
        epochs: Epochs of the points, rising.
        factors: Factors of the points.

    >>> PiecewiseLinear(epochs=(0, 5, 24), factors=(0, 1, 0)).factor(2.5, 24)
    0.5
    """

    epochs: tuple[float, ...]
    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_times("epochs", self.epochs)
        if len(self.epochs) != len(self.factors):
            raise ValueError(f"`epochs` and `factors` differ in size, got {len(self.epochs)} and {len(self.factors)}.")
        if not all(0 <= factor < math.inf for factor in self.factors):
            raise ValueError(f"`factors` must be finite numbers of at least 0, got {self.factors!r}.")

    def factor(self, time: float, epochs: int) -> float:
        """The factor of the learning rate at a time in epochs, in a run of ``epochs`` epochs."""
        right = bisect_right(self.epochs, time)
        if right == 0 or right == len(self.epochs):
            return float(self.factors[min(right, len(self.factors) - 1)])
        left = right - 1
        share = (time - self.epochs[left]) / (self.epochs[right] - self.epochs[left])
        return self.factors[left] + share * (self.factors[right] - self.factors[left])


OptimizerConfig = Adam | SGD | RMSprop
# A schedule is a function of the time ``step / steps per epoch``, so it does not depend on the batch size. The factor
# of a step is that at the start of the step.
Schedule = Constant | StepDecay | Cosine | PiecewiseLinear
Loss = Literal["cross-entropy", "squared"]
TrainMetrics = Literal["running", "evaluated"]
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
    loss: Loss = "cross-entropy"
    seed: int = 0
    stop_at_train_accuracy: float | None = None
    train_metrics: TrainMetrics = "running"
    evaluate_every: int = 1
    evaluation_batch_size: int = 256
    drop_last: bool = False
    threads: int | None = None
    gate_memory: int | None = None
    precision: Precision = field(default="full", metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        least_one = ("batch_size", "evaluate_every", "evaluation_batch_size", "threads", "gate_memory")
        for name in ("epochs", "seed", *least_one):
            value = getattr(self, name)
            if value is not None or name not in ("threads", "gate_memory"):
                object.__setattr__(self, name, _checked_integer(name, value, int(name in least_one)))
        for name, union in (("optimizer", OptimizerConfig), ("schedule", Schedule)):
            if not isinstance(value := getattr(self, name), get_args(union)):
                known = ", ".join(f"{cls.__name__}(...)" for cls in get_args(union))
                raise TypeError(f"`{name}` must be one of {known} of `neuralpath.training`, got {value!r}.")
        for name, literal in (("loss", Loss), ("precision", Precision), ("train_metrics", TrainMetrics)):
            if (value := getattr(self, name)) not in get_args(literal):
                raise ValueError(f"`{name}` must be one of {', '.join(get_args(literal))}, got {value!r}.")
        if (target := self.stop_at_train_accuracy) is not None:
            _check_plain("stop_at_train_accuracy", target)
            if not 0 < target <= 1:
                raise ValueError(f"`stop_at_train_accuracy` must be a share above 0 and at most 1, got {target!r}.")


def _check_optimizer(config: object) -> None:
    """Check the settings that optimizers share."""
    for name in ("lr", "eps", "weight_decay"):
        value = getattr(config, name, 0.0)
        _check_plain(name, value)
        if not 0 <= value < math.inf:  # a NaN fails here too
            raise ValueError(f"`{name}` must be a finite number of at least 0, got {value!r}.")
    for name in ("alpha", "momentum"):
        if not 0 <= (value := getattr(config, name, 0.0)) < 1:
            raise ValueError(f"`{name}` must lie from 0 to below 1, got {value!r}.")


def _check_plain(name: str, value: object) -> None:
    """Refuse numbers of numpy and torch, which JSON cannot store."""
    if not isinstance(value, int | float):
        raise TypeError(f"`{name}` must be a plain number, such as float(value), got {value!r}.")


def _check_times(name: str, times: tuple[float, ...]) -> None:
    rising = all(a < b for a, b in pairwise(times))
    if not times or not rising or not all(0 <= time < math.inf for time in times):
        raise ValueError(f"`{name}` must be rising numbers of epochs of at least 0, got {times!r}.")


def _checked_integer(name: str, value: Any, least: int) -> int:
    """A plain integer, also from those of numpy and torch."""
    try:
        plain = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        plain = None
    if plain is None or plain < least:
        raise ValueError(f"`{name}` must be an integer of at least {least}, got {value!r}.")
    return plain
