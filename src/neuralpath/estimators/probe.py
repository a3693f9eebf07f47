"""A few numbers that a model gave at the fit, so that a machine notices a model that computes something else since.

Digests of weights do not see the code of a model, nor numbers in it that are no parameter or buffer.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from neuralpath.estimators.evaluation import KernelChoice, computed_kernel

PROBED = 3
"""Training rows whose kernel is kept: it costs a small share of a prediction, which needs that of all of them."""

ROUNDING = {np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-9}
"""Relative to the largest number, by how much a probe may differ on another processor or with other threads. Rounding
may there switch a gate whose pre-activation is nearly 0, one of many in its layer."""


def kernel_probe(
    choice: KernelChoice, rows: Float[np.ndarray, "n d"], budget: int
) -> Float[np.ndarray, "probed probed"] | None:
    """The kernel of a few training rows, spread over all of them; None for inner products, which read no model."""
    if choice.kernel == "linear":
        return None
    some = rows[:: -(-len(rows) // PROBED)]
    return computed_kernel(choice, some, None, budget).filled(progress=False).cpu().numpy()


def check_probe(
    was: Float[np.ndarray, "..."], now: Float[np.ndarray, "..."] | None, *, dtype: type[np.floating[Any]] | None = None
) -> None:
    """Refuse a model, or a kernel function, that gives other numbers than at the fit.

    ``dtype`` is that in which they were computed, where it is not their own.

    Raises: ValueError.
    """
    assert now is not None
    size = max(float(np.abs(was).max()), float(np.abs(now).max()))
    gap = float(np.abs(was.astype(np.float64) - now).max())
    if not gap <= ROUNDING[np.dtype(dtype or was.dtype)] * size:  # NaN is refused too
        raise ValueError(
            "the model or kernel function is not as it was when the machine was fitted: with the same weights and the "
            f"same rows it gives values that differ by {gap / size:.1e} of the largest. Its code has changed, or a "
            "number in it that is no parameter or buffer. Fit again, or put it back."
        )
