"""Checks of sizes, and layers without values, which the constructors of the networks share.

`torch.nn.Linear` draws its weights from the global generator when it is constructed. The networks here are initialized
from an explicit generator afterwards, so their layers are constructed empty: nothing is drawn twice, and the global
generator does not advance.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import nn

from neuralpath._checks import check_integer

Sizes = int | Sequence[int]
LayerT = TypeVar("LayerT", bound=nn.Module)


def check_sizes(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """`values` as a tuple of positive integers."""
    if not isinstance(values, Sequence):
        raise TypeError(f"`{name}` must be a sequence of integers, got {type(values).__name__}.")
    if any(isinstance(value, bool) or not isinstance(value, int) or value < 1 for value in values):
        raise ValueError(f"`{name}` must hold positive integers only, got {tuple(values)!r}.")
    return tuple(values)


def expand_sizes(name: str, value: Sizes, count: int, hint: str = "") -> tuple[int, ...]:
    """One size per layer: an integer is repeated, a sequence must have `count` entries."""
    if not isinstance(value, Sequence):
        return (check_integer(name, value),) * count
    if len(value) != count:
        raise ValueError(f"`{name}` must be one integer or {count} of them, one per layer; got {tuple(value)!r}.{hint}")
    return check_sizes(name, value)


def layer_widths(width: Sizes, n_layers: int | None, counted_by: str, *, extra: int = 0) -> tuple[int, ...]:
    """Widths of the layers, from one width and a number of layers or from one width per layer.

    `counted_by` is the name of the argument `n_layers`, which counts `extra` layers more than have a width. It may be
    None if `width` is a sequence.
    """
    if n_layers is None:
        if not isinstance(width, Sequence):
            raise ValueError(f"`{counted_by}` is needed if `width` is one integer for all layers.")
        return check_sizes("width", width)
    count = check_integer(counted_by, n_layers) - extra
    return expand_sizes("width", width, count, f" With a sequence, `{counted_by}`={n_layers} may be omitted.")


def count_inputs(input_shape: Sizes) -> int:
    """The number of entries of one example."""
    return math.prod(check_sizes("input_shape", (input_shape,) if isinstance(input_shape, int) else input_shape))


def empty(layer: Callable[..., LayerT], *sizes: int, **settings: Any) -> LayerT:
    """A layer of torch without values."""
    return layer(*sizes, **settings, device="meta").to_empty(device=torch.get_default_device())


def add_gated(layers: nn.Sequential, name: str, layer: nn.Module) -> None:
    """Append a layer and its ReLU, numbered from 1."""
    number = len(layers) // 2 + 1
    layers.add_module(f"{name}{number}", layer)
    layers.add_module(f"relu{number}", nn.ReLU())


def dense_stack(*sizes: int, bias: bool, gate_last: bool = False) -> nn.Sequential:
    """Linear layers from each size to the next, a ReLU after each, after the last only if `gate_last`."""
    layers = nn.Sequential()
    for n_in, n_out in pairwise(sizes):
        add_gated(layers, "linear", empty(nn.Linear, n_in, n_out, bias=bias))
    if not gate_last:
        delattr(layers, f"relu{len(sizes) - 1}")
    return layers
