"""Which computed weights are free: not bound by how the model computes them.

Kernels over paths assume that every weight is drawn independently. That holds for a weight that is a parameter, or a
view of one, unless two nodes share it. It may not hold for weights that the model computes: they may be fixed to 0 (a
mask), to another weight (``w + w.T``) or to a multiple of a parameter. Weights computed by a nonlinear function, such
as weight norm, count as free: the kernels are then those of the network whose parameters are the computed weights.
"""

import torch
from jaxtyping import Float64
from torch import Tensor

from neuralpath.graph import nodes as n
from neuralpath.graph.nodes import ComputedOperand, Leaf, Operand, State

_ROUNDING = 1e-9  # relative error allowed in double precision between two orders of summation


def is_plain(operand: Operand) -> bool:
    """Whether an operand is a parameter under another shape, as layers of torch have them."""
    match operand:
        case ComputedOperand(function=function, args=args) if function in n.RESHAPED:
            return is_plain(args[0])
        case ComputedOperand(function=function, args=(_, bias, *_)) if function is n.batch_norm_shift:
            return is_plain(bias)  # what else is in the shift belongs to the scale before it
    return isinstance(operand, Leaf)


def binding(node: n.LinearNode | n.BiasNode, state: State) -> str | None:
    """Why a node's weights are bound, found by computing them from random parameters; ``None`` if they are free."""
    real = {name: tensor.detach().double() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    generator = torch.Generator().manual_seed(0)
    draws = [
        {name: torch.randn(real[name].shape, generator=generator, dtype=torch.float64) for name in node.parameters}
        for _ in range(2)
    ]
    draws.append({name: draws[0][name] + draws[1][name] for name in node.parameters})
    (operand,) = n.operands_of(node)
    with torch.no_grad():
        first, second, both = (operand.evaluate({**real, **draw}).double().flatten() for draw in draws)
    if _are_selected(first, torch.cat([drawn.flatten() for drawn in draws[0].values()])):
        return None
    if bool(((first == 0) & (second == 0)).any()):
        return "some of its weights are fixed to 0, as by a mask"
    if all(len(weights.abs().unique()) < len(weights) for weights in (first, second)):
        return "some of its weights are fixed to the size of others"
    if bool(((first + second - both).abs() <= _ROUNDING * (first.abs() + second.abs())).all()):
        return "its weights are sums or multiples of parameters"
    return None


def _are_selected(weights: Float64[Tensor, " weight"], drawn: Float64[Tensor, " drawn"]) -> bool:
    """Whether every weight is one of the numbers drawn, or its negative, and none is taken twice."""
    ordered = drawn.abs().sort().values
    index = torch.searchsorted(ordered, weights.abs()).clamp(max=len(ordered) - 1)
    return bool((ordered[index] == weights.abs()).all()) and len(index.unique()) == len(index)
