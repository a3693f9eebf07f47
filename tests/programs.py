"""Networks that hypothesis writes: a few operations one after the other, on a signal and on those kept on the way.

A program is a list of names and numbers. Every program has a meaning: an operation that does not fit the signal it
meets is left out. So failing networks shrink to a line or two, which `Program.build` turns into a module again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor, nn

MOST_WEIGHTS = 26
MOST_UNITS = 60


class Choices:
    """The numbers of a step, each of which picks from a few options; 0 picks the first, which is the simplest."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = iter(numbers)

    def of(self, *options: Any) -> Any:
        return options[next(self._numbers, 0) % len(options)]

    def index(self, size: int) -> int:
        return self.of(*range(size))

    def each(self, count: int, *options: Any) -> tuple[Any, ...]:
        return tuple(self.of(*options) for _ in range(count))


class OnSignal(nn.Module):
    """Changes the signal by a layer or a function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, signals: list[Tensor]) -> list[Tensor]:
        return [self.function(signals[0]), *signals[1:]]


class OnSignals(nn.Module):
    """Changes the signal by means of those that were kept, or what is kept."""

    def __init__(self, function: Callable[[list[Tensor]], list[Tensor]]) -> None:
        super().__init__()
        self.function = function

    def forward(self, signals: list[Tensor]) -> list[Tensor]:
        return self.function(signals)


class Shift(nn.Module):
    """A bias of any shape that broadcasts."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.randn(*shape))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.value


class Times(nn.Module):
    """A constant along one axis."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("factor", torch.rand(*shape) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


Signals = list[Tensor]
Made = nn.Module | None


def _mix(signals: Signals, pick: Choices) -> Made:
    z = signals[0]
    n_space, channels = z.ndim - 2, z.shape[1]
    out, bias = pick.of(1, 2, 3), pick.of(False, True, False)
    if not n_space:
        return OnSignal(nn.Linear(channels, out, bias=bias))
    groups = pick.of(1, channels, 1)
    layer = (nn.Conv1d, nn.Conv2d)[n_space - 1]
    return OnSignal(
        layer(
            channels, out * groups, pick.each(n_space, 2, 1, 3), stride=pick.each(n_space, 1, 2),
            padding=pick.each(n_space, 0, 1, 2), dilation=pick.each(n_space, 1, 1, 2), groups=groups, bias=bias,
            padding_mode=pick.of("zeros", "circular", "reflect", "replicate"),
        )
    )  # fmt: skip


def _norm(signals: Signals, pick: Choices) -> Made:
    layer = (nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d)[signals[0].ndim - 2](signals[0].shape[1])
    for tensor, low, high in (
        (layer.running_mean, -0.5, 0.5), (layer.running_var, 0.5, 2.0), (layer.weight, 0.5, 1.5),
        (layer.bias, -0.5, 0.5),
    ):  # fmt: skip
        nn.init.uniform_(tensor, low, high)
    return OnSignal(layer)


def _gate(signals: Signals, pick: Choices) -> Made:
    return OnSignal(
        pick.of(F.relu, F.relu, lambda z: F.leaky_relu(z, 0.2), F.silu, F.relu6, lambda z: F.relu(z) + z / 2)
    )


def _keep(signals: Signals, pick: Choices) -> Made:
    return OnSignals(lambda s: [*s, s[0]])


def _exchange(signals: Signals, pick: Choices) -> Made:
    which = 1 + pick.index(len(signals) - 1)
    return OnSignals(lambda s: [s[which], *s[1:which], s[0], *s[which + 1 :]])


def _add(signals: Signals, pick: Choices) -> Made:
    fitting = [i for i in range(1, len(signals)) if signals[i].shape == signals[0].shape]
    which, factor = fitting[pick.index(len(fitting))], pick.of(1.0, -1.0, 0.5)
    return OnSignals(lambda s: [s[0] + factor * s[which], *s[1:]])


def _join(signals: Signals, pick: Choices) -> Made:
    which, axis = pick.index(len(signals)), _axis(signals, pick)  # 0: the signal with itself
    return OnSignals(lambda s: [torch.cat([s[0], s[which]], axis), *s[1:]])


def _axis(signals: Signals, pick: Choices) -> int:
    return 1 + pick.index(signals[0].ndim - 1)


def _move(signals: Signals, pick: Choices) -> Made:
    axis = _axis(signals, pick)
    how = pick.of("flip", "roll", "slice", "index", "repeat", "halves")
    size = signals[0].shape[axis]
    if how == "flip":
        return OnSignal(lambda z: z.flip(axis))
    if how == "roll":
        shift = pick.of(1, -1, 2)
        return OnSignal(lambda z: z.roll(shift, axis))
    if how == "slice":
        start, step = pick.index(size), pick.of(1, 2)
        return OnSignal(lambda z: z[(slice(None),) * axis + (slice(start, None, step),)])
    if how == "index":
        places = [pick.index(size) for _ in range(size)]
        return OnSignal(lambda z: z[(slice(None),) * axis + (places,)])
    if how == "repeat":
        return OnSignal(lambda z: z.repeat_interleave(2, axis))
    return OnSignal(lambda z: F.relu(z.chunk(2, axis)[0]) + z.chunk(2, axis)[1])


def _pad(signals: Signals, pick: Choices) -> Made:
    mode, value = pick.of("constant", "circular", "reflect", "replicate"), pick.of(0.0, 0.4)
    sides = pick.each(2 * (signals[0].ndim - 2), 1, 0, 2)
    if mode == "constant":
        return OnSignal(lambda z: F.pad(z, sides, value=value))
    return OnSignal(lambda z: F.pad(z, sides, mode=mode))


def _pool(signals: Signals, pick: Choices) -> Made:
    n_space = signals[0].ndim - 2
    which = pick.of("average", "max", "mean", "amax", "mean-added", "adaptive")
    if which in ("average", "max"):
        windows, strides = pick.each(n_space, 2, 3, 1), pick.each(n_space, 1, 2)
        padding = tuple(pick.of(0, 1) if size > 1 else 0 for size in windows)
        ceil, option = pick.of(False, False, True), pick.of(True, False)
        if which == "average":
            pool = (F.avg_pool1d, F.avg_pool2d)[n_space - 1]
            return OnSignal(lambda z: pool(z, windows, strides, padding, ceil, option))
        pool = (F.max_pool1d, F.max_pool2d)[n_space - 1]
        return OnSignal(lambda z: pool(z, windows, strides, padding, 1 if option else 2, ceil))
    if which == "adaptive":
        pool = pick.of((F.adaptive_avg_pool1d, F.adaptive_avg_pool2d), (F.adaptive_max_pool1d, F.adaptive_max_pool2d))
        size = pick.of(2, 1)
        return OnSignal(lambda z: pool[n_space - 1](z, size))
    axis, kept = 2 + pick.index(n_space), pick.of(True, False)
    if which == "mean-added":
        return OnSignal(lambda z: z + z.mean(axis, keepdim=True))
    return OnSignal(lambda z: z.mean(axis, keepdim=kept) if which == "mean" else z.amax(axis, keepdim=kept))


def _reshape(signals: Signals, pick: Choices) -> Made:
    how = pick.of("flatten", "flatten-space", "axis", "squeeze")
    if how == "flatten":
        return OnSignal(lambda z: z.flatten(1))
    if how == "flatten-space":
        return OnSignal(lambda z: z.flatten(2))
    return OnSignal(lambda z: z.unsqueeze(2) if how == "axis" else z.squeeze(2))


def _constant(signals: Signals, pick: Choices) -> Made:
    which, axis = pick.of("times", "along", "plus", "minus"), _axis(signals, pick)
    if which == "along":
        return OnSignal(Times([size if k == axis else 1 for k, size in enumerate(signals[0].shape)][1:]))
    if which == "times":
        return OnSignal(lambda z: z * 0.5)
    return OnSignal(lambda z: z + 0.3 if which == "plus" else -z)


def _bias(signals: Signals, pick: Choices) -> Made:
    sizes = [pick.of(size, 1) for size in signals[0].shape[1:]]
    return OnSignal(Shift(sizes[pick.index(len(sizes)) :]))


OPERATIONS: dict[str, Callable[[Signals, Choices], Made]] = {
    "gate": _gate, "mix": _mix, "keep": _keep, "add": _add, "join": _join, "exchange": _exchange, "move": _move,
    "pad": _pad, "pool": _pool, "reshape": _reshape, "constant": _constant, "bias": _bias, "norm": _norm,
}  # fmt: skip


class Network(nn.Module):
    """Steps on a list of signals; the first of them is the output in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList()
        self.used: list[str] = []

    def forward(self, x: Tensor) -> Tensor:
        signals = [x]
        for step in self.steps:
            signals = step(signals)
        return signals[0]

    def append(self, name: str, made: nn.Module, signals: Signals) -> Signals:
        """Take a step if it fits, and give the signals after it."""
        size = sum(parameter.numel() for parameter in (*self.parameters(), *made.parameters()))
        try:
            after = made.double().eval()(signals)
        except (RuntimeError, IndexError, ValueError):
            return signals
        z = after[0]
        if size > MOST_WEIGHTS or not 0 < z[0].numel() <= MOST_UNITS or not 2 <= z.ndim <= 4 or len(z) != 2:
            return signals
        self.steps.append(made)
        self.used.append(name)
        return after


