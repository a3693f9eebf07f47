"""The fully connected network."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath.nets._checks import check_integer, layer_widths
from neuralpath.nets._layers import count_inputs, dense_stack
from neuralpath.nets.initialization import Initialization, initialize


class FC(nn.Module):
    """Fully connected ReLU network: `depth` weight layers, ``depth - 1`` of them gated.

    The input is flattened, so images are taken as they are. The papers' MNIST
    network is ``FC((1, 28, 28), 128, 6, 10)``; the one whose four gate layers they permute has depth 5.

    Reference: "Deep Learning is Composite Kernel Learning", table 1.

    Args:
        input_shape: Dimension of the input, or the shape of one example.
        width: Units of every hidden layer, or one number per hidden layer.
        depth: Number of weight layers; may be left out where `width` is a sequence.
        n_outputs: Number of outputs.
        bias: Whether the layers have biases.
        init: An initialization, or its name; see `neuralpath.nets.initialize`.
        generator: Source of the initial weights; without it torch's global generator.

    Raises:
        ValueError: If a size is not positive, or `width` and `depth` do not fit together.

    Example:
        >>> FC(4, 8, 3)(torch.ones(5, 4)).shape
        torch.Size([5, 1])

    """

    def __init__(
        self,
        input_shape: int | Sequence[int],
        width: int | Sequence[int],
        depth: int | None = None,
        n_outputs: int = 1,
        *,
        bias: bool = False,
        init: Initialization | str = "glorot",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        widths = layer_widths(width, depth, "depth", extra=1)
        sizes = (count_inputs(input_shape), *widths, check_integer("n_outputs", n_outputs))
        self.layers = dense_stack(sizes, bias=bias, gate_last=False)
        initialize(self, init, generator)

    def forward(self, x: Float[Tensor, "batch *example"]) -> Float[Tensor, "batch n_outputs"]:
        """Compute the outputs, without soft-max."""
        return self.layers(x.flatten(1))
