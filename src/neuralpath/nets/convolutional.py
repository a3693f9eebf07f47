"""VCONV and GCONV: 2-D convolutions, then dense layers on the flattened or on the pooled image."""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath.nets._layers import check_image_shape, check_integer, check_sizes, conv2d, dense_stack, expand_sizes
from neuralpath.nets.initialization import Initialization, initialize


class VCONV(nn.Module):
    """Convolutional ReLU network that flattens the last image before its dense layers.

    Convolutions with "same" padding (stride s turns n positions into ceil(n / s)) and a ReLU after each; flatten; dense
    layers `hidden` with a ReLU after each; the output layer. The defaults are the papers' sizes. The stride is 1 in the
    experiments, although two of the drafts print (3, 3).

    Args:
        input_shape: Channels, height and width of one image.
        n_outputs: Number of outputs.
        channels: Filters of each convolution.
        hidden: Units of each dense hidden layer; may be empty.
        window: Odd side of the square window.
        stride: Stride of every convolution, or one per convolution.
        bias: Whether the layers have biases.
        init: An initialization, or its name; see `neuralpath.nets.initialize`.
        generator: Source of the initial weights; by default torch's global generator.

    Raises:
        ValueError: If a size is not positive, `window` is even or `channels` is empty.

    Example:
        >>> VCONV((1, 6, 6), 2, channels=(3, 4), hidden=(5,))(torch.ones(7, 1, 6, 6)).shape
        torch.Size([7, 2])
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        n_outputs: int = 10,
        *,
        channels: Sequence[int] = (64, 64, 128, 128),
        hidden: Sequence[int] = (256, 256),
        window: int = 3,
        stride: int | Sequence[int] = 1,
        bias: bool = False,
        init: Initialization | str = "glorot",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        n_channels, height, width = check_image_shape(input_shape)
        filters = check_sizes("channels", channels)
        strides = expand_sizes("stride", stride, len(filters))
        self.convolutions = _convolutions(n_channels, filters, window, strides, bias)
        for step in strides:
            height, width = -(-height // step), -(-width // step)
        sizes = (filters[-1] * height * width, *check_sizes("hidden", hidden))
        self.dense = dense_stack((*sizes, check_integer("n_outputs", n_outputs)), bias=bias, gate_last=False)
        initialize(self, init, generator)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch n_outputs"]:
        """The outputs, without soft-max."""
        return self.dense(self.convolutions(x).flatten(1))


class GCONV(nn.Module):
    """Convolutional ReLU network with global average pooling before its dense layers.

    As `VCONV`, with pooling instead of flattening, so it accepts images of every size. The papers' network of four
    convolutions of 128 filters, whose gates they permute, is
    ``GCONV((3, 32, 32), 10, channels=(128,) * 4, hidden=())``.

    Args:
        input_shape: Channels, height and width of one image.
        n_outputs: Number of outputs.
        channels: Filters of each convolution.
        hidden: Units of each dense hidden layer; may be empty.
        window: Odd side of the square window.
        stride: Stride of every convolution, or one per convolution.
        bias: Whether the layers have biases.
        init: An initialization, or its name; see `neuralpath.nets.initialize`.
        generator: Source of the initial weights; by default torch's global generator.

    Raises:
        ValueError: If a size is not positive, `window` is even or `channels` is empty.

    Example:
        >>> GCONV((1, 6, 6), 2, channels=(3, 4), hidden=())(torch.ones(7, 1, 6, 6)).shape
        torch.Size([7, 2])
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        n_outputs: int = 10,
        *,
        channels: Sequence[int] = (64, 64, 128, 128),
        hidden: Sequence[int] = (256, 256),
        window: int = 3,
        stride: int | Sequence[int] = 1,
        bias: bool = False,
        init: Initialization | str = "glorot",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        n_channels, _, _ = check_image_shape(input_shape)
        filters = check_sizes("channels", channels)
        strides = expand_sizes("stride", stride, len(filters))
        self.convolutions = _convolutions(n_channels, filters, window, strides, bias)
        self.pool = nn.AdaptiveAvgPool2d(1)
        sizes = (filters[-1], *check_sizes("hidden", hidden))
        self.dense = dense_stack((*sizes, check_integer("n_outputs", n_outputs)), bias=bias, gate_last=False)
        initialize(self, init, generator)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch n_outputs"]:
        """The outputs, without soft-max."""
        return self.dense(self.pool(self.convolutions(x)).flatten(1))


def _convolutions(
    n_channels: int, filters: Sequence[int], window: int, strides: Sequence[int], bias: bool
) -> nn.Sequential:
    if not filters:
        raise ValueError("`channels` is empty; give the filters of at least one convolution.")
    if check_integer("window", window) % 2 == 0:
        raise ValueError(f'`window` must be odd for "same" padding, got {window}.')
    sizes = (n_channels, *filters)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for index, stride in enumerate(strides, start=1):
        layers[f"conv{index}"] = conv2d(sizes[index - 1], sizes[index], window, stride=stride, bias=bias)
        layers[f"relu{index}"] = nn.ReLU()
    return nn.Sequential(layers)
