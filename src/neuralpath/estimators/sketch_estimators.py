"""Linear machines on random-sign features of the paths, in one pass over data of any number."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float64
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_array, column_or_1d

from neuralpath.estimators.inputs import checked_labels, checked_rows
from neuralpath.estimators.sketch_base import SketchMachine
from neuralpath.estimators.targets import class_numbers, decisions


class SketchRegressor(RegressorMixin, MultiOutputMixin, SketchMachine):
    r"""Ridge regression on ``path_sketch`` features: the path kernel's regression for millions of examples.

    .. math:: f(x) = w^\top s(x) + b, \qquad w = (S + \lambda I)^{-1} R

    Symbols: :math:`s(x)` are the ``n_features`` features of x, whose inner products estimate the path kernel of
    ``model``; S and R their products with themselves and with the targets, centered by the means and summed over one
    pass of the data. :math:`\lambda` is ``ridge``, on the same scale as in ``KernelRegressor``: without an intercept
    this is that machine with the sketched kernel. An intercept is not penalized. The estimate's error is that of the
    sketch (see ``path_sketch``), so take ``n_features`` as large as time allows.

    ``model``: a module or its ``PathGraph``; with None the rows of X are the features. Rows are
    flattened inputs, reshaped to ``input_shape`` (a graph knows its own). ``normalize`` is that of ``path_sketch``;
    ``random_state`` the seed of its signs; ``batch_size`` the rows that are sketched at a time.

    ``partial_fit`` adds a batch and solves; ``fit_batches`` takes any iterable of batches and solves at its end.
    Attributes: ``coef_`` (a column for each output), ``intercept_``, ``moments_``; with a model also ``probe_rows_``,
    two of the first rows, and ``probe_``, some of their features: ``load`` refuses a model that gives other ones.
    Cost: ``n_features`` forward passes and ``n_features``^2 for each example, then ``n_features``^3 / 3 for each solve;
    memory 16 ``n_features``^2 bytes (24 in ``partial_fit``) and a batch of features, whatever the number of examples.
    Raises: ValueError as ``path_sketch``, or where the products are singular with this ridge (the smallest that works
    is named).

    >>> import numpy as np
    >>> X = np.arange(6.0)[:, None]
    >>> machine = SketchRegressor(ridge=1e-9).fit_batches((X[i : i + 2], 3 * X[i : i + 2, 0] + 1) for i in (0, 2, 4))
    >>> machine.predict([[10.0]]).round(6)
    array([31.])
    """

    def fit(self, X: Any, y: Any) -> "SketchRegressor":
        """Fit to targets of one column or several, in batches of ``batch_size``."""
        self._learn([(X, y)])
        return self

    def partial_fit(self, X: Any, y: Any) -> "SketchRegressor":
        """Add a batch to those before, and solve; where that fails, the machine is as it was without the batch."""
        with self._or_as_before():
            self._learn_more(X, y)
        return self

    def fit_batches(self, batches: Iterable[tuple[Any, Any]]) -> "SketchRegressor":
        """Fit to examples and targets that come in batches, in one pass; what was learnt before is forgotten."""
        self._learn(batches)
        return self

    def predict(self, X: Any) -> Float64[np.ndarray, "n *columns"]:
        """Values at the rows of X."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self.n_columns_ is None else outputs

    def _targets_of(self, labels: np.ndarray) -> Float64[np.ndarray, "n k"]:
        targets = check_array(labels, ensure_2d=False, dtype=np.float64, input_name="y")
        self.n_columns_ = None if targets.ndim == 1 else targets.shape[1]
        return targets.reshape(len(targets), -1)


class SketchClassifier(ClassifierMixin, SketchMachine):
    """Classification by ridge regression on the classes with ``path_sketch`` features, in one pass over the data.

    Targets are one-hot columns, centered with the intercept as ``targets="centered"`` of ``KernelClassifier``; the
    class of the largest score is predicted. Scores sum to 1 with an intercept, but are no probabilities (see there), so
    there is no ``predict_proba``. Parameters, attributes and cost as for ``SketchRegressor``; ``classes_`` are the
    classes.

    >>> import numpy as np
    >>> X, y = np.array([[0.0], [1.0], [8.0], [9.0]]), np.array([3, 3, 5, 5])
    >>> machine = SketchClassifier().partial_fit(X[:2], y[:2], classes=[3, 5]).partial_fit(X[2:], y[2:])
    >>> machine.predict([[2.0], [7.0]])
    array([3, 5])
    """

    def fit(self, X: Any, y: Any) -> "SketchClassifier":
        """Fit to classes, in batches of ``batch_size``. Raises: ValueError for labels of one class only."""
        rows = checked_rows(self, X, reset=True)
        labels = checked_labels(self, y, len(rows))
        self.classes_, _ = class_numbers(column_or_1d(labels, warn=True))
        self._learn([(X, labels)])
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> "SketchClassifier":
        """Add a batch to those before, and solve; the first call needs all ``classes`` that will come.

        Where that fails, the machine is as it was without the batch.
        """
        with self._or_as_before():
            self._set_classes(classes, afresh=not hasattr(self, "moments_"))
            self._learn_more(X, y)
        return self

    def fit_batches(self, batches: Iterable[tuple[Any, Any]], classes: Any) -> "SketchClassifier":
        """Fit to examples and classes that come in batches, in one pass; what was learnt before is forgotten."""
        self._set_classes(classes, afresh=True)
        self._learn(batches)
        return self

    def decision_function(self, X: Any) -> Float64[np.ndarray, "n *classes"]:
        """Scores of the classes; for two classes, by how much the second is ahead of the first."""
        return decisions(self._outputs(X))

    def predict(self, X: Any) -> np.ndarray:
        """The class of the largest score."""
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(1)]

    def _set_classes(self, classes: Any, *, afresh: bool) -> None:
        if classes is None:
            if afresh:
                raise ValueError("`classes` must name all classes at the first call: later batches may bring others.")
            return
        given, _ = class_numbers(np.asarray(classes))
        if not afresh and not np.array_equal(given, self.classes_):
            raise ValueError(f"`classes` must be those of the first call, {self.classes_.tolist()}.")
        self.classes_ = given

    def _targets_of(self, labels: np.ndarray) -> Float64[np.ndarray, "n k"]:
        labels = column_or_1d(labels, warn=True)
        numbers = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
        unknown = self.classes_[numbers] != labels
        if unknown.any():
            raise ValueError(f"`y` has the label {labels[unknown][:1].tolist()[0]!r}, which is not among the classes.")
        return np.eye(len(self.classes_))[numbers]