@dataclass(frozen=True)
class Program:
    """The size of an example, the steps (name and numbers of each), the number of outputs and a seed."""

    shape: tuple[int, ...]
    steps: tuple[tuple[str, tuple[int, ...]], ...]
    n_outputs: int
    seed: int

    def build(self) -> tuple[Network, Tensor]:
        """The network in float64 and evaluation mode, and three examples."""
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            network, signals = Network(), [torch.randn(2, *self.shape, dtype=torch.float64)]
            for name, numbers in (*self.steps, ("reshape", (0,))):
                try:
                    made = OPERATIONS[name](signals, Choices(numbers))
                except (ZeroDivisionError, IndexError, TypeError, ValueError):  # nothing to choose from
                    continue
                if made is not None:
                    signals = network.append(name, made, signals)
            if self.n_outputs:
                network.append("mix", OnSignal(nn.Linear(signals[0].shape[1], self.n_outputs, bias=False)), signals)
            return network.double().eval(), torch.randn(3, *self.shape, dtype=torch.float64)


def programs(most_steps: int = 12) -> st.SearchStrategy[Program]:
    """Networks on vectors, rows or small images, with at most ``MOST_WEIGHTS`` weights."""
    often = [*OPERATIONS, *["mix"] * 6, *["gate"] * 3, *["keep", "add"] * 2, "pool", "move"]
    step = st.tuples(st.sampled_from(often), st.tuples(*[st.integers(0, 11)] * 12))
    return st.builds(
        Program,
        shape=st.lists(st.integers(2, 4), min_size=0, max_size=2).flatmap(
            lambda space: st.integers(1, 3).map(lambda channels: (channels, *space))
        ),
        steps=st.lists(step, min_size=6, max_size=most_steps).map(tuple),
        n_outputs=st.integers(0, 2),  # 0: the units of the last step are the outputs
        seed=st.integers(0, 999),
    )
