"""Linear estimators on sketched features: against ridge regression on all features at once, whatever the batches."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge

import neuralpath as npath
from estimators.random_data import graph, network, rows
from neuralpath import nets
from neuralpath.data import Split, shifted_copies
from neuralpath.estimators.moments import empty_moments
from neuralpath.estimators.sketch import SketchClassifier, SketchRegressor


def _sketch(x, n_features=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return npath.path_sketch(graph(), torch.from_numpy(x), n_features, generator=generator).numpy()


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    mean=st.sampled_from([0.0, 1e6]),
    seed=st.integers(0, 10**6),
)
def test_moments_of_batches_are_those_of_all(sizes, mean, seed):
    features, targets = rows(sum(sizes), 4, seed=seed) + mean, rows(sum(sizes), 2, seed=seed + 1) - mean
    moments = empty_moments(4, 2)
    for part in np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]):
        moments = moments.add(features[part], targets[part])
    assert moments.count == sum(sizes)
    centered, centered_targets = features - features.mean(0), targets - targets.mean(0)
    # Numbers of size `mean` have that much rounding; a sum of their plain products would have its square.
    atol = 1e-14 * sum(sizes) * max(mean, 10)
    np.testing.assert_allclose(moments.feature_mean, features.mean(0), rtol=0, atol=atol)
    np.testing.assert_allclose(moments.target_mean, targets.mean(0), rtol=0, atol=atol)
    np.testing.assert_allclose(moments.scatter, centered.T @ centered, rtol=0, atol=10 * atol)
    np.testing.assert_allclose(moments.cross, centered.T @ centered_targets, rtol=0, atol=10 * atol)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("columns", [None, 3])
def test_batches_equal_ridge_regression_on_all_features(columns, fit_intercept):
    x, x_test = rows(90), rows(7, seed=1)
    y = rows(90, columns or 1, seed=2) + 3
    y = y[:, 0] if columns is None else y
    peer = Ridge(0.5, fit_intercept=fit_intercept).fit(_sketch(x), y).predict(_sketch(x_test))
    settings = {"n_features": 40, "ridge": 0.5, "fit_intercept": fit_intercept, "batch_size": 17}
    whole = SketchRegressor(graph(), **settings).fit(x, y)
    np.testing.assert_allclose(whole.predict(x_test), peer, rtol=1e-9)
    assert whole.predict(x_test).shape == peer.shape
    batches = ((x[i : i + 20], y[i : i + 20]) for i in range(0, 90, 20))
    streamed = SketchRegressor(graph(), **settings).fit_batches(batches)
    np.testing.assert_allclose(streamed.predict(x_test), peer, rtol=1e-9)
    added = SketchRegressor(graph(), **settings)
    for part in (slice(0, 50), slice(50, 51), slice(51, 90)):
        added.partial_fit(x[part], y[part])
    np.testing.assert_allclose(added.predict(x_test), peer, rtol=1e-9)
    # A second call of `fit` forgets the first.
    np.testing.assert_array_equal(
        whole.fit(x, y).predict(x_test), SketchRegressor(graph(), **settings).fit(x, y).predict(x_test)
    )


def test_without_intercept_it_is_kernel_regression_with_the_sketched_kernel():
    x, x_test, y = rows(30), rows(6, seed=1), rows(30, 1, seed=2)[:, 0]
    train, test = _sketch(x), _sketch(x_test)
    peer = KernelRidge(alpha=2.0, kernel="precomputed").fit(train @ train.T, y).predict(test @ train.T)
    estimator = SketchRegressor(graph(), 40, 2.0, fit_intercept=False).fit(x, y)
    np.testing.assert_allclose(estimator.predict(x_test), peer, rtol=1e-8, atol=1e-10)


def test_a_module_is_traced_and_seeds_are_those_of_the_sketch():
    x, y = rows(30), rows(30, 1, seed=2)[:, 0]
    of_graph = SketchRegressor(graph(), 40, random_state=5).fit(x, y)
    of_module = SketchRegressor(network(), 40, random_state=5).fit(x, y)
    np.testing.assert_array_equal(of_module.predict(x), of_graph.predict(x))
    peer = Ridge(1.0).fit(_sketch(x, seed=5), y).predict(_sketch(x, seed=5))
    np.testing.assert_allclose(of_graph.predict(x), peer, rtol=1e-9)


def test_classes_in_batches_equal_ridge_regression_on_one_hot():
    x = rows(60)
    labels = np.array(["a", "b", "c"])[(x[:, 0] > 0).astype(int) + (x[:, 1] > 0.5)]
    one_hot = (labels[:, None] == np.array(["a", "b", "c"])).astype(float)
    peer = Ridge(1.0).fit(_sketch(x), one_hot).predict(_sketch(x))
    estimator = SketchClassifier(graph(), 40)
    for batch in (x[:10], labels[:10]), (x[10:11], labels[10:11]), (x[11:], labels[11:]):
        estimator.partial_fit(*batch, classes=["c", "a", "b"])
    np.testing.assert_allclose(estimator.decision_function(x), peer, rtol=0, atol=1e-9)
    np.testing.assert_allclose(estimator.decision_function(x).sum(1), 1, rtol=1e-9)
    np.testing.assert_array_equal(estimator.predict(x), np.array(["a", "b", "c"])[peer.argmax(1)])
    np.testing.assert_allclose(SketchClassifier(graph(), 40).fit(x, labels).decision_function(x), peer, atol=1e-9)
    streamed = SketchClassifier(graph(), 40).fit_batches(((x[i::7], labels[i::7]) for i in range(7)), ["a", "b", "c"])
    np.testing.assert_allclose(streamed.decision_function(x), peer, rtol=0, atol=1e-9)


def test_augmented_digits_stream_through():
    images, labels = load_digits(return_X_y=True)
    split = Split(torch.from_numpy(images[:500] / 16).float().reshape(-1, 1, 8, 8), torch.from_numpy(labels[:500]))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), nets.FC(64, width=64, depth=3))
    estimator = SketchClassifier(model, 128, ridge=1e-3, input_shape=(1, 8, 8), normalize=True)
    estimator.fit_batches(shifted_copies(split, 1300, max_shift=1, batch_size=400), classes=range(10))
    assert estimator.moments_.count == 1300
    assert estimator.score(images[500:800] / 16, labels[500:800]) > 0.75


def test_wrong_batches_are_refused():
    x, y = rows(10), rows(10, 1, seed=1)[:, 0]
    with pytest.raises(ValueError, match="no batches"):
        SketchRegressor().fit_batches([])
    with pytest.raises(ValueError, match=r"`classes` .*first call"):
        SketchClassifier().partial_fit(x, np.arange(10) % 2)
    estimator = SketchClassifier().partial_fit(x, np.arange(10) % 2, classes=[0, 1])
    with pytest.raises(ValueError, match="`y` has the label 7"):
        estimator.partial_fit(x, np.full(10, 7))
    with pytest.raises(ValueError, match=r"`classes` .*\[0, 1\]"):
        estimator.partial_fit(x, np.arange(10) % 2, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="one class"):
        SketchClassifier().fit(x, np.zeros(10))
    regressor = SketchRegressor().partial_fit(x, y)
    with pytest.raises(ValueError, match=r"5 features and 1 columns .* 5 and 2"):
        regressor.partial_fit(x, np.column_stack([y, y]))
    with pytest.raises(ValueError, match=r"`y`.* 10 .*got 9"):
        regressor.partial_fit(x, y[:9])
    with pytest.raises(ValueError, match=r"feature products with `ridge`=0 is singular.*ridge="):
        SketchRegressor(ridge=0.0).fit(x[:3], y[:3])


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("size", [0, None, "8", 2.5])
def test_wrong_sizes_of_batches_are_refused(size):
    estimator = SketchRegressor(batch_size=size)
    with pytest.raises(ValueError, match=f"`batch_size` .*at least 1, got {size!r}"):
        estimator.fit(rows(10), rows(10, 1)[:, 0])


def _state(estimator):
    """All that an estimator has, arrays by their values."""
    moments = getattr(estimator, "moments_", None)
    attributes = {key: value for key, value in vars(estimator).items() if key != "moments_"}
    arrays = {} if moments is None else {name: getattr(moments, name).copy() for name in ("scatter", "cross")}
    return attributes, None if moments is None else moments.count, arrays


def _assert_same_state(estimator, before):
    attributes, count, arrays = _state(estimator)
    assert attributes.keys() == before[0].keys()
    assert all(attributes[key] is before[0][key] for key in attributes)
    assert count == before[1]
    for name, values in arrays.items():
        np.testing.assert_array_equal(values, before[2][name])


def test_a_batch_that_is_refused_does_not_count():
    x, y = rows(20, 6), rows(20, 2, seed=1)
    estimator = SketchRegressor(ridge=0.0)
    for _ in range(2):
        before = _state(estimator)
        with pytest.raises(ValueError, match=r"is singular.*batch does not count"):
            estimator.partial_fit(x[:3], y[:3, 0])
        _assert_same_state(estimator, before)
        with pytest.raises(NotFittedError):
            estimator.predict(x)
    estimator.partial_fit(x, y[:, 0])
    assert estimator.moments_.count == 20
    peer = Ridge(1e-12).fit(x, y[:, 0]).predict(x)
    np.testing.assert_allclose(estimator.predict(x), peer, rtol=1e-8)
    before = _state(estimator)
    for wrong in ((x[:5], y[:5]), (x[:5, :4], y[:5, 0]), (x[:5], y[:4, 0]), (np.full((5, 6), np.nan), y[:5, 0])):
        with pytest.raises(ValueError, match=r"columns of targets|features|`y`|NaN"):
            estimator.partial_fit(*wrong)
        _assert_same_state(estimator, before)
    np.testing.assert_allclose(estimator.predict(x), peer, rtol=1e-8)


def test_a_batch_that_fails_half_way_does_not_count(monkeypatch):
    x, y = rows(20), rows(20, 1, seed=1)[:, 0]
    estimator = SketchRegressor(batch_size=4).partial_fit(x[:10], y[:10])
    before, features, calls = _state(estimator), SketchRegressor._features, iter(range(2))

    def stops(self, part):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return features(self, part)

    with monkeypatch.context() as patch:
        patch.setattr(SketchRegressor, "_features", stops)
        with pytest.raises(KeyboardInterrupt):
            estimator.partial_fit(x[10:], y[10:])
    _assert_same_state(estimator, before)
    whole = SketchRegressor(batch_size=4).partial_fit(x[:10], y[:10]).partial_fit(x[10:], y[10:])
    np.testing.assert_array_equal(estimator.partial_fit(x[10:], y[10:]).coef_, whole.coef_)


def test_classes_of_a_batch_that_is_refused_are_forgotten():
    x, labels = rows(12), np.arange(12) % 3
    estimator = SketchClassifier(ridge=0.0)
    with pytest.raises(ValueError, match="batch does not count"):
        estimator.partial_fit(x[:2], labels[:2], classes=[0, 1, 2, 3])
    assert not hasattr(estimator, "classes_")
    estimator.partial_fit(x, labels, classes=[0, 1, 2])
    np.testing.assert_array_equal(estimator.classes_, [0, 1, 2])
    before = _state(estimator)
    with pytest.raises(ValueError, match="has the label 7"):
        estimator.partial_fit(x, np.full(12, 7))
    _assert_same_state(estimator, before)
