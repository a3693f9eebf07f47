"""Checks of the arguments of estimators: rows, labels, precomputed kernels, and the weights of models."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
from jaxtyping import Float, Float64
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data
from torch import Tensor, nn

from neuralpath._checks import check_integer
from neuralpath._hashing import tensor_digest
from neuralpath.estimators.tiles import KernelMatrix, as_kernel_matrix, check_symmetric
from neuralpath.graph import PathGraph
from neuralpath.kernels import StoredKernel, TiledKernel, differences

LARGEST_SEED = 2**63 - 1  # torch accepts no larger one


def as_numpy(x: Any) -> Any:
    """A tensor as an array, without its gradient; anything else unchanged."""
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else x


def checked_seed(seed: object) -> int:
    """The parameter ``random_state``: an integer, so that every fit gives the same result."""
    number = check_integer("random_state", seed, 0)
    if number > LARGEST_SEED:
        raise ValueError(f"`random_state` must be at most {LARGEST_SEED}, got {number}.")
    return number


def checked_rows(estimator: BaseEstimator, x: Any, *, reset: bool) -> Float[np.ndarray, "n d"]:
    """Examples as rows of float32 or float64, flattened; with ``reset`` the estimator remembers their shape."""
    x = as_numpy(x)
    has_shape = isinstance(x, np.ndarray) and x.ndim > 2
    if reset:
        estimator.input_shape_ = x.shape[1:] if has_shape else None
    if has_shape:
        x = x.reshape(len(x), -1)
    return validate_data(estimator, x, reset=reset, dtype=(np.float64, np.float32), order="C")


def checked_labels(estimator: BaseEstimator, y: Any, n: int) -> np.ndarray:
    """One label for each of n examples, of any type; the estimator itself checks their type."""
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    labels = check_array(as_numpy(y), ensure_2d=False, dtype=None, input_name="y")
    if len(labels) != n:
        raise ValueError(f"`y` must have a label for each of the {n} examples, got {len(labels)}.")
    return labels


def checked_kernel(estimator: BaseEstimator, kernel: Any, n_training: int | None = None) -> KernelMatrix:
    """A precomputed kernel, an array or tiles: that of the training examples, or test rows with n training columns."""
    is_tiled = isinstance(kernel, TiledKernel | StoredKernel)
    # Before scikit-learn's own check, whose message is about features.
    shape = (kernel.plan.n1, kernel.plan.n2) if is_tiled else np.asarray(as_numpy(kernel)).shape
    if n_training is not None and len(shape) == 2 and shape[1] != n_training:
        expected = f"must have a column for each of the {n_training} training examples"
        got = f"{shape[0]} x {shape[1]}: is it transposed?"
        raise ValueError(f"a precomputed kernel for `predict` {expected}, got {got}")
    if not is_tiled:
        # The code that reads the kernel checks for NaN, with a message about kernels.
        settings: Any = {"dtype": (np.float64, np.float32), "ensure_all_finite": False}
        kernel = validate_data(estimator, as_numpy(kernel), reset=n_training is None, **settings)
    matrix = as_kernel_matrix(kernel)
    if n_training is None:
        rows, columns = matrix.shape
        estimator.n_features_in_ = columns
        if rows != columns:
            raise ValueError(f"a precomputed kernel must be square for `fit`; got {rows} x {columns}.")
        if not is_tiled:  # the solvers check tiles
            check_symmetric(kernel, kernel.itemsize)
    return matrix


def checked_diagonal(diagonal: Any, n: int) -> Float64[np.ndarray, " m"]:
    """The user's k(x, x) of each of n test examples."""
    if diagonal is None:
        raise ValueError("with a precomputed kernel the standard deviation needs k(x, x) of each row, as `diagonal`.")
    prior = np.asarray(as_numpy(diagonal), dtype=np.float64)
    if prior.shape != (n,):
        raise ValueError(f"`diagonal` must have a number for each of the {n} test examples, got shape {prior.shape}.")
    return prior


def shape_of_inputs(estimator: Any) -> tuple[int, ...] | None:
    """The shape of one input: the parameter ``input_shape``, else that of the examples of the fit; None for rows."""
    shape = estimator.input_shape
    if shape is None:
        return getattr(estimator, "input_shape_", None)
    if not isinstance(shape, tuple | list) or not all(isinstance(size, Integral) and int(size) > 0 for size in shape):
        raise ValueError(f"`input_shape` must be positive whole numbers, such as (1, 28, 28), got {shape!r}.")
    return tuple(int(size) for size in shape)


def model_weights(model: nn.Module | PathGraph | None) -> dict[str, str]:
    """A digest of each parameter and buffer of a model. Cost: about a second for a billion bytes."""
    if model is None:
        return {}
    module = model.model if isinstance(model, PathGraph) else model
    return {name: tensor_digest(tensor) for name, tensor in (*module.named_parameters(), *module.named_buffers())}


def check_unchanged(at_fit: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuse a model whose weights have changed since the fit: its kernel no longer belongs to the coefficients."""
    if changed := differences({"weights": at_fit}, {"weights": now}):
        advice = "Fit again, or give the estimator a copy of a model that continues to train."
        raise ValueError(f"the model has changed since the fit, in its {changed[0]}. {advice}")
