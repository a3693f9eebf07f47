"""Leave-one-out and regularization paths against machines that are really fitted again."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from estimators.random_data import exponential, kernels, rows
from neuralpath.estimators.classifier import KernelClassifier
from neuralpath.estimators.regressor import KernelRegressor


def _left_out_by_fitting(kernel, y, ridge):
    predictions = []
    for i in range(len(y)):
        others = np.delete(np.arange(len(y)), i)
        machine = KernelRegressor("precomputed", ridge).fit(kernel[np.ix_(others, others)], y[others])
        predictions.append(machine.predict(kernel[[i]][:, others])[0])
    return np.array(predictions)


@settings(max_examples=30)  # each fits as many machines as it has examples
@given(
    n=st.integers(2, 15), columns=st.sampled_from([None, 1, 2]), ridge=st.sampled_from([0.0, 0.1, 5.0]),
    seed=st.integers(0, 10**6),
)  # fmt: skip
def test_leave_one_out_equals_fitting_without_each_example(n, columns, ridge, seed):
    kernel, _, _ = kernels(n, 1, seed=seed)
    y = rows(n, columns or 1, seed=seed + 1)
    y = y[:, 0] if columns is None else y
    expected = _left_out_by_fitting(kernel, y, ridge)
    found = KernelRegressor("precomputed", ridge).fit(kernel, y).leave_one_out()
    scale = max(np.abs(expected).max(), np.abs(y).max()) * np.linalg.cond(kernel + ridge * np.eye(n))
    np.testing.assert_allclose(found.predictions, expected, rtol=0, atol=1e-13 * scale)
    assert found.squared_error == pytest.approx(np.mean((expected - y) ** 2), rel=1e-7)
    assert found.error_rate is None


@pytest.mark.parametrize("targets", ["centered", "arora"])
def test_leave_one_out_of_classes_equals_fitting_without_each_example(targets):
    x = rows(30)
    labels = np.array([0, 1, 2])[(x[:, 0] > 0).astype(int) + (x[:, 1] > 0.5)]
    machine = KernelClassifier(exponential, 0.2, targets=targets).fit(x, labels)
    scores = []
    for i in range(30):
        others = np.delete(np.arange(30), i)
        part = KernelClassifier(exponential, 0.2, targets=targets).fit(x[others], labels[others])
        scores.append(part.decision_function(x[[i]])[0])
    scores = np.array(scores)
    found = machine.leave_one_out()
    np.testing.assert_allclose(found.predictions, scores, rtol=1e-8, atol=1e-10)
    assert found.error_rate == np.mean(scores.argmax(1) != labels)
    assert 0 < found.error_rate < 0.7
    assert found.squared_error == pytest.approx(np.mean((scores - machine.targets_) ** 2))


def test_a_parameter_set_after_the_fit_changes_nothing():
    x = rows(30)
    machine = KernelClassifier(exponential, 0.2, targets="centered").fit(x, x[:, 0] > 0.3)
    before, path = machine.leave_one_out(), machine.ridge_path([0.1, 1.0])
    machine.set_params(targets="arora")
    np.testing.assert_array_equal(machine.leave_one_out().predictions, before.predictions)
    np.testing.assert_array_equal(machine.ridge_path([0.1, 1.0]).squared_errors, path.squared_errors)


RIDGES = [1e-4, 0.03, 1.0, 40.0]


@pytest.mark.parametrize("columns", [None, 2])
def test_a_path_equals_separate_fits(columns):
    x, x_test = rows(25), rows(6, seed=1)
    y = rows(25, columns or 1, seed=2)
    y = y[:, 0] if columns is None else y
    path = KernelRegressor(exponential, 7.0).fit(x, y).ridge_path(RIDGES, x_test)
    for number, ridge in enumerate(RIDGES):
        machine = KernelRegressor(exponential, ridge).fit(x, y)
        left_out = machine.leave_one_out()
        np.testing.assert_allclose(path.coefficients[number], machine.dual_coef_, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(path.predictions[number], machine.predict(x_test), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(path.leave_one_out[number], left_out.predictions, rtol=1e-8, atol=1e-10)
        assert path.squared_errors[number] == pytest.approx(left_out.squared_error, rel=1e-8)
    assert path.best_ridge == RIDGES[int(np.argmin(path.squared_errors))]
    assert path.error_rates is None


@pytest.mark.parametrize("targets", ["centered", "arora"])
def test_a_path_of_classes_equals_separate_fits(targets):
    x, x_test = rows(30), rows(6, seed=1)
    labels = np.array(["a", "b", "c"])[(x[:, 0] > 0).astype(int) + (x[:, 1] > 0.5)]
    path = KernelClassifier(exponential, targets=targets).fit(x, labels).ridge_path(RIDGES, x_test)
    for number, ridge in enumerate(RIDGES):
        machine = KernelClassifier(exponential, ridge, targets=targets).fit(x, labels)
        left_out = machine.leave_one_out()
        np.testing.assert_allclose(path.coefficients[number], machine.dual_coef_, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(path.predictions[number], machine.decision_function(x_test), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(path.leave_one_out[number], left_out.predictions, rtol=1e-8, atol=1e-10)
        assert path.error_rates[number] == left_out.error_rate


def test_a_path_leaves_the_machine_as_it_is():
    x, y = rows(12), rows(12, 1, seed=1)[:, 0]
    machine = KernelRegressor(exponential, 0.1).fit(x, y)
    before = machine.predict(x, return_std=True)
    assert machine.ridge_path([1.0]).predictions is None
    np.testing.assert_array_equal(machine.predict(x, return_std=True), before)


def test_a_path_with_too_small_a_ridge_names_the_smallest_that_works():
    kernel, _, _ = kernels(12, 1, rank=4)
    machine = KernelRegressor("precomputed", 1.0).fit(kernel, rows(12, 1)[:, 0])
    with pytest.raises(ValueError, match="The smallest ridge that works is") as caught:
        machine.ridge_path([1.0, 0.0])
    named = float(str(caught.value).split("that works is ")[1].rstrip("."))
    assert named < 1e-12
    assert np.isfinite(machine.ridge_path([1.0, 1.01 * named]).coefficients).all()
    with pytest.raises(ValueError, match="The smallest ridge that works is"):
        machine.ridge_path([0.5 * named])


def test_wrong_ridges_and_small_budgets_are_refused():
    x, y = rows(20), rows(20, 1, seed=1)[:, 0]
    machine = KernelRegressor(exponential).fit(x, y)
    for wrong in ([-1.0], [np.nan], [np.inf]):
        with pytest.raises(ValueError, match="`ridges` must be a finite number, 0 or more"):
            machine.ridge_path(wrong)
    with pytest.raises(ValueError, match="`ridges` is empty"):
        machine.ridge_path([])
    with pytest.raises(MemoryError, match=r"regularization path needs .* for 20 examples"):
        machine.set_params(memory=1000).ridge_path([1.0])
    with pytest.raises(ValueError, match="at least two training examples"):
        KernelRegressor(exponential).fit(x[:1], y[:1]).leave_one_out()


def test_conjugate_gradients_have_no_closed_forms_and_say_so():
    x, y = rows(20), rows(20, 1, seed=1)[:, 0]
    machine = KernelRegressor(exponential, solver="cg").fit(x, y)
    for what, use in (
        ("leave_one_out", machine.leave_one_out),
        ("ridge_path", lambda: machine.ridge_path([1.0])),
        ("return_std", lambda: machine.predict(x, return_std=True)),
    ):
        with pytest.raises(ValueError, match=f"`{what}` needs the Cholesky factor.*solver='cholesky'"):
            use()
