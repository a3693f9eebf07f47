"""Kernel regression in scikit-learn's conventions."""

from typing import Any

import numpy as np
from jaxtyping import Float64
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_array

from neuralpath.estimators.base import KernelMachine


class KernelRegressor(RegressorMixin, MultiOutputMixin, KernelMachine):
    r"""Kernel ridge regression with any kernel of this library, a function, or a kernel computed beforehand.

    .. math:: f(x) = K_x \alpha, \qquad (K + \lambda I) \alpha = y

    Symbols: :math:`K` is the kernel of the training examples, :math:`K_x` that between x and them, :math:`\lambda` is
    ``ridge``: added to the diagonal as it is, on the kernel's own scale and not divided by n (scikit-learn's
    ``KernelRidge(alpha)``, and a Gaussian process with noise variance ``ridge``). Targets are not centered.
    With a ridge of 0, f is what gradient flow on the squared loss with this kernel ends with, starting from 0
    (``KernelDynamics`` at ``math.inf``).

    ``kernel``: a name (``linear``, and with ``model`` ``path``, ``expected-tangent``, ``tangent``, ``limit-tangent``,
    ``limit-output``, ``limit-path``), a function of two arrays of rows that returns their matrix, or ``precomputed``: X
    is then the kernel itself, an array, a ``TiledKernel`` or a ``StoredKernel``, square in ``fit``, and in ``predict``
    with a column for each training example. (Cross-validation splits arrays only: load a stored one before it.)
    ``model``: a module or its ``PathGraph``. Rows of X are flattened inputs, reshaped to ``input_shape`` (a graph knows
    its own) and converted to the model's dtype, in which the kernel is computed. X may also have the model's shape.
    The machine does not copy the model; where its weights have changed since the fit, predicting is refused. So is a
    model whose code or plain attributes have changed, where a few entries of the training kernel show it: in each
    prediction with ``tangent``, and in ``load``; other kernels read the graph of the fit, which keeps them.
    ``normalize`` is that of ``path_kernel``.

    ``solver``: ``cholesky`` is exact, in float64, with the whole matrix in memory; ``cg`` runs preconditioned conjugate
    gradients on tiles, which are kept in memory where they fit ``memory`` and else computed or read again in each
    pass, until the relative residual of each column is below ``tol`` or ``max_iter`` is reached (then a
    ConvergenceWarning); ``auto`` takes ``cholesky`` where the matrix fits the budget. ``rank`` is that of the Nyström
    preconditioner, ``random_state`` its seed, ``memory`` a budget in bytes (default: half of what is free).

    Attributes: ``dual_coef_``; ``report_``, a ``SolveReport``; ``n_iter_``, passes over the kernel; ``X_fit_``, the
    training rows; ``factor_``, the Cholesky factor, or None.
    Cost: ``cholesky`` the kernel once, n^3 / 3 and 8 n^2 bytes, which the machine keeps for ``return_std``,
    ``leave_one_out`` and ``ridge_path``; ``cg`` a pass over the kernel for each iteration, and memory for a few tiles
    and for 3 * ``rank`` + 6 * columns vectors.
    Raises: ValueError for a kernel that is not square, symmetric and finite, or is singular with this ridge (the
    message names the smallest that works); MemoryError beyond the budget.

    >>> import numpy as np
    >>> X = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
    >>> machine = KernelRegressor(ridge=1e-9).fit(X, [1.0, 3.0, 5.0])
    >>> machine.predict([[3.0, 1.0]]).round(6)
    array([7.])
    """

    def fit(self, X: Any, y: Any) -> "KernelRegressor":
        """Fit to targets of one column or several. Cost and errors: see the class."""
        kernel, labels = self._training_data(X, y)
        targets = check_array(labels, ensure_2d=False, dtype=np.float64, input_name="y")
        if targets.ndim > 2:
            raise ValueError(f"`y` must be a vector or a matrix with a column for each output, got {targets.shape}.")
        self.n_columns_ = None if targets.ndim == 1 else targets.shape[1]
        self.targets_ = targets.reshape(len(targets), -1)
        self.dual_coef_ = self._shaped(self._fit_targets(kernel, self.targets_))
        return self

    def predict(self, X: Any, return_std: bool = False, *, diagonal: Any = None) -> Any:
        r"""Values at the rows of X; with ``return_std`` also the Gaussian process's standard deviation.

        .. math:: \sigma^2(x) = k(x, x) - K_x (K + \lambda I)^{-1} K_x^\top

        It is that of the function itself, with the kernel as its prior covariance and observations with noise of
        variance ``ridge``. The noise of a new observation is not in it: that has the variance
        :math:`\sigma^2(x) + \lambda`. It is in the units of the kernel, does not depend on y, and is the same for
        every output; it is honest only where the kernel's scale fits the targets, which nothing here adjusts.
        ``diagonal``: k(x, x) of each row, for a precomputed kernel.

        Cost: one pass over the kernel of X and the training examples; with ``return_std`` n^2 more for each row.
        """
        if not return_std:
            return self._shaped(self._outputs(X))
        outputs, std = self._outputs_and_std(X, diagonal)
        return self._shaped(outputs), std

    def _shaped(self, outputs: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, "m *columns"]:
        return outputs[:, 0] if self.n_columns_ is None else outputs

    def _offset(self) -> Float64[np.ndarray, " k"]:
        return np.zeros(self.targets_.shape[1])

    def _is_centered(self) -> bool:
        return False

    def _has_classes(self) -> bool:
        return False
