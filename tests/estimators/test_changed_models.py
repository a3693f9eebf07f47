"""A model that computes something else than at the fit with the same weights is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from estimators.random_data import exponential, rows
from neuralpath.estimators.checks import check_probe
from neuralpath.estimators.classifier import KernelClassifier
from neuralpath.estimators.regressor import KernelRegressor
from neuralpath.kernels import PathKernel, TangentKernel

X, X_TEST = rows(20), rows(6, seed=1)
Y = rows(20, 2, seed=2)
CHANGED = "model has changed since the fit: with the same weights"


class Scaled(nn.Module):
    """Has a number that is no parameter and no buffer."""

    def __init__(self, gain=1.0, dtype=torch.float64):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first, self.last = nn.Linear(5, 16, dtype=dtype), nn.Linear(16, 1, dtype=dtype)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=dtype)
        self.gain = gain

    def forward(self, x):
        return self.last(torch.relu(self.gain * self.first(x)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_an_attribute_that_changes_a_tangent_kernel(dtype, solver):
    model = Scaled(dtype=dtype)
    estimator = KernelRegressor(TangentKernel(model), 0.1, solver=solver).fit(X, Y)
    predicted = estimator.predict(X_TEST)
    model.gain = 1.01
    with pytest.raises(ValueError, match=CHANGED):
        estimator.predict(X_TEST)
    if solver == "cholesky":
        with pytest.raises(ValueError, match=CHANGED):
            estimator.predict(X_TEST, return_std=True)
        with pytest.raises(ValueError, match=CHANGED):
            estimator.ridge_path([1.0], X_TEST)
    model.gain = 1.0
    np.testing.assert_array_equal(estimator.predict(X_TEST), predicted)
    model.gain = 2.0
    fresh = KernelRegressor(TangentKernel(Scaled(2.0, dtype)), 0.1, solver=solver).fit(X, Y)
    np.testing.assert_allclose(estimator.fit(X, Y).predict(X_TEST), fresh.predict(X_TEST), rtol=1e-5)


def test_a_classifier_notices_too():
    model = Scaled()
    estimator = KernelClassifier(TangentKernel(model)).fit(X, np.arange(20) % 3)
    model.gain = 3.0
    for use in (estimator.predict, estimator.decision_function):
        with pytest.raises(ValueError, match=CHANGED):
            use(X_TEST)


def test_kernels_of_a_graph_are_those_of_the_fit():
    model = Scaled()
    estimator = KernelRegressor(PathKernel(model)).fit(X, Y)
    predicted = estimator.predict(X_TEST)
    model.gain = 3.0
    np.testing.assert_array_equal(estimator.predict(X_TEST), predicted)


def test_only_the_tangent_kernel_needs_a_probe():
    assert KernelRegressor(PathKernel(Scaled())).fit(X, Y).probe_ is None
    assert KernelRegressor(exponential).fit(X, Y).probe_ is None
    assert KernelRegressor("precomputed").fit(exponential(X, X), Y).probe_ is None
    assert KernelRegressor(TangentKernel(Scaled())).fit(X, Y).probe_.shape == (3, 3)


@pytest.mark.parametrize(
    ("was", "now", "good"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-12], True),
        ([1.0, 2.0], [1.0, 2.0 + 1e-6], False),
        ([0.0, 0.0], [0.0, 0.0], True),
        ([0.0, 0.0], [0.0, 1e-300], False),
        ([1.0, 0.0], [np.nan, 0.0], False),
    ],
)
def test_what_counts_as_another_value(was, now, good):
    if good:
        check_probe(np.array(was), np.array(now))
        return
    with pytest.raises(ValueError, match=CHANGED):
        check_probe(np.array(was), np.array(now))
    check_probe(np.array([1.0, 2.0], dtype=np.float32), np.array([1.0, 2.0 + 1e-6], dtype=np.float32))
