"""Kernel ridge regression in scikit-learn's conventions."""

from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_array

from neuralpath.estimators.base import KernelEstimator


class KernelRegressor(RegressorMixin, MultiOutputMixin, KernelEstimator):
    r"""Kernel ridge regression with any kernel of this library, a function, or a precomputed kernel.

    .. math:: f(x) = K_x \alpha, \qquad (K + \lambda I) \alpha = y

    Symbols: :math:`K` is the kernel of the training examples, :math:`K_x` the kernel between x and them,
    :math:`\lambda` is ``ridge``. Targets are not centered. With ``ridge=0``, f is the limit of gradient flow on the
    squared loss with this kernel, starting from 0 (``KernelDynamics`` at ``math.inf``).

    The estimator does not copy the kernel's network. A prediction is refused if its weights have changed since the fit.

    Cost: ``cholesky`` computes the kernel once, then n^3 / 3 and 8 n^2 bytes, which the estimator keeps for
    ``return_std``, ``leave_one_out`` and ``ridge_path``. ``cg`` needs a pass over the kernel for each iteration, and
    memory for a few tiles and for 3 * ``rank`` + 6 * columns vectors.

    Args:
        kernel: A ``Kernel`` such as ``PathKernel(model)``, a function of two arrays of rows that returns their matrix,
            or ``"precomputed"``: then X is the kernel itself, an array, a ``TiledKernel`` or a ``StoredKernel``, square
            in ``fit``, and in ``predict`` with a column for each training example. (Cross-validation splits arrays.)
        ridge: Added to the diagonal of K, on the kernel's own scale and not divided by n, like ``alpha`` of
            scikit-learn's ``KernelRidge`` and the noise variance of a Gaussian process.
        input_shape: Shape of one input, if rows of X are flattened and the kernel's network is a module (a graph knows
            its own shape). X may also have the shape of the network's inputs. Rows are converted to its dtype.
        solver: ``cholesky`` is exact, in float64, with the whole matrix in memory. ``cg`` runs preconditioned conjugate
            gradients on tiles, which are kept in memory if they fit ``memory`` and else computed or read again in each
            pass. ``auto`` takes ``cholesky`` if the matrix fits the budget.
        tol: ``cg`` stops when the relative residual of each column is below this.
        max_iter: Largest number of iterations of ``cg``; a ConvergenceWarning says that it was reached.
        rank: Rank of the Nyström preconditioner of ``cg``; None chooses it by the size of the kernel.
        memory: Memory budget in bytes; None takes half of the free memory.
        random_state: Seed of the preconditioner.

    Attributes:
        dual_coef_: The coefficients, one for each training example and output.
        report_: A ``SolveReport``.
        n_iter_: Passes over the kernel.
        X_fit_: The training rows.
        factor_: The Cholesky factor, or None.

    Raises:
        ValueError: The kernel is not square, symmetric and finite, or is singular with this ridge (the message has one
            that is large enough).
        MemoryError: The fit needs more than the budget.

    Example:
        >>> import numpy as np
        >>> X = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
        >>> regressor = KernelRegressor(ridge=1e-9).fit(X, [1.0, 3.0, 5.0])
        >>> regressor.predict([[3.0, 1.0]]).round(6)
        array([7.])
        >>> import neuralpath as npath
        >>> kernel = npath.PathKernel(npath.nets.FC(2, width=8, depth=3), normalize=True)
        >>> KernelRegressor(kernel, ridge=0.1).fit(X, [1.0, 3.0, 5.0]).predict(X).shape
        (3,)
    """

    def fit(self, X: Any, y: Any) -> "KernelRegressor":
        """Fit to training examples X, or their kernel if it is precomputed; y may have a column for each output."""
        kernel, labels = self._training_data(X, y)
        targets = check_array(labels, ensure_2d=False, dtype=np.float64, input_name="y")
        self.targets_ = targets.reshape(len(targets), -1)
        self.offset_ = np.zeros(self.targets_.shape[1])
        self.dual_coef_ = self._fit_targets(kernel, self.targets_).reshape(targets.shape)
        return self

    def predict(self, X: Any, return_std: bool = False, *, diagonal: Any = None) -> Any:
        r"""Values at the rows of X, and optionally the posterior standard deviation of the Gaussian process.

        .. math:: \sigma^2(x) = k(x, x) - K_x (K + \lambda I)^{-1} K_x^\top

        This is the variance of the function itself, with the kernel as its prior covariance and observations with
        noise of variance ``ridge``; a new observation has the variance :math:`\sigma^2(x) + \lambda`. It is in the
        units of the kernel, does not depend on y, and is the same for every output. It is meaningful only if the
        kernel's scale fits the targets, which nothing here adjusts.

        Cost: one pass over the kernel of X and the training examples; with ``return_std`` n^2 more for each row.

        Args:
            X: Examples, or their kernel with the training examples if the kernel is precomputed.
            return_std: Whether to return a pair, predictions and standard deviations.
            diagonal: k(x, x) of each row, needed with ``return_std`` and a precomputed kernel.
        """
        if not return_std:
            return self._shaped(self._outputs(X))
        outputs, std = self._outputs_and_std(X, diagonal)
        return self._shaped(outputs), std
