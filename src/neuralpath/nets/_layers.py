"""Linear and convolution layers without values yet, and stacks of gated dense layers.

`torch.nn.Linear` draws its weights from the global generator as it is made. The networks here are filled
from an explicit generator right after, so their layers are made empty: nothing is drawn twice, and the
global generator is left alone.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn

from neuralpath.nets._checks import check_integer, check_sizes


def count_inputs(input_shape: int | Sequence[int]) -> int:
    """Count the entries of one example."""
    if isinstance(input_shape, int):
        return check_integer("input_shape", input_shape)
    return math.prod(check_sizes("input_shape", input_shape))


def linear(n_in: int, n_out: int, *, bias: bool) -> nn.Linear:
    """Make a linear layer that `initialize` is still to fill."""
    return nn.Linear(n_in, n_out, bias=bias, device="meta").to_empty(device=torch.get_default_device())


def conv1d(n_in: int, n_out: int, window: int, *, bias: bool) -> nn.Conv1d:
    """Make a convolution without padding that `initialize` is still to fill."""
    layer = nn.Conv1d(n_in, n_out, window, bias=bias, device="meta")
    return layer.to_empty(device=torch.get_default_device())


def conv2d(n_in: int, n_out: int, window: int, *, stride: int = 1, bias: bool) -> nn.Conv2d:
    """Make a convolution with an odd square window that `initialize` is still to fill.

    The image is padded with ``window // 2`` zeros on every side, so that stride s turns n positions into
    ceil(n / s): "same" padding, also for strides where torch's own ``padding="same"`` is not defined.
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
