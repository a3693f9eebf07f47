"""A model that computes something else since the fit, though its weights are the same: noticed, and refused."""

import numpy as np
import pytest
import torch
from torch import nn

from estimators.random_data import exponential, rows
from neuralpath.estimators.classifier import KernelClassifier
from neuralpath.estimators.probe import check_probe
from neuralpath.estimators.regressor import KernelRegressor
from neuralpath.estimators.sketch_estimators import SketchClassifier, SketchRegressor

X, X_TEST = rows(20), rows(6, seed=1)
Y = rows(20, 2, seed=2)
CHANGED = r"is not as it was when the machine was fitted: with the same weights .* differ by .* Its code has changed"


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
    machine = KernelRegressor("tangent", 0.1, model=model, solver=solver).fit(X, Y)
    predicted = machine.predict(X_TEST)
    model.gain = 1.01
    with pytest.raises(ValueError, match=CHANGED):
        machine.predict(X_TEST)
    if solver == "cholesky":
        with pytest.raises(ValueError, match=CHANGED):
            machine.predict(X_TEST, return_std=True)
        with pytest.raises(ValueError, match=CHANGED):
            machine.ridge_path([1.0], X_TEST)
    model.gain = 1.0
    np.testing.assert_array_equal(machine.predict(X_TEST), predicted)
    model.gain = 2.0
    fresh = KernelRegressor("tangent", 0.1, model=Scaled(2.0, dtype), solver=solver).fit(X, Y)
    np.testing.assert_allclose(machine.fit(X, Y).predict(X_TEST), fresh.predict(X_TEST), rtol=1e-5)


def test_a_classifier_notices_too():
    model = Scaled()
    machine = KernelClassifier("tangent", model=model).fit(X, np.arange(20) % 3)
    model.gain = 3.0
    for use in (machine.predict, machine.decision_function):
        with pytest.raises(ValueError, match=CHANGED):
            use(X_TEST)


def test_kernels_of_a_graph_keep_what_the_model_was():
    model = Scaled()
    machine = KernelRegressor("path", model=model).fit(X, Y)
    predicted = machine.predict(X_TEST)
    model.gain = 3.0
    np.testing.assert_array_equal(machine.predict(X_TEST), predicted)


def _triple(x1, x2):
    return 3 * exponential(x1, x2)


@pytest.mark.parametrize(
    ("machine", "same", "other"),
    [
        (KernelRegressor("tangent", model=Scaled()), {"model": Scaled()}, {"model": Scaled(3.0)}),
        (KernelRegressor("path", model=Scaled()), {"model": Scaled()}, {"model": Scaled(3.0)}),
        (KernelRegressor("limit-tangent", model=Scaled()), {"model": Scaled()}, {"model": Scaled(3.0)}),
        (KernelRegressor(exponential), {"kernel": exponential}, {"kernel": _triple}),
        (SketchRegressor(Scaled(), 32), {"model": Scaled()}, {"model": Scaled(3.0)}),
    ],
)
def test_a_machine_is_loaded_with_the_model_of_its_fit_only(machine, same, other, tmp_path):
    machine.fit(X, Y).save(tmp_path / "machine")
    loaded = type(machine).load(tmp_path / "machine", **same)
    np.testing.assert_array_equal(loaded.predict(X_TEST), machine.predict(X_TEST))
    with pytest.raises(ValueError, match=CHANGED):
        type(machine).load(tmp_path / "machine", **other)


@pytest.mark.parametrize("machine", [KernelRegressor("path", model=Scaled()), SketchRegressor(Scaled(), 32)])
def test_files_without_a_probe_are_read_as_before(machine, tmp_path):
    machine.fit(X, Y)
    for name in ("probe_", "probe_rows_"):
        vars(machine).pop(name, None)
    machine.save(tmp_path / "machine")
    loaded = type(machine).load(tmp_path / "machine", model=Scaled())
    np.testing.assert_array_equal(loaded.predict(X_TEST), machine.predict(X_TEST))


def test_machines_without_a_model_have_no_probe():
    labels = np.arange(20) % 2
    for machine in (KernelRegressor(), KernelClassifier("precomputed"), SketchClassifier()):
        given = exponential(X, X) if getattr(machine, "kernel", "") == "precomputed" else X
        assert machine.fit(given, labels).probe_ is None


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
    check_probe(np.array([1.0, 2.0]), np.array([1.0, 2.0 + 1e-6]), dtype=np.float32)
