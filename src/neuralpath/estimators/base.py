"""The common part of kernel regression and kernel classification: kernel, solver, closed forms."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Float64
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from neuralpath.estimators.checks import (
    Settings,
    as_numpy,
    check_probe,
    check_unchanged,
    checked_budget,
    checked_cross_kernel,
    checked_diagonal,
    checked_labels,
    checked_ridge,
    checked_rows,
    checked_seed,
    checked_training_kernel,
    shape_of_inputs,
)
from neuralpath.estimators.cholesky import Factor
from neuralpath.estimators.evaluation import (
    PRECOMPUTED,
    KernelFunction,
    as_kernel,
    kernel_settings,
    kernel_tiles,
    training_tiles,
)
from neuralpath.estimators.leave_one_out import (
    Inverse,
    LeaveOneOut,
    RidgePath,
    check_path_memory,
    error_rate,
    inverses_for_ridges,
    left_out_predictions,
)
from neuralpath.estimators.solving import SolverOptions, solve
from neuralpath.estimators.tiles import KernelMatrix, as_kernel_matrix, dense_kernel, kernel_times
from neuralpath.kernels import Kernel, LinearKernel, TangentKernel

PROBED_ROWS = 3
"""Training rows whose kernel a fit remembers, if the kernel runs the module again in each prediction."""

MeanAndStd = tuple[Float64[np.ndarray, "m k"], Float64[np.ndarray, " m"]]


class KernelEstimator(BaseEstimator):
    """The common part of `KernelRegressor` and `KernelClassifier`, which define the targets."""

    # All None for a precomputed kernel.
    X_fit_: Float[np.ndarray, "n d"] | None
    kernel_: Kernel | None
    settings_: Settings | None
    probe_: Float[np.ndarray, "probed probed"] | None  # only for the tangent kernel: others keep the graph of the fit

    def __init__(
        self,
        kernel: Kernel | KernelFunction | str = LinearKernel(),  # noqa: B008 (a frozen value)
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
        return isinstance(self.kernel, str) and self.kernel == PRECOMPUTED

    def _training_data(self, X: Any, y: Any) -> tuple[KernelMatrix, np.ndarray]:
        """The kernel of the training examples, and the labels; remembers the rows."""
        # If this fit fails, no coefficients of an earlier one remain.
        self.__dict__.pop("dual_coef_", None)
        if self._precomputed:
            matrix = checked_training_kernel(self, X)
            self.X_fit_ = self.kernel_ = self.settings_ = self.probe_ = None
            return matrix, checked_labels(self, y, matrix.shape[0])
        kernel = as_kernel(self.kernel)
        rows = checked_rows(self, X, reset=True)
        shape = shape_of_inputs(self)
        labels = checked_labels(self, y, len(rows))
        # A copy: the estimator must not change with the user's array.
        self.X_fit_, self.kernel_ = rows.copy(), kernel
        matrix = as_kernel_matrix(training_tiles(kernel, rows, shape, checked_budget(self.memory)))
        self.settings_, self.probe_ = kernel_settings(kernel), self._probe()
        return matrix, labels

    def _probe(self) -> Float[np.ndarray, "probed probed"] | None:
        """A few entries of the training kernel, if the kernel runs the module again in each prediction."""
        if not isinstance(self.kernel_, TangentKernel):
            return None
        assert self.X_fit_ is not None
        rows = self.X_fit_[:: -(-len(self.X_fit_) // PROBED_ROWS)]
        tiles = kernel_tiles(self.kernel_, rows, None, shape_of_inputs(self), checked_budget(self.memory))
        return tiles.filled(progress=False).cpu().numpy()

    def _fit_targets(self, kernel: KernelMatrix, targets: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
        """Solve for several columns of targets; returns the coefficients, column by column."""
        budget, seed = checked_budget(self.memory), checked_seed(self.random_state)
        options = SolverOptions(self.solver, self.tol, self.max_iter, self.rank, budget, seed)
        solved = solve(kernel, targets, checked_ridge(self.ridge), options)
        self.factor_: Factor | None = solved.factor
        self.report_ = solved.report
        self.n_iter_ = solved.report.passes
        return solved.coefficients

    def _cross_kernel(self, X: Any) -> KernelMatrix:
        """The kernel between test examples and the training examples."""
        check_is_fitted(self)
        if self._precomputed:
            return checked_cross_kernel(self, X, len(self.dual_coef_))
        return self._computed_cross_kernel(self._test_rows(X))

    def _computed_cross_kernel(self, rows: Float[np.ndarray, "m d"]) -> KernelMatrix:
        assert self.kernel_ is not None
        budget = checked_budget(self.memory)
        return as_kernel_matrix(kernel_tiles(self.kernel_, rows, self.X_fit_, shape_of_inputs(self), budget))

    def _test_rows(self, X: Any) -> Float[np.ndarray, "m d"]:
        """Test rows in the dtype of the training rows; refuses a model that has changed since the fit."""
        assert self.X_fit_ is not None
        assert self.kernel_ is not None
        assert self.settings_ is not None
        rows = checked_rows(self, X, reset=False).astype(self.X_fit_.dtype, copy=False)
        check_unchanged(self.settings_, kernel_settings(self.kernel_))
        if self.probe_ is not None and (probe := self._probe()) is not None:
            check_probe(self.probe_, probe)
        return rows

    def _columns(self) -> Float64[np.ndarray, "n k"]:
        """The coefficients with a column for each output."""
        return self.dual_coef_.reshape(len(self.dual_coef_), -1)

    def _outputs(self, X: Any) -> Float64[np.ndarray, "m k"]:
        """K_x a, in one pass over the tiles of K_x."""
        return kernel_times(self._cross_kernel(X), self._columns()).numpy()

    def _outputs_and_std(self, X: Any, diagonal: Any) -> MeanAndStd:
        """K_x a and the posterior standard deviation, for as many rows at a time as fit in memory."""
        factor = self._require_factor("`return_std`")
        if self._precomputed:
            kernel = self._cross_kernel(X)
            return self._posterior(kernel, factor, checked_diagonal(diagonal, kernel.shape[0]))
        if diagonal is not None:
            raise ValueError("`diagonal` is for a precomputed kernel; this estimator computes k(x, x) itself.")
        rows, budget = self._test_rows(X), checked_budget(self.memory)
        assert self.kernel_ is not None
        step = max(1, min(len(rows), budget // (32 * len(self.dual_coef_))))
        results = []
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            tiles = kernel_tiles(self.kernel_, part, None, shape_of_inputs(self), budget)
            prior = tiles.diagonal().double().cpu().numpy()
            results.append(self._posterior(self._computed_cross_kernel(part), factor, prior))
        return np.concatenate([outputs for outputs, _ in results]), np.concatenate([std for _, std in results])

    def _posterior(self, cross: KernelMatrix, factor: Factor, prior: Float64[np.ndarray, " m"]) -> MeanAndStd:
        r"""Mean and standard deviation of the Gaussian process posterior; ``prior`` is k(x, x).

        .. math:: \sigma^2(x) = k(x, x) - \| L^{-1} K_x^\top \|^2, \qquad L L^\top = K + \lambda I
        """
        rows = dense_kernel(cross)
        half = factor.half_solve(rows.T)
        variance = prior - np.einsum("ij,ij->j", half, half)
        return rows @ self._columns(), np.sqrt(np.maximum(variance, 0))  # rounding may make it negative

    def leave_one_out(self) -> LeaveOneOut:
        r"""Leave-one-out predictions in closed form: each training example by the estimator fitted to all others.

        .. math:: \hat y_{-i} = y_i - \alpha_i / [(K + \lambda I)^{-1}]_{ii}

        Cost: n^3 for the diagonal of the inverse, in little memory; nothing is fitted again.

        Raises:
            ValueError: The estimator was fitted by conjugate gradients, which provide no inverse.

        """
        factor = self._require_factor("`leave_one_out`")
        solved = factor.solve(np.column_stack([self.targets_, np.ones(len(self.targets_))]))
        inverse = Inverse(solved[:, :-1], solved[:, -1], factor.inverse_diagonal())
        left_out = left_out_predictions(inverse, self.targets_, centered=self._is_centered())
        return LeaveOneOut(
            self._shaped(left_out), float(np.square(left_out - self.targets_).mean()), self._error_rate(left_out)
        )

    def ridge_path(self, ridges: Any, X: Any = None) -> RidgePath:
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
        chosen = np.array([checked_ridge(ridge, "ridges") for ridge in np.atleast_1d(as_numpy(ridges)).tolist()])
        if not len(chosen):
            raise ValueError("`ridges` is empty: give at least one.")
        check_path_memory(len(self.targets_), self.targets_.shape[1], len(chosen), checked_budget(self.memory))
        offset = self._offset()
        inverses = inverses_for_ridges(factor.kernel(), self.targets_, chosen)
        coefficients = [inverse.targets - inverse.ones[:, None] * offset for inverse in inverses]
        left_out = [left_out_predictions(part, self.targets_, centered=self._is_centered()) for part in inverses]
        rates = [self._error_rate(scores) for scores in left_out]
        outputs = None
        if X is not None:
            product = kernel_times(self._cross_kernel(X), np.concatenate(coefficients, 1)).numpy()
            outputs = np.stack([self._shaped(part + offset) for part in np.split(product, len(chosen), 1)])
        return RidgePath(
            chosen,
            np.stack([self._shaped(part) for part in coefficients]),
            np.stack([self._shaped(part) for part in left_out]),
            np.array([np.square(part - self.targets_).mean() for part in left_out]),
            None if rates[0] is None else np.array(rates),
            outputs,
        )

    def _require_factor(self, needed_by: str) -> Factor:
        check_is_fitted(self)
        if self.factor_ is None:
            raise ValueError(
                f"{needed_by} needs the Cholesky factor of the training kernel, but this estimator was fitted by "
                "conjugate gradients: fit it with solver='cholesky', on fewer examples or with more `memory`."
            )
        return self.factor_

    def _error_rate(self, scores: Float64[np.ndarray, "n k"]) -> float | None:
        return error_rate(scores, self.targets_) if self._has_classes() else None

    @abstractmethod
    def _shaped(self, outputs: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, "m *columns"]:
        """Outputs in the shape of the labels: a vector if the labels were one."""

    @abstractmethod
    def _offset(self) -> Float64[np.ndarray, " k"]:
        """The offset that is added to K_x a."""

    @abstractmethod
    def _is_centered(self) -> bool:
        """Whether the offset is the mean of the targets."""

    @abstractmethod
    def _has_classes(self) -> bool:
        """Whether targets are classes, and the largest score is predicted."""
