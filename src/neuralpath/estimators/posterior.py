"""The Gaussian-process view of a fitted kernel machine."""

from typing import Any

import numpy as np
from jaxtyping import Float64

from neuralpath.estimators.cholesky import Factor
from neuralpath.estimators.inputs import as_numpy
from neuralpath.estimators.kernel_products import dense_kernel
from neuralpath.estimators.kernel_tiles import KernelTiles

MeanAndStd = tuple[Float64[np.ndarray, "m k"], Float64[np.ndarray, " m"]]


def posterior(
    cross: KernelTiles,
    coefficients: Float64[np.ndarray, "n k"],
    factor: Factor,
    prior: Float64[np.ndarray, " m"],
) -> MeanAndStd:
    r"""Mean :math:`K_x \alpha` and standard deviation of the posterior; ``prior`` is k(x, x).

    .. math:: \sigma^2(x) = k(x, x) - \| L^{-1} K_x^\top \|^2, \qquad L L^\top = K + \lambda I

    Cost: n^2 for each row of the kernel between test and training examples, which is held whole, twice.
    """
    rows = dense_kernel(cross)
    half = factor.half_solve(rows.T)
    variance = prior - np.einsum("ij,ij->j", half, half)
    return rows @ coefficients, np.sqrt(np.maximum(variance, 0))  # rounding may leave it below 0


def checked_diagonal(diagonal: Any, n: int) -> Float64[np.ndarray, " m"]:
    """k(x, x) of each of n test examples, as the user gives it.

    Raises: ValueError if it is missing, or not n numbers.
    """
    if diagonal is None:
        raise ValueError(
            "the standard deviation needs k(x, x) of each test example, which a precomputed kernel between test and "
            "training examples does not hold: give it as `diagonal`."
        )
    prior = np.asarray(as_numpy(diagonal), dtype=np.float64)
    if prior.shape != (n,):
        raise ValueError(f"`diagonal` must have a number for each of the {n} test examples, got shape {prior.shape}.")
    return prior
