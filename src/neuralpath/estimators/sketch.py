"""Linear estimators on random features of the paths (``path_sketch``), in one pass over any amount of data."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d
from torch import nn

from neuralpath._checks import check_integer, check_number
from neuralpath.estimators import checks
from neuralpath.estimators.cholesky import SingularKernel
from neuralpath.estimators.classifier import class_numbers, decisions
from neuralpath.estimators.evaluation import model_inputs
from neuralpath.estimators.moments import Moments, empty_moments
from neuralpath.graph import PathGraph, trace
from neuralpath.paths import path_sketch


class SketchEstimator(BaseEstimator):
    """The common part of `SketchRegressor` and `SketchClassifier`, which define the targets."""

    graph_: PathGraph | None  # None without a model
    weights_: dict[str, str]

    def __init__(
        self,
        model: nn.Module | PathGraph | None = None,
        n_features: int = 1024,
        ridge: float = 1.0,
        *,
        fit_intercept: bool = True,
        input_shape: Sequence[int] | None = None,
        normalize: bool = False,
        batch_size: int = 8192,
        random_state: int = 0,
    ) -> None:
        self.model = model
        self.n_features = n_features
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.input_shape = input_shape
        self.normalize = normalize
        self.batch_size = batch_size
        self.random_state = random_state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def _features(self, rows: Float[np.ndarray, "n d"]) -> Float64[np.ndarray, "n m"]:
        """The sketch of the rows; the rows themselves without a model."""
        if self.graph_ is None:
            return rows.astype(np.float64)
        generator = torch.Generator().manual_seed(checks.checked_seed(self.random_state))
        inputs = model_inputs(rows, self.graph_, checks.shape_of_inputs(self))
        features = path_sketch(self.graph_, inputs, self.n_features, generator=generator, normalize=self.normalize)
        return features.cpu().numpy().astype(np.float64)

    def _parts(self, rows: Float[np.ndarray, "n d"]) -> Iterator[slice]:
        size = check_integer("batch_size", self.batch_size)
        return (slice(start, start + size) for start in range(0, len(rows), size))

    def _with_batch(self, moments: Moments | None, X: Any, y: Any) -> Moments:
        """The moments with another batch, whose arrays are changed; the first batch determines the graph."""
        check_number("ridge", self.ridge, or_zero=True)
        first = moments is None
        rows = checks.checked_rows(self, X, reset=first)
        labels = checks.checked_labels(self, y, len(rows))
        if first:
            graph = self.model
            if isinstance(graph, nn.Module):  # a graph follows its model's weights
                graph = trace(graph, model_inputs(rows[:1], graph, checks.shape_of_inputs(self)))
            self.graph_, self.weights_ = graph, checks.model_weights(graph)
        checks.check_unchanged(self.weights_, checks.model_weights(self.graph_))
        targets = self._targets_of(labels)
        for part in self._parts(rows):
            features = self._features(rows[part])
            if moments is None:
                moments = empty_moments(features.shape[1], targets.shape[1])
            if moments.cross.shape != (features.shape[1], targets.shape[1]):
                earlier = f"{moments.cross.shape[0]} features and {moments.cross.shape[1]} columns of targets"
                raise ValueError(f"earlier batches had {earlier}, this one {features.shape[1]} and {targets.shape[1]}.")
            moments = moments.add(features, targets[part])
        assert moments is not None
        return moments

    def _learn(self, batches: Iterable[tuple[Any, Any]], moments: Moments | None = None) -> Any:
        """Add batches of rows and labels to the moments of earlier ones, and solve; None forgets everything before."""
        if moments is None:
            for name in ("moments_", "coef_", "intercept_"):
                self.__dict__.pop(name, None)
        for X, y in batches:
            moments = self._with_batch(moments, X, y)
        if moments is None:
            raise ValueError("there are no batches to fit: give at least one pair of examples and labels.")
        self.coef_, self.intercept_ = moments.solve(float(self.ridge), intercept=self.fit_intercept)
        self.moments_ = moments
        return self

    @contextmanager
    def _copied_moments(self) -> Iterator[Moments | None]:
        """A copy of the moments of earlier batches, to add to in place; an error restores the estimator."""
        before = dict(self.__dict__)
        moments: Moments | None = before.get("moments_")
        try:
            yield None if moments is None else moments.copy()
        except BaseException as error:
            self.__dict__.clear()
            self.__dict__.update(before)
            if isinstance(error, SingularKernel):
                hint = "This batch does not count: give larger ones, or all of them to `fit_batches`."
                raise SingularKernel(f"{error} {hint}") from error
            raise

    def _outputs(self, X: Any) -> Float64[np.ndarray, "n k"]:
        check_is_fitted(self)
        rows = checks.checked_rows(self, X, reset=False)
        checks.check_unchanged(self.weights_, checks.model_weights(self.graph_))
        return np.concatenate([self._features(rows[part]) @ self.coef_ + self.intercept_ for part in self._parts(rows)])

    @abstractmethod
    def _targets_of(self, labels: np.ndarray) -> Float64[np.ndarray, "n k"]:
        """Labels as columns of numbers."""


class SketchRegressor(RegressorMixin, MultiOutputMixin, SketchEstimator):
    r"""Ridge regression on ``path_sketch`` features: regression with the path kernel for millions of examples.

    .. math:: f(x) = w^\top s(x) + b, \qquad w = (S + \lambda I)^{-1} R

    Symbols: :math:`s(x)` are the features of x, whose inner products estimate the path kernel of ``model``; S and R
    are their products with themselves and with the targets, centered by the means and summed over one pass of the
    data; :math:`\lambda` is ``ridge``. Without an intercept this is ``KernelRegressor`` with the sketched kernel. The
    error of the estimate is that of the sketch (see ``path_sketch``), so take ``n_features`` as large as time allows.

    ``partial_fit`` adds a batch and solves; ``fit_batches`` takes any iterable of batches and solves at its end.
    Cost: ``n_features`` forward passes and ``n_features``^2 for each example, then ``n_features``^3 / 3 for each solve;
    memory 16 ``n_features``^2 bytes (24 in ``partial_fit``) and a batch of features, for any number of examples.

    Args:
        model: A module or its ``PathGraph``; with None the rows of X are the features.
        n_features: Number of random features.
        ridge: Penalty of the squared weights, on the same scale as in ``KernelRegressor``.
        fit_intercept: Whether to fit an intercept, which is not penalized.
        input_shape: Shape of one input, if rows of X are flattened and the model is a module.
        normalize: As for ``path_sketch``.
        batch_size: Number of rows that are sketched at a time.
        random_state: Seed of the sketch's random signs.

    Attributes:
        coef_: The weights, with a column for each output.
        intercept_: The intercepts, one for each output.
        moments_: Means and products of all batches so far.

    Raises:
        ValueError: As ``path_sketch``, or the products are singular with this ridge (the message has one that is
            large enough).

    Example:
        >>> import numpy as np
        >>> X = np.arange(6.0)[:, None]
        >>> batches = ((X[i : i + 2], 3 * X[i : i + 2, 0] + 1) for i in (0, 2, 4))
        >>> SketchRegressor(ridge=1e-9).fit_batches(batches).predict([[10.0]]).round(6)
        array([31.])
    """

    def fit(self, X: Any, y: Any) -> "SketchRegressor":
        """Fit to the rows of X, in batches of ``batch_size``; y may have several columns, one for each output."""
        return self._learn([(X, y)])

    def partial_fit(self, X: Any, y: Any) -> "SketchRegressor":
        """Add a batch, X and y as in ``fit``, to the earlier ones, and solve; if that fails, it has no effect."""
        with self._copied_moments() as moments:
            return self._learn([(X, y)], moments)

    def fit_batches(self, batches: Iterable[tuple[Any, Any]]) -> "SketchRegressor":
        """Fit in one pass over pairs of examples and targets; forgets everything learned before."""
        return self._learn(batches)

    def predict(self, X: Any) -> Float64[np.ndarray, "n *columns"]:
        """Values at the rows of X."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self.n_columns_ is None else outputs

    def _targets_of(self, labels: np.ndarray) -> Float64[np.ndarray, "n k"]:
        targets = check_array(labels, ensure_2d=False, dtype=np.float64, input_name="y")
        self.n_columns_ = None if targets.ndim == 1 else targets.shape[1]
        return targets.reshape(len(targets), -1)


