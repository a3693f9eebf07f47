"""Classification by regression on the classes."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.kernel_ridge import KernelRidge

import neuralpath as npath
from estimators.random_data import exponential, graph, kernels, rows
from neuralpath.estimators.classifier import KernelClassifier


def _three_classes(n=40, seed=0):
    x = rows(n, seed=seed)
    return x, np.array([3, 5, 9])[(x[:, 0] > 0).astype(int) + (x[:, 1] > 0.3)]


def test_centered_scores_are_regression_on_one_hot_less_the_shares():
    x, labels = _three_classes()
    x_test = rows(10, seed=1)
    one_hot = (labels[:, None] == np.array([3, 5, 9])).astype(float)
    shares = one_hot.mean(0)
    peer = KernelRidge(alpha=0.4, kernel="precomputed").fit(exponential(x, x), one_hot - shares)
    estimator = KernelClassifier(exponential, 0.4).fit(x, labels)
    scores = estimator.decision_function(x_test)
    np.testing.assert_allclose(scores, peer.predict(exponential(x_test, x)) + shares, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(scores.sum(1), 1, rtol=1e-10)
    np.testing.assert_array_equal(estimator.predict(x_test), np.array([3, 5, 9])[scores.argmax(1)])
    # Where the kernel vanishes nothing is known but the shares.
    np.testing.assert_allclose(estimator.decision_function(x_test + 1000), np.tile(shares, (10, 1)), rtol=1e-12)


def test_arora_targets_are_nine_tenths_and_minus_one_tenth():
    x, labels = _three_classes()
    targets = np.where(labels[:, None] == np.array([3, 5, 9]), 0.9, -0.1)
    peer = KernelRidge(alpha=0.4, kernel="precomputed").fit(exponential(x, x), targets)
    estimator = KernelClassifier(exponential, 0.4, targets="arora").fit(x, labels)
    np.testing.assert_allclose(estimator.decision_function(x), peer.predict(exponential(x, x)), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("targets", ["centered", "arora"])
def test_for_two_classes_the_decision_is_the_lead_of_the_second(targets):
    x = rows(30)
    labels = np.where(x[:, 0] > 0, "yes", "no")
    estimator = KernelClassifier(exponential, 0.1, targets=targets).fit(x, labels)
    decisions = estimator.decision_function(x)
    assert decisions.shape == (30,)
    np.testing.assert_array_equal(estimator.predict(x), np.where(decisions > 0, "yes", "no"))
    both = exponential(x, x) @ estimator.dual_coef_ + estimator.offset_
    np.testing.assert_allclose(decisions, both[:, 1] - both[:, 0], rtol=1e-10, atol=1e-12)


def test_the_standard_deviation_of_scores_equals_the_formula():
    kernel, cross, diagonal = kernels(20, 7)
    labels = np.arange(20) % 3
    estimator = KernelClassifier("precomputed", 0.5).fit(kernel, labels)
    scores, std = estimator.decision_function(cross, return_std=True, diagonal=diagonal)
    variance = diagonal - np.einsum("ij,jk,ik->i", cross, np.linalg.inv(kernel + 0.5 * np.eye(20)), cross)
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=1e-8)
    np.testing.assert_allclose(scores, estimator.decision_function(cross), rtol=1e-10)


@pytest.mark.parametrize("kind", ["words", "objects", "tensor", "booleans"])
def test_labels_of_any_kind(kind):
    x, numbers = _three_classes()
    labels = {
        "words": np.array(["ant", "bee", "cow"])[numbers // 4],
        "objects": np.array(["ant", "bee", "cow"], dtype=object)[numbers // 4],
        "tensor": torch.from_numpy(numbers),
        "booleans": numbers > 3,
    }[kind]
    estimator = KernelClassifier(exponential, 1e-3).fit(x, labels)
    assert (estimator.predict(x) == np.asarray(labels)).mean() > 0.95


def test_digits_are_recognized_and_both_solvers_agree():
    images, labels = load_digits(return_X_y=True)
    images = images / 16
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:600], order[600:900]

    def cubic(a, b):
        return (a @ b.T / 64) ** 3

    exact = KernelClassifier(cubic, 1e-4, solver="cholesky").fit(images[train], labels[train])
    assert exact.score(images[test], labels[test]) > 0.96
    steps = KernelClassifier(cubic, 1e-4, solver="cg", tol=1e-8).fit(images[train], labels[train])
    np.testing.assert_allclose(
        steps.decision_function(images[test]), exact.decision_function(images[test]), rtol=0, atol=1e-4
    )
    np.testing.assert_array_equal(steps.predict(images[test]), exact.predict(images[test]))
    assert len(steps.report_.residuals) == 10


def test_a_network_s_own_kernel_classifies():
    x, labels = _three_classes(80)
    estimator = KernelClassifier(npath.PathKernel(graph(), normalize=True), 0.1).fit(x, labels)
    assert estimator.score(x, labels) > 0.6
    left_out = estimator.leave_one_out()
    assert left_out.error_rate < 0.6
