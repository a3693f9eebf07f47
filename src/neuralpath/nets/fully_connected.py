"""Fully connected networks, without and with skip connections."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._checks import check_integer
from neuralpath.nets._layers import count_inputs, dense_stack, layer_widths
from neuralpath.nets.initialization import Initialization, initialize


class FC(nn.Module):
    """Fully connected ReLU network of `depth` weight layers, with ``depth - 1`` gate layers.

    The input is flattened, so images need no reshaping. The papers' MNIST network is ``FC((1, 28, 28), 128, 6, 10)``;
    the network whose four gate layers they permute has depth 5.

    Reference: "Deep Learning is Composite Kernel Learning", table 1.

    Args:
        input_shape: Dimension of the input, or the shape of one example.
        width: Units of every hidden layer, or one number per hidden layer.
        depth: Number of weight layers; may be omitted if `width` is a sequence.
        n_outputs: Number of outputs.
        bias: Whether the layers have biases.
        init: An initialization, or its name; see `neuralpath.nets.initialize`.
        generator: Source of the initial weights; by default torch's global generator.

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
        outputs = check_integer("n_outputs", n_outputs)
        self.layers = dense_stack(count_inputs(input_shape), *widths, outputs, bias=bias)
        initialize(self, init, generator)

    def forward(self, x: Float[Tensor, "batch *example"]) -> Float[Tensor, "batch n_outputs"]:
        """The outputs, without soft-max."""
        return self.layers(x.flatten(1))


class ResidualFC(nn.Module):
    r"""Residual network of fully connected blocks, with a skip over each block except the first and last.

    .. math:: z \leftarrow \gamma^{post}_k \, (z + B_k(\gamma^{pre}_k z)), \qquad k = 1, \dots, b

    Symbols: :math:`B_k` is a block of ``block_depth`` dense layers with a ReLU after each; :math:`b` is ``n_skips``.
    Block 0 takes the flattened input; in block b+1 the last layer is the output, without a gate. The factors
    :math:`\gamma` are constants, not trained.

    Reference: "Deep Learning is Composite Kernel Learning", section 2 and figure 1.

    Args:
        input_shape: Dimension of the input, or the shape of one example.
        width: Units of every layer, or one number for each layer of a block. The skips carry the last layer, which the
            output replaces in the last block.
        n_skips: Number of blocks with a skip; 0 gives a fully connected network of two blocks.
        block_depth: Layers of each block; may be omitted if `width` is a sequence.
        n_outputs: Number of outputs.
        gamma_pre: Factor before each skipped block, one for all or one per skip.
        gamma_post: Factor after each sum, one for all or one per skip.
        bias, init, generator: As in `FC`.

    Raises:
        ValueError: If a size is not positive, or a number of widths or factors does not fit.

    Example:
        >>> ResidualFC(4, 8, n_skips=3, block_depth=2, gamma_post=0.5)(torch.ones(5, 4)).shape
        torch.Size([5, 1])
    """

    def __init__(
        self,
        input_shape: int | Sequence[int],
        width: int | Sequence[int],
        n_skips: int,
        block_depth: int | None = None,
        n_outputs: int = 1,
        *,
        gamma_pre: float | int | Sequence[float | int] = 1.0,
        gamma_post: float | int | Sequence[float | int] = 1.0,
        bias: bool = False,
        init: Initialization | str = "glorot",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_integer("n_skips", n_skips, least=0)
        self.gamma_pre = _factors("gamma_pre", gamma_pre, n_skips)
        self.gamma_post = _factors("gamma_post", gamma_post, n_skips)
        widths = layer_widths(width, block_depth, "block_depth")
        if not widths:
            raise ValueError("`width` is empty; a block needs at least one layer.")
        carried = widths[-1]
        outputs = check_integer("n_outputs", n_outputs)
        self.first = dense_stack(count_inputs(input_shape), *widths, bias=bias, gate_last=True)
        self.skipped = nn.ModuleList(dense_stack(carried, *widths, bias=bias, gate_last=True) for _ in range(n_skips))
        self.last = dense_stack(carried, *widths[:-1], outputs, bias=bias)
        initialize(self, init, generator)

    def forward(self, x: Float[Tensor, "batch *example"]) -> Float[Tensor, "batch n_outputs"]:
        """The outputs, without soft-max."""
        z = self.first(x.flatten(1))
        for block, pre, post in zip(self.skipped, self.gamma_pre, self.gamma_post, strict=True):
            z = post * (z + block(pre * z))
        return self.last(z)


def _factors(name: str, value: float | int | Sequence[float | int], count: int) -> tuple[float, ...]:
    factors = (float(value),) * count if isinstance(value, float | int) else tuple(map(float, value))
    if len(factors) != count or not all(map(math.isfinite, factors)):
        raise ValueError(f"`{name}` must be one number or {count} of them, one per skip, all finite; got {factors!r}.")
    return factors
