"""Recording and replacing the gates of a module while it runs, by operation.

Both are function modes: torch shows them every function that is called, whoever calls it, before gradients
are recorded. So reused, functional and in-place activations all count, in training and evaluation mode alike.
"""

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.overrides import TorchFunctionMode

from neuralpath._checks import describe
from neuralpath.gates import HardGate, apply_gate
from neuralpath.gating.max_pools import MaxPool
from neuralpath.gating.places import Places
from neuralpath.gating.spellings import SPELLINGS, Activation, GateFunction

_CALLERS = ("neuralpath.gating.direct", "neuralpath.gating.swapping")
"""The modules that run a network under a mode."""


class GateMode(TorchFunctionMode):
    """Sees the gate operations in the order in which they run."""

    def __init__(self) -> None:
        super().__init__()
        self._for_gradients = torch.is_grad_enabled()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch in place of ``func``."""
        kwargs = kwargs or {}
        spelling = SPELLINGS.get(func)
        if spelling is None:
            return func(*args, **kwargs)
        call = spelling.read(args, kwargs)
        if call is not None and self._for_gradients and not torch.compiler.is_compiling():
            _refuse_checkpoints()
        if isinstance(call, Activation):
            return self.activation(call, func, args, kwargs)
        if isinstance(call, MaxPool):
            return self.max_pool(call, func, args, kwargs)
        return func(*args, **kwargs)

    def relu(self, q: Tensor, in_place: bool) -> Tensor:
        """``F.relu(q, in_place)`` as this mode has it, without going through torch."""
        return self.activation(Activation("relu", q, HardGate(), in_place), F.relu, (q, in_place), {})

    def activation(self, call: Activation, func: Any, args: Any, kwargs: Any) -> Any:
        """What an activation gives."""
        raise NotImplementedError

    def max_pool(self, call: MaxPool, func: Any, args: Any, kwargs: Any) -> Any:
        """What a max pool gives."""
        raise NotImplementedError


def _refuse_checkpoints() -> None:
    """Refuse a gate in a part that is run again in the backward pass, where this mode is not active any more."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and (name := frame.f_globals.get("__name__")) not in _CALLERS:
        if name == "torch.utils.checkpoint":
            raise RuntimeError(
                "the network uses activation checkpointing, which runs layers again in the backward pass, with their "
                "own gates: the gradients would be wrong. Switch it off."
            )
        frame = frame.f_back


def _refuse_nan(operation: str, values: Tensor) -> None:
    """Refuse NaN, which would be a closed gate and give finite outputs.

    One cannot look at values while a network is compiled or transformed, or where there are none.
    """
    if torch.compiler.is_compiling() or values.is_meta or is_functorch_wrapped_tensor(values):
        return
    if bool(values.isnan().any()):
        raise ValueError(
            f"{operation} has NaN before it, which is neither open nor closed: look for NaN in the batch, or for "
            "weights of the network that are not finite, as after training that diverged."
        )


class Recording(GateMode):
    """Lets a module run as it is and keeps its gates.

    ``gate`` computes them from the pre-activations; without it each activation's own gate is taken. With
    ``linear`` the activations pass their input on unchanged, so that the network is linear.
    """

    def __init__(self, gate: GateFunction | None = None, *, linear: bool = False, places: Places | None = None) -> None:
        super().__init__()
        self.layers: list[Tensor] = []
        self.names: list[str] = []
        self.in_spaces: list[tuple[int, ...] | None] = []
        self._gate = gate
        self._linear = linear
        self._places = places

    def activation(self, call: Activation, func: Any, args: Any, kwargs: Any) -> Any:
        """Keep the gate and run the activation."""
        q = call.preactivation
        # An in-place activation overwrites what the gate's gradient may still need.
        seen = q.clone() if call.in_place and not self._linear else q
        gate = (self._gate or call.gate)(seen)
        if gate.dtype == torch.bool:  # others are NaN themselves
            _refuse_nan(call.operation, seen)
        if gate.shape != q.shape:
            raise ValueError(
                f"`gate` must give one gate for each pre-activation, of shape {tuple(q.shape)}, got {describe(gate)}."
            )
        self._keep(call.operation, gate, None)
        return q if self._linear else func(*args, **kwargs)

    def max_pool(self, call: MaxPool, func: Any, args: Any, kwargs: Any) -> Any:
        """Keep the picked positions and run the pool."""
        if self._linear:
            raise ValueError(
                f"`feature` has {call.operation}, which is not linear, but `linear_feature` asks for a linear feature "
                "network; use average pooling, or strides."
            )
        values, positions = call.pick()
        _refuse_nan(call.operation, values)
        self._keep("pool", positions, call.in_space)
        return func(*args, **kwargs) if call.shares_ties else call.finish(values, positions)

    def _keep(self, operation: str, gate: Tensor, in_space: tuple[int, ...] | None) -> None:
        self.layers.append(gate)
        self.in_spaces.append(in_space)
        if self._places is not None:
            self.names.append(self._places.name(operation))


class Replacing(GateMode):
    """Gives the gates of a module, in the order in which it uses them, in place of its own."""

    def __init__(self, layers: Sequence[Tensor], names: Sequence[str] = ()) -> None:
        super().__init__()
        self.used = 0
        self._layers = layers
        self._n_layers = len(layers)
        self._names = names

    def activation(self, call: Activation, func: Any, args: Any, kwargs: Any) -> Any:
        """The pre-activation times the given gate."""
        return self.relu(call.preactivation, call.in_place)

    def relu(self, q: Tensor, in_place: bool) -> Tensor:
        """``F.relu(q, in_place)`` as this mode has it, without going through torch."""
        gate = self._next(q.shape)
        if gate.dtype is q.dtype and not in_place:
            return q * gate
        if gate.dtype not in (q.dtype, torch.bool):
            if not gate.is_floating_point():
                raise TypeError(f"{self._label()} must be boolean or floating-point gates, got {describe(gate)}.")
            gate = gate.to(q.dtype)
        return apply_gate(q, gate, in_place=in_place)

    def max_pool(self, call: MaxPool, func: Any, args: Any, kwargs: Any) -> Any:
        """The values at the given positions."""
        positions = self._next(call.out_shape)
        if positions.dtype != torch.int64:
            raise TypeError(f"{self._label()} must be int64 positions of a max pool, got {describe(positions)}.")
        return call.read_at(positions)

    def finish(self) -> None:
        """Refuse gates that were left over."""
        if self.used != self._n_layers:
            raise ValueError(
                f"{self._n_layers} gates were given, but the network has {self.used} gate operations "
                "(activations and max pools)."
            )

    def _next(self, shape: tuple[int, ...]) -> Tensor:
        index = self.used
        if index >= self._n_layers:
            raise ValueError(
                f"{self._n_layers} gates were given, but the network has more gate operations (activations and "
                "max pools); it needs one for each."
            )
        gate = self._layers[index]
        self.used = index + 1
        if gate.shape != shape:
            raise ValueError(
                f"{self._label()} has the shape {tuple(gate.shape)}, but the network has {tuple(shape)} there."
            )
        return gate

    def _label(self) -> str:
        index = self.used - 1
        return f"gate {index}" + (f" ({self._names[index]!r})" if index < len(self._names) else "")
