"""Kernel classification by ridge regression on the classes, in scikit-learn's conventions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64, Int
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from neuralpath.estimators.base import KernelEstimator
from neuralpath.estimators.evaluation import KernelFunction
from neuralpath.kernels import Kernel, LinearKernel

TargetsAndOffset = tuple[Float64[np.ndarray, "n k"], Float64[np.ndarray, " k"]]
TARGETS = ("centered", "arora")
TRUE_CLASS, OTHER_CLASS = 0.9, -0.1  # targets of Arora et al. 2019: for ten classes, one-hot minus 1/10


class KernelClassifier(ClassifierMixin, KernelEstimator):
    r"""Classification by kernel ridge regression on the classes; the class of the largest score is predicted.

    **Scores are not probabilities**, and there is no ``predict_proba``: minimizing the squared error makes a score an
    estimate of a class's probability only if the model is right and data are plenty; scores leave [0, 1], and nothing
    here calibrates them. scikit-learn's ``CalibratedClassifierCV`` turns them into probabilities, with held-out data.

    Cost and errors are those of ``KernelRegressor``.

    Args:
        kernel: A ``Kernel``, a function of two arrays, or ``"precomputed"``; see ``KernelRegressor``.
        ridge: Added to the diagonal of the kernel.
        targets: ``centered``: one-hot columns minus the frequencies of the classes in the training set, which are added
            to the scores again. Then scores sum to 1, and far from all training examples, where the kernel vanishes,
            they are the frequencies. ``arora``: 0.9 for the true class and -0.1 for the others, as in Arora et al.
            2019; the scores are the outputs themselves.
        input_shape, solver, tol, max_iter, rank, memory, random_state: As in `KernelRegressor`.

    Attributes:
        classes_: The classes in order.
        offset_: The offset that is added to K_x a.
        dual_coef_: The coefficients, one for each training example and class.
        report_: A ``SolveReport``; other attributes are those of ``KernelRegressor``.

    Example:
        >>> import numpy as np
        >>> X = np.array([[0.0, 1.0], [0.2, 1.0], [1.0, 0.1], [1.0, 0.0]])
        >>> classifier = KernelClassifier(ridge=0.1).fit(X, ["cat", "cat", "dog", "dog"])
        >>> classifier.predict([[0.1, 0.9], [2.0, 0.3]])
        array(['cat', 'dog'], dtype='<U3')
    """

    def __init__(
        self,
        kernel: Kernel | KernelFunction | str = LinearKernel(),  # noqa: B008 (a frozen value)
        ridge: float = 1.0,
        *,
        targets: str = "centered",
        input_shape: Sequence[int] | None = None,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 500,
        rank: int | None = None,
        memory: int | None = None,
        random_state: int = 0,
    ) -> None:
        iterations: Any = {"tol": tol, "max_iter": max_iter, "rank": rank, "random_state": random_state}
        super().__init__(kernel, ridge, input_shape=input_shape, solver=solver, memory=memory, **iterations)
        self.targets = targets

    def fit(self, X: Any, y: Any) -> "KernelClassifier":
        """Fit to training examples X, or their kernel if it is precomputed; y has at least two different classes."""
        kernel, labels = self._training_data(X, y)
        self.classes_, numbers = class_numbers(labels)
        self.targets_, self.offset_ = _class_targets(numbers, len(self.classes_), self.targets)
        self.dual_coef_ = self._fit_targets(kernel, self.targets_ - self.offset_)
        return self

    def decision_function(self, X: Any, return_std: bool = False, *, diagonal: Any = None) -> Any:
        """Scores of the classes; for two classes, the score of the second minus that of the first.

        Args:
            X: Examples, or their kernel with the training examples if the kernel is precomputed.
            return_std: Whether to return a pair, scores and standard deviations, as in ``KernelRegressor.predict``.
                The standard deviation is the same for every class; for two classes it is that of each of the two
                scores, not of their difference.
            diagonal: k(x, x) of each row, needed with ``return_std`` and a precomputed kernel.
        """
        if not return_std:
            return decisions(self._outputs(X))
        outputs, std = self._outputs_and_std(X, diagonal)
        return decisions(outputs), std

    def predict(self, X: Any) -> np.ndarray:
        """The class of the largest score for each row of X, as for ``decision_function``."""
        scores = self._outputs(X)  # first, since it refuses an estimator that is not fitted
        return self.classes_[scores.argmax(1)]


def class_numbers(y: Any) -> tuple[np.ndarray, Int[np.ndarray, " n"]]:
    """The classes in order, and the index of each example's class; there must be at least two classes."""
    labels = column_or_1d(y, warn=True)
    check_classification_targets(labels)
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"`y` has only one class, {classes.tolist()[0]!r}: a classifier needs at least two.")
    return classes, numbers


def decisions(scores: Float64[np.ndarray, "n k"]) -> Float64[np.ndarray, "n *k"]:
    """Scores as scikit-learn defines them: for two classes, the second minus the first."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


def _class_targets(numbers: Int[np.ndarray, " n"], n_classes: int, targets: str) -> TargetsAndOffset:
    """A column for each class, and the offset that is subtracted before fitting and added to the scores."""
    if targets not in TARGETS:
        raise ValueError(f"`targets` must be one of {', '.join(map(repr, TARGETS))}, got {targets!r}.")
    one_hot = np.eye(n_classes)[numbers]
    if targets == "centered":
        return one_hot, one_hot.mean(0)
    return np.where(one_hot > 0, TRUE_CLASS, OTHER_CLASS), np.zeros(n_classes)
