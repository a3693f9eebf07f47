"""A tangent kernel as tiles, with an estimate that tells apart what grows with examples and what with pairs."""

import time
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath.kernels.tangent.tangent_tiles import Job, Way
from neuralpath.kernels.tiling.estimate import Estimate
from neuralpath.kernels.tiling.fill import fill
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel

SHORT = 3e10
"""Multiplications of about a second, which need no estimate."""

SHORT_ENTRIES = 2**24
"""Entries of a kernel whose size needs no look at the free memory."""

SAMPLE = 64
"""Examples that the estimate looks at, on each side, at most."""

ENOUGH = 2.0
"""Seconds of a sample that is large enough to judge by, where fewer examples than that take so long."""


@dataclass(frozen=True, slots=True, eq=False)
class TangentTiles(TiledKernel):
    """A tangent kernel that is computed tile by tile; iterate to get each tile and its values.

    With all outputs, a row or column of the kernel is an output of an example, those of an example together.
    """

    job: Job
    general: tuple[str, ...]
    """Parameters whose gradients are found the general way, because they are read by operations without a rule."""

    def filled(self, progress: bool | None = None) -> Float[Tensor, "rows columns"]:
        """The whole kernel in memory; as ``TiledKernel.filled``, but work that is short by count is begun at once."""
        if self.job.multiplications > SHORT or self.plan.n1 * self.plan.n2 > SHORT_ENTRIES:
            return TiledKernel.filled(self, progress)
        out = torch.empty(self.plan.n1, self.plan.n2, dtype=self.dtype, device=self.device)
        fill(out, self.plan, self.values, what=self.what, show=progress)
        return out

    def estimate(self) -> Estimate:
        """What the whole will cost, from features and inner products of a few examples."""
        job, store = self.job, self.job.store
        side, most = 1, min(SAMPLE, job.plan.n1, job.plan.n2)
        self._timed(1)  # whatever is slow once
        while True:
            # The lesser of two: on a busy machine one call in a few waits for a thread.
            features, products = (min(times) for times in zip(*(self._timed(side) for _ in range(2)), strict=True))
            if side == most or 2 * side * features + products > ENOUGH:
                break
            side = min(8 * side, most)
        shapes = [tile.shape for tile in job.plan.tiles()]
        runs = job.plan.n1 + (0 if store.x2 is None else job.plan.n2)
        if not store.keep:
            runs = job.plan.n1 + sum(columns for _, columns in shapes)
        seconds = features * runs + products / side**2 * sum(rows * columns for rows, columns in shapes)
        return Estimate(seconds, self.plan.working_bytes, self._result_bytes)

    def _timed(self, side: int) -> tuple[float, float]:
        """Seconds for the features of an example, and for the inner products of some examples with others."""
        store, part = self.job.store, slice(0, side)
        x2 = store.x1 if store.x2 is None else store.x2
        begun = time.perf_counter()
        one, two = store.made(store.x1[part]), store.made(x2[part])
        made = time.perf_counter()
        self.job.products(one, two, part, part)
        return (made - begun) / (2 * side), time.perf_counter() - made


def as_tiles(what: str, job: Job, way: Way) -> TangentTiles:
    """A planned kernel as tiles."""
    return TangentTiles(what, job.rows_plan, job.tile, job.dtype, job.store.x1.device, job, way.general)
