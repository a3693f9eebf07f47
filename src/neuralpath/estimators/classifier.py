"""Kernel classification by regression on the classes, in scikit-learn's conventions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import column_or_1d
from torch import nn

from neuralpath.estimators.base import KernelMachine
from neuralpath.estimators.evaluation import KernelFunction
from neuralpath.estimators.targets import class_numbers, class_targets, decisions
from neuralpath.graph import PathGraph


class KernelClassifier(ClassifierMixin, KernelMachine):
    r"""Classification by kernel ridge regression on the classes.

    ``targets``: with ``centered``, one-hot columns less the classes' shares in the training set, which are added to the
    scores again. So scores sum to 1, and far from all training examples, where the kernel vanishes, they are the
    shares. With ``arora``, 0.9 for the true class and -0.1 for the others, as in Arora et al. 2019: for ten classes
    one-hot less 1/10, and the scores are the outputs themselves. The class of the largest score is predicted.

    **Scores are no probabilities**, and there is no ``predict_proba``: minimizing the squared error makes a score an
    estimate of a class's probability only where the model is right and data are many; scores pass 0 and 1, and nothing
    here calibrates them. scikit-learn's ``CalibratedClassifierCV`` makes probabilities of them, with data set aside.

    Other parameters, attributes, cost and errors as for ``KernelRegressor``; ``classes_`` are the classes in order,
    ``offset_`` what is added to K_x a.

    >>> import numpy as np
    >>> X = np.array([[0.0, 1.0], [0.2, 1.0], [1.0, 0.1], [1.0, 0.0]])
    >>> machine = KernelClassifier(ridge=0.1).fit(X, ["cat", "cat", "dog", "dog"])
    >>> machine.predict([[0.1, 0.9], [2.0, 0.3]])
    array(['cat', 'dog'], dtype='<U3')
    """

    def __init__(
        self,
        kernel: str | KernelFunction = "linear",
        ridge: float = 1.0,
        *,
        targets: str = "centered",
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
        super().__init__(
            kernel, ridge, model=model, input_shape=input_shape, normalize=normalize, solver=solver, tol=tol,
            max_iter=max_iter, rank=rank, memory=memory, random_state=random_state,
        )  # fmt: skip
        self.targets = targets

    def fit(self, X: Any, y: Any) -> "KernelClassifier":
        """Fit to classes, which may be numbers or words. Cost and errors: see the class.

        Raises: ValueError for labels of one class only.
        """
        kernel, labels = self._training_data(X, y)
        self.classes_, numbers = class_numbers(column_or_1d(labels, warn=True))
        self.targets_, self.offset_ = class_targets(numbers, len(self.classes_), self.targets)
        self.dual_coef_ = self._fit_targets(kernel, self.targets_ - self.offset_)
        return self

    def decision_function(self, X: Any, return_std: bool = False, *, diagonal: Any = None) -> Any:
        """Scores of the classes; for two classes, by how much the second is ahead of the first.

        With ``return_std`` also the standard deviation of a score, as in ``KernelRegressor.predict``: the same for
        every class; for two classes it is that of each of the two scores, of which the difference is given.
        """
        if not return_std:
            return decisions(self._outputs(X) + self.offset_)
        outputs, std = self._outputs_and_std(X, diagonal)
        return decisions(outputs + self.offset_), std

    def predict(self, X: Any) -> np.ndarray:
        """The class of the largest score."""
        outputs = self._outputs(X)
        return self.classes_[(outputs + self.offset_).argmax(1)]

    def _shaped(self, outputs: Float64[np.ndarray, "m k"]) -> Float64[np.ndarray, "m k"]:
        return outputs

    def _offset(self) -> Float64[np.ndarray, " k"]:
        return self.offset_

    def _is_centered(self) -> bool:
        return bool(self.offset_.any())  # as it was fitted: `targets` may have been set anew since

    def _has_classes(self) -> bool:
        return True
