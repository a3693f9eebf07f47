"""Learning rate schedules: a factor of the optimizer's rate, as a pure function of the time in epochs.

Time is ``step / steps per epoch``, so a schedule does not depend on the batch size. The factor of a step is that at the
start of the step.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Constant:
    """The same rate throughout.

    >>> Constant().factor(3.0, 10)
    1.0
    """

    def factor(self, time: float, epochs: int) -> float:
        """The factor of the learning rate.

        Args:
            time: Time in epochs.
            epochs: Number of epochs of the run.
        """
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
        """The factor of the learning rate.

        Args:
            time: Time in epochs.
            epochs: Number of epochs of the run.

        >>> StepDecay(at=(10, 15)).factor(10.0, 20)
        0.1
        """
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
        """The factor of the learning rate.

        Args:
            time: Time in epochs.
            epochs: Number of epochs of the run.

        >>> Cosine().factor(5.0, 10)
        0.5
        """
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
            raise ValueError(
                f"`epochs` and `factors` must have the same length, got {len(self.epochs)} and {len(self.factors)}."
            )
        if not all(0 <= factor < math.inf for factor in self.factors):
            raise ValueError(f"`factors` must be finite numbers of at least 0, got {self.factors!r}.")

    def factor(self, time: float, epochs: int) -> float:
        """The factor of the learning rate.

        Args:
            time: Time in epochs.
            epochs: Number of epochs of the run.

        >>> PiecewiseLinear(epochs=(0, 5, 24), factors=(0, 1, 0)).factor(2.5, 24)
        0.5
        """
        right = bisect_right(self.epochs, time)
        if right == 0 or right == len(self.epochs):
            return float(self.factors[min(right, len(self.factors) - 1)])
        left = right - 1
        share = (time - self.epochs[left]) / (self.epochs[right] - self.epochs[left])
        return self.factors[left] + share * (self.factors[right] - self.factors[left])


Schedule = Constant | StepDecay | Cosine | PiecewiseLinear


def _check_times(name: str, times: tuple[float, ...]) -> None:
    rising = all(a < b for a, b in pairwise(times))
    if not times or not rising or not all(0 <= time < math.inf for time in times):
        raise ValueError(f"`{name}` must be rising numbers of epochs of at least 0, got {times!r}.")
