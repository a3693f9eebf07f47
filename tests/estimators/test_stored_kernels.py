"""Precomputed kernels in tiles and in files instead of arrays."""

import numpy as np
import pytest
import torch

from estimators.random_data import path_kernel, rows, tiled
from neuralpath.estimators.regressor import KernelRegressor
from neuralpath.kernels import LinearKernel


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_kernels_in_tiles_and_in_files_equal_arrays(solver, tmp_path):
    x, x_test, y = torch.from_numpy(rows(50)), torch.from_numpy(rows(11, seed=1)), rows(50, 2, seed=2)
    path = path_kernel()
    kernel, cross = path(x), path(x_test, x)
    settings = {"ridge": 5.0, "solver": solver, "tol": 1e-12}
    expected = KernelRegressor("precomputed", **settings).fit(kernel, y).predict(cross)
    in_tiles = KernelRegressor("precomputed", **settings).fit(tiled(kernel, 7, symmetric=True), y)
    np.testing.assert_allclose(in_tiles.predict(tiled(cross, 4, symmetric=False)), expected, rtol=1e-9, atol=1e-11)
    stored = path.store(tmp_path / "train", x)
    in_file = KernelRegressor("precomputed", **settings).fit(stored, y)
    stored_cross = path.store(tmp_path / "test", x_test, x)
    np.testing.assert_allclose(in_file.predict(stored_cross), expected, rtol=1e-9, atol=1e-11)
    # A symmetric kernel has half of its tiles, also to predict the training examples with.
    expected = KernelRegressor("precomputed", **settings).fit(kernel, y).predict(kernel)
    np.testing.assert_allclose(in_file.predict(stored), expected, rtol=1e-9, atol=1e-11)


def test_a_stored_kernel_of_another_training_set_is_refused(tmp_path):
    x, y = torch.from_numpy(rows(12)), rows(12, 1, seed=1)[:, 0]
    stored = LinearKernel().store(tmp_path / "train", x)
    with pytest.raises(ValueError, match=r"`y`.* 12 .*got 11"):
        KernelRegressor("precomputed").fit(stored, y[:11])
    estimator = KernelRegressor("precomputed").fit(stored, y)
    other = LinearKernel().store(tmp_path / "other", x[:5], x[:7])
    with pytest.raises(ValueError, match=" 12 training examples, got 5 x 7"):
        estimator.predict(other)
    with pytest.raises(ValueError, match=r"square.*5 x 7"):
        KernelRegressor("precomputed").fit(other, y[:5])
