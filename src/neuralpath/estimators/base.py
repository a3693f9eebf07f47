"""The common part of kernel regression and kernel classification: kernel, solver, closed forms."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Float64
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from neuralpath._checks import check_number
from neuralpath._resources import memory_budget
from neuralpath.estimators import checks, evaluation, leave_one_out as loo
from neuralpath.estimators.cholesky import Factor
from neuralpath.estimators.solving import SolverOptions, solve
from neuralpath.estimators.tiles import KernelMatrix, as_kernel_matrix, dense_kernel, kernel_times
from neuralpath.kernels import Kernel, LinearKernel

MeanAndStd = tuple[Float64[np.ndarray, "m k"], Float64[np.ndarray, " m"]]


class KernelEstimator(BaseEstimator):
    """The common part of `KernelRegressor` and `KernelClassifier`, which define the targets and the offset."""

    # None for a precomputed kernel.
    X_fit_: Float[np.ndarray, "n d"] | None
    kernel_: Kernel | None

    targets_: Float64[np.ndarray, "n k"]
    offset_: Float64[np.ndarray, " k"]
    dual_coef_: Float64[np.ndarray, "n *columns"]  # in the shape of the labels: a vector if they were one

    def __init__(
        self,
        kernel: Kernel | evaluation.KernelFunction | str = LinearKernel(),  # noqa: B008 (a frozen value)
        ridge: float = 1.0,
        *,
        input_shape: Sequence[int] | None = None,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 500,
        rank: int | None = None,
        memory: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.kernel = kernel
        self.ridge = ridge
        self.input_shape = input_shape
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.rank = rank
        self.memory = memory
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._precomputed
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "dual_coef_")

    @property
    def _precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _training_data(self, X: Any, y: Any) -> tuple[KernelMatrix, np.ndarray]:
        """The kernel of the training examples, and the labels; remembers the rows."""
        # If this fit fails, no coefficients of an earlier one remain.
        self.__dict__.pop("dual_coef_", None)
        if self._precomputed:
            self.X_fit_ = self.kernel_ = None
            matrix = checks.checked_kernel(self, X)
            return matrix, checks.checked_labels(self, y, matrix.shape[0])
        kernel = evaluation.as_kernel(self.kernel)
        rows = checks.checked_rows(self, X, reset=True)
        labels = checks.checked_labels(self, y, len(rows))
        # A copy: the estimator must not change with the user's array.
        self.X_fit_, self.kernel_, self.weights_ = rows.copy(), kernel, evaluation.kernel_weights(kernel)
        tiles = evaluation.training_tiles(kernel, rows, checks.shape_of_inputs(self), memory_budget(self.memory))
        return as_kernel_matrix(tiles), labels

    def _fit_targets(self, kernel: KernelMatrix, targets: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
        """The coefficients of several columns of targets."""
        budget, seed = memory_budget(self.memory), checks.checked_seed(self.random_state)
        options = SolverOptions(self.solver, self.tol, self.max_iter, self.rank, budget, seed)
        ridge = check_number("ridge", self.ridge, or_zero=True)
        coefficients, self.factor_, self.report_ = solve(kernel, targets, ridge, options)
        self.n_iter_ = self.report_.passes
        return coefficients

    def _cross_kernel(self, X: Any) -> KernelMatrix:
        """The kernel between test examples and the training examples."""
        check_is_fitted(self)
        if self._precomputed:
            return checks.checked_kernel(self, X, len(self.dual_coef_))
        return self._computed_cross_kernel(self._test_rows(X))

    def _computed_cross_kernel(self, rows: Float[np.ndarray, "m d"]) -> KernelMatrix:
        assert self.kernel_ is not None
        budget = memory_budget(self.memory)
        shape = checks.shape_of_inputs(self)
        return as_kernel_matrix(evaluation.kernel_tiles(self.kernel_, rows, self.X_fit_, shape, budget))

    def _test_rows(self, X: Any) -> Float[np.ndarray, "m d"]:
        """Test rows in the dtype of the training rows; refuses a model that has changed since the fit."""
        assert self.X_fit_ is not None
        assert self.kernel_ is not None
        checks.check_unchanged(self.weights_, evaluation.kernel_weights(self.kernel_))
        return checks.checked_rows(self, X, reset=False).astype(self.X_fit_.dtype, copy=False)

    def _columns(self) -> Float64[np.ndarray, "n k"]:
        """The coefficients with a column for each output."""
        return self.dual_coef_.reshape(len(self.dual_coef_), -1)

    def _shaped(self, outputs: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, "m *columns"]:
        """Outputs in the shape of the labels: a vector if the labels were one."""
        return outputs[:, 0] if self.dual_coef_.ndim == 1 else outputs

    def _outputs(self, X: Any) -> Float64[np.ndarray, "m k"]:
        """K_x a + offset, in one pass over the tiles of K_x."""
        return kernel_times(self._cross_kernel(X), self._columns()).numpy() + self.offset_

    def _outputs_and_std(self, X: Any, diagonal: Any) -> MeanAndStd:
        """K_x a + offset and the posterior standard deviation, for as many rows at a time as fit in memory."""
        factor = self._require_factor("`return_std`")
        if self._precomputed:
            kernel = self._cross_kernel(X)
            return self._posterior(kernel, factor, checks.checked_diagonal(diagonal, kernel.shape[0]))
        if diagonal is not None:
            raise ValueError("`diagonal` is for a precomputed kernel; this estimator computes k(x, x) itself.")
        rows, budget = self._test_rows(X), memory_budget(self.memory)
        assert self.kernel_ is not None
        step = max(1, min(len(rows), budget // (32 * len(self.dual_coef_))))
        outputs, stds = [], []
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            tiles = evaluation.kernel_tiles(self.kernel_, part, None, checks.shape_of_inputs(self), budget)
            prior = tiles.diagonal().double().cpu().numpy()
            output, std = self._posterior(self._computed_cross_kernel(part), factor, prior)
            outputs.append(output)
            stds.append(std)
        return np.concatenate(outputs), np.concatenate(stds)

    def _posterior(self, cross: KernelMatrix, factor: Factor, prior: Float64[np.ndarray, " m"]) -> MeanAndStd:
        r"""Mean and standard deviation of the Gaussian process posterior; ``prior`` is k(x, x).

        .. math:: \sigma^2(x) = k(x, x) - \| L^{-1} K_x^\top \|^2, \qquad L L^\top = K + \lambda I
        """
        rows = dense_kernel(cross)
        half = factor.half_solve(rows.T)
        variance = prior - np.einsum("ij,ij->j", half, half)
        return rows @ self._columns() + self.offset_, np.sqrt(np.maximum(variance, 0))  # rounding may make it negative

    def leave_one_out(self) -> loo.LeaveOneOut:
        r"""Leave-one-out predictions in closed form: each training example by the estimator fitted to all others.

        .. math:: \hat y_{-i} = y_i - \alpha_i / [(K + \lambda I)^{-1}]_{ii}

        Cost: n^3 for the diagonal of the inverse, in little memory; nothing is fitted again.

        Raises:
            ValueError: The estimator was fitted by conjugate gradients, which provide no inverse.
        """
        factor = self._require_factor("`leave_one_out`")
        solved = factor.solve(np.column_stack([self.targets_, np.ones(len(self.targets_))]))
        left_out = self._left_out(loo.Inverse(solved[:, :-1], solved[:, -1], factor.inverse_diagonal()))
        squared_error = float(np.square(left_out - self.targets_).mean())
        return loo.LeaveOneOut(self._shaped(left_out), squared_error, self._error_rate(left_out))

    def _left_out(self, inverse: loo.Inverse) -> Float64[np.ndarray, "n k"]:
        return loo.left_out_predictions(inverse, self.targets_, centered=bool(self.offset_.any()))

    def ridge_path(self, ridges: Any, X: Any = None) -> loo.RidgePath:
        """The results of fitting with each of many ridges, from one eigendecomposition of the training kernel.

        The estimator itself does not change: ``set_params(ridge=path.best_ridge)`` and fit again to use a ridge.
        Cost: about 9 n^3 once, then n^2 for each ridge and column; memory of three n x n matrices.

        Args:
            ridges: Numbers, 0 or more.
            X: Test rows, as for ``predict``; the path then has predictions (for classes: scores) for each ridge, from
                one pass over their kernel.

        Raises:
            ValueError: A ridge is not a number from 0, or too small for a singular kernel (the message has the smallest
                ridge that works), or the estimator was fitted by conjugate gradients.
            MemoryError: The path needs more than the budget ``memory``.
        """
        factor = self._require_factor("`ridge_path`")
        values = np.atleast_1d(checks.as_numpy(ridges)).tolist()
        if not values:
            raise ValueError("`ridges` is empty: give at least one.")
        chosen = np.array([check_number("ridges", ridge, or_zero=True) for ridge in values])
        loo.check_path_memory(self.targets_.shape, len(chosen), memory_budget(self.memory))
        inverses = loo.inverses_for_ridges(factor.kernel(), self.targets_, chosen)
        coefficients = [inverse.targets - inverse.ones[:, None] * self.offset_ for inverse in inverses]
        left_out = [self._left_out(inverse) for inverse in inverses]
        rates = [self._error_rate(scores) for scores in left_out]
        outputs = None
        if X is not None:
            product = kernel_times(self._cross_kernel(X), np.concatenate(coefficients, 1)).numpy()
            outputs = np.stack([self._shaped(part + self.offset_) for part in np.split(product, len(chosen), 1)])
        fits, scores = (np.stack([self._shaped(part) for part in parts]) for parts in (coefficients, left_out))
        errors = np.array([np.square(part - self.targets_).mean() for part in left_out])
        return loo.RidgePath(chosen, fits, scores, errors, None if rates[0] is None else np.array(rates), outputs)

    def _require_factor(self, needed_by: str) -> Factor:
        check_is_fitted(self)
        if self.factor_ is None:
            raise ValueError(f"{needed_by} needs the Cholesky factor of the kernel: fit with solver='cholesky'.")
        return self.factor_

    def _error_rate(self, scores: Float64[np.ndarray, "n k"]) -> float | None:
        """Share of examples whose largest score is not that of their class; None for regression."""
        return float((scores.argmax(1) != self.targets_.argmax(1)).mean()) if is_classifier(self) else None
