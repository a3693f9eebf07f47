r"""Leave-one-out predictions in closed form, and the ridge path from one eigendecomposition.

With :math:`G = (K + \lambda I)^{-1}`, the estimator that is trained without example i predicts there

.. math:: y_i - (G y)_i / G_{ii}

If the targets are centered by their mean, which is added to the predictions, the estimator without example i has the
mean :math:`c_{-i} = (n \bar y - y_i) / (n - 1)` of the others; its prediction is

.. math:: y_i - (G y)_i / G_{ii} + c_{-i} (G 1)_i / G_{ii}
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from scipy.linalg import eigh

from neuralpath._resources import format_memory
from neuralpath.estimators.cholesky import SingularKernel

Columns = Float64[np.ndarray, "n k"]


@dataclass(frozen=True, slots=True, eq=False)
class LeaveOneOut:
    """Leave-one-out predictions and their error, from the method ``leave_one_out`` of an estimator.

    Args:
        predictions: For each training example, the prediction (for classes: the scores) of the estimator that is
            trained on all others.
        squared_error: Mean squared error over examples and columns.
        error_rate: Share of wrong classes, None for regression.
    """

    predictions: Float64[np.ndarray, "n *columns"]
    squared_error: float
    error_rate: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RidgePath:
    """Fits for many ridges from one eigendecomposition, from the method ``ridge_path`` of an estimator.

    Args:
        ridges: The ridges, in the order in which they were given.
        coefficients: The ``dual_coef_`` of each fit.
        leave_one_out: The leave-one-out predictions (for classes: scores) of each fit.
        squared_errors: Mean squared leave-one-out error of each fit.
        error_rates: Share of wrong classes among the leave-one-out predictions, None for regression.
        predictions: Predictions (for classes: scores) at the test rows, None without test rows.
    """

    ridges: Float64[np.ndarray, " ridge"]
    coefficients: Float64[np.ndarray, "ridge n *columns"]
    leave_one_out: Float64[np.ndarray, "ridge n *columns"]
    squared_errors: Float64[np.ndarray, " ridge"]
    error_rates: Float64[np.ndarray, " ridge"] | None = None
    predictions: Float64[np.ndarray, "ridge test *columns"] | None = None

    @property
    def best_ridge(self) -> float:
        """The ridge with the smallest squared leave-one-out error; the largest one in a tie."""
        best = np.flatnonzero(self.squared_errors == self.squared_errors.min())
        return float(self.ridges[best].max())


class Inverse(NamedTuple):
    """G y, G 1 and the diagonal of G, for G = (K + ridge I)^-1."""

    targets: Columns
    ones: Float64[np.ndarray, " n"]
    diagonal: Float64[np.ndarray, " n"]


def left_out_predictions(inverse: Inverse, targets: Columns, *, centered: bool) -> Columns:
    """The leave-one-out predictions, by the formulas at the top of this module."""
    n = len(targets)
    if n < 2:
        raise ValueError("leave-one-out needs at least two training examples.")
    predictions = targets - inverse.targets / inverse.diagonal[:, None]
    if centered:
        others = (targets.sum(0) - targets) / (n - 1)
        predictions = predictions + others * (inverse.ones / inverse.diagonal)[:, None]
    return predictions


def check_path_memory(shape: tuple[int, ...], n_ridges: int, budget: int) -> None:
    """Refuse a path whose matrices (kernel, eigenvectors, their squares) and results exceed the budget."""
    n, n_columns = shape
    needed = 8 * n * (3 * n + 3 * n_ridges * n_columns)
    if needed > budget:
        problem = f"the ridge path needs {format_memory(needed)} for {n:,} examples"
        raise MemoryError(f"{problem}, the budget is {format_memory(budget)}: give memory={needed} or more.")


def inverses_for_ridges(kernel: Float64[np.ndarray, "n n"], targets: Columns, ridges: np.ndarray) -> list[Inverse]:
    """The inverse for each ridge; the kernel's array is overwritten."""
    values, vectors = eigh(kernel, overwrite_a=True, check_finite=False, driver="evr")
    n = len(values)
    floor = n * np.finfo(np.float64).eps * max(abs(values[0]), abs(values[-1]))
    smallest = float(ridges.min())
    if values[0] + smallest < floor:
        enough = 1.01 * (floor - values[0])  # one percent more, so that the printed digits do not round below it
        problem = f"`ridges`: with a ridge of {smallest:g} the kernel's smallest eigenvalue, {values[0]:.2g}"
        raise SingularKernel(f"{problem}, is too small; the smallest ridge that works is {enough:.3g}.")
    rotated = vectors.T @ np.column_stack([targets, np.ones(n)])
    squares = np.square(vectors)
    results = []
    for ridge in ridges:
        weights = 1 / (values + ridge)
        solved = vectors @ (weights[:, None] * rotated)
        results.append(Inverse(solved[:, :-1], solved[:, -1], squares @ weights))
    return results
