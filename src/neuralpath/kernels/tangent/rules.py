"""The operations whose weights' gradients are known in factors: one table, by torch function.

A rule reads the arguments of a call and says which of them may be parameters and what the gradient of each is made
of. A rule that meets what it does not know says nothing: the parameter's gradients are then found by the general way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from neuralpath.kernels.tangent.geometry import Geometry, Pair
from neuralpath.kernels.tangent.gradients import Convolved, Gradients, Outer, Written


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix that multiplies the last axis of the signal."""

    transposed: bool

    def gradients(self, signal: Tensor, delta: Float[Tensor, "batch output ..."]) -> Gradients:
        """The gradients for signals that went in and output gradients that came back."""
        n, n_outputs = delta.shape[:2]
        return Outer(
            delta.reshape(n, n_outputs, -1, delta.shape[-1]), signal.reshape(n, -1, signal.shape[-1]), self.transposed
        )


@dataclass(frozen=True, slots=True)
class Filter:
    """The weight of a convolution."""

    geometry: Geometry

    def gradients(self, signal: Tensor, delta: Float[Tensor, "batch output ..."]) -> Gradients:
        """The gradients for signals that went in and output gradients that came back."""
        return Convolved(delta, signal, self.geometry)


@dataclass(frozen=True, slots=True)
class Affine:
    """A gain, a shift or a bias: broadcast as ``shape`` over each example and multiplied by a factor of the signal."""

    shape: Pair
    factor: Callable[[Tensor], Tensor] | None = None

    def gradients(self, signal: Tensor, delta: Float[Tensor, "batch output ..."]) -> Gradients:
        """The gradients for signals that went in and output gradients that came back."""
        values = delta if self.factor is None else delta * self.factor(signal)[:, None]
        shape = (1,) * (delta.ndim - 2 - len(self.shape)) + self.shape
        summed = [axis for axis, size in enumerate(shape, start=2) if size != values.shape[axis]]
        values = values.sum(summed, keepdim=True) if summed else values
        return Written(values.reshape(*delta.shape[:2], -1))


Form = Matrix | Filter | Affine


def needs_signal(form: Form) -> bool:
    """Whether the gradients depend on the signal that went in."""
    return not isinstance(form, Affine) or form.factor is not None


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """How a call reads its arguments: the signal, and the forms of those that may be parameters."""

    signal: Tensor
    forms: tuple[tuple[Tensor, Form], ...]


Rule = Callable[..., Read | None]
RULES: dict[Any, Rule] = {}


def _reads(*functions: Any) -> Callable[[Rule], Rule]:
    def enter(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(functions, rule))
        return rule

    return enter


def _read(signal: Any, *forms: tuple[Any, Form]) -> Read:
    return Read(signal, tuple((tensor, form) for tensor, form in forms if isinstance(tensor, Tensor)))


@_reads(F.linear)
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Read | None:
    if input.ndim < 2 or weight.ndim != 2:
        return None
    return _read(input, (weight, Matrix(transposed=False)), (bias, Affine((weight.shape[0],))))


@_reads(torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)
def _matmul(input: Tensor, other: Tensor) -> Read | None:
    if input.ndim < 2 or other.ndim != 2:
        return None
    return _read(input, (other, Matrix(transposed=True)))


