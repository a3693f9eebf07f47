"""scikit-learn's own checks of an estimator, and its tools: cloning, pipelines, searches."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import neuralpath as npath
from estimators.random_data import exponential, kernels, network, path_kernel, rows
from neuralpath.estimators.classifier import KernelClassifier
from neuralpath.estimators.regressor import KernelRegressor
from neuralpath.estimators.sketch import SketchClassifier, SketchRegressor

ESTIMATORS = [
    KernelRegressor(),
    KernelRegressor(solver="cg"),
    KernelRegressor(kernel=exponential),
    KernelClassifier(),
    KernelClassifier(targets="arora", solver="cg"),
    SketchRegressor(),
    SketchClassifier(),
]

# With a kernel that is computed beforehand, what these checks pass for X is no kernel.
NOT_FOR_PRECOMPUTED = {
    "check_n_features_in_after_fitting": "a wrong number of columns has a message of its own, about kernels",
    "check_positive_only_tag_during_fit": "a random matrix is not positive definite, and refused",
    "check_estimators_dtypes": "a random matrix is not positive definite, and refused",
    "check_estimators_nan_inf": "its data are not square, which is found first",
}


def _run(estimator, checks, excused):
    failed = {}
    for _, check in checks:
        name = check.func.__name__
        try:
            check(estimator)
        except Exception as error:
            if type(error).__name__ == "SkipTest":  # array-API inputs, which no estimator supports
                assert name == "check_array_api_input"
                continue
            failed[name] = repr(error)
    assert set(failed) == set(excused), failed


@pytest.mark.filterwarnings("ignore:.*:sklearn.exceptions.SkipTestWarning")
@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: str(estimator).split(" at 0x")[0])
def test_estimators_pass_every_check_of_scikit_learn(estimator):
    _run(estimator, estimator_checks_generator(estimator), {})


@pytest.mark.filterwarnings("ignore:.*:sklearn.exceptions.SkipTestWarning")
@pytest.mark.usefixtures("without_type_checks")
def test_estimators_on_precomputed_kernels_pass_the_checks_that_apply():
    estimator = KernelRegressor(kernel="precomputed")
    _run(estimator, estimator_checks_generator(estimator), NOT_FOR_PRECOMPUTED)


def test_a_clone_has_the_same_parameters_and_predicts_the_same():
    x, y = rows(20), rows(20, 1, seed=1)[:, 0]
    for kernel in (npath.TangentKernel(network()), path_kernel(), npath.PathKernel(network())):
        estimator = KernelRegressor(kernel, ridge=0.1)
        copy = clone(estimator)
        assert set(copy.get_params()) == set(estimator.get_params())
        np.testing.assert_array_equal(copy.fit(x, y).predict(x), estimator.fit(x, y).predict(x))


def test_a_fitted_estimator_survives_pickle():
    x, y = rows(12), rows(12, 1, seed=1)[:, 0]
    estimator = KernelRegressor(ridge=0.1).fit(x, y)
    again = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(again.predict(x, return_std=True), estimator.predict(x, return_std=True))


def test_in_a_pipeline_it_sees_what_comes_out_of_the_step_before():
    x, y = 7 + 3 * rows(25), rows(25, 1, seed=1)[:, 0]
    pipeline = make_pipeline(StandardScaler(), KernelRegressor(path_kernel(), ridge=0.3)).fit(x, y)
    scaled = StandardScaler().fit_transform(x)
    direct = KernelRegressor(path_kernel(), ridge=0.3).fit(scaled, y)
    np.testing.assert_array_equal(pipeline.predict(x), direct.predict(scaled))


@pytest.mark.parametrize("precomputed", [False, True])
def test_a_search_over_ridges_finds_the_best_by_hand(precomputed):
    x = rows(24)
    y = np.sin(x[:, 0]) + 0.3 * rows(24, 1, seed=2)[:, 0]
    kernel = exponential(x, x)
    ridges = [1e-6, 0.1, 1.0, 30.0]
    estimator = KernelRegressor("precomputed" if precomputed else exponential)
    search = GridSearchCV(estimator, {"ridge": ridges}, cv=3, scoring="neg_mean_squared_error")
    search.fit(kernel if precomputed else x, y)
    errors = []
    for ridge in ridges:
        parts = []
        for fold in range(3):
            test = np.arange(8 * fold, 8 * fold + 8)
            train = np.setdiff1d(np.arange(24), test)
            solved = np.linalg.solve(kernel[np.ix_(train, train)] + ridge * np.eye(16), y[train])
            parts.append(np.mean((kernel[np.ix_(test, train)] @ solved - y[test]) ** 2))
        errors.append(np.mean(parts))
    np.testing.assert_allclose(-search.cv_results_["mean_test_score"], errors, rtol=1e-9)
    assert search.best_params_["ridge"] == ridges[int(np.argmin(errors))]


def test_a_search_over_kernels_finds_the_best_by_hand():
    x = rows(24)
    y = exponential(x, x[:3]).sum(1)
    options = [npath.LinearKernel(), npath.PathKernel(network(), normalize=True), exponential]
    pipeline = make_pipeline(StandardScaler(), KernelRegressor(ridge=1e-3))
    search = GridSearchCV(pipeline, {"kernelregressor__kernel": options}, cv=3, scoring="neg_mean_squared_error")
    search.fit(x, y)
    scores = [
        cross_val_score(
            make_pipeline(StandardScaler(), KernelRegressor(kernel, 1e-3)), x, y, cv=3, scoring="neg_mean_squared_error"
        ).mean()
        for kernel in options
    ]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], scores, rtol=1e-12)
    assert search.best_params_["kernelregressor__kernel"] is options[int(np.argmax(scores))]
    assert len(set(scores)) == 3


def test_cross_validation_of_a_precomputed_kernel_of_classes():
    kernel, _, _ = kernels(20, 1)
    labels = np.array(["a", "b"] * 10)
    predicted = cross_val_predict(KernelClassifier("precomputed"), kernel, labels, cv=4)
    assert set(predicted) <= {"a", "b"}


def test_scores_can_be_calibrated():
    x = np.concatenate([rows(30) + 1, rows(30, seed=1) - 1])
    labels = np.repeat([0, 1], 30)
    calibrated = CalibratedClassifierCV(KernelClassifier(ridge=1.0), cv=3).fit(x, labels)
    assert calibrated.score(x, labels) > 0.8
    assert not hasattr(KernelClassifier(), "predict_proba")
    assert not hasattr(SketchClassifier(), "predict_proba")
