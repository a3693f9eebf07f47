"""DavidNet, the small residual network of the cifar10-fast project."""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath.nets._layers import check_image_shape, check_integer, conv2d, expand_sizes, linear
from neuralpath.nets.initialization import Initialization, initialize

SMALLEST_SIDE = 32  # three halvings and the last window of 4 leave one position


class DavidNet(nn.Module):
    """Three stages of 3×3 convolution, batch norm, ReLU and max pooling, two of them with a residual block.

    A step is convolution, batch norm, ReLU. First a step to `width` channels. Stage 1: a step to twice as many, max
    pool 2, residual block of two steps, added after the second ReLU. Stage 2: a step to four times as many, max pool 2.
    Stage 3: a step to eight times as many, max pool 2, residual block. Then max pool 4, a linear layer, and a factor
    `output_scale`.

    Args:
        input_shape: Channels, height and width of one image, at least 32 positions high and wide.
        n_outputs: Number of outputs.
        width: Channels of the first step, doubled at every stage, or all four numbers of channels.
        output_scale: Factor of the outputs.
        batch_norm: Whether the steps have batch norm. Its shifts are biases, so a network without any bias needs
            ``batch_norm=False``.
        bias: Whether the convolutions and the linear layer have biases.
        init: An initialization, or its name; see `neuralpath.nets.initialize`. The default is PyTorch's own, which the
            cifar10-fast project uses.
        generator: Source of the initial weights; by default torch's global generator.

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
        channels, height, breadth = check_image_shape(input_shape)
        if min(height, breadth) < SMALLEST_SIDE:
            raise ValueError(
                f"`input_shape` must be at least {SMALLEST_SIDE} positions high and wide, "
                f"got {tuple(input_shape)!r}; pad the images."
            )
        if isinstance(width, int):
            width = tuple(check_integer("width", width) * factor for factor in (1, 2, 4, 8))
        narrow, double, fourfold, wide = expand_sizes("width", width, 4)
        settings = {"bias": bias, "batch_norm": batch_norm}
        self.prep = _step(channels, narrow, **settings)
        self.stage1 = _stage(narrow, double, has_skip=True, **settings)
        self.stage2 = _stage(double, fourfold, has_skip=False, **settings)
        self.stage3 = _stage(fourfold, wide, has_skip=True, **settings)
        self.pool = nn.MaxPool2d(4)
        n_positions = (height // SMALLEST_SIDE) * (breadth // SMALLEST_SIDE)
        self.linear = linear(wide * n_positions, check_integer("n_outputs", n_outputs), bias=bias)
        self.output_scale = output_scale
        initialize(self, init, generator)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch n_outputs"]:
        """The outputs, without soft-max."""
        z = self.stage3(self.stage2(self.stage1(self.prep(x))))
        return self.linear(self.pool(z).flatten(1)) * self.output_scale


class ResidualBlock(nn.Module):
    """Two steps and a skip connection; the sum is after the second ReLU and has no gate."""

    def __init__(self, channels: int, *, bias: bool, batch_norm: bool) -> None:
        super().__init__()
        self.step1 = _step(channels, channels, bias=bias, batch_norm=batch_norm)
        self.step2 = _step(channels, channels, bias=bias, batch_norm=batch_norm)

    def forward(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch channels height width"]:
        """Add the block to its input."""
        return x + self.step2(self.step1(x))


def _step(n_in: int, n_out: int, *, bias: bool, batch_norm: bool) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv=conv2d(n_in, n_out, 3, bias=bias))
    if batch_norm:
        layers["norm"] = nn.BatchNorm2d(n_out)
    layers["relu"] = nn.ReLU()
    return nn.Sequential(layers)


def _stage(n_in: int, n_out: int, *, has_skip: bool, bias: bool, batch_norm: bool) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        step=_step(n_in, n_out, bias=bias, batch_norm=batch_norm), pool=nn.MaxPool2d(2)
    )
    if has_skip:
        layers["block"] = ResidualBlock(n_out, bias=bias, batch_norm=batch_norm)
    return nn.Sequential(layers)
