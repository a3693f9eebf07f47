"""Arguments of machines, as scikit-learn's users and torch's give them."""

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data
from torch import Tensor

from neuralpath._memory import memory_budget
from neuralpath.estimators.kernel_products import check_symmetric, rounding
from neuralpath.estimators.kernel_tiles import KernelTiles, as_kernel_tiles, is_tiles

LARGEST_SEED = 2**63 - 1  # torch takes no larger one


def as_numpy(x: Any) -> Any:
    """A tensor as an array, without its gradient; anything else as it is."""
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else x


def checked_ridge(ridge: object, name: str = "ridge") -> float:
    """A ridge: a finite number, 0 or more."""
    if isinstance(ridge, bool) or not isinstance(ridge, Real) or not 0 <= float(ridge) < math.inf:
        raise ValueError(f"`{name}` must be a finite number, 0 or more, got {ridge!r}.")
    return float(ridge)


def checked_count(name: str, count: object, *, least: int) -> int:
    """A whole number, no smaller than another."""
    if isinstance(count, bool) or not isinstance(count, Integral) or int(count) < least:
        raise ValueError(f"`{name}` must be a whole number, {least} or more, got {count!r}.")
    return int(count)


def checked_seed(seed: object) -> int:
    """The seed of a machine: a whole number, so that it can be saved and fitting again gives the same."""
    number = checked_count("random_state", seed, least=0)
    if number > LARGEST_SEED:
        raise ValueError(f"`random_state` must be at most {LARGEST_SEED}, got {number}.")
    return number


def checked_budget(memory: object) -> int:
    """A memory budget in bytes, by default a share of what is free."""
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


def checked_rows(machine: BaseEstimator, x: Any, *, reset: bool) -> Float[np.ndarray, "n d"]:
    """Rows of numbers in float32 or float64, by scikit-learn's own check.

    Examples with several axes, such as images, are flattened; with ``reset`` the machine remembers their shape.
    """
    x = as_numpy(x)
    has_shape = isinstance(x, np.ndarray) and x.ndim > 2
    if reset:
        machine.input_shape_ = x.shape[1:] if has_shape else None
    if has_shape:
        x = x.reshape(len(x), -1)
    return validate_data(machine, x, reset=reset, dtype=(np.float64, np.float32), order="C")


def checked_labels(machine: BaseEstimator, y: Any, n: int) -> np.ndarray:
    """Labels for n examples, of whatever kind: what they may be depends on the machine, which looks closer itself.

    Raises: ValueError if they are missing, or not n.
    """
    if y is None:
        raise ValueError(f"{type(machine).__name__} requires y to be passed, but the target y is None.")
    labels = check_array(as_numpy(y), ensure_2d=False, dtype=None, input_name="y")
    if len(labels) != n:
        raise ValueError(f"`y` must have a label for each of the {n} examples, got {len(labels)}.")
    return labels


def checked_training_kernel(machine: BaseEstimator, kernel: Any) -> KernelTiles:
    """A kernel that was computed beforehand: square, an array or tiles.

    Raises: ValueError if it is not a square matrix of real numbers.
    """
    matrix = None if is_tiles(kernel) else _matrix(machine, kernel, reset=True)
    tiles = as_kernel_tiles(kernel if matrix is None else matrix)
    machine.n_features_in_ = tiles.shape[1]
    rows, columns = tiles.shape
    if rows != columns:
        raise ValueError(
            f"a precomputed kernel must be square to train with, a row and a column for each training example; got "
            f"{rows} x {columns}. The kernel between test and training examples is for `predict`."
        )
    if matrix is not None:  # tiles are seen whole only by the exact solver; conjugate gradients look at their products
        check_symmetric(matrix, rounding(matrix.itemsize))
    return tiles


def checked_cross_kernel(machine: BaseEstimator, kernel: Any, n: int) -> KernelTiles:
    """A kernel between other examples, its rows, and the n training examples, its columns.

    Raises: ValueError if it does not have n columns.
    """
    shape = as_kernel_tiles(kernel).shape if is_tiles(kernel) else np.asarray(as_numpy(kernel)).shape
    if len(shape) == 2 and shape[1] != n:
        raise ValueError(
            f"a precomputed kernel to predict with must have a column for each of the {n} training examples, got "
            f"{shape[0]} x {shape[1]}; is it of another training set, or transposed?"
        )
    return as_kernel_tiles(kernel if is_tiles(kernel) else _matrix(machine, kernel, reset=False))


def _matrix(machine: BaseEstimator, kernel: Any, *, reset: bool) -> Float[np.ndarray, "rows columns"]:
    # NaN is looked for where the kernel is read, as in tiles, with a message that is about kernels.
    return validate_data(
        machine, as_numpy(kernel), reset=reset, dtype=(np.float64, np.float32), ensure_all_finite=False
    )


def shape_of_inputs(machine: Any) -> tuple[int, ...] | None:
    """The shape of one input: as the user gave it, otherwise that of the examples of the fit; None where rows are."""
    seen = getattr(machine, "input_shape_", None)  # a file may have a list, or be older than this attribute
    return checked_shape(machine.input_shape if machine.input_shape is not None or seen is None else tuple(seen))


def checked_shape(shape: object) -> tuple[int, ...] | None:
    """The shape of one input, or None."""
    if shape is None:
        return None
    if not isinstance(shape, tuple | list) or not all(isinstance(size, Integral) and int(size) > 0 for size in shape):
        raise ValueError(f"`input_shape` must be positive whole numbers, such as (1, 28, 28), got {shape!r}.")
    return tuple(int(size) for size in shape)
