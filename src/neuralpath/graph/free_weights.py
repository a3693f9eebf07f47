"""Which weights are free: neither shared between nodes nor bound by how the model computes them.

Kernels over paths assume that every weight is drawn independently. That holds for a weight that is a parameter, or a
view of one. It does not hold for a parameter that two nodes share, nor for weights that the model computes: they may be
fixed to 0 (a mask), to another weight (``w + w.T``) or to a multiple of a parameter. Weights computed by a nonlinear
function, such as weight norm, count as free: the kernels are then those of the network whose parameters are the
computed weights.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from neuralpath.graph import nodes as n
from neuralpath.graph.operands import (
    ComputedOperand,
    Leaf,
    Operand,
    as_row,
    batch_norm_shift,
    parameters_of,
    per_channel,
    transposed,
)

_VIEWS = (per_channel, transposed, as_row)
_ROUNDING = 1e-9
"""Relative error allowed in double precision between two orders of summation."""


def bound_weight(nodes: Sequence[n.Node], state: Mapping[str, Tensor]) -> tuple[str, str] | None:
    """A node whose computed weights are not free, and why; ``None`` if there is none."""
    for node in nodes:
        if isinstance(node, n.LinearNode | n.BiasNode):
            operand = node.weight if isinstance(node, n.LinearNode) else node.value
            if not _is_plain(operand) and (reason := _binding(operand, node.parameters, state)) is not None:
                return node.name, reason
    return None


def _is_plain(operand: Operand) -> bool:
    """Whether an operand is a parameter under another shape, as layers of torch have them."""
    match operand:
        case Leaf():
            return True
        case ComputedOperand(function=function, args=args) if function in _VIEWS:
            return _is_plain(args[0])
        case ComputedOperand(function=function, args=(_, bias, *_)) if function is batch_norm_shift:
            return _is_plain(bias)  # what else is in the shift belongs to the scale before it
        case _:
            return False


def _binding(operand: Operand, parameters: Sequence[str], state: Mapping[str, Tensor]) -> str | None:
    """Why weights are bound, found by computing them from random parameters; ``None`` if they are free."""
    real = {name: tensor.detach().double() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    generator = torch.Generator().manual_seed(0)
    draws = [
        {name: torch.randn(real[name].shape, generator=generator, dtype=torch.float64) for name in parameters}
        for _ in range(2)
    ]
    draws.append({name: draws[0][name] + draws[1][name] for name in parameters})
    with torch.no_grad():
        first, second, both = (_sizes(operand.evaluate({**real, **draw})) for draw in draws)
    if _are_selected(first, torch.cat([drawn.flatten() for drawn in draws[0].values()])):
        return None
    if bool(((first == 0) & (second == 0)).any()):
        return "some of its weights are fixed to 0, as by a mask"
    if _has_equal(first) and _has_equal(second):
        return "some of its weights are fixed to the size of others"
    if bool(((first + second - both).abs() <= _ROUNDING * (first.abs() + second.abs())).all()):
        return "its weights are sums or multiples of parameters"
    return None


def _sizes(weight: Float[Tensor, "..."]) -> Float64[Tensor, " weight"]:
    return weight.detach().double().flatten()


def _are_selected(weights: Float64[Tensor, " weight"], drawn: Float64[Tensor, " drawn"]) -> bool:
    """Whether every weight is one of the numbers drawn, or its negative, and none is taken twice."""
    ordered = drawn.abs().sort().values
    index = torch.searchsorted(ordered, weights.abs()).clamp(max=len(ordered) - 1)
    return bool((ordered[index] == weights.abs()).all()) and len(index.unique()) == len(index)


def _has_equal(weights: Float64[Tensor, " weight"]) -> bool:
    return len(weights.abs().unique()) < len(weights)


def own_names(model: nn.Module) -> dict[str, str]:
    """From every name of a tensor of the model to its first one, which is torch's own where modules share it."""
    first: dict[int, str] = {}
    names = {}
    for named in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        for name, tensor in named:
            names[name] = first.setdefault(id(tensor), name)
    return names


def tensor_places(model: nn.Module) -> Iterator[str]:
    """A name for each attribute of a module that is a parameter or a buffer, once even for a shared module."""
    for path, module in model.named_modules():
        own = chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False))
        yield from (f"{path}.{name}" if path else name for name, _ in own)


def tied_parameter(nodes: Sequence[n.Node], params: Mapping[str, Tensor]) -> tuple[str, str, str] | None:
    """A parameter that is a weight at one node and used at another too, with both nodes' names.

    A parameter that is only used as a constant (scale, slope, gain of batch norm) may repeat. Two names are one
    parameter where their memory overlaps.
    """
    memory = _memory(params)
    seen: dict[int, tuple[str, bool]] = {}
    for node in nodes:
        for name, is_weight in _uses(node):
            first, was_weight = seen.setdefault(memory[name], (node.name, is_weight))
            if first != node.name and (is_weight or was_weight):
                return name, first, node.name
    return None


def _uses(node: n.Node) -> Iterator[tuple[str, bool]]:
    """The parameters that a node reads, and whether as weights of paths."""
    match node:
        case n.LinearNode() | n.BiasNode():
            # For batch norm the bias alone: the gain, folded in with the mean, belongs to the scale before it.
            yield from ((name, True) for name in node.parameters)
        case _:
            yield from ((name, False) for operand in n.operands_of(node) for name in parameters_of(operand))


def _memory(params: Mapping[str, Tensor]) -> dict[str, int]:
    """A number for each parameter, the same for those that overlap in memory."""
    numbers: dict[str, int] = {}
    number, end = 0, 0
    for name, tensor in sorted(params.items(), key=lambda item: item[1].data_ptr()):
        start = tensor.data_ptr()
        if start >= end or not start:  # tensors without memory have the address 0
            number += 1
        numbers[name] = number
        end = max(end, start + _span(tensor))
    return numbers


def _span(tensor: Tensor) -> int:
    """Bytes from the first to the last entry."""
    if not tensor.numel():
        return 0
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (reach + 1) * tensor.element_size()
