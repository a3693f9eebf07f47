"""The exact and the iterative solver against numpy, against each other, and under small budgets."""

import logging

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from sklearn.exceptions import ConvergenceWarning

from estimators.random_data import F64, exponential, kernels, path_kernel, rows, tiled
from neuralpath.estimators.cholesky import SingularKernel, factorize
from neuralpath.estimators.conjugate_gradients import nystrom
from neuralpath.estimators.regressor import KernelRegressor
from neuralpath.estimators.solving import SolverOptions, solve
from neuralpath.estimators.tiles import as_kernel_matrix, cached, dense_kernel, kernel_times


def _options(**changes):
    settings = {"solver": "auto", "tol": 1e-10, "max_iter": 500, "rank": None, "budget": 10**9, "seed": 0}
    return SolverOptions(**{**settings, **changes})


@given(n=st.integers(1, 40), ridge=st.sampled_from([0.0, 1e-6, 2.0]), seed=st.integers(0, 10**6))
def test_everything_of_a_factor_equals_numpy(n, ridge, seed):
    kernel, _, _ = kernels(n, 1, seed=seed)
    y = rows(n, 3, seed=seed + 1)
    factor = factorize(kernel.copy(), ridge)
    inverse = np.linalg.inv(kernel + ridge * np.eye(n))
    rounding = 1e-14 * np.linalg.cond(kernel + ridge * np.eye(n))
    np.testing.assert_allclose(factor.solve(y), inverse @ y, rtol=0, atol=rounding * np.abs(inverse @ y).max())
    np.testing.assert_allclose(factor.inverse_diagonal(), np.diagonal(inverse), rtol=rounding)
    half = factor.half_solve(y)
    np.testing.assert_allclose(
        half.T @ half, y.T @ inverse @ y, rtol=0, atol=rounding * np.abs(y.T @ inverse @ y).max()
    )
    np.testing.assert_allclose(factor.kernel_times(y), kernel @ y, rtol=0, atol=1e-13 * n * np.abs(kernel).max())
    np.testing.assert_array_equal(factor.kernel(), kernel)


def test_a_factor_in_many_blocks_is_the_same():
    kernel, _, _ = kernels(23, 1)
    factor = factorize(kernel.copy(), 0.1)
    np.testing.assert_allclose(factor.inverse_diagonal(columns=5), factor.inverse_diagonal(), rtol=1e-12)
    np.testing.assert_array_equal(factor.kernel(columns=5), kernel)


@given(
    n=st.integers(2, 30), lost=st.integers(1, 10), scale=st.sampled_from([1e-8, 1.0, 1e6]), seed=st.integers(0, 10**6)
)
def test_a_singular_kernel_is_refused_with_a_ridge_that_works(n, lost, scale, seed):
    kernel, _, _ = kernels(n, 1, rank=max(1, n - lost), seed=seed)
    kernel *= scale
    with pytest.raises(SingularKernel, match="`ridge`=0 is singular") as caught:
        factorize(kernel.copy(), 0.0)
    ridges = _named_ridges(caught.value)
    assert ridges[0] < 1e-10 * np.abs(kernel).sum(0).max()
    for ridge in ridges:
        assert factorize(kernel.copy(), ridge).ridge == ridge


def _named_ridges(error):
    return [float(part.split(" is enough")[0].split(",")[0].split(";")[0]) for part in str(error).split("ridge=")[1:]]


def test_duplicates_make_a_kernel_singular_and_a_ridge_helps():
    x = rows(15)
    x[7] = x[3]
    y = rows(15, 1, seed=1)[:, 0]
    with pytest.raises(ValueError, match="duplicate inputs"):
        KernelRegressor(exponential, 0.0).fit(x, y)
    assert KernelRegressor(exponential, 1e-6).fit(x, y).report_.residuals.max() < 1e-8


def test_a_kernel_that_is_negative_somewhere_is_refused_with_a_ridge_that_lifts_it():
    kernel = np.array([[1.0, 4.0], [4.0, 1.0]])  # eigenvalues 5 and -3
    with pytest.raises(SingularKernel, match="negative eigenvalue") as caught:
        factorize(kernel.copy(), 0.0)
    assert factorize(kernel.copy(), _named_ridges(caught.value)[1]).ridge > 5
    with pytest.raises(SingularKernel, match="mean of its diagonal is -4"):
        factorize(kernel - 5 * np.eye(2), 0.0)
    with pytest.raises(SingularKernel, match="inputs 0"):
        KernelRegressor(ridge=0.0).fit(np.zeros((3, 2)), [1.0, 2.0, 3.0])


SOURCES = {
    "array": as_kernel_matrix,
    "array in parts": lambda kernel: as_kernel_matrix(kernel, array_tile=100),
    "read-only array": lambda kernel: as_kernel_matrix(_read_only(kernel), array_tile=100),
    "half in tiles": lambda kernel: as_kernel_matrix(tiled(kernel, 9, symmetric=True)),
    "all tiles": lambda kernel: as_kernel_matrix(tiled(kernel, 9, symmetric=False)),
    "cached": lambda kernel: cached(as_kernel_matrix(tiled(kernel, 9, symmetric=True))),
}