@_reads(torch.addmm)
def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Read | None:
    if beta != 1 or alpha != 1 or input.ndim != 1:
        return None
    return _read(mat1, (mat2, Matrix(transposed=True)), (input, Affine(tuple(input.shape))))


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Read | None:
    space = weight.ndim - 2
    if input.ndim != weight.ndim:  # a single example without a batch axis
        return None
    window, gaps = tuple(weight.shape[2:]), _each(dilation, space)
    if padding == "same":
        total = [gap * (size - 1) for gap, size in zip(gaps, window, strict=True)]
        sides, rest = tuple(t // 2 for t in total), [t % 2 for t in total]
        signal = F.pad(input, [side for odd in reversed(rest) for side in (0, odd)]) if any(rest) else input
    else:
        sides, signal = _each(0 if isinstance(padding, str) else padding, space), input
    geometry = Geometry(window, _each(stride, space), sides, gaps, groups)
    channels = (weight.shape[0], *(1,) * space)
    return _read(signal, (weight, Filter(geometry)), (bias, Affine(channels)))


for _function in (F.conv1d, F.conv2d, F.conv3d):
    RULES[_function] = _convolution


def _each(value: int | Sequence[int], space: int) -> Pair:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * space if len(values) == 1 else values


@_reads(F.batch_norm)
def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Read | None:
    if training or running_mean is None or running_var is None or input.ndim < 2:
        return None

    def normalized(x: Tensor) -> Tensor:
        return F.batch_norm(x, running_mean, running_var, eps=eps)

    channels = (input.shape[1], *(1,) * (input.ndim - 2))
    return _read(input, (weight, Affine(channels, normalized)), (bias, Affine(channels)))


@_reads(F.layer_norm)
def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Read | None:
    shape = tuple(normalized_shape)
    if input.ndim <= len(shape):
        return None

    def normalized(x: Tensor) -> Tensor:
        return F.layer_norm(x, shape, eps=eps)

    return _read(input, (weight, Affine(shape, normalized)), (bias, Affine(shape)))


@_reads(F.group_norm)
def _group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Read | None:
    def normalized(x: Tensor) -> Tensor:
        return F.group_norm(x, num_groups, eps=eps)

    channels = (input.shape[1], *(1,) * (input.ndim - 2))
    return _read(input, (weight, Affine(channels, normalized)), (bias, Affine(channels)))


@_reads(F.prelu, torch.prelu)
def _prelu(input: Tensor, weight: Tensor) -> Read | None:
    if input.ndim < 2:
        return None
    channels = (weight.numel(), *(1,) * (input.ndim - 2))
    return _read(input, (weight, Affine(channels, lambda x: x.clamp(max=0))))


def _operands(one: Any, two: Any, *more: Any, **options: Any) -> tuple[Tensor, Tensor, Pair] | None:
    """The signal, what is broadcast over its examples, and the shape of that for each example."""
    if more or options or not (isinstance(one, Tensor) and isinstance(two, Tensor)):
        return None
    for signal, other in ((one, two), (two, one)):
        if signal.ndim >= 1 and _broadcasts(tuple(other.shape), tuple(signal.shape)):
            return signal, other, tuple(other.shape[1:] if other.ndim == signal.ndim else other.shape)
    return None


def _broadcasts(shape: Pair, over: Pair) -> bool:
    """Whether a shape is broadcast over a larger one, and over its first axis in any case."""
    if len(shape) > len(over) or (len(shape) == len(over) and shape[0] != 1):
        return False
    return all(size in (1, full) for size, full in zip(reversed(shape), reversed(over), strict=False))


@_reads(torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__)
def _add(*args: Any, **options: Any) -> Read | None:
    found = _operands(*args, **options)
    return None if found is None else _read(found[0], (found[1], Affine(found[2])))


@_reads(torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
def _mul(*args: Any, **options: Any) -> Read | None:
    found = _operands(*args, **options)
    return None if found is None else _read(found[0], (found[1], Affine(found[2], lambda x: x)))


COMMUTATIVE = frozenset({torch.add, Tensor.add, Tensor.__add__, torch.mul, Tensor.mul, Tensor.__mul__})
"""Operations of the table whose two operands may be read in either order."""


def read_call(function: Any, args: Any, kwargs: Any) -> Read | None:
    """How a call of a torch function reads its arguments, where that is known."""
    if (rule := RULES.get(function)) is None:
        return None
    try:
        read = rule(*args, **kwargs)
    except TypeError:  # arguments that the rule has no names for, such as `out=`
        return None
    # Inside a function transform, values belong to that transform alone.
    return None if read is not None and is_functorch_wrapped_tensor(read.signal) else read


SAME_ORDER = frozenset(
    {
        Tensor.reshape, torch.reshape, Tensor.view, Tensor.flatten, torch.flatten, Tensor.unsqueeze, torch.unsqueeze,
        Tensor.squeeze, torch.squeeze, Tensor.unflatten, Tensor.contiguous, Tensor.view_as, Tensor.reshape_as,
    }
)  # fmt: skip
"""Views that keep a tensor's entries in their order: gradients of the view are those of the tensor."""

TRANSPOSES = frozenset({Tensor.t, torch.t, Tensor.T.__get__, Tensor.mT.__get__})  # type: ignore[attr-defined]
"""Views that transpose a matrix."""


def is_transpose(function: Any, args: Sequence[Any]) -> bool:
    """Whether a call transposes the matrix that is its first argument."""
    if function in TRANSPOSES:
        return True
    axes = tuple(axis % 2 if isinstance(axis, int) else axis for axis in args[1:])
    return function in (Tensor.transpose, torch.transpose) and axes in ((0, 1), (1, 0))
