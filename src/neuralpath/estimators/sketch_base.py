"""What linear machines on sketched features share: the features, batches that are added up, and the solve."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from neuralpath.estimators.cholesky import SingularKernel
from neuralpath.estimators.evaluation import model_inputs
from neuralpath.estimators.inputs import (
    checked_count,
    checked_labels,
    checked_ridge,
    checked_rows,
    checked_seed,
    shape_of_inputs,
)
from neuralpath.estimators.moments import Moments, no_moments
from neuralpath.estimators.probe import check_probe
from neuralpath.estimators.saving import SavedMachine
from neuralpath.estimators.weights import check_weights, weights_of
from neuralpath.graph import PathGraph, trace
from neuralpath.paths import path_sketch

PROBED_FEATURES = 16
"""Features of a first few rows that a machine keeps, to know its model again when it is loaded."""


class SketchMachine(SavedMachine, BaseEstimator):
    """The common part of `SketchRegressor` and `SketchClassifier`, which say what the targets are."""

    # None without a model; files that were written before there were such have neither.
    probe_rows_: Float[np.ndarray, "probed d"] | None = None
    probe_: Float[np.ndarray, "probed features"] | None = None

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
        """The sketch of some rows; the rows themselves where there is no model."""
        if self.graph_ is None:
            return rows.astype(np.float64)
        return self._sketch(self.graph_, rows, self.n_features).astype(np.float64)

    def _sketch(
        self, graph: PathGraph, rows: Float[np.ndarray, "n d"], n_features: int
    ) -> Float[np.ndarray, "n features"]:
        generator = torch.Generator().manual_seed(checked_seed(self.random_state))
        inputs = model_inputs(rows, graph, shape_of_inputs(self))
        return path_sketch(graph, inputs, n_features, generator=generator, normalize=self.normalize).cpu().numpy()

    def _set_graph(self, row: Float[np.ndarray, "1 d"]) -> None:
        """Trace the model, once for all batches; a graph follows its model's weights."""
        graph = self.model
        if isinstance(graph, nn.Module):
            graph = trace(graph, model_inputs(row, graph, shape_of_inputs(self)))
        self.graph_: PathGraph | None = graph

    def _use_model(self) -> None:
        check_weights(self.weights_, weights_of(self.model))
        rows = self.probe_rows_
        self._set_graph(np.random.default_rng(0).normal(size=(1, self.n_features_in_)) if rows is None else rows[:1])
        if self.probe_ is not None:
            check_probe(self.probe_, self._probe())

    def _probe(self) -> Float[np.ndarray, "probed features"] | None:
        """A few features of a few rows, as they are computed now."""
        if self.graph_ is None or self.probe_rows_ is None:
            return None
        return self._sketch(self.graph_, self.probe_rows_, PROBED_FEATURES)

    def _parts(self, rows: Float[np.ndarray, "n d"]) -> Iterator[slice]:
        size = checked_count("batch_size", self.batch_size, least=1)
        return (slice(start, start + size) for start in range(0, len(rows), size))

    def _added(
        self, moments: Moments | None, rows: Float[np.ndarray, "n d"], targets: Float64[np.ndarray, "n k"]
    ) -> Moments:
        """The moments, whose arrays change, with some examples more; None are those of no example."""
        for part in self._parts(rows):
            features = self._features(rows[part])
            if moments is None:
                moments = no_moments(features.shape[1], targets.shape[1])
            if moments.cross.shape != (features.shape[1], targets.shape[1]):
                raise ValueError(
                    f"the batches before had {moments.cross.shape[0]} features and {moments.cross.shape[1]} columns of "
                    f"targets, this one has {features.shape[1]} and {targets.shape[1]}; `fit` begins anew."
                )
            moments = moments.add(features, targets[part])
        assert moments is not None
        return moments

    def _learn(self, batches: Iterable[tuple[Any, Any]]) -> None:
        """One pass over batches of rows and labels, then one solve; what was learnt before is forgotten."""
        for name in ("moments_", "coef_", "intercept_"):
            self.__dict__.pop(name, None)
        moments = None
        for X, y in batches:
            moments = self._with_batch(moments, X, y)
        if moments is None:
            raise ValueError("there are no batches to fit: give at least one pair of examples and labels.")
        self._solve(moments)

    def _learn_more(self, X: Any, y: Any) -> None:
        """Add a batch to those before, and solve."""
        moments: Moments | None = getattr(self, "moments_", None)
        try:
            self._solve(self._with_batch(None if moments is None else moments.copy(), X, y))
        except SingularKernel as error:
            raise SingularKernel(
                f"{error} This batch does not count: give larger ones, or all of them to `fit_batches`."
            ) from error

    @contextmanager
    def _or_as_before(self) -> Iterator[None]:
        """Leave the machine as it was where what is done to it fails: a batch that is refused counts for nothing."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _with_batch(self, moments: Moments | None, X: Any, y: Any) -> Moments:
        """The moments with a batch more; the first one decides on the graph."""
        checked_ridge(self.ridge)
        first = moments is None
        rows = checked_rows(self, X, reset=first)
        labels = checked_labels(self, y, len(rows))
        if first:
            self._set_graph(rows[:1])
            self.weights_ = weights_of(self.graph_)
            self.probe_rows_ = None if self.graph_ is None else rows[:2].copy()
            self.probe_ = self._probe()
        check_weights(self.weights_, weights_of(self.graph_))
        return self._added(moments, rows, self._targets_of(labels))

    def _solve(self, moments: Moments) -> None:
        self.coef_, self.intercept_ = moments.solve(checked_ridge(self.ridge), intercept=self.fit_intercept)
        self.moments_ = moments

    def _outputs(self, X: Any) -> Float64[np.ndarray, "n k"]:
        check_is_fitted(self)
        rows = checked_rows(self, X, reset=False)
        check_weights(self.weights_, weights_of(self.graph_))
        return np.concatenate([self._features(rows[part]) @ self.coef_ + self.intercept_ for part in self._parts(rows)])

    @abstractmethod
    def _targets_of(self, labels: np.ndarray) -> Float64[np.ndarray, "n k"]:
        """Labels as columns of numbers."""
