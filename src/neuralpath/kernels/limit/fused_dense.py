r"""Infinite-width kernels of a chain of dense layers with ReLUs, all layers in one pass over the pairs.

Pre-activations of two examples have a covariance :math:`\Sigma` and a tangent kernel :math:`\tilde K`. A dense layer of
weight variance g / fan-in and bias variance b gives :math:`\Sigma = g A + b`, :math:`\tilde K = g C + b`, and an
activation f gives :math:`A = E[f f']`, :math:`C = A + \tilde K E[f' f'']`. In front of the first layer A and C are the
inner product of the inputs, not divided by their number.

A tile of pairs goes through all layers while it is in the cache; of a symmetric kernel only the upper half is computed.
Layers are computed in double precision for inputs of either: the angle between similar examples is the square root of a
small difference, and its error would grow with each layer.
On the diagonal, where the angle is 0, the values are exact. An example whose variance is 0 (a zero input, without
biases) has an angle of pi / 2 with every other, so that its kernels are 0 and finite.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._loops import bend_of, in_threads, run_tiles, squared_lengths, use_bits

TILE = 128
"""Rows and columns of a tile: its two values for each pair stay in the second-level cache."""

DTYPES = (torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class DenseStep:
    """A dense layer, and the leaky ReLU after it: its slope below 0, or None for the output layer, which has none."""

    weight_variance: float  # times 1 / fan-in; of the first layer of a network: as it is
    bias_variance: float = 0.0
    slope: float | None = 0.0

    def __post_init__(self) -> None:
        check_variances(self.weight_variance, self.bias_variance)
        if self.slope is not None and not math.isfinite(self.slope):
            raise ValueError(f"`slope` must be a finite number, or None for no activation, got {self.slope}.")


@dataclass(frozen=True, slots=True, eq=False)
class LimitKernels:
    """The output kernel (covariance of the outputs, NNGP) and the tangent kernel.

    With weight variances 1 in the first layer and 2 after each ReLU these are Sigma and K~; for an output layer of
    variance 1 / width where the others have 2 / width, the tangent kernel is their mean.
    """

    output: Float[Tensor, "batch1 batch2"]
    tangent: Float[Tensor, "batch1 batch2"]


def can_fuse(*tensors: Tensor) -> bool:
    """Whether the fused kernels serve: single or double precision in main memory, with numba on."""
    return use_bits() and all(t.device.type == "cpu" and t.dtype in DTYPES for t in tensors)


def squares(x: Float[Tensor, "batch unit"]) -> Float[Tensor, " batch"]:
    """Squared lengths in double precision, without torch, which would wake its threads for this little."""
    lengths = np.empty(len(x))
    squared_lengths(lengths, x.contiguous().numpy())
    return torch.from_numpy(lengths)


def apply_dense_steps(
    steps: Sequence[DenseStep],
    covariance: Float[Tensor, "batch1 batch2"],
    tangent: Float[Tensor, "batch1 batch2"],
    variance1: Float[Tensor, " batch1"],
    variance2: Float[Tensor, " batch2"] | None = None,
    tangent_diagonal: Float[Tensor, " batch1"] | None = None,
) -> LimitKernels:
    """Take A and C of all pairs, and A of each example with itself, through a chain of dense layers.

    Without ``variance2`` the batches are one, and the kernel is symmetric; ``tangent_diagonal`` is then C of each
    example with itself, where that is not A. The variances are in double precision.
    """
    symmetric = variance2 is None
    diagonal = variance1 if tangent_diagonal is None else tangent_diagonal
    final, final_tangent = diagonals(steps, variance1, diagonal)
    profile1 = profiles(steps, variance1)
    profile2 = profile1 if variance2 is None else profiles(steps, variance2)
    output, result = torch.empty_like(covariance), torch.empty_like(covariance)
    arrays = output.numpy(), result.numpy(), covariance.contiguous().numpy(), tangent.contiguous().numpy()
    constants, tiles = constants_of(steps), _tiles(covariance.shape[0], covariance.shape[1], symmetric)

    def run(share: slice) -> None:
        run_tiles(*arrays, profile1, profile2, constants, tiles[share], TILE, symmetric)

    in_threads(run, len(tiles))
    if symmetric:
        output.diagonal().copy_(final)
        result.diagonal().copy_(final_tangent)
    return LimitKernels(output, result)


def spreads(variances: Float[Tensor, "*shape"]) -> Float[Tensor, "2 *shape"]:
    """Standard deviations, and one over them; 0 where the variance is 0, which makes the angle pi / 2."""
    deviation = variances.sqrt()
    return torch.stack([deviation, torch.where(deviation > 0, 1 / deviation, 0.0)])


def check_fusible(x1: Tensor, x2: Tensor) -> None:
    """Refuse what the compiled loops do not take; whether the values are finite is the caller's to see."""
    if not can_fuse(x1, x2) or x1.dtype != x2.dtype:
        raise TypeError(
            "the fused kernels need two batches of one dtype, float32 or float64, in main memory, and numba; got "
            f"{x1.dtype} on {x1.device} and {x2.dtype} on {x2.device}: use `limit_tangent_kernel` instead."
        )


def check_head(steps: Sequence[DenseStep]) -> None:
    """Refuse dense layers without activations between them, and an output with one."""
    if not steps or steps[-1].slope is not None or any(step.slope is None for step in steps[:-1]):
        raise ValueError(
            "dense steps must each have a `slope`, but the last, the output, slope=None; got the slopes "
            f"{[step.slope for step in steps]}."
        )


def check_variances(weight: float, bias: float) -> None:
    """Refuse variances that are none."""
    if not (0 < weight < math.inf and 0 <= bias < math.inf):
        raise ValueError(
            f"`weight_variance` must be positive, `bias_variance` not negative, both finite; got {weight} and {bias}."
        )


def diagonals(
    steps: Sequence[DenseStep], variance: Float[Tensor, " batch"], tangent: Float[Tensor, " batch"]
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """Both kernels of each example with itself."""
    for step in steps:
        variance = step.weight_variance * variance + step.bias_variance
        tangent = step.weight_variance * tangent + step.bias_variance
        if step.slope is not None:
            share = (1 + step.slope**2) / 2
            variance, tangent = share * variance, share * (variance + tangent)
    return variance, tangent


def profiles(steps: Sequence[DenseStep], variance: Float[Tensor, " batch"]) -> np.ndarray:
    """``spreads`` of the pre-activations of each layer but the output, in the layout (layer, 2, batch)."""
    layers = []
    for step in steps[:-1]:
        variance = step.weight_variance * variance + step.bias_variance
        layers.append(spreads(variance))
        assert step.slope is not None
        variance = (1 + step.slope**2) / 2 * variance
    empty = variance.new_empty((0, 2, len(variance)))
    return (torch.stack(layers) if layers else empty).numpy()


def constants_of(steps: Sequence[DenseStep]) -> np.ndarray:
    """For each layer: weight variance, bias variance, and the constants of its activation (of none: not used)."""
    return np.array([(s.weight_variance, s.bias_variance, *bend_of(s.slope or 0.0)) for s in steps])


def _tiles(n1: int, n2: int, symmetric: bool) -> np.ndarray:
    """First row and column of each tile that is computed; a list of them gives each thread an equal share."""
    starts = [(i, j) for i in range(0, n1, TILE) for j in range(i if symmetric else 0, n2, TILE)]
    return np.array(starts, np.int64)
