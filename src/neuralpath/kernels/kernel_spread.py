r"""The spread of the value tangent kernel around its expectation, over random weights.

For given gates and random value weights, :math:`E[K^V]` is known exactly (``expected_tangent_kernel``). The relative
distance of one draw from it falls with the width w as :math:`1/\sqrt w`. Its square grows about as :math:`d / w` with
the depth d.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from neuralpath.graph import Gates, PathGraph, as_graph
from neuralpath.kernels.diagnostics import KernelValues, spectrum
from neuralpath.kernels.path.path_kernel import FanVariance, Variance, expected_tangent_kernel
from neuralpath.kernels.random_values import Draw, gaussian, random_weights, value_kernel


@dataclass(frozen=True, slots=True, eq=False)
class Concentration:
    """Draws of a value tangent kernel compared with its expectation, in float64."""

    expected: Float64[Tensor, "batch batch"]
    """The expectation."""
    mean: Float64[Tensor, "batch batch"]
    """The mean of each entry over the draws."""
    variance: Float64[Tensor, "batch batch"]
    """The unbiased variance of each entry over the draws."""
    distances: Float64[Tensor, " draw"]
    """The Frobenius distance of each draw from the expectation, relative to its norm."""
    spectrum_ratios: Float64[Tensor, "draw eigenvalue"]
    """The eigenvalues of each draw divided by those of the expectation, both largest first."""

    @property
    def standard_error(self) -> Float64[Tensor, "batch batch"]:
        """Standard error of each entry of ``mean``."""
        return (self.variance / len(self.distances)).sqrt()

    @property
    def relative_variance(self) -> float:
        r"""Mean squared relative distance, :math:`E\|K^V - E[K^V]\|_F^2 / \|E[K^V]\|_F^2`, estimated from the draws."""
        return float(self.distances.square().mean())


def concentration(
    network: PathGraph | nn.Module,
    x: Float[Tensor, "batch *shape"],
    n_draws: int,
    *,
    generator: torch.Generator,
    gates: Gates | None = None,
    weight_variance: Variance = FanVariance(2.0),  # noqa: B008  (frozen)
    bias_variance: float = 0.0,
    draw: Draw = gaussian,
) -> Concentration:
    r"""Mean and spread of the value tangent kernel over random value weights, and its exact expectation.

    The gates are fixed. The weights are drawn independently of them, as ``random_weights`` does.

    Reference: P0 theorem 4.1, P1 theorem 5.1, P2 theorem 5.1.
    Cost: ``n_draws`` times that of ``value_kernel``, once that of ``expected_tangent_kernel``.

    Args:
        network: A path graph, or a module, which is traced on the first example.
        x: A batch of examples.
        n_draws: Number of draws of the weights, 2 or more.
        generator: The source of randomness.
        gates: The gates; None for those that ``x`` opens in the network.
        weight_variance: As for ``random_weights``.
        bias_variance: As for ``random_weights``.
        draw: As for ``random_weights``.

    Raises:
        ValueError: Fewer than two draws; or as ``value_kernel`` and ``expected_tangent_kernel``.

    >>> import neuralpath as npath
    >>> x = torch.randn(3, 4, dtype=torch.float64)
    >>> model = npath.nets.FC(4, width=64, depth=3).double()
    >>> draws = concentration(model, x, 50, generator=torch.Generator().manual_seed(0))
    >>> bool(((draws.mean - draws.expected).abs() <= 5 * draws.standard_error).all())
    True
    """
    if n_draws < 2:
        raise ValueError(f"`n_draws` must be 2 or more, got {n_draws}.")
    graph = as_graph(network, x)
    gates = graph.gates(x) if gates is None else gates
    variances: Any = {"weight_variance": weight_variance, "bias_variance": bias_variance}
    expected = expected_tangent_kernel(graph, x, gates1=gates, **variances, progress=False).double()
    norm = torch.linalg.matrix_norm(expected)
    # Sums of differences from the expectation, so that the variance is not a difference of large numbers.
    total, squares = torch.zeros_like(expected), torch.zeros_like(expected)
    distances, ratios = [], []
    for _ in range(n_draws):
        weights = random_weights(graph, generator=generator, **variances, draw=draw)
        kernel = value_kernel(graph, x, weights=weights, gates1=gates).double()
        deviation = kernel - expected
        total += deviation
        squares += deviation.square()
        distances.append(torch.linalg.matrix_norm(deviation) / norm)
        ratios.append(spectrum_ratio(kernel, expected))
    mean = total / n_draws
    variance = ((squares - n_draws * mean.square()) / (n_draws - 1)).clamp(min=0)
    return Concentration(expected, expected + mean, variance, torch.stack(distances), torch.stack(ratios))


def spectrum_ratio(kernel: KernelValues, expected: KernelValues) -> Float[Tensor, " eigenvalue"]:
    r"""Eigenvalues of a kernel divided by those of another, both largest first.

    .. math:: \rho_i(K) / \rho_i(\bar K)

    Only for eigenvalues of ``expected`` above n * eps times the largest, with eps that of ``expected``: the others are
    rounding. Cost: O(n^3).

    Args:
        kernel: A square kernel matrix as a tensor, an array, or an object with ``filled()``.
        expected: A kernel matrix of the same size.

    Raises:
        ValueError: A kernel is not square, symmetric and finite, ``expected`` is zero, or the sizes differ.
        TypeError: Another dtype.

    >>> spectrum_ratio(torch.diag(torch.tensor([2.0, 3.0])), torch.eye(2))
    tensor([3., 2.])
    """
    values, reference = spectrum(kernel), spectrum(expected)
    if len(values) != len(reference):
        raise ValueError(f"`kernel` and `expected` must have one size, got {len(values)} and {len(reference)} rows.")
    if not float(reference[0]) > 0:
        raise ValueError("`expected` has no positive eigenvalue, so there is nothing to divide by.")
    is_positive = reference > len(reference) * torch.finfo(reference.dtype).eps * reference[0]
    return values[is_positive] / reference[is_positive].to(values.dtype)


def printed_variance_bound(input_size: int, width: int, depth: int, weight_variance: float) -> float:
    r"""The bound that P0 theorem 4.1 (ii) prints for the variance of an entry, with the constant 1 for its O.

    .. math:: d_{in}^2 \sigma^{4(d-1)} \max\{d^2 w^{2(d-2)+1}, d^3 w^{2(d-2)}\}

    For open gates and inputs of squared norm :math:`d_{in}` it is :math:`\max\{1/w, d/w^2\}` times the square of the
    expectation. **It is no bound**: its dependence on the depth is wrong (erratum E13), since the relative variance
    grows as :math:`d / w`. It is here for comparison with measured variances.

    Args:
        input_size: :math:`d_{in}`, the number of inputs.
        width: w, the units of a hidden layer.
        depth: d, the number of weight layers.
        weight_variance: :math:`\sigma^2`.

    Raises:
        ValueError: A size is not positive, the depth is below 2, or :math:`4 d / w^2 < 1`, which the theorem assumes,
            does not hold.

    >>> expectation = 4 * 0.01**3 * 100**3
    >>> round(printed_variance_bound(1, 100, 4, 0.01) / expectation**2, 6)
    0.01
    """
    if min(input_size, width) < 1 or depth < 2 or not 0 < weight_variance < math.inf:
        sizes = f"{input_size}, `width` {width}, `depth` {depth} and `weight_variance` {weight_variance}"
        raise ValueError(f"sizes must be positive, and the depth 2 or more, got `input_size` {sizes}.")
    if 4 * depth >= width**2:
        raise ValueError(f"the theorem asks for 4 * depth < width^2, got a depth of {depth} and a width of {width}.")
    largest = max(2 * math.log(depth) + math.log(width), 3 * math.log(depth)) + 2 * (depth - 2) * math.log(width)
    return math.exp(2 * math.log(input_size) + 2 * (depth - 1) * math.log(weight_variance) + largest)


@dataclass(frozen=True)
class PowerLaw:
    """A fitted ``factor * size**exponent``."""

    exponent: float
    """The exponent."""
    standard_error: float
    """The standard error of the exponent."""
    factor: float
    """The factor."""


def fitted_power(sizes: Sequence[float], samples: Sequence[Float[Tensor, " _sample"]]) -> PowerLaw:
    r"""A power law for the mean of a positive quantity, from samples of the quantity at each size.

    Least squares of the logarithm of the mean at each size against the logarithm of the size, each size with the same
    weight. The standard error comes from the spread of the samples at each size, and not from the fit of the law.

    Args:
        sizes: The sizes, such as widths; two or more.
        samples: For each size, two or more positive values.

    Raises:
        ValueError: Fewer than two sizes, fewer than two samples of a size, or values that are not positive.

    >>> law = fitted_power([1, 10, 100], [torch.tensor([4.0, 6.0]) / size for size in (1, 10, 100)])
    >>> round(law.exponent, 4), round(law.factor, 4)
    (-1.0, 5.0)
    """
    if len(set(sizes)) < 2 or len(sizes) != len(samples) or min(sizes) <= 0:
        raise ValueError(f"`sizes` must be two or more positive numbers, one for each of `samples`, got {list(sizes)}.")
    if any(len(sample) < 2 or not bool((sample > 0).all()) for sample in samples):
        raise ValueError("`samples` must have two or more positive values for each size.")
    position = torch.tensor([math.log(size) for size in sizes], dtype=torch.float64)
    means = torch.stack([sample.double().mean() for sample in samples])
    errors = torch.stack([sample.double().var() / len(sample) for sample in samples]) / means.square()  # of the logs
    centered = position - position.mean()
    slopes = centered / centered.square().sum()
    exponent = float(slopes @ means.log())
    factor = math.exp(float(means.log().mean()) - exponent * float(position.mean()))
    return PowerLaw(exponent, float((slopes.square() @ errors).sqrt()), factor)
