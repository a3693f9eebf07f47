"""The Python functions that run gate operations, and how their calls are read.

The tables of ``gates.py`` list torch's own operations, as ``trace`` sees them. A running module calls the same
operations as ``F.relu``, ``torch.relu_``, ``Tensor.clamp``, ``torch.ops.aten.relu.default`` and so on. This module
derives these functions from the tables and reads a call as a gate on a pre-activation, or as a max pool.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import isfunction, signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from neuralpath import gates as g
from neuralpath.gating.max_pools import MaxPoolCall, read_pool, read_reduction
from neuralpath.graph import per_channel

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
GateFunction = Callable[[Tensor], Tensor]
"""From pre-activations to gate values, such as the gates of ``gates.py``."""


@dataclass(frozen=True, slots=True)
class ActivationCall:
    """A call that multiplies a pre-activation by its gate."""

    operation: str
    preactivation: Tensor
    gate: GateFunction
    in_place: bool


@dataclass(frozen=True, slots=True)
class Spelling:
    """One Python function that runs a gate operation."""

    operation: str  # torch's own name, as in the table
    in_place: bool = False
    inplace_at: int | None = None  # index of the argument `inplace`
    returns_positions: bool = False  # whether a max pool returns a pair

    def read(self, args: Args, kwargs: Kwargs) -> ActivationCall | MaxPoolCall | None:
        """The gate operation of a call; ``None`` if its arguments make it something else, such as ``clamp(min=1)``."""
        if kwargs.get("out") is not None:
            raise ValueError(f"gates cannot be swapped in {self.operation}(…, out=…); call it without `out`.")
        if not args:
            kwargs = dict(kwargs)
            args = (kwargs.pop("input" if "input" in kwargs else "self"),)
        if self.operation in _POOLS:
            if self.operation not in ("amax", "max"):
                return read_pool(self.operation, args, kwargs, self.returns_positions)
            over = args[1] if len(args) > 1 else kwargs.get("dim", kwargs.get("other"))
            if self.operation == "amax" or isinstance(over, int):
                return read_reduction(self.operation, args, kwargs)
        in_place = self.in_place
        if self.inplace_at is not None:
            in_place = bool(args[self.inplace_at] if len(args) > self.inplace_at else kwargs.get("inplace", False))
            args = args[: self.inplace_at]
            kwargs = {name: value for name, value in kwargs.items() if name != "inplace"}
        return _read_activation(self.operation, args, kwargs, in_place)


def _read_activation(operation: str, args: Args, kwargs: Kwargs, in_place: bool) -> ActivationCall | None:
    q, *settings = args
    if operation in _MAXIMA and any(isinstance(value, Tensor) for value in (*settings, *kwargs.values())):
        return _read_maximum(operation, args, kwargs, in_place)
    if operation in _SLOPED:
        slope = settings[0] if settings else kwargs["weight"]
        return ActivationCall(operation, q, lambda values: _leaky(values, slope), in_place)
    if operation not in _GATES:
        return None  # `max` of all entries
    gate = _GATES[operation](*settings, **kwargs)
    if gate is None and operation == "rrelu":
        raise ValueError("rrelu in training mode has random slopes, so it has no gate: call `eval()` on it.")
    return None if gate is None else ActivationCall(operation, q, gate, in_place)


def _read_maximum(operation: str, args: Args, kwargs: Kwargs, in_place: bool) -> ActivationCall:
    """The maximum of a signal and 0; a maximum of anything else is not a gate, as in ``trace``."""
    low = [*args[1:2], *(kwargs[name] for name in ("other", "min") if name in kwargs)]
    high = [value for value in (*args[2:], kwargs.get("max")) if value is not None]
    operands = [args[0], *low]
    if not high and len(operands) == 2:
        # If both operands are 0, the signal is the larger one, over which the other is broadcast.
        first, second = operands
        both = isinstance(first, Tensor) and isinstance(second, Tensor)
        is_smaller = both and (first.ndim < second.ndim or first.numel() < second.numel())
        for signal, other in (operands[::-1], operands) if is_smaller else (operands, operands[::-1]):
            is_constant = not isinstance(other, Tensor) or not other.requires_grad
            is_zero = is_constant and bool((other == 0).all() if isinstance(other, Tensor) else other == 0)
            if isinstance(signal, Tensor) and is_zero and not (in_place and signal is not args[0]):
                return ActivationCall("relu", signal, g.HardGate(), in_place)
    raise ValueError(f"{operation} of two tensors is a gate only if one of them is the constant 0; use torch.relu.")


def _leaky(q: Tensor, slope: Tensor) -> Tensor:
    """The gate of PReLU, with one slope for all channels or one for each."""
    slopes = slope if slope.ndim == 0 else per_channel(slope, q.ndim - 2)
    return torch.where(q > 0, torch.ones_like(q), slopes.expand_as(q))


_GATES = {operation._opname: gate for operation, gate in g.GATE_OPERATIONS.items()}
_MAXIMA = {operation._opname for operation in g.GATING_MAXIMUM}
_SLOPED = {operation._opname for operation in g.PARAMETRIC_GATES}
_POOLS = {operation._opname for operation in g.MAXIMUM_POOLS}


def _functions(operation: str) -> Iterator[tuple[Any, Spelling]]:
    """Every Python function that runs an operation."""
    returns_pair = operation.startswith("adaptive_max") or operation.endswith("with_indices")
    for name, in_place in ((operation, False), (f"{operation}_", True)):
        spelling = Spelling(operation, in_place, returns_positions=returns_pair)
        for home in (torch, Tensor, torch._C._nn):
            if (function := getattr(home, name, None)) is not None:
                yield function, spelling
        if (packet := getattr(torch.ops.aten, name, None)) is not None:
            yield packet, spelling
            for overload in packet.overloads():
                yield getattr(packet, overload), spelling
    # The wrappers of torch.nn.functional have other arguments, and some have other names.
    for name in (operation, f"_{operation}", f"{operation}_with_indices"):
        function = getattr(F, name, None)
        if isfunction(function):
            names = list(signature(function).parameters)
            inplace_at = names.index("inplace") if "inplace" in names else None
            yield function, Spelling(operation, inplace_at=inplace_at, returns_positions=name.endswith("with_indices"))


SPELLINGS: dict[Any, Spelling] = {
    function: spelling
    for operation in sorted({*_GATES, *_MAXIMA, *_SLOPED, *_POOLS})
    for function, spelling in _functions(operation)
}
"""From a Python function to the gate operation that it runs."""
