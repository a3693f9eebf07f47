"""Kernel regression against scikit-learn, our own dynamics, neural-tangents and the formulas written out."""

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge

import neuralpath as npath
from estimators.random_data import F64, exponential, graph, kernels, network, rows
from kernels.limit.networks import torch_network
from neuralpath import nets
from neuralpath.estimators.classifier import KernelClassifier
from neuralpath.estimators.regressor import KernelRegressor
from neuralpath.estimators.sketch import SketchRegressor
from neuralpath.kernels.dynamics import KernelDynamics
from reference.cases import CASES

REGRESSION = Path(__file__).parents[1] / "reference" / "regression.npz"


@pytest.mark.parametrize("columns", [None, 1, 3])
@pytest.mark.parametrize("ridge", [1e-3, 1.0, 50.0])
def test_predictions_equal_those_of_scikit_learn(ridge, columns):
    kernel, cross, _ = kernels(60, 17, rank=30)
    y = rows(60, columns or 1, seed=1)
    y = y[:, 0] if columns is None else y
    estimator = KernelRegressor("precomputed", ridge).fit(kernel, y)
    peer = KernelRidge(alpha=ridge, kernel="precomputed").fit(kernel, y)
    assert estimator.predict(cross).shape == peer.predict(cross).shape
    np.testing.assert_allclose(estimator.predict(cross), peer.predict(cross), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(estimator.dual_coef_, peer.dual_coef_, rtol=1e-8, atol=1e-10)


KERNELS = {
    "linear": lambda network: npath.LinearKernel(),
    "path": npath.PathKernel,
    "expected tangent": npath.ExpectedTangentKernel,
    "tangent": npath.TangentKernel,
    "limit": npath.LimitKernel,
    "limit path": lambda network: npath.LimitKernel(network, kind="path"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_equals_scikit_learn_on_its_matrix(name):
    x, x_test, y = rows(14), rows(6, seed=1), rows(14, 1, seed=2)[:, 0]
    kernel = KERNELS[name](graph())
    train, test = torch.from_numpy(x), torch.from_numpy(x_test)
    peer = KernelRidge(alpha=0.7, kernel="precomputed").fit(kernel(train).numpy(), y)
    estimator = KernelRegressor(kernel, 0.7).fit(x, y)
    np.testing.assert_allclose(
        estimator.predict(x_test), peer.predict(kernel(test, train).numpy()), rtol=1e-8, atol=1e-10
    )
    of_module = KernelRegressor(KERNELS[name](network()), 0.7).fit(x, y)
    np.testing.assert_array_equal(of_module.predict(x_test), estimator.predict(x_test))


def test_rows_are_flattened_images_and_images_may_be_given_too():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 16, 1)
    )
    images = torch.randn(9, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    y = rows(9, 1)[:, 0]
    graph = npath.trace(model, images[:1])
    expected = npath.path_kernel(graph, images).double().numpy()
    peer = KernelRidge(alpha=2.0, kernel="precomputed").fit(expected, y).predict(expected)
    flat = images.flatten(1).numpy()
    for estimator, x in (
        (KernelRegressor(npath.PathKernel(model), 2.0, input_shape=(2, 4, 4)), flat),
        (KernelRegressor(npath.PathKernel(graph), 2.0), flat.astype(np.float64)),  # computed in the model's float32
        (KernelRegressor(npath.PathKernel(graph), 2.0), images),
    ):
        np.testing.assert_allclose(estimator.fit(x, torch.from_numpy(y)).predict(x), peer, rtol=1e-6)


def test_a_function_is_a_kernel():
    x, x_test, y = rows(30), rows(8, seed=1), rows(30, 2, seed=2)
    peer = KernelRidge(alpha=0.1, kernel="precomputed").fit(exponential(x, x), y).predict(exponential(x_test, x))
    estimator = KernelRegressor(exponential, 0.1).fit(x, y)
    np.testing.assert_allclose(estimator.predict(x_test), peer, rtol=1e-8, atol=1e-10)
    on_tensors = KernelRegressor(lambda a, b: torch.from_numpy(exponential(a, b)), 0.1).fit(x, y)
    np.testing.assert_array_equal(on_tensors.predict(x_test), estimator.predict(x_test))


def test_ridge_zero_is_the_end_of_training_with_this_kernel():
    kernel, cross, _ = kernels(30, 9)
    y = rows(30, 2, seed=1)
    dynamics = KernelDynamics(torch.from_numpy(kernel))
    end = dynamics.test(torch.from_numpy(cross), torch.from_numpy(y), math.inf)
    estimator = KernelRegressor("precomputed", 0.0).fit(kernel, y)
    np.testing.assert_allclose(estimator.predict(cross), end.numpy(), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(estimator.predict(kernel), y, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["dense_relu_3", "dense_leaky_5", "images8_zero_pooled"])
def test_infinite_width_equals_gradient_descent_of_neural_tangents(name):
    with np.load(REGRESSION, allow_pickle=False) as stored:
        values = {key.removeprefix(f"{name}/"): stored[key].astype(np.float64) for key in stored.files if name in key}
        ridge = float(stored["ridge"])
    y = values["targets"]
    train, test = np.split(values["inputs"], [len(y)])
    case = next(case for case in CASES if case.name == name)
    model = torch_network(case.layers, train.shape[1], train.shape[-1] if train.ndim == 4 else 1).double()
    graph = npath.trace(model, torch.from_numpy(train[:1]))
    for key, chosen in (("outputs", 0.0), ("ridged", ridge)):
        estimator = KernelRegressor(npath.LimitKernel(graph), chosen).fit(train, y)
        np.testing.assert_allclose(estimator.predict(test), values[key], rtol=1e-9, atol=1e-10)
    dynamics = KernelDynamics(npath.limit_tangent_kernel(graph, torch.from_numpy(train)))
    cross = npath.limit_tangent_kernel(graph, torch.from_numpy(test), torch.from_numpy(train))
    np.testing.assert_allclose(dynamics.test(cross, torch.from_numpy(y), math.inf), values["outputs"], rtol=1e-9)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_standard_deviations_equal_the_formula(ridge):
    kernel, cross, diagonal = kernels(25, 8)
    y = rows(25, 1)[:, 0]
    variance = diagonal - np.einsum("ij,jk,ik->i", cross, np.linalg.inv(kernel + ridge * np.eye(25)), cross)
    estimator = KernelRegressor("precomputed", ridge).fit(kernel, y)
    mean, std = estimator.predict(cross, return_std=True, diagonal=diagonal)
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=1e-6)
    np.testing.assert_allclose(mean, estimator.predict(cross), rtol=1e-12)


@pytest.mark.parametrize("kernel", [exponential, npath.PathKernel])
def test_standard_deviations_of_a_computed_kernel_need_no_diagonal(kernel):
    x, x_test, y = rows(40), rows(37, seed=1), rows(40, 1, seed=2)[:, 0]
    both = np.concatenate([x, x_test])
    if kernel is exponential:
        full = exponential(both, both)
    else:
        kernel = kernel(graph())
        full = kernel(torch.from_numpy(both)).numpy()
    estimator = KernelRegressor(kernel, 0.2).fit(x, y)
    cross, inverse = full[40:, :40], np.linalg.inv(full[:40, :40] + 0.2 * np.eye(40))
    variance = np.diagonal(full)[40:] - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    mean, std = estimator.predict(x_test, return_std=True)
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=1e-7)
    # In pieces, where memory is short, the same.
    estimator.set_params(memory=32 * 40 * 5 if kernel is exponential else 2**22)
    again, std_again = estimator.predict(x_test, return_std=True)
    np.testing.assert_allclose(std_again, std, rtol=1e-10)
    np.testing.assert_allclose(again, mean, rtol=1e-10)


def test_without_noise_the_training_points_are_certain():
    kernel, _, _ = kernels(10, 1)
    estimator = KernelRegressor("precomputed", 1e-10).fit(kernel, rows(10, 1)[:, 0])
    _, std = estimator.predict(kernel, return_std=True, diagonal=np.diagonal(kernel))
    np.testing.assert_allclose(std, 0, atol=1e-4)


def test_a_model_that_continues_to_train_is_noticed():
    x, y = rows(12), rows(12, 1, seed=1)[:, 0]
    model = copy.deepcopy(network())
    traced = npath.trace(model, torch.from_numpy(x[:1]))
    estimators = [
        KernelRegressor(npath.TangentKernel(model)).fit(x, y),
        KernelRegressor(npath.PathKernel(traced)).fit(x, y),
        SketchRegressor(traced, 16).fit(x, y),
    ]
    limit = KernelRegressor(npath.LimitKernel(traced)).fit(x, y)
    before = limit.predict(x)
    with torch.no_grad():
        next(model.parameters()).add_(0.01)
    for estimator in estimators:
        with pytest.raises(ValueError, match=r"the model has changed since the fit.*weights \(.*weight\).*Fit again"):
            estimator.predict(x)
    with pytest.raises(ValueError, match="the model has changed"):
        estimators[-1].partial_fit(x, y)
    np.testing.assert_array_equal(limit.predict(x), before)


def test_kernels_of_a_graph_are_those_of_the_fit():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.gain = copy.deepcopy(network()), 1.0

        def forward(self, x):
            return self.inner(self.gain * x)

    x, y, model = rows(12), rows(12, 1, seed=1)[:, 0], Scaled()
    estimator = KernelRegressor(npath.PathKernel(model)).fit(x, y)
    before = estimator.predict(x)
    model.gain = 3.0
    np.testing.assert_array_equal(estimator.predict(x), before)


def test_an_estimator_does_not_change_with_the_array_it_was_fitted_on():
    x, y = rows(12), rows(12, 1, seed=1)[:, 0]
    estimator = KernelRegressor().fit(x, y)
    before = estimator.predict(rows(3, seed=2))
    x[:] = 0
    np.testing.assert_array_equal(estimator.predict(rows(3, seed=2)), before)


def test_tensors_go_in_and_arrays_come_out():
    x, y = torch.randn(8, 3, dtype=F64, requires_grad=True), torch.randn(8, dtype=F64)
    estimator = KernelRegressor(ridge=0.5).fit(x, y)
    predicted = estimator.predict(x)
    assert isinstance(predicted, np.ndarray)
    assert predicted.dtype == np.float64
    np.testing.assert_array_equal(estimator.fit(x.detach().numpy(), y.numpy()).predict(x.detach().numpy()), predicted)


@pytest.mark.parametrize(
    "make",
    [
        lambda model: KernelRegressor(npath.PathKernel(model), 0.1),
        lambda model: KernelRegressor(npath.TangentKernel(model), 0.1),
        lambda model: KernelClassifier(npath.PathKernel(model), 0.1),
        lambda model: SketchRegressor(model, n_features=16),
    ],
)
def test_examples_in_the_shape_of_a_module_need_no_input_shape(make):
    model = nets.GCONV((1, 4, 4), channels=(3,), hidden=()).double()
    images, labels = rows(8, 16).reshape(8, 1, 4, 4), np.arange(8) % 2
    estimator = make(model).fit(images, labels)
    expected = estimator.predict(images)
    assert np.array_equal(estimator.predict(images.reshape(8, 16)), expected)  # rows of the same numbers
    with_shape = make(model).set_params(input_shape=(1, 4, 4)).fit(images.reshape(8, 16), labels)
    assert np.array_equal(with_shape.predict(images), expected)
    with pytest.raises(ValueError, match="could not run on"):  # the shape of an earlier fit is forgotten
        estimator.fit(images.reshape(8, 16), labels)
