"""Tensors that a network does not compute from its input: parameters, buffers and functions of them.

A path graph never copies a weight. It has operands, and each walk evaluates them from the model's current tensors. So a
graph follows the model as it trains, and gradients flow into any tensors that replace the model's own.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

State = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Leaf:
    """A tensor of the model, by its name in the model."""

    name: str
    is_parameter: bool

    def evaluate(self, state: State) -> Tensor:
        """The tensor itself."""
        return state[self.name]

    def leaves(self) -> "Iterator[Leaf]":
        """The tensors of the model that this operand depends on."""
        yield self

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Literal:
    """A number or a tensor written in the model's code."""

    value: float | Tensor

    def evaluate(self, state: State) -> Tensor:
        """The value as a tensor; a number becomes a 0-dimensional one, exact, that promotes nothing."""
        return self.value if isinstance(self.value, Tensor) else torch.tensor(self.value, dtype=torch.float64)

    def leaves(self) -> Iterator[Leaf]:
        """Nothing: a literal depends on no tensor of the model."""
        return iter(())

    def __str__(self) -> str:
        return f"tensor{tuple(self.value.shape)}" if isinstance(self.value, Tensor) else f"{self.value:.6g}"


@dataclass(frozen=True, eq=False)
class ComputedOperand:
    """A function of other operands, such as a transposed, normalized or folded weight."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def evaluate(self, state: State) -> Any:
        """The function's value at the current tensors."""
        args = (_evaluate(arg, state) for arg in self.args)
        return self.function(*args, **{key: _evaluate(value, state) for key, value in self.kwargs.items()})

    def leaves(self) -> Iterator[Leaf]:
        """The tensors of the model that this operand depends on."""
        return _leaves((*self.args, *self.kwargs.values()))

    def __str__(self) -> str:
        if self.function in (per_channel, transposed, as_row):  # only the shape differs
            return str(self.args[0])
        name = str(getattr(self.function, "_opname", getattr(self.function, "__name__", "function"))).strip("_")
        names = tuple(dict.fromkeys(leaf.name for leaf in self.leaves()))
        modules = {leaf.rpartition(".")[0] for leaf in names}
        if len(names) > 1 and len(modules) == 1 and modules != {""}:
            names = tuple(modules)  # several tensors of one module, such as a batch norm: the name of the module
        return f"{name}({', '.join(names)})" if names else name


Operand = Leaf | Literal | ComputedOperand


def parameters_of(operand: Operand) -> tuple[str, ...]:
    """Names of the model's parameters that an operand depends on, each once."""
    return tuple(dict.fromkeys(leaf.name for leaf in operand.leaves() if leaf.is_parameter))


def own_names(model: nn.Module) -> dict[str, str]:
    """From every name of a tensor of the model to its first one, which is torch's own where modules share it."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(tensor), name) for name, tensor in named_tensors(model).items()}


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and buffers by every name that they have."""
    named = (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    return {name: tensor for tensors in named for name, tensor in tensors}


def _evaluate(arg: Any, state: State) -> Any:
    if isinstance(arg, Operand):
        return arg.evaluate(state)
    return [_evaluate(item, state) for item in arg] if isinstance(arg, list | tuple) else arg


def _leaves(arg: Any) -> Iterator[Leaf]:
    if isinstance(arg, Operand):
        yield from arg.leaves()
    elif isinstance(arg, list | tuple):
        for item in arg:
            yield from _leaves(item)


def batch_norm_scale(weight: Tensor | None, variance: Tensor, eps: float, n_space: int) -> Tensor:
    """The factor of evaluation-mode batch norm for each channel, shaped to broadcast over space."""
    scale = torch.rsqrt(variance + eps)
    return per_channel(scale if weight is None else scale * weight, n_space)


def batch_norm_shift(
    weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor, eps: float, n_space: int
) -> Tensor:
    """The shift of evaluation-mode batch norm for each channel, after the scale, shaped to broadcast over space."""
    shift = -per_channel(mean, n_space) * batch_norm_scale(weight, variance, eps, n_space)
    return shift if bias is None else shift + per_channel(bias, n_space)


def per_channel(tensor: Tensor, n_space: int) -> Tensor:
    """A tensor with one value per channel, shaped to broadcast over space."""
    return tensor.reshape(-1, *(1,) * n_space)


def transposed(weight: Tensor) -> Tensor:
    """The matrix of ``x @ weight`` in the order (outputs, inputs)."""
    return weight.mT


def as_row(weight: Tensor) -> Tensor:
    """The matrix of ``x @ weight`` for a weight that is a vector."""
    return weight.reshape(1, -1)


def number_of(tensor: Tensor) -> Tensor:
    """A tensor's only entry, as ``tensor.item()`` gives it: a number that no gradient flows into."""
    return tensor.detach().reshape(())


def floating(tensor: Tensor) -> Tensor:
    """Integers as float64, which is exact; torch would compute with them in float32."""
    return tensor if tensor.is_floating_point() else tensor.double()


def is_zero(operand: Operand, state: State) -> bool:
    """Whether a constant is 0 everywhere and cannot change with the model's tensors."""
    return not any(True for _ in operand.leaves()) and bool((operand.evaluate(state) == 0).all())
