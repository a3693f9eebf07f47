"""Evaluation of an estimator's kernel on rows of numbers."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from neuralpath._checks import describe
from neuralpath._resources import memory_budget
from neuralpath.estimators.checks import as_numpy, model_weights
from neuralpath.estimators.tiles import check_symmetric
from neuralpath.graph import PathGraph, common_dtype
from neuralpath.kernels import BudgetTooSmall, Cost, Kernel, LimitKernel, Tile, TiledKernel, make_plan

KernelFunction = Callable[[Any, Any], Any]
Rows = Float[np.ndarray, "_ _"]
# Of the budget that the whole matrix leaves, tiles get one part in this many; their copies in float64 and the vectors
# of the solver need the rest.
TILES_SHARE = 5
_CALLED_PAIRS = 2**24  # largest number of pairs in one call of a kernel function


@dataclass(frozen=True, eq=False)
class FunctionKernel(Kernel):
    """A user's function of two arrays as a kernel; blocks on the diagonal are checked for symmetry."""

    function: KernelFunction

    def tiles(
        self, x1: Float[Tensor, "rows1 d"], x2: Float[Tensor, "rows2 d"] | None = None, *, memory: int | None = None
    ) -> TiledKernel:
        """The values of the function, in tiles."""
        rows = x1.numpy()
        columns = rows if x2 is None else x2.numpy()

        def compute(tile: Tile) -> Float64[Tensor, "_rows _columns"]:
            result = self.function(rows[tile.rows], columns[tile.columns])
            values = np.asarray(as_numpy(result))
            if values.shape != tile.shape or values.dtype.kind not in "fiu":
                got = f"shape {values.shape} and dtype {values.dtype}"
                raise ValueError(f"`kernel` must return a real matrix of shape {tile.shape} for these rows, got {got}.")
            if x2 is None and tile.rows == tile.columns:
                check_symmetric(values.astype(np.float64), values.itemsize if values.dtype.kind == "f" else 8)
            return torch.from_numpy(values.astype(np.float64))

        cost = Cost(32, 2 * rows.itemsize * rows.shape[1], _CALLED_PAIRS)
        plan = make_plan(len(rows), len(columns), cost, memory_budget(memory), symmetric=x2 is None)
        return TiledKernel("kernel", plan, compute, torch.float64, torch.device("cpu"))


def as_kernel(kernel: object) -> Kernel:
    """The parameter ``kernel`` of an estimator as a kernel object."""
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel) and not isinstance(kernel, type):
        return FunctionKernel(kernel)
    error = ValueError if isinstance(kernel, str) else TypeError
    got = repr(kernel) if isinstance(kernel, str | type) else describe(kernel)
    raise error(f"`kernel` must be a kernel such as `PathKernel(model)`, a function, or 'precomputed'; got {got}.")


def network_of(kernel: Kernel) -> nn.Module | PathGraph | None:
    """The network among the fields of a kernel, if it has one."""
    values: list[Any] = [getattr(kernel, field.name) for field in fields(kernel)] if is_dataclass(kernel) else []
    return next((value for value in values if isinstance(value, nn.Module | PathGraph)), None)


def kernel_weights(kernel: Kernel) -> dict[str, str]:
    """A digest of each weight that a kernel's values depend on; there are none for networks of infinite width."""
    return {} if isinstance(kernel, LimitKernel) else model_weights(network_of(kernel))


def kernel_tiles(kernel: Kernel, x1: Rows, x2: Rows | None, shape: tuple[int, ...] | None, budget: int) -> TiledKernel:
    """The kernel between two batches of rows, or of one with itself, as tiles under a budget in bytes."""
    # A function gets rows, even if it is a module itself.
    network, shape = (None, None) if isinstance(kernel, FunctionKernel) else (network_of(kernel), shape)
    second = None if x2 is None else model_inputs(x2, network, shape)
    tiles = kernel.tiles(model_inputs(x1, network, shape), second, memory=budget)
    if tiles.plan.n1 != len(x1) or tiles.kernels:
        problem = f"`kernel` has {tiles.plan.n1} rows for {len(x1)} examples"
        raise ValueError(f"{problem}, it needs one for each: give a kernel with `outputs='mean'` or one output.")
    return tiles


def training_tiles(kernel: Kernel, x: Rows, shape: tuple[int, ...] | None, budget: int) -> TiledKernel:
    """The kernel of the training rows, under the budget that the whole matrix leaves, if it leaves enough."""
    rest = budget - 8 * len(x) ** 2
    try:
        return kernel_tiles(kernel, x, None, shape, (rest if rest > 0 else budget) // TILES_SHARE)
    except BudgetTooSmall:
        return kernel_tiles(kernel, x, None, shape, budget)


def model_inputs(x: Rows, model: nn.Module | PathGraph | None, shape: tuple[int, ...] | None) -> Float[Tensor, "_ ..."]:
    """Rows as inputs of a model: of its shape (a graph knows it), its dtype, and on its device."""
    if shape is None and isinstance(model, PathGraph):
        shape = model.input_shape
    rows = torch.from_numpy(x if x.flags.writeable else x.copy())  # torch warns about read-only memory
    if shape is not None:
        if prod(shape) != rows.shape[1]:
            expected = f"a flattened input of shape {tuple(shape)}, {prod(shape)} numbers"
            raise ValueError(f"a row of X must be {expected}; it has {rows.shape[1]}.")
        rows = rows.reshape(len(rows), *shape)
    if model is None:
        return rows
    params = list(model.params.values()) if isinstance(model, PathGraph) else list(model.parameters())
    return rows.to(params[0].device if params else "cpu", common_dtype(params) or rows.dtype)
