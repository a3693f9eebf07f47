"""The kernel that an estimator's parameters name, between rows of numbers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from neuralpath._checks import describe
from neuralpath.estimators.tiles import check_symmetric
from neuralpath.graph import PathGraph, common_dtype, trace
from neuralpath.kernels import BudgetTooSmall, Cost, Tile, TiledKernel, check_kernel_name, make_plan, named_tiles

PRECOMPUTED = "precomputed"

KernelFunction = Callable[[Any, Any], Any]

DIAGONAL_BLOCK = 16
"""Examples whose kernel is computed together for their diagonal entries: fewer calls against more pairs."""

TILES_SHARE = 5
"""Of what the matrix leaves of the budget, one part in so many is for tiles: their copies in float64 and the vectors of
the solver need the rest."""

_CALLED_PAIRS = 2**24  # pairs that a kernel function gets at once, at most


@dataclass(frozen=True, slots=True, eq=False)
class KernelChoice:
    """A kernel of this library by name with its model, or a function of two arrays of rows.

    ``input_shape`` is that of one example, where rows are flattened images and the model is not a graph, which knows
    its own.
    """

    kernel: str | KernelFunction
    model: nn.Module | PathGraph | None = None
    input_shape: tuple[int, ...] | None = None
    normalize: bool = False

    def __post_init__(self) -> None:
        if callable(self.kernel):
            return
        try:
            check_kernel_name(self.kernel, normalize=self.normalize)
        except ValueError as error:
            raise ValueError(f"`kernel`: {error} 'precomputed' and a function of two arrays are taken too.") from error
        if self.kernel != "linear" and self.model is None:
            raise ValueError(f"the kernel {self.kernel!r} is that of a network: give `model`, a module or a PathGraph.")


def with_graph(choice: KernelChoice, x: Float[np.ndarray, "n d"]) -> KernelChoice:
    """The same kernel with the graph of its module, where it reads a graph: a module is traced once, not at each use.

    A graph follows its module, whose weights it reads.
    """
    if not isinstance(choice.model, nn.Module) or choice.kernel == "tangent" or callable(choice.kernel):
        return choice
    return replace(choice, model=trace(choice.model, model_inputs(x[:1], choice.model, choice.input_shape)))


def computed_kernel(
    choice: KernelChoice,
    x1: Float[np.ndarray, "_rows1 d"],
    x2: Float[np.ndarray, "_rows2 d"] | None,
    budget: int,
) -> TiledKernel:
    """The kernel between two batches of rows, or of one with itself, as tiles under a budget in bytes.

    Raises: as the kernel's own function; ValueError if rows do not have the numbers of an input.
    """
    if callable(choice.kernel):
        return _called(choice.kernel, x1, x2, budget)
    first = model_inputs(x1, choice.model, choice.input_shape)
    second = None if x2 is None else model_inputs(x2, choice.model, choice.input_shape)
    return named_tiles(choice.kernel, choice.model, first, second, memory=budget, normalize=choice.normalize)


def training_kernel(choice: KernelChoice, x: Float[np.ndarray, "n d"], budget: int) -> TiledKernel:
    """The kernel of the training rows; leaves of the budget what the whole matrix needs, where that is possible."""
    left = budget - 8 * len(x) ** 2
    try:
        return computed_kernel(choice, x, None, (left if left > 0 else budget) // TILES_SHARE)
    except BudgetTooSmall:
        return computed_kernel(choice, x, None, budget)


def kernel_diagonal(choice: KernelChoice, x: Float[np.ndarray, "n d"], budget: int) -> Float64[np.ndarray, " n"]:
    """k(x, x) of each row, without the kernel between them."""
    kernel = computed_kernel(choice, x, None, budget)
    step = min(DIAGONAL_BLOCK, kernel.plan.block1)
    parts = (slice(start, min(start + step, len(x))) for start in range(0, len(x), step))
    return torch.cat([kernel.compute(Tile(part, part)).diagonal().double().cpu() for part in parts]).numpy()


def model_inputs(
    x: Float[np.ndarray, "n d"], model: nn.Module | PathGraph | None, shape: tuple[int, ...] | None
) -> Float[Tensor, "n ..."]:
    """Rows as inputs of a model: of its shape (a graph knows it), its dtype, and on its device.

    Raises: ValueError if a row does not have the numbers of an input.
    """
    if shape is None and isinstance(model, PathGraph):
        shape = model.input_shape
    rows = torch.from_numpy(x if x.flags.writeable else x.copy())  # torch warns of memory that it may not write
    if shape is not None:
        if prod(shape) != rows.shape[1]:
            raise ValueError(
                f"a row of X must be a flattened input of shape {tuple(shape)}, {prod(shape)} numbers; it has "
                f"{rows.shape[1]}."
            )
        rows = rows.reshape(len(rows), *shape)
    params = [] if model is None else list((model.params if isinstance(model, PathGraph) else _named(model)).values())
    return rows.to(params[0].device if params else "cpu", common_dtype(params) or rows.dtype)


def _named(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.named_parameters())


def _called(
    kernel: KernelFunction, x1: Float[np.ndarray, "_rows1 d"], x2: Float[np.ndarray, "_rows2 d"] | None, budget: int
) -> TiledKernel:
    """A user's function as tiles; on the diagonal it is seen to be symmetric, or refused."""
    second = x1 if x2 is None else x2

    def tile_of(tile: Tile) -> Float64[Tensor, "_rows _columns"]:
        given = kernel(x1[tile.rows], second[tile.columns])
        values = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
        if values.shape != tile.shape or values.dtype.kind not in "fiu":
            raise ValueError(
                f"`kernel` must return a real matrix with a row and a column for each row of its arguments, "
                f"{tile.shape}; it returned {describe(given)} of shape {values.shape} and dtype {values.dtype}."
            )
        if x2 is None and tile.rows == tile.columns:
            check_symmetric(values.astype(np.float64), values.itemsize if values.dtype.kind == "f" else 8)
        return torch.from_numpy(values.astype(np.float64))

    cost = Cost(32, 2 * x1.itemsize * x1.shape[1], _CALLED_PAIRS)
    plan = make_plan(len(x1), len(second), cost, budget, symmetric=x2 is None)
    return TiledKernel("kernel", plan, tile_of, torch.float64, torch.device("cpu"))
