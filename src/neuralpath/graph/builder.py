"""The graph under construction: values that depend on the input, and the nodes that compute them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuralpath.graph import nodes as n
from neuralpath.graph.nodes import ComputedOperand, Literal, Operand, State, is_zero, parameters_of


class Refused(Exception):
    """An operation is not supported as it is used here; the text gives the reason."""


class NoPaths(Refused):
    """An operation that has no paths in any form."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A value that depends on the input: the node that computes it, and its shape for one example."""

    name: str
    shape: n.Shape
    weightless: bool  # no linear node or bias has touched it: channels and positions mean nothing yet


def is_operand(value: Any) -> bool:
    """Whether a value is a number or a tensor that does not depend on the input."""
    return isinstance(value, Operand) or (isinstance(value, int | float) and not isinstance(value, bool))


class Builder:
    """Appends nodes with unique, readable names."""

    def __init__(self, state: State, batch: int, dtype: torch.dtype) -> None:
        self.nodes: list[n.Node] = []
        self.state, self.batch = state, batch
        self.dtype = dtype  # of the input, and so of every signal
        self.place = ""  # path of the module whose operations are being translated
        self.place_is_layer = False  # whether that module is one of torch's own layers
        self._names: dict[str, int] = {}

    def append(self, kind: type[n.Node], shape: n.Shape, *sources: Signal, label: str = "", **fields: Any) -> Signal:
        """Append a node that reads ``sources`` and return its value."""
        name = self._unique(f"{self.place}.{label}" if label and self.place else self.place or label)
        self.nodes.append(kind(name=name, inputs=tuple(s.name for s in sources), shape=shape, **fields))
        touched = issubclass(kind, n.LinearNode | n.BiasNode) or not all(s.weightless for s in sources)
        return Signal(name, shape, not touched)

    def _unique(self, name: str) -> str:
        count = self._names[name] = self._names.get(name, 0) + 1
        # Not "relu_2": that may well be the name of another module of the user's.
        return name if count == 1 else self._unique(f"{name}#{count}")

    def constant(self, value: Any, shape: n.Shape) -> Operand:
        """A constant as an operand that broadcasts against one example of the given shape."""
        operand: Operand = value if isinstance(value, Operand) else Literal(float(value))
        tensor = operand.evaluate(self.state)
        extra = tensor.ndim - len(shape)
        if extra > 1 or (extra == 1 and tensor.shape[0] not in (1, self.batch)):
            raise Refused(f"a constant of shape {tuple(tensor.shape)} does not broadcast over a batch")
        if extra == 1 and tensor.shape[0] > 1 and not bool((tensor == tensor[:1]).all()):
            raise Refused("adds or multiplies a constant that differs between the examples of a batch")
        return operand if extra < 1 else ComputedOperand(_first, (operand,))

    def added(self, signal: Signal, value: Any, label: str = "bias") -> Signal:
        """``signal + value``: a bias where the value is made of parameters, else a constant."""
        signal, operand = self._broadcast_both(signal, value)
        if parameters := parameters_of(operand):
            value_shape = tuple(operand.evaluate(self.state).shape)
            fields = {"value": operand, "value_shape": value_shape, "parameters": parameters}
            return self.append(n.BiasNode, signal.shape, signal, label=label, **fields)
        return self.shifted(signal, operand)

    def shifted(self, signal: Signal, operand: Operand) -> Signal:
        """``signal + operand`` for an operand that is not a weight: a constant and an add; nothing for 0."""
        if is_zero(operand, self.state):
            return signal
        constant = self.append(n.ConstantNode, signal.shape, label="constant", value=operand)
        return self.append(n.AddNode, signal.shape, signal, constant, label="shift")

    def scaled(self, signal: Signal, value: Any, label: str = "scale") -> Signal:
        """``signal * value`` for a constant value."""
        signal, factor = self._broadcast_both(signal, value)
        return self.append(n.ScaleNode, signal.shape, signal, label=label, factor=factor)

    def _broadcast_both(self, signal: Signal, value: Any) -> tuple[Signal, Operand]:
        """A signal in the shape that it has together with a constant, and the constant as an operand."""
        own = self.constant(value, signal.shape).evaluate(self.state).shape
        signal = self.broadcast(signal, tuple(torch.broadcast_shapes(signal.shape, own)))
        return signal, self.constant(value, signal.shape)

    def broadcast(self, signal: Signal, shape: n.Shape) -> Signal:
        """Repeat axes of size 1 so that the signal gets the given shape."""
        if signal.shape == shape:
            return signal
        if len(signal.shape) != len(shape):
            signal = self.reshaped(signal, (*(1,) * (len(shape) - len(signal.shape)), *signal.shape))
        sizes = zip(signal.shape, shape, strict=True)
        indices = tuple(None if own == new else torch.zeros(new, dtype=torch.int64) for own, new in sizes)
        return self.append(n.SelectNode, shape, signal, label="expand", in_shape=signal.shape, indices=indices)

    def reshaped(self, signal: Signal, shape: n.Shape) -> Signal:
        """The signal under another shape, where that keeps channels and positions apart."""
        if signal.shape == shape:
            return signal
        keeps_channels = shape[:1] == (signal.shape[:1] or (1,))
        if not (keeps_channels or len(shape) <= 1 or signal.weightless):
            raise Refused(
                f"reshapes {signal.shape} to {shape}, which mixes channels with positions; after a layer with weights "
                "only flattening, and views that leave the channels alone, are supported"
            )
        return self.append(n.ReshapeNode, shape, signal, label="reshape", in_shape=signal.shape)

    def selected(self, signal: Signal, axis: int, index: Tensor, label: str) -> Signal:
        """Units read by index along one axis of an example."""
        n_in = signal.shape[axis]
        if index.numel() == n_in and bool((index == torch.arange(n_in)).all()):
            return signal
        indices = tuple(index if a == axis else None for a in range(len(signal.shape)))
        shape = tuple(index.numel() if a == axis else size for a, size in enumerate(signal.shape))
        return self.append(n.SelectNode, shape, signal, label=label, in_shape=signal.shape, indices=indices)


def _first(tensor: Tensor) -> Tensor:
    return tensor[0]
