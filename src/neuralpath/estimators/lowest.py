"""The lowest eigenvalue of a kernel in tiles, to say which ridge it needs."""

import numpy as np
import torch
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from neuralpath.estimators.kernel_products import kernel_times
from neuralpath.estimators.kernel_tiles import KernelTiles

ACCURACY = 0.01
"""Relative accuracy of the eigenvalue; the ridge that is named has twice as much to spare."""

MOST_PASSES = 300


class _TooManyPasses(Exception):
    pass


def lowest_eigenvalue(kernel: KernelTiles, largest: float) -> float | None:
    """The lowest eigenvalue of a square kernel by Lanczos' method, ``None`` where that does not converge.

    ``largest`` is the size of the largest, which scales the vectors. Cost: some dozens of passes over the kernel.
    """
    n, passes = kernel.shape[0], 0

    def times(vector: np.ndarray) -> np.ndarray:
        nonlocal passes
        passes += 1
        if passes > MOST_PASSES:
            raise _TooManyPasses
        column = torch.from_numpy(np.ascontiguousarray(vector, dtype=np.float64)).reshape(n, 1)
        return kernel_times(kernel, column).numpy()[:, 0] / largest

    if n < 3:  # too small for the method
        dense = kernel_times(kernel, torch.eye(n, dtype=torch.float64))
        return float(torch.linalg.eigvalsh(dense)[0])
    operator = LinearOperator((n, n), matvec=times, dtype=np.float64)
    try:
        start = np.random.default_rng(0).normal(size=n)
        (value,) = eigsh(operator, k=1, which="SA", tol=ACCURACY, v0=start, return_eigenvectors=False)
    except (_TooManyPasses, ArpackError):
        return None
    return float(value) * largest


def smallest_ridge(lowest: float, largest: float, tol: float) -> float:
    """The ridge that lifts the lowest eigenvalue above 0, and lets a relative residual fall to ``tol``.

    Rounding leaves a residual of about eps * largest / ridge.
    """
    return (1 + 2 * ACCURACY) * max(-lowest, 0.0) + 4 * np.finfo(np.float64).eps * largest / tol
