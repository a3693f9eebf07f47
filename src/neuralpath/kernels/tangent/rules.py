"""The operations whose parameters have gradients in a known form: one table, by torch function.

A rule reads the arguments of a call. It tells which argument is the signal (the layer's input), which arguments may be
parameters, and in which form the gradient of each parameter comes. A rule returns None for arguments that it does not
know; the gradients of such parameters are computed on the general path.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from neuralpath.kernels.tangent import gradients as g
from neuralpath.kernels.tangent.gradients import LayerGradient, Sizes


@dataclass(frozen=True, slots=True)
class MatrixForm:
    """A matrix that multiplies the last axis of the signal."""

    transposed: bool
    needs_signal = True

    def gradient(self, signal: Tensor, delta: Float[Tensor, "batch output ..."]) -> LayerGradient:
        """The gradients for the signal and the gradient by the layer's result, as for the other forms."""
        n, n_outputs = delta.shape[:2]
        rows = delta.reshape(n, n_outputs, -1, delta.shape[-1])
        return g.FactoredGradient(rows, signal.reshape(n, -1, signal.shape[-1]), self.transposed)


@dataclass(frozen=True, slots=True)
class FilterForm:
    """The weight of a convolution."""

    geometry: g.ConvolutionGeometry
    needs_signal = True

    def gradient(self, signal: Tensor, delta: Float[Tensor, "batch output ..."]) -> LayerGradient:
        return g.ConvolutionGradient(delta, signal, self.geometry)


@dataclass(frozen=True, slots=True)
class AffineForm:
    """A gain, a shift or a bias: broadcast as ``shape`` over each example and multiplied by a factor of the signal."""

    shape: Sizes
    factor: Callable[[Tensor], Tensor] | None = None

    @property
    def needs_signal(self) -> bool:
        return self.factor is not None

    def gradient(self, signal: Tensor, delta: Float[Tensor, "batch output ..."]) -> LayerGradient:
        values = delta if self.factor is None else delta * self.factor(signal)[:, None]
        shape = (1,) * (delta.ndim - 2 - len(self.shape)) + self.shape
        summed = [axis for axis, size in enumerate(shape, start=2) if size != values.shape[axis]]
        values = values.sum(summed, keepdim=True) if summed else values
        return g.ExplicitGradient(values.reshape(*delta.shape[:2], -1))


Form = MatrixForm | FilterForm | AffineForm


class ReadArguments(NamedTuple):
    """How a call reads its arguments: the signal, and the form of each argument that may be a parameter."""

    signal: Tensor
    forms: tuple[tuple[Tensor, Form], ...]


Rule = Callable[..., ReadArguments | None]
RULES: dict[Any, Rule] = {}


def _rule_for(*functions: Any) -> Callable[[Rule], None]:
    return lambda rule: RULES.update(dict.fromkeys(functions, rule))


def _read(signal: Any, *forms: tuple[Any, Form]) -> ReadArguments:
    return ReadArguments(signal, tuple((tensor, form) for tensor, form in forms if isinstance(tensor, Tensor)))


@_rule_for(F.linear)
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> ReadArguments | None:
    if input.ndim < 2 or weight.ndim != 2:
        return None
    return _read(input, (weight, MatrixForm(transposed=False)), (bias, AffineForm((weight.shape[0],))))


@_rule_for(torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)
def _matmul(input: Tensor, other: Tensor) -> ReadArguments | None:
    if input.ndim < 2 or other.ndim != 2:
        return None
    return _read(input, (other, MatrixForm(transposed=True)))


@_rule_for(torch.addmm)
def _addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> ReadArguments | None:
    if beta != 1 or alpha != 1 or input.ndim != 1:
        return None
    return _read(mat1, (mat2, MatrixForm(transposed=True)), (input, AffineForm(tuple(input.shape))))


