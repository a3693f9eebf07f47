"""Checks of the arguments of estimators: parameters, rows, labels, precomputed kernels, and models."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from jaxtyping import Float, Float64
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data
from torch import Tensor, nn

from neuralpath._hashing import tensor_digest
from neuralpath._resources import memory_budget
from neuralpath.estimators.tiles import KernelMatrix, as_kernel_matrix, check_symmetric, is_tiled
from neuralpath.graph import PathGraph
from neuralpath.kernels import differences

LARGEST_SEED = 2**63 - 1  # torch accepts no larger one

Settings = Mapping[str, str | Mapping[str, str]]
"""Everything that a kernel or sketch depends on, as text and digests by name."""


def as_numpy(x: Any) -> Any:
    """A tensor as an array, without its gradient; anything else unchanged."""
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else x


def checked_ridge(ridge: object, name: str = "ridge") -> float:
    """A finite number, 0 or more."""
    if isinstance(ridge, bool) or not isinstance(ridge, Real) or not 0 <= float(ridge) < math.inf:
        raise ValueError(f"`{name}` must be a finite number, 0 or more, got {ridge!r}.")
    return float(ridge)


def checked_count(name: str, count: object, *, least: int) -> int:
    """A whole number, at least ``least``."""
    if isinstance(count, bool) or not isinstance(count, Integral) or int(count) < least:
        raise ValueError(f"`{name}` must be a whole number, {least} or more, got {count!r}.")
    return int(count)


def checked_seed(seed: object) -> int:
    """The parameter ``random_state``: a whole number, so that every fit gives the same result."""
    number = checked_count("random_state", seed, least=0)
    if number > LARGEST_SEED:
        raise ValueError(f"`random_state` must be at most {LARGEST_SEED}, got {number}.")
    return number


def checked_budget(memory: object) -> int:
    """A memory budget in bytes, by default a share of the free memory."""
    if memory is None:
        return memory_budget()
    if isinstance(memory, bool) or not isinstance(memory, Real) or not 0 < float(memory) < math.inf:
        raise ValueError(
            f"`memory` must be a positive number of bytes, such as 8 * 2**30 for 8 GiB, or None; got {memory!r}."
        )
    return memory_budget(int(float(memory)))


def checked_tolerance(tol: object) -> float:
    """A relative residual."""
    if isinstance(tol, bool) or not isinstance(tol, Real) or not 0 < float(tol) < 1:
        raise ValueError(f"`tol` must be a relative residual between 0 and 1, got {tol!r}.")
    return float(tol)


def checked_rows(estimator: BaseEstimator, x: Any, *, reset: bool) -> Float[np.ndarray, "n d"]:
    """Rows of numbers in float32 or float64, by scikit-learn's own check.

    Examples with several axes, such as images, are flattened; with ``reset`` the estimator remembers their shape.
    """
    x = as_numpy(x)
    has_shape = isinstance(x, np.ndarray) and x.ndim > 2
    if reset:
        estimator.input_shape_ = x.shape[1:] if has_shape else None
    if has_shape:
        x = x.reshape(len(x), -1)
    return validate_data(estimator, x, reset=reset, dtype=(np.float64, np.float32), order="C")


def checked_labels(estimator: BaseEstimator, y: Any, n: int) -> np.ndarray:
    """One label for each of n examples, of any type; the estimator itself checks their type.

    Raises: ValueError if there are no labels, or not n.
    """
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    labels = check_array(as_numpy(y), ensure_2d=False, dtype=None, input_name="y")
    if len(labels) != n:
        raise ValueError(f"`y` must have a label for each of the {n} examples, got {len(labels)}.")
    return labels


def checked_training_kernel(estimator: BaseEstimator, kernel: Any) -> KernelMatrix:
    """A precomputed kernel of the training examples: an array or tiles.

    Raises: ValueError if it is not a square matrix of real numbers, or an array that is not symmetric.
    """
    array = None if is_tiled(kernel) else _as_array(estimator, kernel, reset=True)
    matrix = as_kernel_matrix(kernel if array is None else array)
    estimator.n_features_in_ = matrix.shape[1]
    rows, columns = matrix.shape
    if rows != columns:
        raise ValueError(
            f"a precomputed kernel must be square for `fit`, with a row and a column for each training example; got "
            f"{rows} x {columns}. `predict` takes the kernel between test and training examples."
        )
    if array is not None:  # the solvers check tiles
        check_symmetric(array, array.itemsize)
    return matrix


def checked_cross_kernel(estimator: BaseEstimator, kernel: Any, n: int) -> KernelMatrix:
    """A precomputed kernel between test examples (rows) and the n training examples (columns).

    Raises: ValueError if it does not have n columns.
    """
    shape = as_kernel_matrix(kernel).shape if is_tiled(kernel) else np.asarray(as_numpy(kernel)).shape
    if len(shape) == 2 and shape[1] != n:
        raise ValueError(
            f"a precomputed kernel for `predict` must have a column for each of the {n} training examples, got "
            f"{shape[0]} x {shape[1]}; does it belong to another training set, or is it transposed?"
        )
    return as_kernel_matrix(kernel if is_tiled(kernel) else _as_array(estimator, kernel, reset=False))


def _as_array(estimator: BaseEstimator, kernel: Any, *, reset: bool) -> Float[np.ndarray, "rows columns"]:
    # The code that reads the kernel checks for NaN, with a message about kernels.
    return validate_data(
        estimator, as_numpy(kernel), reset=reset, dtype=(np.float64, np.float32), ensure_all_finite=False
    )


def checked_diagonal(diagonal: Any, n: int) -> Float64[np.ndarray, " m"]:
    """The user's k(x, x) of each of n test examples.

    Raises: ValueError if it is missing, or not n numbers.
    """
    if diagonal is None:
        raise ValueError(
            "the standard deviation needs k(x, x) of each test example, which a precomputed kernel between test and "
            "training examples does not contain: give it as `diagonal`."
        )
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


def model_weights(model: nn.Module | PathGraph | None) -> Settings:
    """A digest of each parameter and buffer of a model, by name.

    Cost: one pass over the weights, about a second for a billion bytes.
    """
    if model is None:
        return {}
    module = model.model if isinstance(model, PathGraph) else model
    return {"weights": {name: tensor_digest(tensor) for name, tensor in module.state_dict().items()}}


def check_unchanged(at_fit: Settings, now: Settings) -> None:
    """Refuse a model that has changed since the fit: its kernel no longer belongs to the coefficients.

    Raises: ValueError that names the weights.
    """
    changed = differences(at_fit, now)
    if changed:
        raise ValueError(
            f"the model has changed since the fit, in its {', '.join(changed)}: its kernel no longer belongs to the "
            "coefficients. Fit again, or give the estimator a copy of a model that continues to train."
        )


PROBE_ROUNDING = {np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-9}
"""Largest relative difference between probes on different processors or numbers of threads; rounding may switch a gate
whose pre-activation is nearly 0, one of many in its layer."""


def check_probe(at_fit: Float[np.ndarray, "..."], now: Float[np.ndarray, "..."]) -> None:
    """Refuse a model that gives other kernel entries than at the fit, although its weights are the same.

    Digests of weights do not cover the code of a model, nor numbers in it that are not parameters or buffers.
    Raises: ValueError.
    """
    scale = max(float(np.abs(at_fit).max()), float(np.abs(now).max()))
    gap = float(np.abs(at_fit.astype(np.float64) - now).max())
    if not gap <= PROBE_ROUNDING[at_fit.dtype] * scale:  # refuses NaN too
        raise ValueError(
            "the model has changed since the fit: with the same weights and the same rows it gives kernel entries that "
            f"differ by {gap / scale:.1e} of the largest. Its code has changed, or a number in it that is not a "
            "parameter or buffer. Fit again, or restore the model."
        )