class SketchClassifier(ClassifierMixin, SketchEstimator):
    """Classification by ridge regression on the classes with ``path_sketch`` features, in one pass over the data.

    Targets are one-hot columns, centered by the intercept like ``targets="centered"`` of ``KernelClassifier``; the
    class of the largest score is predicted. With an intercept scores sum to 1, but they are not probabilities (see
    ``KernelClassifier``), so there is no ``predict_proba``. Cost and errors are those of ``SketchRegressor``.

    Args:
        model, n_features, ridge, fit_intercept, input_shape: As in `SketchRegressor`.
        normalize, batch_size, random_state: As in `SketchRegressor`.

    Attributes:
        classes_: The classes in order; other attributes are those of ``SketchRegressor``.

    Example:
        >>> import numpy as np
        >>> X, y = np.array([[0.0], [1.0], [8.0], [9.0]]), np.array([3, 3, 5, 5])
        >>> classifier = SketchClassifier().partial_fit(X[:2], y[:2], classes=[3, 5]).partial_fit(X[2:], y[2:])
        >>> classifier.predict([[2.0], [7.0]])
        array([3, 5])
    """

    def fit(self, X: Any, y: Any) -> "SketchClassifier":
        """Fit to the rows of X, in batches of ``batch_size``; y has numbers or strings, at least two different ones."""
        rows = checks.checked_rows(self, X, reset=True)
        labels = checks.checked_labels(self, y, len(rows))
        self.classes_, _ = class_numbers(labels)
        return self._learn([(X, labels)])

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> "SketchClassifier":
        """Add a batch to the earlier ones, and solve; if that fails, it has no effect.

        The first call needs ``classes``, all classes of all batches; X and y are as in ``fit``.
        """
        with self._copied_moments() as moments:
            self._set_classes(classes, first=moments is None)
            return self._learn([(X, y)], moments)

    def fit_batches(self, batches: Iterable[tuple[Any, Any]], classes: Any) -> "SketchClassifier":
        """Fit in one pass over pairs of examples and classes; ``classes`` are all of them. Forgets earlier batches."""
        self._set_classes(classes, first=True)
        return self._learn(batches)

    def decision_function(self, X: Any) -> Float64[np.ndarray, "n *classes"]:
        """Scores of the classes for the rows of X; for two classes, the score of the second minus that of the first."""
        return decisions(self._outputs(X))

    def predict(self, X: Any) -> np.ndarray:
        """The class of the largest score for each row of X."""
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(1)]

    def _set_classes(self, classes: Any, *, first: bool) -> None:
        if classes is None:
            if first:
                raise ValueError("`classes` must name all classes in the first call: later batches may have others.")
            return
        in_order, _ = class_numbers(np.asarray(classes))
        if not first and not np.array_equal(in_order, self.classes_):
            raise ValueError(f"`classes` must be those of the first call, {self.classes_.tolist()}.")
        self.classes_ = in_order

    def _targets_of(self, labels: np.ndarray) -> Float64[np.ndarray, "n k"]:
        labels = column_or_1d(labels, warn=True)
        numbers = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
        unknown = self.classes_[numbers] != labels
        if unknown.any():
            raise ValueError(f"`y` has the label {labels[unknown][:1].tolist()[0]!r}, which is not among the classes.")
        return np.eye(len(self.classes_))[numbers]
