"""What an estimator refuses, and what it says."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import neuralpath as npath
from estimators.random_data import exponential, kernels, network, path_kernel, rows, tiled
from neuralpath import nets
from neuralpath.estimators.classifier import KernelClassifier
from neuralpath.estimators.regressor import KernelRegressor

X, Y = rows(12), rows(12, 1, seed=1)[:, 0]
KERNEL, CROSS, DIAGONAL = kernels(12, 4)


def _kernel(change):
    kernel = KERNEL.copy()
    change(kernel)
    return kernel


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
@pytest.mark.parametrize("form", ["array", "tiles"])
def test_kernels_that_are_no_kernels(solver, form):
    def fit(kernel, y=Y):
        given = kernel if form == "array" else tiled(kernel, 5, symmetric=False)
        return KernelRegressor("precomputed", solver=solver).fit(given, y)

    with pytest.raises(ValueError, match=r"square.*4 x 12"):
        fit(CROSS, Y[:4])
    with pytest.raises(ValueError, match="not symmetric"):
        fit(_kernel(lambda k: k.__setitem__((2, 5), k[2, 5] + 1)))
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"NaN or infinity.*first .*3"):
            fit(_kernel(lambda k, bad=bad: k.__setitem__((3, 7), bad)))
    with pytest.raises(ValueError, match=r"`y`.* 12 .*got 11"):
        fit(KERNEL, Y[:11])
    estimator = fit(KERNEL)
    with pytest.raises(ValueError, match=" 12 training examples, got 4 x 9"):
        estimator.predict(CROSS[:, :9])


def test_rounding_is_not_asymmetry():
    for dtype, size in ((np.float64, 1e-14), (np.float32, 1e-7)):
        kernel = (KERNEL + size * KERNEL.max() * rows(12, 12, seed=3)).astype(dtype)
        assert (kernel != kernel.T).any()
        for solver in ("cholesky", "cg"):
            assert KernelRegressor("precomputed", solver=solver).fit(kernel, Y).report_.converged


def test_nan_in_a_cross_kernel():
    estimator = KernelRegressor("precomputed").fit(KERNEL, Y)
    cross = CROSS.copy()
    cross[2, 1] = np.nan
    with pytest.raises(ValueError, match=r"NaN or infinity: 1 of its 4 rows .*first is 2"):
        estimator.predict(cross)


@pytest.mark.parametrize("targets", ["centered", "arora"])
def test_labels_of_one_class(targets):
    with pytest.raises(ValueError, match=r"`y`.* one class, 3"):
        KernelClassifier(targets=targets).fit(X, np.full(12, 3))
    with pytest.raises(ValueError, match="Unknown label type"):
        KernelClassifier(targets=targets).fit(X, Y)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"ridge": -1.0}, "`ridge` .*got -1.0"),
        ({"ridge": "big"}, "`ridge` .*got a str"),
        ({"kernel": "path"}, r"`kernel` .*PathKernel\(model\).*'precomputed'; got 'path'"),
        ({"solver": "lu"}, "`solver` .*'auto', 'cholesky', 'cg', got 'lu'"),
        ({"ridge": np.nan}, "`ridge` .*got nan"),
        ({"tol": 0.0}, "`tol` .*positive.*got 0.0"),
        ({"tol": 1.0}, "`tol` .*between 0 and 1, got 1.0"),
        ({"tol": "a"}, "`tol` .*got a str"),
        ({"tol": None}, "`tol` .*got a NoneType"),
        ({"max_iter": 0}, "`max_iter` .*at least 1, got 0"),
        ({"max_iter": None}, "`max_iter` .*at least 1, got None"),
        ({"max_iter": 1.5}, "`max_iter` .*at least 1, got 1.5"),
        ({"rank": -1}, "`rank` .*at least 0, got -1"),
        ({"rank": "full"}, "`rank` .*at least 0, got 'full'"),
        ({"memory": -5}, "`memory` .*bytes"),
        ({"memory": "8GiB"}, "`memory` .*bytes.*got a str"),
        ({"memory": np.nan}, "`memory` .*bytes"),
        ({"random_state": None}, "`random_state` .*at least 0, got None"),
        ({"random_state": 2**64}, "`random_state` .*9223372036854775807"),
        ({"input_shape": "5"}, "`input_shape` .*'5'"),
    ],
)
def test_wrong_parameters_are_refused_when_fitting(params, message):
    estimator = KernelRegressor(**params)
    with pytest.raises((TypeError, ValueError), match=message):
        estimator.fit(X, Y)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("kernel", [3, None, npath.PathKernel])
def test_other_kernels_are_refused(kernel):
    with pytest.raises(TypeError, match=r"`kernel` .*got (a int|a NoneType|<class .*PathKernel)"):
        KernelRegressor(kernel).fit(X, Y)


def test_a_kernel_with_several_rows_per_example_is_refused():
    kernel = npath.TangentKernel(nets.FC(5, width=4, depth=2, n_outputs=3), outputs="full")
    with pytest.raises(ValueError, match=r"`kernel` .*36 rows for 12 examples.*outputs='mean'"):
        KernelRegressor(kernel).fit(X, Y)


@pytest.mark.usefixtures("without_type_checks")
def test_numbers_of_numpy_are_numbers():
    params = {"tol": np.float32(1e-5), "max_iter": np.int64(50), "rank": np.int32(4), "memory": 1e9, "solver": "cg"}
    estimator = KernelRegressor(random_state=np.int64(3), **params).fit(X, Y)
    np.testing.assert_allclose(estimator.predict(X), KernelRegressor().fit(X, Y).predict(X), atol=1e-4)


def test_a_fit_that_fails_leaves_no_coefficients_of_another():
    estimator = KernelRegressor(ridge=0.1).fit(X, Y)
    with pytest.raises(ValueError, match="`ridge`=0 is singular"):
        estimator.set_params(ridge=0.0).fit(np.ones((12, 5)), Y)
    for use in (lambda: estimator.predict(X), estimator.leave_one_out):
        with pytest.raises(NotFittedError):
            use()


def test_a_kernel_function_must_return_a_symmetric_matrix_of_its_shape():
    with pytest.raises(ValueError, match=r"`kernel` .*\(12, 12\)"):
        KernelRegressor(lambda a, b: exponential(a, b)[:, :-1]).fit(X, Y)
    with pytest.raises(ValueError, match=r"`kernel` .*complex128"):
        KernelRegressor(lambda a, b: exponential(a, b) * 1j).fit(X, Y)
    with pytest.raises(ValueError, match="not symmetric"):
        KernelRegressor(lambda a, b: exponential(a, b) + a[:, :1]).fit(X, Y)


def test_rows_must_fit_the_model():
    with pytest.raises(ValueError, match=r"\(5,\), 5 numbers.* 4"):
        KernelRegressor(path_kernel()).fit(X[:, :4], Y)
    with pytest.raises(ValueError, match=r"\(2, 3\), 6 numbers.* 5"):
        KernelRegressor(npath.TangentKernel(network()), input_shape=(2, 3)).fit(X, Y)
    estimator = KernelRegressor(path_kernel()).fit(X, Y)
    with pytest.raises(ValueError, match="X has 4 features, but KernelRegressor is expecting 5"):
        estimator.predict(X[:, :4])


def test_the_standard_deviation_needs_the_diagonal_of_a_precomputed_kernel_only():
    estimator = KernelRegressor("precomputed").fit(KERNEL, Y)
    with pytest.raises(ValueError, match="`diagonal`"):
        estimator.predict(CROSS, return_std=True)
    with pytest.raises(ValueError, match=r"`diagonal` .* 4 test examples, got shape \(3,\)"):
        estimator.predict(CROSS, return_std=True, diagonal=DIAGONAL[:3])
    with pytest.raises(ValueError, match=r"`diagonal` .*precomputed"):
        KernelRegressor().fit(X, Y).predict(X, return_std=True, diagonal=np.ones(12))


def test_targets_with_too_many_axes_and_nan():
    with pytest.raises(ValueError, match=r"dim 3|`y` must be"):
        KernelRegressor().fit(X, np.zeros((12, 2, 2)))
    with pytest.raises(ValueError, match="Input y contains NaN"):
        KernelRegressor().fit(X, np.where(np.arange(12) == 3, np.nan, Y))
    with pytest.raises(ValueError, match=r"`targets` .*'centered', 'arora', got 'soft'"):
        KernelClassifier(targets="soft").fit(X, np.arange(12) % 2)


def test_an_estimator_that_is_not_fitted():
    for use in (
        lambda: KernelRegressor().predict(X),
        lambda: KernelRegressor().predict(X, return_std=True),
        lambda: KernelRegressor().leave_one_out(),
        lambda: KernelRegressor().ridge_path([1.0]),
        lambda: KernelClassifier().decision_function(X),
        lambda: KernelClassifier("precomputed").predict(KERNEL),
    ):
        with pytest.raises(NotFittedError):
            use()


def test_an_overflowing_kernel_is_refused_with_a_hint():
    with pytest.raises(ValueError, match=r"NaN or infinity.*normalized"):
        KernelRegressor(path_kernel()).fit(1e200 * X, Y)
