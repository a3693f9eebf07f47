"""Biases, constant factors, batch norm and sums of branches."""

from typing import Any

import torch
import torch.nn.functional as F

from neuralpath.graph import nodes as n
from neuralpath.graph.builder import Builder, NoPaths, Refused, Signal, is_operand
from neuralpath.graph.operands import (
    Call,
    Literal,
    batch_norm_scale,
    batch_norm_shift,
    floating,
    parameters_of,
)
from neuralpath.graph.operations.table import BOTH_DEPEND, reads

aten = torch.ops.aten


@reads(aten.add.Tensor, aten.add.Scalar)
def _add(build: Builder, a: Any, b: Any, *, alpha: Any = 1) -> Signal:
    if alpha != 1:
        b = _times(build, b, alpha)
    if isinstance(a, Signal) and isinstance(b, Signal):
        shape = tuple(torch.broadcast_shapes((1, *a.shape), (1, *b.shape)))[1:]
        if len(a.shape) != len(b.shape):
            raise Refused(f"adds values of shapes {a.shape} and {b.shape}")
        return build.append(n.AddNode, shape, build.broadcast(a, shape), build.broadcast(b, shape), label="add")
    return build.added(a, b) if isinstance(a, Signal) else build.added(b, a)


def _times(build: Builder, value: Any, factor: float) -> Any:
    if isinstance(value, Signal):
        return build.scaled(value, factor)
    return value * factor if isinstance(value, int | float) else Call(torch.mul, (Call(floating, (value,)), factor))


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
    if not isinstance(b, int | float):
        return build.scaled(a, Call(torch.reciprocal, (Call(floating, (b,)),)))
    if b == 0:
        raise Refused("divides by 0")
    return build.scaled(a, 1.0 / b)


def _is_one_plus_size(build: Builder, value: Any, x: Signal) -> bool:
    """Whether a value is ``1 + |x|``, below which softsign stands, as torch spells it."""
    by_name = {node.name: node for node in build.nodes}
    shift = by_name[value.name] if isinstance(value, Signal) else None
    if not isinstance(shift, n.AddNode):
        return False
    match [by_name[name] for name in shift.inputs]:
        case [n.ActivationNode(operation="abs", inputs=(source,)), n.ConstantNode(value=Literal(value=1.0))]:
            return source == x.name
        case _:
            return False


@reads(aten._native_batch_norm_legit_no_training.default)
def _batch_norm(
    build: Builder, x: Signal, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> tuple[Signal, None, None]:
    n_space = len(x.shape) - 1
    normed = build.append(
        n.ScaleNode,
        x.shape,
        x,
        label="scale",
        factor=Call(batch_norm_scale, (weight, variance, eps, n_space)),
    )
    shift = Call(batch_norm_shift, (weight, bias, mean, variance, eps, n_space))
    parameters = () if bias is None else parameters_of(bias)
    if not parameters:
        return build.shifted(normed, shift), None, None
    value_shape = (x.shape[0], *(1,) * n_space)
    normed = build.append(
        n.BiasNode, x.shape, normed, label="bias", value=shift, value_shape=value_shape, parameters=parameters
    )
    return normed, None, None