@_rule_for(F.conv1d, F.conv2d, F.conv3d)
def _convolution(
    input: Tensor, weight: Tensor, bias: Any = None,
    stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> ReadArguments | None:  # fmt: skip
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
    geometry = g.ConvolutionGeometry(window, _each(stride, space), sides, gaps, groups)
    channels = (weight.shape[0], *(1,) * space)
    return _read(signal, (weight, FilterForm(geometry)), (bias, AffineForm(channels)))


def _each(value: int | Sequence[int], space: int) -> Sizes:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * space if len(values) == 1 else values


@_rule_for(F.batch_norm)
def _batch_norm(
    input: Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> ReadArguments | None:  # fmt: skip
    if training or running_mean is None or running_var is None or input.ndim < 2:
        return None
    normalize = partial(F.batch_norm, running_mean=running_mean, running_var=running_var, eps=eps)
    shape = _channels(input, input.shape[1])
    return _read(input, (weight, AffineForm(shape, normalize)), (bias, AffineForm(shape)))


@_rule_for(F.layer_norm)
def _layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> ReadArguments | None:
    shape = tuple(normalized_shape)
    if input.ndim <= len(shape):
        return None
    normalize = partial(F.layer_norm, normalized_shape=shape, eps=eps)
    return _read(input, (weight, AffineForm(shape, normalize)), (bias, AffineForm(shape)))


@_rule_for(F.group_norm)
def _group_norm(
    input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> ReadArguments | None:
    normalize, shape = partial(F.group_norm, num_groups=num_groups, eps=eps), _channels(input, input.shape[1])
    return _read(input, (weight, AffineForm(shape, normalize)), (bias, AffineForm(shape)))


def _channels(input: Tensor, count: int) -> Sizes:
    """The shape of one number for each channel, broadcast over the spatial axes."""
    return (count, *(1,) * (input.ndim - 2))


@_rule_for(F.prelu, torch.prelu)
def _prelu(input: Tensor, weight: Tensor) -> ReadArguments | None:
    if input.ndim < 2:
        return None
    return _read(input, (weight, AffineForm(_channels(input, weight.numel()), lambda x: x.clamp(max=0))))


def _elementwise(factor: Callable[[Tensor], Tensor] | None, *args: Any, **options: Any) -> ReadArguments | None:
    """The rule of a sum or product of the signal and a tensor that is broadcast over its examples, in either order."""
    if options or len(args) != 2 or not all(isinstance(arg, Tensor) for arg in args):
        return None
    for signal, other in (args, args[::-1]):
        shape, full = tuple(other.shape), tuple(signal.shape)
        if full and len(shape) == len(full) and shape[0] == 1:
            shape = shape[1:]
        # Broadcast over the examples, and over other axes where it has size 1.
        if len(shape) < len(full) and all(a in (1, b) for a, b in zip(shape[::-1], full[::-1], strict=False)):
            return _read(signal, (other, AffineForm(shape, factor)))
    return None


_sum, _product = partial(_elementwise, None), partial(_elementwise, lambda x: x)
_rule_for(torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__)(_sum)
_rule_for(torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)(_product)

COMMUTATIVE = frozenset({torch.add, Tensor.add, Tensor.__add__, torch.mul, Tensor.mul, Tensor.__mul__})
"""Operations of the table whose two operands may be read in either order."""


def read_call(function: Any, args: Any, kwargs: Any) -> ReadArguments | None:
    """How a call of a torch function reads its arguments; None without a rule for them."""
    if (rule := RULES.get(function)) is None:
        return None
    try:
        read = rule(*args, **kwargs)
    except TypeError:  # arguments that the rule has no names for, such as `out=`
        return None
    # Inside a function transform, values belong to that transform alone.
    return None if read is not None and is_functorch_wrapped_tensor(read.signal) else read


SAME_ORDER = frozenset({
    torch.flatten, torch.reshape, torch.squeeze, torch.unsqueeze, Tensor.contiguous, Tensor.flatten, Tensor.reshape,
    Tensor.reshape_as, Tensor.squeeze, Tensor.unflatten, Tensor.unsqueeze, Tensor.view, Tensor.view_as,
})  # fmt: skip
"""Views that keep a tensor's entries in their order: gradients of the view are those of the tensor."""


def is_transpose(function: Any, args: Sequence[Any]) -> bool:
    """Whether a call transposes the matrix that is its first argument."""
    if function in (Tensor.t, torch.t, Tensor.T.__get__, Tensor.mT.__get__):  # type: ignore[attr-defined]
        return True
    axes = tuple(axis % 2 if isinstance(axis, int) else axis for axis in args[1:])
    return function in (Tensor.transpose, torch.transpose) and axes in ((0, 1), (1, 0))
