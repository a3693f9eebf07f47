"""Linear layers, convolutions, biases, constant factors, batch norm and sums of branches."""

from typing import Any

import torch
import torch.nn.functional as F

from neuralpath.graph import nodes as n
from neuralpath.graph.builder import Builder, NoPaths, Refused, Signal, is_operand
from neuralpath.graph.nodes import ComputedOperand, Literal, Operand, Window, parameters_of
from neuralpath.graph.operations.table import (
    BATCH_STATISTICS,
    BOTH_DEPEND,
    check_batched,
    for_each,
    label_of,
    reads,
    with_defaults,
)

aten = torch.ops.aten


def _weight(weight: Any, what: str) -> Operand:
    if not isinstance(weight, Operand):
        raise NoPaths(BOTH_DEPEND)
    if not parameters_of(weight):
        raise Refused(f"{what} with a fixed tensor as its weight; make it an nn.Parameter if it is a weight")
    return weight


def _without_factors(build: Builder, weight: Operand) -> tuple[Operand, list[Operand | float]]:
    """A weight without the constant numbers that it is multiplied by, and these numbers, which scale the signal."""
    factors: list[Operand | float] = []
    while isinstance(weight, ComputedOperand) and not weight.kwargs and len(weight.args) == 2:
        left, right = weight.args
        if weight.function in _MULTIPLY and _is_weight(right) and _is_number(build, left):
            left, right = right, left
        if weight.function not in (*_MULTIPLY, *_DIVIDE) or not (_is_weight(left) and _is_number(build, right)):
            break
        if weight.function in _DIVIDE:
            right = _reciprocal(right if isinstance(right, Operand) else Literal(right))
        factors.append(right)
        weight = left
    return weight, factors


_MULTIPLY = (aten.mul.Tensor, aten.mul.Scalar)
_DIVIDE = (aten.div.Tensor, aten.div.Scalar)


def _reciprocal(operand: Operand) -> Operand:
    return ComputedOperand(torch.reciprocal, (ComputedOperand(n.floating, (operand,)),))


def _is_weight(value: Any) -> bool:
    return isinstance(value, Operand) and bool(parameters_of(value))


def _is_number(build: Builder, value: Any) -> bool:
    if isinstance(value, Operand):
        return not parameters_of(value) and value.evaluate(build.state).numel() == 1
    return is_operand(value)


def _scaled(build: Builder, result: Signal, factors: list[Operand | float]) -> Signal:
    for factor in factors:
        number = ComputedOperand(torch.reshape, (factor, ())) if isinstance(factor, Operand) else factor
        result = build.scaled(result, number)
    return result


def _dense(build: Builder, x: Any, weight: Operand, bias: Any, *, inputs_first: bool) -> Signal:
    """A dense layer; the weight is a matrix, or a vector for one output without an axis of its own."""
    if not isinstance(x, Signal):
        raise Refused("a constant times a matrix that depends on the input is not supported")
    weight, factors = _without_factors(build, weight)
    n_axes = weight.evaluate(build.state).ndim
    if n_axes > 2:
        raise Refused(f"a product with a weight of {n_axes} axes is not supported; only matrices and vectors are")
    if len(x.shape) != 1:
        raise Refused(
            f"a linear layer on values of shape {x.shape} is not supported, only on vectors; flatten first, or "
            "write it as a 1x1 convolution"
        )
    if n_axes == 1 or inputs_first:
        weight = ComputedOperand(n.as_row if n_axes == 1 else n.transposed, (weight,))
    shape = tuple(weight.evaluate(build.state).shape)
    fields = {"weight": weight, "weight_shape": shape}
    result = build.append(n.LinearNode, shape[:1], x, label=label_of(build, "linear"), **fields)
    result = _scaled(build, result, factors)
    if n_axes == 1:
        result = build.reshaped(result, ())
    return result if bias is None else build.added(result, bias)


@reads(aten.linear.default)
def _linear(build: Builder, x: Any, weight: Any, bias: Any = None) -> Signal:
    return _dense(build, x, _weight(weight, "a linear layer"), bias, inputs_first=False)


@reads(aten.matmul.default, aten.mm.default, aten.mv.default)
def _matmul(build: Builder, x: Any, weight: Any) -> Signal:
    if isinstance(x, Operand) and isinstance(weight, Signal):
        raise Refused(_IN_FRONT)
    return _dense(build, x, _weight(weight, "a matrix product"), None, inputs_first=True)


@reads(aten.bmm.default)
def _matmul_by_example(build: Builder, x: Any, other: Any) -> Signal:
    if isinstance(x, Signal) and isinstance(other, Signal):
        raise NoPaths(BOTH_DEPEND)
    raise Refused(_IN_FRONT if isinstance(other, Signal) else "a matrix for each position; write a 1x1 convolution")


_OVERLOADS = ("default", "padding")  # padding by numbers, or "same" and "valid"
_IN_FRONT = "a matrix in front of the values: it mixes channels, so write it as a 1x1 convolution"


@reads(aten.addmm.default)
def _addmm(build: Builder, bias: Any, x: Any, weight: Any, *, beta: float = 1, alpha: float = 1) -> Signal:
    if beta != 1 or alpha != 1:
        raise Refused("addmm with factors other than 1 is not supported")
    return _dense(build, x, _weight(weight, "a matrix product"), bias, inputs_first=True)


