"""The 1-D convolutional network with circular convolutions and global pooling."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath.nets._layers import check_integer, check_sizes, conv1d, dense_stack, expand_sizes, layer_widths
from neuralpath.nets.initialization import Initialization, initialize


class CircularConv1d(nn.Module):
    r"""Circular convolution whose window starts at the output's own position.

    .. math:: q(i) = \sum_{k=1}^{w_{cv}} \Theta(k)\, z(i \oplus (k - 1))

    Symbols: :math:`\oplus` adds positions modulo the length; the sum over input channels is not written. So the signal
    is padded only on the right, by its first ``window - 1`` positions.

    Reference: "Deep Learning is Composite Kernel Learning", definition 2.1.
    """

    def __init__(self, n_in: int, n_out: int, window: int, *, bias: bool) -> None:
        super().__init__()
        self.conv = conv1d(n_in, n_out, window, bias=bias)
        self.overhang = window - 1

    def forward(self, x: Float[Tensor, "batch channels length"]) -> Float[Tensor, "batch filters length"]:
        """The pre-activations, one per position."""
        if self.overhang:
            x = F.pad(x, (0, self.overhang), mode="circular")
        return self.conv(x)


class CircularCNN(nn.Module):
    """Circular 1-D CNN: convolutions with ReLU, global pooling, dense layers.

    The convolutions are equivariant and the output is invariant under rotation of the input. The last of the
    ``n_dense`` dense layers is the output, without a gate.

    Reference: "Deep Learning is Composite Kernel Learning", section 2; its d_in, w, d_cv, d_fc and w_cv are
    `input_shape`, `width`, `n_conv`, `n_dense` and `window`.

    Args:
        input_shape: Length of the signal (one channel), or channels and length.
        width: Filters of every convolution, or one number per convolution.
        n_conv: Number of convolutions; may be omitted if `width` is a sequence.
        n_dense: Number of dense layers, at least 1.
        n_outputs: Number of outputs.
        window: Length of the window, at most the signal's.
        pooling: ``"average"`` or ``"max"``, over all positions.
        dense_width: Units of the dense hidden layers, or one number for each; by default the number of filters of the
            last convolution.
        bias: Whether the layers have biases.
        init: An initialization, or its name; see `neuralpath.nets.initialize`.
        generator: Source of the initial weights; by default torch's global generator.

    Raises:
        ValueError: If a size is not positive, `window` is too long or `pooling` is unknown.

    Example:
        >>> CircularCNN(6, width=4, n_conv=2, window=3)(torch.ones(5, 6)).shape
        torch.Size([5, 1])
    """

    def __init__(
        self,
        input_shape: int | Sequence[int],
        width: int | Sequence[int],
        n_conv: int | None = None,
        n_dense: int = 1,
        n_outputs: int = 1,
        *,
        window: int,
        pooling: Literal["average", "max"] = "average",
        dense_width: int | Sequence[int] | None = None,
        bias: bool = False,
        init: Initialization | str = "glorot",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        channels, length = _signal_shape(input_shape)
        if check_integer("window", window) > length:
            raise ValueError(f"`window` must not be longer than the signal ({length}), got {window}.")
        filters = layer_widths(width, n_conv, "n_conv")
        if not filters:
            raise ValueError("`width` is empty; give the filters of at least one convolution.")
        n_hidden = check_integer("n_dense", n_dense) - 1
        units = expand_sizes("dense_width", filters[-1] if dense_width is None else dense_width, n_hidden)

        self.convolutions = nn.Sequential()
        for index, (n_in, n_out) in enumerate(zip((channels, *filters), filters, strict=False), start=1):
            self.convolutions.add_module(f"conv{index}", CircularConv1d(n_in, n_out, window, bias=bias))
            self.convolutions.add_module(f"relu{index}", nn.ReLU())
        self.pool = _global_pool(pooling, length)
        sizes = (filters[-1], *units, check_integer("n_outputs", n_outputs))
        self.dense = dense_stack(sizes, bias=bias, gate_last=False)
        initialize(self, init, generator)

    def forward(
        self, x: Float[Tensor, "batch length"] | Float[Tensor, "batch channels length"]
    ) -> Float[Tensor, "batch n_outputs"]:
        """The outputs, without soft-max; the axis of a single channel may be omitted."""
        if x.dim() == 2:
            x = x.unsqueeze(1)
        return self.dense(self.pool(self.convolutions(x)).flatten(1))


def _signal_shape(input_shape: int | Sequence[int]) -> tuple[int, int]:
    if isinstance(input_shape, int):
        return 1, check_integer("input_shape", input_shape)
    sizes = check_sizes("input_shape", input_shape)
    if len(sizes) == 1:
        return 1, sizes[0]
    if len(sizes) == 2:
        return sizes[0], sizes[1]
    raise ValueError(f"`input_shape` must be a length or (channels, length), got {sizes!r}.")


def _global_pool(pooling: str, length: int) -> nn.AvgPool1d | nn.MaxPool1d:
    if pooling == "average":
        return nn.AvgPool1d(length)
    if pooling == "max":
        return nn.MaxPool1d(length)
    raise ValueError(f'`pooling` must be "average" or "max", got {pooling!r}.')
