"""Convolutional networks: VCONV and GCONV, the circular 1-D network, and DavidNet."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._checks import check_integer
from neuralpath.nets._layers import add_gated, check_sizes, dense_stack, empty, expand_sizes, layer_widths
from neuralpath.nets.initialization import Initialization, initialize

MIN_SIDE = 32  # of DavidNet's images: three halvings and the last window of 4 leave one position


def _check_image_shape(input_shape: Sequence[int]) -> tuple[int, int, int]:
    sizes = check_sizes("input_shape", input_shape)
    if len(sizes) != 3:
        raise ValueError(f"`input_shape` must be (channels, height, width) without the batch, got {sizes!r}.")
    return sizes[0], sizes[1], sizes[2]


def _conv2d(n_in: int, n_out: int, window: int, stride: int = 1, *, bias: bool) -> nn.Conv2d:
    """A convolution with "same" padding, also for strides for which torch's own ``padding="same"`` is not defined."""
    return empty(nn.Conv2d, n_in, n_out, window, stride, padding=window // 2, bias=bias)


class _ConvolutionsThenDense(nn.Module):
    """Convolutions with "same" padding and dense layers, a ReLU after each; the output layer."""

    averages: ClassVar[bool]  # whether the dense layers take the average over positions instead of all positions

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
        n_channels, height, width = _check_image_shape(input_shape)
        filters = check_sizes("channels", channels)
        if not filters:
            raise ValueError("`channels` is empty; give the filters of at least one convolution.")
        if check_integer("window", window) % 2 == 0:
            raise ValueError(f'`window` must be odd for "same" padding, got {window}.')
        self.convolutions = nn.Sequential()
        strides = expand_sizes("stride", stride, len(filters))
        for (n_in, n_out), step in zip(pairwise((n_channels, *filters)), strides, strict=True):
            add_gated(self.convolutions, "conv", _conv2d(n_in, n_out, window, step, bias=bias))
            height, width = -(-height // step), -(-width // step)
        if self.averages:
            self.pool = nn.AdaptiveAvgPool2d(1)
        n_features = filters[-1] * (1 if self.averages else height * width)
        sizes = (n_features, *check_sizes("hidden", hidden), check_integer("n_outputs", n_outputs))
        self.dense = dense_stack(*sizes, bias=bias)
        initialize(self, init, generator)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch n_outputs"]:
        """The outputs, without soft-max."""
        z = self.convolutions(x)
        return self.dense((self.pool(z) if self.averages else z).flatten(1))


class VCONV(_ConvolutionsThenDense):
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

    averages = False


class GCONV(_ConvolutionsThenDense):
    """Convolutional ReLU network with global average pooling before its dense layers.

    As `VCONV`, with pooling instead of flattening, so it accepts images of every size. The papers' network of four
    convolutions of 128 filters, whose gates they permute, is
    ``GCONV((3, 32, 32), 10, channels=(128,) * 4, hidden=())``.

    Args:
        input_shape, n_outputs, channels, hidden, window, stride, bias, init, generator: As in `VCONV`.

    Example:
        >>> GCONV((1, 6, 6), 2, channels=(3, 4), hidden=())(torch.ones(7, 1, 6, 6)).shape
        torch.Size([7, 2])
    """

    averages = True


class CircularConv1d(nn.Module):
    r"""Circular convolution whose window starts at the output's own position.

    .. math:: q(i) = \sum_{k=1}^{w_{cv}} \Theta(k)\, z(i \oplus (k - 1))

    Symbols: :math:`\oplus` adds positions modulo the length; the sum over input channels is not written. So the signal
    is padded only on the right, by its first ``window - 1`` positions.

    Reference: "Deep Learning is Composite Kernel Learning", definition 2.1.
    """

    def __init__(self, n_in: int, n_out: int, window: int, *, bias: bool) -> None:
        super().__init__()
        self.conv = empty(nn.Conv1d, n_in, n_out, window, bias=bias)
        self.overhang = window - 1

    def forward(self, x: Float[Tensor, "batch channels length"]) -> Float[Tensor, "batch filters length"]:
        """The pre-activations, one per position."""
        return self.conv(F.pad(x, (0, self.overhang), mode="circular") if self.overhang else x)


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
        bias, init, generator: As in `VCONV`.

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
        shape = check_sizes("input_shape", (input_shape,) if isinstance(input_shape, int) else input_shape)
        if len(shape) not in (1, 2):
            raise ValueError(f"`input_shape` must be a length or (channels, length), got {shape!r}.")
        channels, length = (1, *shape)[-2:]
        if check_integer("window", window) > length:
            raise ValueError(f"`window` must not be longer than the signal ({length}), got {window}.")
        filters = layer_widths(width, n_conv, "n_conv")
        if not filters:
            raise ValueError("`width` is empty; give the filters of at least one convolution.")
        if pooling not in ("average", "max"):
            raise ValueError(f'`pooling` must be "average" or "max", got {pooling!r}.')
        n_hidden = check_integer("n_dense", n_dense) - 1
        units = expand_sizes("dense_width", filters[-1] if dense_width is None else dense_width, n_hidden)

        self.convolutions = nn.Sequential()
        for n_in, n_out in pairwise((channels, *filters)):
            add_gated(self.convolutions, "conv", CircularConv1d(n_in, n_out, window, bias=bias))
        self.pool = nn.AvgPool1d(length) if pooling == "average" else nn.MaxPool1d(length)
        self.dense = dense_stack(filters[-1], *units, check_integer("n_outputs", n_outputs), bias=bias)
        initialize(self, init, generator)

    def forward(
        self, x: Float[Tensor, "batch length"] | Float[Tensor, "batch channels length"]
    ) -> Float[Tensor, "batch n_outputs"]:
        """The outputs, without soft-max; the axis of a single channel may be omitted."""
        x = x.unsqueeze(1) if x.dim() == 2 else x
        return self.dense(self.pool(self.convolutions(x)).flatten(1))


class DavidNet(nn.Module):
    """Three stages of 3×3 convolution, batch norm, ReLU and max pooling, two of them with a residual block.

    The small residual network of the cifar10-fast project. A step is convolution, batch norm, ReLU. First a step to
    `width` channels. Stage 1: a step to twice as many, max pool 2, residual block of two steps, added after the second
    ReLU. Stage 2: a step to four times as many, max pool 2. Stage 3: a step to eight times as many, max pool 2,
    residual block. Then max pool 4, a linear layer, and a factor `output_scale`.

    Args:
        input_shape: Channels, height and width of one image, at least 32 positions high and wide.
        n_outputs: Number of outputs.
        width: Channels of the first step, doubled at every stage, or all four numbers of channels.
        output_scale: Factor of the outputs.
        batch_norm: Whether the steps have batch norm. Its shifts are biases, so a network without any bias needs
            ``batch_norm=False``.
        bias: Whether the convolutions and the linear layer have biases.
        init, generator: As in `VCONV`; the default is PyTorch's own initialization, which the project uses.

    Raises:
        ValueError: If a size is not positive or the images are too small.

    Example:
        >>> DavidNet(width=4).eval()(torch.ones(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        input_shape: Sequence[int] = (3, 32, 32),
        n_outputs: int = 10,
        *,
        width: int | Sequence[int] = 64,
        output_scale: float | int = 0.125,
        batch_norm: bool = True,
        bias: bool = False,
        init: Initialization | str = "torch",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        channels, height, breadth = _check_image_shape(input_shape)
        if min(height, breadth) < MIN_SIDE:
            raise ValueError(f"`input_shape` must be at least {MIN_SIDE} high and wide; pad images of {input_shape}.")
        if isinstance(width, int):
            width = tuple(check_integer("width", width) * factor for factor in (1, 2, 4, 8))
        narrow, double, fourfold, wide = expand_sizes("width", width, 4)
        settings = {"bias": bias, "batch_norm": batch_norm}
        self.prep = _step(channels, narrow, **settings)
        self.stage1 = _stage(narrow, double, has_skip=True, **settings)
        self.stage2 = _stage(double, fourfold, has_skip=False, **settings)
        self.stage3 = _stage(fourfold, wide, has_skip=True, **settings)
        self.pool = nn.MaxPool2d(4)
        n_positions = (height // MIN_SIDE) * (breadth // MIN_SIDE)
        self.linear = empty(nn.Linear, wide * n_positions, check_integer("n_outputs", n_outputs), bias=bias)
        self.output_scale = output_scale
        initialize(self, init, generator)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch n_outputs"]:
        """The outputs, without soft-max."""
        z = self.stage3(self.stage2(self.stage1(self.prep(x))))
        return self.linear(self.pool(z).flatten(1)) * self.output_scale


class ResidualBlock(nn.Module):
    """Two steps and a skip connection; the sum is after the second ReLU and has no gate."""

    def __init__(self, channels: int, **settings: bool) -> None:
        super().__init__()
        self.step1 = _step(channels, channels, **settings)
        self.step2 = _step(channels, channels, **settings)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch channels height width"]:
        """Add the block to its input."""
        return x + self.step2(self.step1(x))


def _step(n_in: int, n_out: int, *, bias: bool, batch_norm: bool) -> nn.Sequential:
    norm = {"norm": nn.BatchNorm2d(n_out)} if batch_norm else {}
    return nn.Sequential(OrderedDict(conv=_conv2d(n_in, n_out, 3, bias=bias), **norm, relu=nn.ReLU()))


def _stage(n_in: int, n_out: int, *, has_skip: bool, **settings: bool) -> nn.Sequential:
    block = {"block": ResidualBlock(n_out, **settings)} if has_skip else {}
    return nn.Sequential(OrderedDict(step=_step(n_in, n_out, **settings), pool=nn.MaxPool2d(2), **block))
