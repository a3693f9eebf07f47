"""Checks of sizes, and layers without values, which the constructors of the networks share.

`torch.nn.Linear` draws its weights from the global generator when it is constructed. The networks here are initialized
from an explicit generator afterwards, so their layers are constructed empty: nothing is drawn twice, and the global
generator does not advance.
"""

import math
import operator
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn


def check_integer(name: str, value: int, least: int = 1) -> int:
    """`value` as a plain integer of at least `least`; integers of numpy are accepted."""
    try:
        plain = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        plain = None
    if plain is None or plain < least:
        raise ValueError(f"`{name}` must be an integer of at least {least}, got {value!r}.")
    return plain


def check_sizes(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """`values` as a tuple of positive integers."""
    if not isinstance(values, Sequence):
        raise TypeError(f"`{name}` must be a sequence of integers, got {type(values).__name__}.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must hold positive integers only, got {tuple(values)!r}.")
    return tuple(values)


def expand_sizes(name: str, value: int | Sequence[int], count: int) -> tuple[int, ...]:
    """One size per layer: an integer is repeated, a sequence must have `count` entries."""
    if not isinstance(value, Sequence):
        return (check_integer(name, value),) * count
    if len(value) != count:
        raise ValueError(f"`{name}` must be one integer or {count} of them, one per layer; got {tuple(value)!r}.")
    return check_sizes(name, value)


def layer_widths(
    width: int | Sequence[int], n_layers: int | None, counted_by: str, *, extra: int = 0
) -> tuple[int, ...]:
    """Widths of the layers, from one width and a number of layers or from one width per layer.

    `counted_by` is the name of the argument `n_layers`, which counts `extra` layers more than have a width. It may be
    None if `width` is a sequence.
    """
    if n_layers is None:
        if not isinstance(width, Sequence):
            raise ValueError(f"`{counted_by}` is needed if `width` is one integer for all layers.")
        return check_sizes("width", width)
    count = check_integer(counted_by, n_layers) - extra
    if isinstance(width, Sequence) and len(width) != count:
        raise ValueError(
            f"`width` must be one integer or {count} of them for `{counted_by}`={n_layers}; "
            f"got {tuple(width)!r}. With a sequence, `{counted_by}` may be omitted."
        )
    return expand_sizes("width", width, count)


def check_image_shape(input_shape: Sequence[int]) -> tuple[int, int, int]:
    """`input_shape` as (channels, height, width)."""
    sizes = check_sizes("input_shape", input_shape)
    if len(sizes) != 3:
        raise ValueError(f"`input_shape` must be (channels, height, width) without the batch, got {sizes!r}.")
    return sizes[0], sizes[1], sizes[2]


def count_inputs(input_shape: int | Sequence[int]) -> int:
    """The number of entries of one example."""
    if isinstance(input_shape, int):
        return check_integer("input_shape", input_shape)
    return math.prod(check_sizes("input_shape", input_shape))


def linear(n_in: int, n_out: int, *, bias: bool) -> nn.Linear:
    """A linear layer without values."""
    return nn.Linear(n_in, n_out, bias=bias, device="meta").to_empty(device=torch.get_default_device())


def conv1d(n_in: int, n_out: int, window: int, *, bias: bool) -> nn.Conv1d:
    """A convolution without padding and without values."""
    layer = nn.Conv1d(n_in, n_out, window, bias=bias, device="meta")
    return layer.to_empty(device=torch.get_default_device())


def conv2d(n_in: int, n_out: int, window: int, *, stride: int = 1, bias: bool) -> nn.Conv2d:
    """A convolution with an odd square window, without values.

    The image is padded with ``window // 2`` zeros on every side, so stride s turns n positions into ceil(n / s): "same"
    padding, also for strides for which torch's own ``padding="same"`` is not defined.
    """
    layer = nn.Conv2d(n_in, n_out, window, stride, padding=window // 2, bias=bias, device="meta")
    return layer.to_empty(device=torch.get_default_device())


def dense_stack(sizes: Sequence[int], *, bias: bool, gate_last: bool) -> nn.Sequential:
    """Linear layers from each size to the next, a ReLU after each, after the last only if `gate_last`."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    n_layers = len(sizes) - 1
    for index in range(1, n_layers + 1):
        layers[f"linear{index}"] = linear(sizes[index - 1], sizes[index], bias=bias)
        if index < n_layers or gate_last:
            layers[f"relu{index}"] = nn.ReLU()
    return nn.Sequential(layers)
