"""What kernel regression and kernel classification share: the kernel, the solver, closed forms, files."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Float64
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import nn

from neuralpath.estimators.cholesky import Factor
from neuralpath.estimators.evaluation import (
    PRECOMPUTED,
    KernelChoice,
    KernelFunction,
    computed_kernel,
    kernel_diagonal,
    training_kernel,
    with_graph,
)
from neuralpath.estimators.inputs import (
    as_numpy,
    checked_budget,
    checked_cross_kernel,
    checked_labels,
    checked_ridge,
    checked_rows,
    checked_seed,
    checked_training_kernel,
    shape_of_inputs,
)
from neuralpath.estimators.kernel_products import kernel_times
from neuralpath.estimators.kernel_tiles import KernelTiles, as_kernel_tiles
from neuralpath.estimators.leave_one_out import (
    Inverse,
    LeaveOneOut,
    RidgePath,
    check_path_memory,
    error_rate,
    inverses_for_ridges,
    left_out_predictions,
)
from neuralpath.estimators.posterior import MeanAndStd, checked_diagonal, posterior
from neuralpath.estimators.probe import check_probe, kernel_probe
from neuralpath.estimators.saving import SavedMachine
from neuralpath.estimators.solving import SolverOptions, solve
from neuralpath.estimators.weights import Weights, check_weights, weights_of
from neuralpath.graph import PathGraph


class KernelMachine(SavedMachine, BaseEstimator):
    """The common part of `KernelRegressor` and `KernelClassifier`, which say what the targets are."""

    # All None for a kernel that was computed beforehand.
    X_fit_: Float[np.ndarray, "n d"] | None
    choice_: KernelChoice | None
    weights_: Weights
    probe_: Float[np.ndarray, "probed probed"] | None = None  # in files that were written before there was one

    def __init__(
        self,
        kernel: str | KernelFunction = "linear",
        ridge: float = 1.0,
        *,
        model: nn.Module | PathGraph | None = None,
        input_shape: Sequence[int] | None = None,
        normalize: bool = False,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 500,
        rank: int | None = None,
        memory: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.kernel = kernel
        self.ridge = ridge
        self.model = model
        self.input_shape = input_shape
        self.normalize = normalize
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.rank = rank
        self.memory = memory
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == PRECOMPUTED
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "dual_coef_")

    @property
    def _precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == PRECOMPUTED

    def _choice(self) -> KernelChoice:
        return KernelChoice(self.kernel, self.model, shape_of_inputs(self), self.normalize)

    def _training_data(self, X: Any, y: Any) -> tuple[KernelTiles, np.ndarray]:
        """The kernel of the training examples, and their labels as given; remembers the rows."""
        # Where this fit fails, no coefficients of another one are left beside its rows.
        self.__dict__.pop("dual_coef_", None)
        if self._precomputed:
            kernel = checked_training_kernel(self, X)
            self.X_fit_ = self.choice_ = self.weights_ = None
            return kernel, checked_labels(self, y, kernel.shape[0])
        rows = checked_rows(self, X, reset=True)
        choice = self._choice()
        labels = checked_labels(self, y, len(rows))
        # A copy: a machine does not change with the user's array.
        self.X_fit_, self.choice_ = rows.copy(), with_graph(choice, rows)
        self.weights_ = weights_of(self.model, self.kernel)
        return as_kernel_tiles(training_kernel(self.choice_, rows, checked_budget(self.memory))), labels

    def _use_model(self) -> None:
        check_weights(self.weights_, weights_of(self.model, self.kernel))
        self.choice_ = None if self.X_fit_ is None else with_graph(self._choice(), self.X_fit_)
        self._check_probe()

    def _check_model(self) -> None:
        """Refuse a model that has changed since the fit.

        Only the tangent kernel reads a module anew: graphs follow its weights and nothing else.
        """
        assert self.choice_ is not None
        check_weights(self.weights_, weights_of(self.choice_.model, self.choice_.kernel))
        if self.choice_.kernel == "tangent":
            self._check_probe()

    def _check_probe(self) -> None:
        if self.probe_ is not None and self.choice_ is not None:
            # A user's function may compute in float32, whatever it returns.
            check_probe(self.probe_, self._probe(), dtype=np.float32 if callable(self.choice_.kernel) else None)

    def _probe(self) -> Float[np.ndarray, "probed probed"] | None:
        """A few entries of the training kernel, as it is computed now."""
        if self.choice_ is None or self.X_fit_ is None:
            return None
        return kernel_probe(self.choice_, self.X_fit_, checked_budget(self.memory))

    def _fit_targets(self, kernel: KernelTiles, targets: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n k"]:
        """Solve for targets of several columns; the coefficients, of which the machine shapes ``dual_coef_``."""
        budget, seed = checked_budget(self.memory), checked_seed(self.random_state)
        options = SolverOptions(self.solver, self.tol, self.max_iter, self.rank, budget, seed)
        solved = solve(kernel, targets, checked_ridge(self.ridge), options)
        self.factor_: Factor | None = solved.factor
        self.report_ = solved.report
        self.n_iter_ = solved.report.passes
        self.probe_ = self._probe()
        return solved.coefficients

    def _cross_kernel(self, X: Any) -> KernelTiles:
        """The kernel between other examples and the training examples."""
        check_is_fitted(self)
        if self._precomputed:
            return checked_cross_kernel(self, X, len(self.dual_coef_))
        rows = self._test_rows(X)
        self._check_model()
        return self._computed_cross_kernel(rows)

    def _computed_cross_kernel(self, rows: Float[np.ndarray, "m d"]) -> KernelTiles:
        assert self.choice_ is not None
        return as_kernel_tiles(computed_kernel(self.choice_, rows, self.X_fit_, checked_budget(self.memory)))

    def _test_rows(self, X: Any) -> Float[np.ndarray, "m d"]:
        """Other rows, in the dtype of the training rows."""
        assert self.X_fit_ is not None
        return checked_rows(self, X, reset=False).astype(self.X_fit_.dtype, copy=False)

    def _columns(self) -> Float64[np.ndarray, "n k"]:
        """The coefficients with a column for each output."""
        return self.dual_coef_.reshape(len(self.dual_coef_), -1)

    def _outputs(self, X: Any) -> Float64[np.ndarray, "m k"]:
        """K_x a, in one pass over the tiles of K_x."""
        return kernel_times(self._cross_kernel(X), self._columns()).numpy()

    def _outputs_and_std(self, X: Any, diagonal: Any) -> MeanAndStd:
        """K_x a, and the standard deviation of the posterior; K_x whole in memory for some rows at a time."""
        factor = self._factor("`return_std`")
        if self._precomputed:
            kernel = self._cross_kernel(X)
            return posterior(kernel, self._columns(), factor, checked_diagonal(diagonal, kernel.shape[0]))
        if diagonal is not None:
            raise ValueError("`diagonal` is for a precomputed kernel; this machine computes k(x, x) itself.")
        rows, budget = self._test_rows(X), checked_budget(self.memory)
        self._check_model()
        assert self.choice_ is not None
        step = max(1, min(len(rows), budget // (32 * len(self.dual_coef_))))
        results = []
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            prior = kernel_diagonal(self.choice_, part, budget)
            results.append(posterior(self._computed_cross_kernel(part), self._columns(), factor, prior))
        return np.concatenate([outputs for outputs, _ in results]), np.concatenate([std for _, std in results])

    def leave_one_out(self) -> LeaveOneOut:
        r"""Predictions of each training example by the machine that is trained on all others, in closed form.

        .. math:: \hat y_{-i} = y_i - \alpha_i / [(K + \lambda I)^{-1}]_{ii}

        Cost: n^3 for the diagonal of the inverse, in little memory; no machine is fitted again.
        Raises: ValueError if the machine was fitted by conjugate gradients, which have no inverse.
        """
        factor = self._factor("`leave_one_out`")
        solved = factor.solve(np.column_stack([self.targets_, np.ones(len(self.targets_))]))
        inverse = Inverse(solved[:, :-1], solved[:, -1], factor.inverse_diagonal())
        left_out = left_out_predictions(inverse, self.targets_, centered=self._is_centered())
        return LeaveOneOut(
            self._shaped(left_out), float(np.square(left_out - self.targets_).mean()), self._error_rate(left_out)
        )

    def ridge_path(self, ridges: Any, X: Any = None) -> RidgePath:
        """What fitting with each of many ridges would give, from one eigendecomposition of the training kernel.

        With ``X`` the predictions (scores, for classes) of these rows for each ridge too, from one pass over their
        kernel. The machine itself stays as it is: `set_params(ridge=path.best_ridge)` and fit again to use one.

        Cost: about 9 n^3 once, then n^2 for each ridge and column; memory of three matrices of n x n.
        Raises: ValueError for ridges that are not numbers from 0, or too small for a singular kernel (the smallest that
        works is named), or a machine fitted by conjugate gradients; MemoryError beyond the budget.
        """
        factor = self._factor("`ridge_path`")
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

    def _factor(self, what: str) -> Factor:
        check_is_fitted(self)
        if self.factor_ is None:
            raise ValueError(
                f"{what} needs the Cholesky factor of the training kernel. This machine has none: it was fitted by "
                "conjugate gradients (fit it with solver='cholesky', on fewer examples or with more `memory`), or "
                "loaded from a file without it (save it with `with_factor=True`)."
            )
        return self.factor_

    def _error_rate(self, scores: Float64[np.ndarray, "n k"]) -> float | None:
        return error_rate(scores, self.targets_) if self._has_classes() else None

    @abstractmethod
    def _shaped(self, outputs: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, "m *columns"]:
        """Outputs as the user sees them: one column as a vector, where the labels were one."""

    @abstractmethod
    def _offset(self) -> Float64[np.ndarray, " k"]:
        """What is added to K_x a."""

    @abstractmethod
    def _is_centered(self) -> bool:
        """Whether the offset is the mean of the targets."""

    @abstractmethod
    def _has_classes(self) -> bool:
        """Whether targets are classes, of which the largest score is chosen."""
