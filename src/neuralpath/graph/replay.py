"""The replay check: a path graph must compute what its model computes."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from neuralpath.graph.nodes import own_names
from neuralpath.graph.path_graph import PathGraph
from neuralpath.graph.reports import ReplayMismatch
from neuralpath.graph.walking import Forward, check_operands, walk

BATCH_SIZES = (1, 2, 5)  # of the replay: a size that is fixed in the model shows at one of them


def run(model: nn.Module, x: Float[Tensor, "batch ..."], tensors: Mapping[str, Tensor] | None = None) -> Any:
    """The model's output with ``tensors`` for its own; it gets copies of its input and buffers, which it may change."""
    replaced = dict(tensors or {})
    for name, buffer in model.named_buffers():
        if not is_lazy(buffer):
            replaced[name] = replaced.get(name, buffer).clone()
    names = own_names(model)
    attributes = {}  # by each attribute of a module that is a tensor, once even for a shared module
    for path, module in model.named_modules():
        for name, _ in chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False)):
            name = f"{path}.{name}" if path else name
            if names[name] in replaced:
                attributes[name] = replaced[names[name]]
    with torch.no_grad():
        # Ties are in `attributes`: torch's own handling of them does not restore the tensors of a module that is used
        # under two names.
        return torch.func.functional_call(model, attributes, (x.clone(),), tie_weights=False)


@torch.no_grad()
def check_replay(graph: PathGraph, model: nn.Module, example: Float[Tensor, "batch ..."]) -> None:
    """Refuse a graph that does not compute what the model computes.

    The graph and the model are compared on the example, and again where zeros, rounding or one batch size cannot hide
    an error: in double precision, with random parameters and inputs, at several batch sizes.
    """
    if graph.n_outputs == 0:
        raise ValueError(f"`model` has no outputs: for one example it returns a tensor of shape {graph.output_shape}.")
    check_operands(graph.nodes, graph.state)
    difference, size = _as_given(graph, model, example)
    if difference > _tolerance(example.dtype) * size:
        raise _mismatch(model, difference, size, "on `example`")
    # Here the arithmetic is double, but constants of the model may be rounded to its dtype; and terms may cancel.
    tolerance = max(min(64 * torch.finfo(example.dtype).eps, 0.01), 2**20 * torch.finfo(torch.float64).eps)
    for n_rows, difference, size in _at_random(graph, model, example):
        if difference > tolerance * size:
            raise _mismatch(model, difference, size, f"on a batch of {n_rows}, weights and input drawn at random,")


def _mismatch(model: nn.Module, difference: float, size: float, where: str) -> ReplayMismatch:
    return ReplayMismatch(
        f"the path graph of {type(model).__name__} does not compute what the model computes: {where} the outputs "
        f"differ by {difference:.2e} at a size of {size:.2e}. Either the model's output depends on more than its input "
        "(randomness, state, the other examples or their number), or this is a bug in neuralpath: please report it."
    )


def _as_given(graph: PathGraph, model: nn.Module, example: Tensor) -> tuple[float, float]:
    """Difference and size of the outputs on the example; an inconclusive case is repeated in double precision."""
    tensors = _tensors(model, example.dtype)
    if (y := _attempt(model, example, tensors)) is None:
        return 0.0, 1.0  # a model that squeezes may fail for one example; other sizes follow
    difference, size = _compared(graph, example, tensors, y)
    if difference <= _tolerance(example.dtype) * size or example.dtype == torch.float64:
        return difference, size
    # Large terms may cancel: rounding then looks like a mismatch, but not in double precision.
    tensors, x = _tensors(model, torch.float64), example.double()
    if (y := _attempt(model, x, tensors)) is not None:
        exact, exact_size = _compared(graph, x, tensors, y)
        if exact <= _tolerance(torch.float64) * exact_size:
            return 0.0, size
    return difference, size


def _at_random(graph: PathGraph, model: nn.Module, example: Tensor) -> list[tuple[int, float, float]]:
    """Batch size, difference and size of the outputs at random weights, at each batch size that the model takes."""
    generator = torch.Generator().manual_seed(0)
    for dtype in dict.fromkeys((torch.float64, example.dtype)):  # a model may insist on its own dtype
        tensors = _tensors(model, dtype, generator)
        comparisons = []
        for n_rows in BATCH_SIZES:
            x = _redrawn(example[torch.arange(n_rows) % len(example)].to(dtype), generator)
            if (y := _attempt(model, x, tensors)) is not None:
                comparisons.append((n_rows, *_compared(graph, x, tensors, y)))
        if comparisons:
            return comparisons
    return []


def _attempt(model: nn.Module, x: Tensor, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """The model's output, or nothing where it does not take such a dtype or batch size."""
    try:
        y = run(model, x, tensors)
    except Exception:
        return None
    return y if isinstance(y, Tensor) else None


def _tensors(model: nn.Module, dtype: torch.dtype, generator: torch.Generator | None = None) -> dict[str, Tensor]:
    """The model's tensors by name, the real ones in a dtype; with a generator the parameters are drawn anew."""
    real = {name: t.detach().to(dtype) for name, t in model.named_parameters()}
    if generator is not None:
        real = {name: _redrawn(t, generator) for name, t in real.items()}
    buffers = {name: t.to(dtype) if t.is_floating_point() else t for name, t in model.named_buffers()}
    return {**buffers, **real}


def _redrawn(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Normal numbers of the size of a tensor's own, or of size 1 for zeros: no unit stays dead for long."""
    if not tensor.numel():
        return tensor
    size = tensor.square().mean().sqrt()
    drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor)
    return torch.where(size > 0, size, 1.0) * drawn


def _compared(graph: PathGraph, x: Tensor, tensors: Mapping[str, Tensor], y: Tensor) -> tuple[float, float]:
    """Largest difference between the graph's output and the model's, and the size of the latter."""
    replayed = walk(graph, Forward(x, tensors))
    squeezed = len(x) == 1 and y.numel() == replayed.numel()  # such a model drops the batch axis of a single example
    if replayed.shape != y.shape and not squeezed:
        return float("inf"), 1.0
    y = y.reshape(replayed.shape).to(replayed.dtype)
    # Random weights may leave the domain of a function, or the range of the dtype, but then for both.
    same = (replayed == y) | (replayed.isnan() & y.isnan())
    difference = torch.where(same, 0, (replayed - y).abs()).nan_to_num(nan=float("inf"), posinf=float("inf"))
    finite = y[y.isfinite()].abs()
    return float(difference.max()), float(finite.max()) if finite.numel() else 1.0


def _tolerance(dtype: torch.dtype) -> float:
    """Relative error allowed in a replay: sums of thousands of terms over some tens of layers, which may cancel."""
    return max(4096 * torch.finfo(dtype).eps, 2**20 * torch.finfo(torch.float64).eps)
