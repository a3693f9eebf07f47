"""Filling a kernel matrix tile by tile."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from neuralpath._progress import progress_bar
from neuralpath.kernels.tiling.plan import Plan, Tile


def fill(
    out: Float[Tensor, "*kernels rows columns"],
    plan: Plan,
    compute: Callable[[Tile], Float[Tensor, "*kernels _rows _columns"]],
    *,
    what: str = "kernel",
    show: bool | None = None,
) -> None:
    """Compute every tile into ``out``; the lower half of a symmetric kernel is a copy of the upper, exactly."""
    with progress_bar(plan.n_pairs, what, show) as step:
        for tile in plan.tiles():
            values = compute(tile)
            if plan.symmetric and tile.rows != tile.columns:
                out[..., tile.columns, tile.rows] = values.mT
            out[..., tile.rows, tile.columns] = values
            step(tile.n_pairs(plan.symmetric))
