"""Linear layers and convolutions."""

from typing import Any

import torch

from neuralpath.graph import nodes as n
from neuralpath.graph.builder import Builder, NoPaths, Refused, Signal, is_operand
from neuralpath.graph.geometry import Window
from neuralpath.graph.operands import (
    Call,
    Literal,
    Operand,
    as_row,
    floating,
    parameters_of,
    per_channel,
    transposed,
)
from neuralpath.graph.operations.table import BOTH_DEPEND, check_batched, for_each, label_of, reads

aten = torch.ops.aten


def _weight(weight: Any, what: str) -> Operand:
    if not isinstance(weight, Operand):
        raise NoPaths(BOTH_DEPEND)
    if not parameters_of(weight):
        raise Refused(f"{what} with a fixed tensor as its weight; make it an nn.Parameter if it is a weight")
    return weight


def _without_factors(build: Builder, weight: Operand) -> tuple[Operand, list[Operand | float]]:
    """A weight without the constant numbers that it is multiplied with, and these numbers.

    Constants belong to the signal, not to the weight: so a layer that scales its weight while it runs, to have one
    learning rate for all layers, is read as the layer and a scale.
    """
    factors: list[Operand | float] = []
    while isinstance(weight, Call) and not weight.kwargs and len(weight.args) == 2:
        one, two = weight.args
        if weight.function in _MULTIPLY and _is_weight(two) and _is_number(build, one):
            one, two = two, one
        if weight.function not in (*_MULTIPLY, *_DIVIDE) or not (_is_weight(one) and _is_number(build, two)):
            break
        if weight.function in _DIVIDE:
            two = Call(torch.reciprocal, (Call(floating, (two if isinstance(two, Operand) else Literal(two),)),))
        factors.append(two)
        weight = one
    return weight, factors


_MULTIPLY = (aten.mul.Tensor, aten.mul.Scalar)
_DIVIDE = (aten.div.Tensor, aten.div.Scalar)


def _is_weight(value: Any) -> bool:
    return isinstance(value, Operand) and bool(parameters_of(value))


def _is_number(build: Builder, value: Any) -> bool:
    """Whether a value is one constant number."""
    if isinstance(value, Operand):
        return not parameters_of(value) and value.evaluate(build.state).numel() == 1
    return is_operand(value)


def _scaled(build: Builder, mixed: Signal, factors: list[Operand | float]) -> Signal:
    for factor in factors:
        mixed = build.scaled(mixed, Call(torch.reshape, (factor, ())) if isinstance(factor, Operand) else factor)
    return mixed


def _dense(build: Builder, x: Any, weight: Operand, bias: Any, *, inputs_first: bool) -> Signal:
    """A dense layer; the weight is a matrix, or a vector for one output without an axis of its own."""
    if not isinstance(x, Signal):
        raise Refused("multiplies a constant by a matrix that depends on the input")
    weight, factors = _without_factors(build, weight)
    n_axes = weight.evaluate(build.state).ndim
    if n_axes > 2:
        raise Refused(f"a product with a weight of {n_axes} axes: only matrices and vectors are read")
    if len(x.shape) != 1:
        raise Refused(
            f"a linear layer on values of shape {x.shape}: only vectors are read; "
            "flatten first, or write it as a 1x1 convolution"
        )
    if n_axes == 1:
        weight = Call(as_row, (weight,))
    elif inputs_first:
        weight = Call(transposed, (weight,))
    shape = tuple(weight.evaluate(build.state).shape)
    mixed = build.append(n.LinearNode, shape[:1], x, label=label_of(build, "linear"), weight=weight, weight_shape=shape)
    mixed = _scaled(build, mixed, factors)
    if n_axes == 1:
        mixed = build.reshaped(mixed, ())
    return mixed if bias is None else build.added(mixed, bias)


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


_IN_FRONT = "a matrix in front of the values: it mixes channels, so write it as a 1x1 convolution"


@reads(aten.addmm.default)
def _addmm(build: Builder, bias: Any, x: Any, weight: Any, *, beta: float = 1, alpha: float = 1) -> Signal:
    if beta != 1 or alpha != 1:
        raise Refused("addmm with factors other than 1")
    return _dense(build, x, _weight(weight, "a matrix product"), bias, inputs_first=True)


@reads(
    aten.conv1d.default, aten.conv2d.default, aten.conv3d.default,
    aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding,
)  # fmt: skip
def _convolution(
    build: Builder,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Signal:
    weight, factors = _without_factors(build, _weight(weight, "a convolution"))
    shape = tuple(weight.evaluate(build.state).shape)
    n_space = len(shape) - 2
    check_batched(x, n_space, "a convolution")
    stride, dilation = for_each(stride, n_space), for_each(dilation, n_space)
    if padding == "same":
        total = [d * (size - 1) for d, size in zip(dilation, shape[2:], strict=True)]
        sides = [(t // 2, t - t // 2) for t in total]
    else:
        sides = [(p, p) for p in for_each(0 if padding == "valid" else padding, n_space)]
    windows = tuple(
        Window(size, s, d, before, after)
        for size, s, d, (before, after) in zip(shape[2:], stride, dilation, sides, strict=True)
    )
    space = tuple(w.n_out(size) for w, size in zip(windows, x.shape[1:], strict=True))
    mixed = build.append(
        n.LinearNode,
        (shape[0], *space),
        x,
        label=label_of(build, "conv"),
        weight=weight,
        weight_shape=shape,
        in_space=x.shape[1:],
        windows=windows,
        groups=groups,
    )
    mixed = _scaled(build, mixed, factors)
    return mixed if bias is None else build.added(mixed, Call(per_channel, (bias, n_space)))
