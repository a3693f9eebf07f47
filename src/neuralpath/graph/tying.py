"""Tensors that are shared: names for one tensor, and weights that stand at two places of a path."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from torch import Tensor, nn

from neuralpath.graph import nodes as n
from neuralpath.graph.operands import parameters_of


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

    Used as constants alone (scales, slopes, gains of batch norm) a parameter may repeat. Two names are one
    parameter where their memory overlaps.
    """
    memory = _memory(params)
    seen: dict[int, tuple[str, bool]] = {}
    for node in nodes:
        for name, is_weight in _uses(node):
            place, was_weight = seen.setdefault(memory[name], (node.name, is_weight))
            if place != node.name and (is_weight or was_weight):
                return name, place, node.name
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