def _read_only(kernel):
    copy = kernel.copy()
    copy.setflags(write=False)
    return copy


@pytest.mark.parametrize("source", SOURCES)
def test_products_and_whole_kernels_from_tiles(source):
    kernel, _, _ = kernels(40, 1)
    tiles = SOURCES[source](kernel)
    vectors = rows(40, 3, seed=1)
    for _ in range(2):
        np.testing.assert_allclose(kernel_times(tiles, vectors), kernel @ vectors, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(dense_kernel(tiles), kernel)


def test_cached_tiles_are_computed_once():
    kernel, _, _ = kernels(20, 1)
    computed = []
    source = tiled(kernel, 6, symmetric=True)
    counted = type(source)(
        "counted", source.plan, lambda tile: computed.append(tile) or source.compute(tile), F64, source.device
    )
    twice = cached(as_kernel_matrix(counted))
    first, second = (kernel_times(twice, np.eye(20)) for _ in range(2))
    assert torch.equal(first, second)
    assert len(computed) == len(list(source.plan.tiles())) > 5


def test_float32_tiles_are_summed_in_float64():
    kernel, _, _ = kernels(50, 1)
    tiles = as_kernel_matrix(tiled(kernel, 7, symmetric=True, dtype=torch.float32))
    exact = kernel.astype(np.float32).astype(np.float64) @ np.ones((50, 1))
    np.testing.assert_allclose(kernel_times(tiles, np.ones((50, 1))), exact, rtol=1e-14)


@pytest.mark.parametrize("rank", [0, 40, None])
@pytest.mark.parametrize("source", ["array", "half in tiles"])
def test_conjugate_gradients_equal_cholesky_to_their_tolerance(source, rank):
    x = rows(120, 3)
    kernel, y = exponential(x, x), np.column_stack([rows(120, 3, seed=1), np.zeros(120)])
    exact, _, _ = solve(as_kernel_matrix(kernel), y, 0.05, _options(solver="cholesky"))
    for tol in (1e-3, 1e-7, 1e-11):
        coefficients, _, report = solve(SOURCES[source](kernel), y, 0.05, _options(solver="cg", rank=rank, tol=tol))
        assert report.converged
        assert report.solver == "cg"
        norms = np.linalg.norm(y, axis=0)
        true = np.linalg.norm(y - kernel @ coefficients - 0.05 * coefficients, axis=0)
        np.testing.assert_allclose(report.residuals * norms, true, rtol=1e-3, atol=1e-13)
        # ||a - a*|| <= ||(K + ridge I)^-1|| ||residual||, and the first factor is at most 1 / ridge.
        error = np.linalg.norm(coefficients - exact, axis=0)
        assert (error <= 1.01 * tol * norms / 0.05).all()
        assert not coefficients[:, 3].any()


def test_the_preconditioner_saves_iterations():
    x = rows(200, 2)
    kernel, y = exponential(x, x), rows(200, 2, seed=1)
    plain, helped = (solve(as_kernel_matrix(kernel), y, 1e-3, _options(solver="cg", rank=rank))[2] for rank in (0, 50))
    assert plain.converged
    assert helped.converged
    assert helped.iterations < plain.iterations / 4


def test_a_nystrom_approximation_of_full_rank_is_the_kernel():
    kernel, _, _ = kernels(30, 1, rank=6)
    solved = nystrom(as_kernel_matrix(kernel), 12, seed=1)
    assert len(solved.eigenvalues) == 6
    again = solved.eigenvectors @ torch.diag(solved.eigenvalues) @ solved.eigenvectors.T
    np.testing.assert_allclose(again, kernel, rtol=0, atol=1e-12 * np.abs(kernel).max())
    exact = np.linalg.inv(kernel + 0.3 * np.eye(30)) * (float(solved.eigenvalues[-1]) + 0.3)
    inside = solved.eigenvectors
    np.testing.assert_allclose(solved.precondition(inside, 0.3), exact @ inside.numpy(), rtol=1e-9, atol=1e-11)


def test_a_small_budget_takes_conjugate_gradients_and_says_why():
    x, y = rows(400), rows(400, 2, seed=1)
    estimator = KernelRegressor(path_kernel(), 1.0, tol=1e-10)
    exact = estimator.fit(x, y)
    assert exact.report_.solver == "cholesky"
    assert "budget" in exact.report_.reason
    expected = exact.predict(x)
    # The matrix takes 8 * 400 * 400 bytes, half of it in float64 tiles about half of that.
    for memory, origin in ((1_250_000, "kept in memory"), (900_000, "computed in each pass")):
        small = KernelRegressor(path_kernel(), 1.0, tol=1e-10, memory=memory, rank=8).fit(x, y)
        assert small.report_.solver == "cg"
        assert origin in small.report_.kernel
        assert small.factor_ is None
        assert "of a budget of" in str(small.report_)
        np.testing.assert_allclose(small.predict(x), expected, rtol=1e-6, atol=1e-7)


def test_too_little_memory_is_refused_with_what_would_do():
    x, y = rows(300), rows(300, 1, seed=1)[:, 0]
    with pytest.raises(MemoryError, match=r"300 examples.*memory=.*solver='cg'") as caught:
        KernelRegressor(ridge=1.0, solver="cholesky", memory=500_000).fit(x, y)
    enough = int(str(caught.value).split("give memory=")[1].split(" ")[0])
    assert KernelRegressor(ridge=1.0, solver="cholesky", memory=enough).fit(x, y).report_.converged
    kernel, _, _ = kernels(300, 1)
    with pytest.raises(MemoryError, match=r"300 examples.*rank 37") as caught:
        KernelRegressor("precomputed", solver="cg", memory=100_000).fit(tiled(kernel, 40, symmetric=True), y)
    enough = int(str(caught.value).split("give memory=")[1].split(" ")[0])
    assert KernelRegressor("precomputed", solver="cg", memory=enough).fit(tiled(kernel, 40, symmetric=True), y)


def test_what_does_not_converge_is_said_with_its_residual():
    x = rows(80, 2)
    kernel, y = exponential(x, x), rows(80, 1, seed=1)[:, 0]
    with pytest.warns(ConvergenceWarning, match=r"3 iterations .*`tol` is 1e-10.*`max_iter`"):
        estimator = KernelRegressor("precomputed", 1e-4, solver="cg", tol=1e-10, max_iter=3, rank=0).fit(kernel, y)
    assert not estimator.report_.converged
    assert estimator.report_.iterations == 3
    assert "NOT converged" in str(estimator.report_)
    assert np.isfinite(estimator.predict(kernel)).all()


def test_a_tolerance_below_rounding_ends_with_a_warning():
    x = rows(60, 1)
    kernel, y = exponential(x, x), rows(60, 1, seed=1)[:, 0]
    with pytest.warns(ConvergenceWarning, match="`ridge`"):
        estimator = KernelRegressor("precomputed", 1e-8, solver="cg", tol=1e-15, max_iter=5000).fit(kernel, y)
    assert estimator.report_.iterations < 5000


def test_a_negative_direction_stops_conjugate_gradients_with_a_bound_for_the_ridge():
    kernel, _, _ = kernels(40, 1)
    shifted = kernel - 2.0 * np.eye(40)
    y = rows(40, 1, seed=1)[:, 0]
    with pytest.raises(SingularKernel, match=r"`ridge`=0.5 is not positive definite: .*above") as caught:
        KernelRegressor("precomputed", 0.5, solver="cg", rank=0).fit(shifted, y)
    lowest = np.linalg.eigvalsh(shifted)[0]
    assert 0.5 < float(str(caught.value).split("above ")[1].split(";")[0]) < -1.001 * lowest
    assert KernelRegressor("precomputed", -1.05 * lowest, solver="cg", tol=1e-4).fit(shifted, y).report_.converged


@pytest.mark.parametrize("rank", [0, None, 30])
def test_conjugate_gradients_refuse_a_singular_kernel(rank):
    kernel, _, _ = kernels(40, 1, rank=5)
    y = rows(40, 2, seed=1)
    with pytest.raises(SingularKernel, match="`ridge`=0 is not positive definite"):
        KernelRegressor("precomputed", 0.0, solver="cg", rank=rank).fit(kernel, y)
    with pytest.warns(ConvergenceWarning, match=r"no longer falls.* to ") as caught:
        KernelRegressor("precomputed", 1e-13, solver="cg", rank=rank).fit(kernel, y)
    enough = float(str(caught[0].message).split(") to ")[1].split(",")[0])
    assert KernelRegressor("precomputed", 1.1 * enough, solver="cg", rank=rank).fit(kernel, y).report_.converged
    with pytest.raises(SingularKernel, match="inputs 0"):
        KernelRegressor("precomputed", 0.0, solver="cg").fit(np.zeros((9, 9)), y[:9])
    of_zeros = KernelRegressor("precomputed", 1.0, solver="cg").fit(np.zeros((9, 9)), y[:9])
    assert not of_zeros.predict(np.zeros((1, 9))).any()


def test_progress_is_in_the_log(caplog):
    kernel, _, _ = kernels(30, 1)
    with caplog.at_level(logging.INFO, "neuralpath"):
        report = KernelRegressor("precomputed", solver="cg").fit(kernel, rows(30, 1)[:, 0]).report_
    lines = [record.getMessage() for record in caplog.records if "conjugate gradients" in record.getMessage()]
    assert len(lines) == report.iterations > 0
