"""Weights that a model computes from its parameters: which of them can take any value.

Kernels over paths ask what happens when every weight is drawn by itself. For a weight that is a parameter, or a
parameter under another view, that is so. One that the model computes may be held to 0 (a mask), to another weight
(``w + w.T``) or to a multiple of its parameter. Then its draws are not those of free weights, and the kernels of free
weights are not its own. Weights behind a nonlinear function, as of weight norm, are taken as free: the kernels are then
those of the network whose parameters are the computed weights.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from neuralpath.graph import nodes as n
from neuralpath.graph.operands import Call, Leaf, Operand, as_row, batch_norm_shift, per_channel, transposed

_VIEWS = (per_channel, transposed, as_row)
_ROUNDING = 1e-9
"""Relative error allowed in double precision between two ways to add."""


def bound_weight(nodes: Sequence[n.Node], state: Mapping[str, Tensor]) -> tuple[str, str] | None:
    """A node whose weights are not free, and what binds them; ``None`` if there is none."""
    for node in nodes:
        if isinstance(node, n.LinearNode | n.BiasNode):
            operand = node.weight if isinstance(node, n.LinearNode) else node.value
            if not _is_plain(operand) and (reason := _bond(operand, node.parameters, state)) is not None:
                return node.name, reason
    return None


def _is_plain(operand: Operand) -> bool:
    """Whether an operand is a parameter under another shape, as layers of torch have them."""
    match operand:
        case Leaf():
            return True
        case Call(function=function, args=args) if function in _VIEWS:
            return _is_plain(args[0])
        case Call(function=function, args=(_, bias, *_)) if function is batch_norm_shift:
            return _is_plain(bias)  # what else is in the shift belongs to the scale before it
        case _:
            return False


def _bond(operand: Operand, parameters: Sequence[str], state: Mapping[str, Tensor]) -> str | None:
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
        return "some of its weights are held to 0, as by a mask"
    if _has_equal(first) and _has_equal(second):
        return "some of its weights are held to the size of others"
    if bool(((first + second - both).abs() <= _ROUNDING * (first.abs() + second.abs())).all()):
        return "its weights are sums or multiples of parameters"
    return None


def _sizes(weight: Float[Tensor, "..."]) -> Float64[Tensor, " weight"]:
    return weight.detach().double().flatten()


def _are_selected(weights: Float64[Tensor, " weight"], drawn: Float64[Tensor, " drawn"]) -> bool:
    """Whether every weight is one of the numbers drawn, or its negative, and none is taken twice."""
    ordered = drawn.abs().sort().values
    place = torch.searchsorted(ordered, weights.abs()).clamp(max=len(ordered) - 1)
    return bool((ordered[place] == weights.abs()).all()) and len(place.unique()) == len(place)


def _has_equal(weights: Float64[Tensor, " weight"]) -> bool:
    return len(weights.abs().unique()) < len(weights)