@reads(*(getattr(conv, overload) for conv in (aten.conv1d, aten.conv2d, aten.conv3d) for overload in _OVERLOADS))
def _convolution(build: Builder, x: Any, weight: Any, bias: Any = None, *rule: Any) -> Signal:
    weight, factors = _without_factors(build, _weight(weight, "a convolution"))
    shape = tuple(weight.evaluate(build.state).shape)
    n_space = len(shape) - 2
    check_batched(x, n_space, "a convolution")
    stride, padding, dilation, groups = with_defaults(rule, 1, 0, 1, 1)
    windows = _windows(shape[2:], for_each(stride, n_space), padding, for_each(dilation, n_space))
    space = tuple(w.n_out(size) for w, size in zip(windows, x.shape[1:], strict=True))
    fields = {"weight": weight, "weight_shape": shape, "in_space": x.shape[1:], "windows": windows, "groups": groups}
    result = build.append(n.LinearNode, (shape[0], *space), x, label=label_of(build, "conv"), **fields)
    result = _scaled(build, result, factors)
    return result if bias is None else build.added(result, ComputedOperand(n.per_channel, (bias, n_space)))


def _windows(sizes: n.Shape, stride: list[int], padding: Any, dilation: list[int]) -> tuple[Window, ...]:
    before = after = for_each(0 if padding in ("same", "valid") else padding, len(sizes))
    if padding == "same":
        total = [d * (size - 1) for d, size in zip(dilation, sizes, strict=True)]
        before, after = [t // 2 for t in total], [t - t // 2 for t in total]
    return tuple(map(Window, sizes, stride, dilation, before, after))


@reads(aten.add.Tensor, aten.add.Scalar)
def _add(build: Builder, a: Any, b: Any, *, alpha: Any = 1) -> Signal:
    if isinstance(b, Signal):
        b = build.scaled(b, alpha) if alpha != 1 else b
    elif alpha != 1:
        is_number = isinstance(b, int | float)
        b = b * alpha if is_number else ComputedOperand(torch.mul, (ComputedOperand(n.floating, (b,)), alpha))
    if isinstance(a, Signal) and isinstance(b, Signal):
        shape = tuple(torch.broadcast_shapes((1, *a.shape), (1, *b.shape)))[1:]
        if len(a.shape) != len(b.shape):
            raise Refused(f"adding values of shapes {a.shape} and {b.shape} is not supported")
        return build.append(n.AddNode, shape, build.broadcast(a, shape), build.broadcast(b, shape), label="add")
    return build.added(a, b) if isinstance(a, Signal) else build.added(b, a)


@reads(aten.sub.Tensor, aten.sub.Scalar)
def _subtract(build: Builder, a: Any, b: Any, *, alpha: Any = 1) -> Signal:
    return _add(build, a, b, alpha=-alpha)


@reads(aten.rsub.Tensor, aten.rsub.Scalar)
def _reverse_subtract(build: Builder, a: Any, b: Any, *, alpha: Any = 1) -> Signal:
    return _add(build, b, a, alpha=-alpha)


@reads(aten.neg.default)
def _negate(build: Builder, x: Signal) -> Signal:
    return build.scaled(x, -1.0, label="neg")


@reads(aten.mul.Tensor, aten.mul.Scalar)
def _multiply(build: Builder, a: Any, b: Any) -> Signal:
    if isinstance(a, Signal) and isinstance(b, Signal):
        raise NoPaths(BOTH_DEPEND)
    return build.scaled(a, b) if isinstance(a, Signal) else build.scaled(b, a)


@reads(aten.div.Tensor, aten.div.Scalar)
def _divide(build: Builder, a: Any, b: Any) -> Signal:
    if isinstance(a, Signal) and _is_one_plus_size(build, b, a):
        # Named by its label even in a module of its own: the module's name went to the |x| below it.
        return build.append(n.ActivationNode, a.shape, a, label="softsign", operation="softsign", function=F.softsign)
    if not is_operand(b):
        raise NoPaths("divides by a value that depends on the input")
    if isinstance(b, int | float) and b == 0:
        raise Refused("divides by 0")
    return build.scaled(a, 1.0 / b if isinstance(b, int | float) else _reciprocal(b))


def _is_one_plus_size(build: Builder, value: Any, x: Signal) -> bool:
    """Whether a value is ``1 + |x|``, below which softsign stands, as torch spells it."""
    by_name = {node.name: node for node in build.nodes}
    shift = by_name[value.name] if isinstance(value, Signal) else None
    match [by_name[name] for name in shift.inputs] if isinstance(shift, n.AddNode) else []:
        case [n.ActivationNode(operation="abs", inputs=(source,)), n.ConstantNode(value=Literal(value=1.0))]:
            return source == x.name
    return False


@reads(aten._native_batch_norm_legit_no_training.default)
def _batch_norm_of_running_statistics(build: Builder, *arguments: Any) -> tuple[Signal, None, None]:
    *tensors, momentum, eps = arguments
    return _batch_norm(build, *tensors, False, momentum, eps), None, None


@reads(aten.batch_norm.default)
def _batch_norm(
    build: Builder, x: Signal, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *arguments: Any
) -> Signal:
    if training or mean is None or variance is None:
        raise Refused(BATCH_STATISTICS)
    eps, n_space = arguments[1], len(x.shape) - 1
    factor = ComputedOperand(n.batch_norm_scale, (weight, variance, eps, n_space))
    normed = build.append(n.ScaleNode, x.shape, x, label="scale", factor=factor)
    shift = ComputedOperand(n.batch_norm_shift, (weight, bias, mean, variance, eps, n_space))
    parameters = () if bias is None else parameters_of(bias)
    if not parameters:
        return build.shifted(normed, shift)
    fields = {"value": shift, "value_shape": (x.shape[0], *(1,) * n_space), "parameters": parameters}
    return build.append(n.BiasNode, x.shape, normed, label="bias", **fields)
