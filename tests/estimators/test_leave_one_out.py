"""Leave-one-out and regularization paths against estimators that are really fitted again."""

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
        estimator = KernelRegressor("precomputed", ridge).fit(kernel[np.ix_(others, others)], y[others])
        predictions.append(estimator.predict(kernel[[i]][:, others])[0])
    return np.array(predictions)


@settings(max_examples=30)  # each fits as many estimators as it has examples
@given(
    n=st.integers(2, 15),
    columns=st.sampled_from([None, 1, 2]),
    ridge=st.sampled_from([0.0, 0.1, 5.0]),
    seed=st.integers(0, 10**6),
)
def test_leave_one_out_equals_fitting_without_each_example(n, columns, ridge, seed):
    kernel, _, _ = kernels(n, 1, seed=seed)
    y = rows(n, columns or 1, seed=seed + 1)
    y = y[:, 0] if columns is None else y
    expected = _left_out_by_fitting(kernel, y, ridge)
    closed_form = KernelRegressor("precomputed", ridge).fit(kernel, y).leave_one_out()
    scale = max(np.abs(expected).max(), np.abs(y).max()) * np.linalg.cond(kernel + ridge * np.eye(n))
    np.testing.assert_allclose(closed_form.predictions, expected, rtol=0, atol=1e-13 * scale)
    assert closed_form.squared_error == pytest.approx(np.mean((expected - y) ** 2), rel=1e-7)
    assert closed_form.error_rate is None


@pytest.mark.parametrize("targets", ["centered", "arora"])
def test_leave_one_out_of_classes_equals_fitting_without_each_example(targets):
    x = rows(30)
    labels = np.array([0, 1, 2])[(x[:, 0] > 0).astype(int) + (x[:, 1] > 0.5)]
    estimator = KernelClassifier(exponential, 0.2, targets=targets).fit(x, labels)
    scores = []
    for i in range(30):
        others = np.delete(np.arange(30), i)
        part = KernelClassifier(exponential, 0.2, targets=targets).fit(x[others], labels[others])
        scores.append(part.decision_function(x[[i]])[0])
    scores = np.array(scores)
    closed_form = estimator.leave_one_out()
    np.testing.assert_allclose(closed_form.predictions, scores, rtol=1e-8, atol=1e-10)
    assert closed_form.error_rate == np.mean(scores.argmax(1) != labels)
    assert 0 < closed_form.error_rate < 0.7
    assert closed_form.squared_error == pytest.approx(np.mean((scores - estimator.targets_) ** 2))


def test_a_parameter_set_after_the_fit_changes_nothing():
    x = rows(30)
    estimator = KernelClassifier(exponential, 0.2, targets="centered").fit(x, x[:, 0] > 0.3)
    before, path = estimator.leave_one_out(), estimator.ridge_path([0.1, 1.0])
    estimator.set_params(targets="arora")
    np.testing.assert_array_equal(estimator.leave_one_out().predictions, before.predictions)
    np.testing.assert_array_equal(estimator.ridge_path([0.1, 1.0]).squared_errors, path.squared_errors)


RIDGES = [1e-4, 0.03, 1.0, 40.0]


@pytest.mark.parametrize("columns", [None, 2])
def test_a_path_equals_separate_fits(columns):
    x, x_test = rows(25), rows(6, seed=1)
    y = rows(25, columns or 1, seed=2)
    y = y[:, 0] if columns is None else y
    path = KernelRegressor(exponential, 7.0).fit(x, y).ridge_path(RIDGES, x_test)
    for number, ridge in enumerate(RIDGES):
        estimator = KernelRegressor(exponential, ridge).fit(x, y)
        left_out = estimator.leave_one_out()
        np.testing.assert_allclose(path.coefficients[number], estimator.dual_coef_, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(path.predictions[number], estimator.predict(x_test), rtol=1e-8, atol=1e-10)
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
        estimator = KernelClassifier(exponential, ridge, targets=targets).fit(x, labels)
        left_out = estimator.leave_one_out()
        np.testing.assert_allclose(path.coefficients[number], estimator.dual_coef_, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(path.predictions[number], estimator.decision_function(x_test), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(path.leave_one_out[number], left_out.predictions, rtol=1e-8, atol=1e-10)
        assert path.error_rates[number] == left_out.error_rate


def test_a_path_does_not_change_the_estimator():
    x, y = rows(12), rows(12, 1, seed=1)[:, 0]
    estimator = KernelRegressor(exponential, 0.1).fit(x, y)
    before = estimator.predict(x, return_std=True)
    assert estimator.ridge_path([1.0]).predictions is None
    np.testing.assert_array_equal(estimator.predict(x, return_std=True), before)


def test_a_path_with_too_small_a_ridge_names_the_smallest_that_works():
    kernel, _, _ = kernels(12, 1, rank=4)
    estimator = KernelRegressor("precomputed", 1.0).fit(kernel, rows(12, 1)[:, 0])
    with pytest.raises(ValueError, match=r"`ridges`.*smallest ridge that works is") as caught:
        estimator.ridge_path([1.0, 0.0])
    named = float(str(caught.value).split("that works is ")[1].rstrip("."))
    assert named < 1e-12
    assert np.isfinite(estimator.ridge_path([1.0, 1.01 * named]).coefficients).all()
    with pytest.raises(ValueError, match=r"`ridges`.*smallest ridge that works is"):
        estimator.ridge_path([0.5 * named])


def test_wrong_ridges_and_small_budgets_are_refused():
    x, y = rows(20), rows(20, 1, seed=1)[:, 0]
    estimator = KernelRegressor(exponential).fit(x, y)
    for wrong in ([-1.0], [np.nan], [np.inf]):
        with pytest.raises(ValueError, match=r"`ridges` .*0 or positive"):
            estimator.ridge_path(wrong)
    with pytest.raises(ValueError, match=r"`ridges`.*empty"):
        estimator.ridge_path([])
    with pytest.raises(MemoryError, match=r"20 examples.*memory="):
        estimator.set_params(memory=1000).ridge_path([1.0])
    with pytest.raises(ValueError, match="two training examples"):
        KernelRegressor(exponential).fit(x[:1], y[:1]).leave_one_out()


def test_conjugate_gradients_have_no_closed_forms_and_say_so():
    x, y = rows(20), rows(20, 1, seed=1)[:, 0]
    estimator = KernelRegressor(exponential, solver="cg").fit(x, y)
    for what, use in (
        ("leave_one_out", estimator.leave_one_out),
        ("ridge_path", lambda: estimator.ridge_path([1.0])),
        ("return_std", lambda: estimator.predict(x, return_std=True)),
    ):
        with pytest.raises(ValueError, match=f"`{what}` .*solver='cholesky'"):
            use()
