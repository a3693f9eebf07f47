"""Torch function modes that record or replace the gates of a module while it runs.

Torch shows a function mode every function that is called, by any module, before autograd records it. So reused,
functional and in-place activations are all found, in training and evaluation mode.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.overrides import TorchFunctionMode

from neuralpath._checks import describe
from neuralpath.gates import HardGate, apply_gate
from neuralpath.gating.max_pools import MaxPoolCall
from neuralpath.gating.spellings import SPELLINGS, ActivationCall, GateFunction
from neuralpath.graph import gather_positions

_CALLER = "neuralpath.gating.swapping"  # the module that runs networks under a mode


class ModuleStack:
    """Follows the calls of a module's parts, to name operations by where they run, as ``trace`` does."""

    def __init__(self) -> None:
        self._stack: list[tuple[str, bool]] = []
        self._uses: dict[str, int] = {}

    @contextmanager
    def follow(self, module: nn.Module) -> Iterator[None]:
        """Follow a module's calls inside this context."""
        hooks = []
        for path, part in module.named_modules():
            home = type(part).__module__
            # Torch's own layers run a single operation, which has the name of the layer.
            is_layer = home.startswith("torch.nn.modules.") and home != "torch.nn.modules.container"
            hooks.append(part.register_forward_pre_hook(self._entering((path, is_layer))))
            hooks.append(part.register_forward_hook(self._leaving, always_call=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _entering(self, entry: tuple[str, bool]) -> Any:
        return lambda module, args: self._stack.append(entry)

    def _leaving(self, module: nn.Module, args: Any, output: Any) -> None:
        self._stack.pop()

    @property
    def here(self) -> str:
        """The module that runs now, for a message; empty for the outermost module."""
        path = self._stack[-1][0] if self._stack else ""
        return f" in {path!r}" if path else ""

    def name(self, operation: str) -> str:
        """A new name for an operation that runs now, of its layer or module; the second ``relu`` is ``relu#2``."""
        path, is_layer = self._stack[-1] if self._stack else ("", False)
        name = path if is_layer and path else f"{path}.{operation}" if path else operation
        count = self._uses[name] = self._uses.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


class GateMode(TorchFunctionMode):
    """Sees the gate operations in the order in which they run."""

    def __init__(self) -> None:
        super().__init__()
        self._for_gradients = torch.is_grad_enabled()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        spelling = SPELLINGS.get(func)
        if spelling is None:
            return func(*args, **kwargs)
        call = spelling.read(args, kwargs)
        if call is not None and self._for_gradients and not torch.compiler.is_compiling():
            _refuse_checkpoints()
        if isinstance(call, ActivationCall):
            return self.activation(call, func, args, kwargs)
        if isinstance(call, MaxPoolCall):
            return self.max_pool(call, func, args, kwargs)
        return func(*args, **kwargs)

    def relu(self, q: Tensor, in_place: bool) -> Tensor:
        """The result of ``F.relu(q, in_place)`` under this mode, without torch's dispatch."""
        return self.activation(ActivationCall("relu", q, HardGate(), in_place), F.relu, (q, in_place), {})

    def activation(self, call: ActivationCall, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of an activation under this mode."""
        raise NotImplementedError

    def max_pool(self, call: MaxPoolCall, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of a max pool under this mode."""
        raise NotImplementedError


def _refuse_checkpoints() -> None:
    """Refuse a gate in a checkpointed part, which runs again in the backward pass, outside of this mode."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and (name := frame.f_globals.get("__name__")) != _CALLER:
        if name == "torch.utils.checkpoint":
            raise RuntimeError(
                "the network uses activation checkpointing, which runs layers again in the backward pass with their "
                "own gates: the gradients would be wrong. Switch it off."
            )
        frame = frame.f_back


def _refuse_nan(operation: str, values: Tensor) -> None:
    """Refuse NaN, which would count as a closed gate and give finite outputs."""
    # Values cannot be read while a network is compiled or transformed, or on the meta device.
    if torch.compiler.is_compiling() or values.is_meta or is_functorch_wrapped_tensor(values):
        return
    if bool(values.isnan().any()):
        raise ValueError(f"the input of {operation} has NaN, neither open nor closed: check the batch and the weights.")


class Recording(GateMode):
    """Runs a module and records its gates; with ``linear``, its activations return their input unchanged."""

    def __init__(
        self, gate: GateFunction | None = None, *, linear: bool = False, stack: ModuleStack | None = None
    ) -> None:
        super().__init__()
        self.layers: list[Tensor] = []
        self.names: list[str] = []
        self.in_spaces: list[tuple[int, ...] | None] = []
        self._gate = gate
        self._linear = linear
        self._module_stack = stack

    def activation(self, call: ActivationCall, func: Any, args: Any, kwargs: Any) -> Any:
        """Record the gate and run the activation."""
        q = call.preactivation
        # An in-place activation overwrites values that the gate's gradient may still need.
        values = q.clone() if call.in_place and not self._linear else q
        gate = (self._gate or call.gate)(values)
        if gate.dtype == torch.bool:  # other gates are NaN themselves
            _refuse_nan(call.operation, values)
        if gate.shape != q.shape:
            raise ValueError(f"`gate` must give gates of the shape {tuple(q.shape)}, got {describe(gate)}.")
        self._record(call.operation, gate, None)
        return q if self._linear else func(*args, **kwargs)

    def max_pool(self, call: MaxPoolCall, func: Any, args: Any, kwargs: Any) -> Any:
        """Record the positions of the largest entries and run the pool."""
        if self._linear:
            problem = f"`feature` has {call.operation}, which is not linear, but `linear_feature` is set"
            raise ValueError(f"{problem}; use average pooling, or strides.")
        values, positions = call.pick()
        _refuse_nan(call.operation, values)
        self._record("pool", positions, tuple(call.values.shape[2:]))
        return func(*args, **kwargs) if call.shares_ties else call.finish(values, positions)

    def _record(self, operation: str, gate: Tensor, in_space: tuple[int, ...] | None) -> None:
        self.layers.append(gate)
        self.in_spaces.append(in_space)
        if self._module_stack is not None:
            self.names.append(self._module_stack.name(operation))


class Replacing(GateMode):
    """Replaces the gates of a module by given ones, in the order in which the module uses them."""

    def __init__(self, layers: Sequence[Tensor], names: Sequence[str] = ()) -> None:
        super().__init__()
        self.used = 0
        self._layers = layers
        self._n_layers = len(layers)
        self._names = names

    def activation(self, call: ActivationCall, func: Any, args: Any, kwargs: Any) -> Any:
        """The pre-activation times the given gate."""
        return self.relu(call.preactivation, call.in_place)

    def relu(self, q: Tensor, in_place: bool) -> Tensor:
        """The pre-activation times the given gate."""
        gate = self._next(q.shape)
        if gate.dtype is q.dtype and not in_place:
            return q * gate
        if gate.dtype not in (q.dtype, torch.bool):
            if not gate.is_floating_point():
                raise TypeError(f"{self._label()} must be boolean or floating-point gates, got {describe(gate)}.")
            gate = gate.to(q.dtype)
        return apply_gate(q, gate, in_place=in_place)

    def max_pool(self, call: MaxPoolCall, func: Any, args: Any, kwargs: Any) -> Any:
        """The values at the given positions."""
        positions = self._next((*call.values.shape[:2], *call.out_space))
        if positions.dtype != torch.int64:
            raise TypeError(f"{self._label()} must be int64 positions of a max pool, got {describe(positions)}.")
        return call.finish(gather_positions(call.values, positions), positions)

    def finish(self) -> None:
        """Refuse gates that were not used."""
        if self.used != self._n_layers:
            raise ValueError(f"{self._n_layers} gates were given, but the network has {self.used} gate operations.")

    def _next(self, shape: tuple[int, ...]) -> Tensor:
        index = self.used
        if index >= self._n_layers:
            raise ValueError(f"{self._n_layers} gates were given, but the network has more activations and max pools.")
        gate = self._layers[index]
        self.used = index + 1
        if gate.shape != shape:
            raise ValueError(f"{self._label()} has the shape {tuple(gate.shape)}, the network needs {tuple(shape)}.")
        return gate

    def _label(self) -> str:
        index = self.used - 1
        return f"gate {index}" + (f" ({self._names[index]!r})" if index < len(self._names) else "")
