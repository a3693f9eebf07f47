"""Tiles of chains by the fused kernels, which take a pair of examples through all layers at once."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from neuralpath.bits.compiled import n_threads
from neuralpath.readings.limit.chains import Chain, chain_of
from neuralpath.readings.limit.fused_chain import LimitChain, segments_of
from neuralpath.readings.limit.fused_dense import LimitKernels, can_fuse, fused_dense_kernels
from neuralpath.readings.limit.fused_images import PreparedImages, fused_image_kernels, prepare_images, workspace_bytes
from neuralpath.readings.limit.tiled import Job
from neuralpath.tiles.plan import Cost, Plan, Tile, make_plan

DENSE_PAIRS = 512**2
"""Pairs of a tile of vectors: the Gram product runs at full speed."""

IMAGE_PAIRS = 64**2
"""Pairs of a tile of images: enough for all threads, and to forget what is done once for a tile."""


@dataclass(frozen=True, slots=True, eq=False)
class FusedTiles:
    """The plan and the tiles of a chain."""

    plan: Plan
    kernels: Callable[[Tile], LimitKernels]
    chain: Chain
    tangent: bool

    def tile(self, tile: Tile) -> Float[Tensor, "rows columns"]:
        """The kernel that is asked for, with the output layer's own variance."""
        found, share = self.kernels(tile), self.chain.output_share
        bias = self.chain.dense[-1].bias_variance
        if self.tangent:
            return found.tangent if share == 1 else share * found.tangent + (1 - share) * found.output
        return found.output if share == 1 else share * (found.output - bias) + bias


def fused_tiles(job: Job, budget: int) -> FusedTiles | None:
    """Tiles by the fused kernels, where the graph is a chain that they take and their memory fits the budget."""
    chain = chain_of(job.limit)
    if chain is None or not can_fuse(job.x1, *([] if job.x2 is None else [job.x2])):
        return None
    n1, n2 = len(job.x1), len(job.x1 if job.x2 is None else job.x2)
    tangent = bool(job.limit.carried)
    symmetric, kept = job.x2 is None, 0
    of_tile: Callable[[Tile], LimitKernels]
    if isinstance(chain.steps, LimitChain):
        (_, channels, height, width), size = job.x1.shape, job.x1.element_size()
        shape = channels, height, width
        threads = n_threads() * workspace_bytes(chain.steps, shape, job.x1.dtype)
        per_example = 8 * _image_numbers(chain.steps, shape)
        # Two lists of pairs, both moments in double precision, and the results.
        cost = Cost(2 * 16 + 2 * 16 + 4 * size, per_example, IMAGE_PAIRS)
        images = _ImageTiles(job, chain.steps)
        prepared = per_example * (n1 + (0 if symmetric else n2))
        kept = threads
        if budget - kept < cost.smallest:
            return None
        if prepared <= min(budget // 4, budget - kept - cost.smallest):
            images, kept = images.prepared(), kept + prepared
        of_tile = images.kernels
    else:
        # The Gram matrix, both results, and their copies for the loops.
        cost = Cost(6 * job.x1.element_size(), 16 * (len(chain.dense) + 1) + 8, DENSE_PAIRS)
        if cost.smallest > budget:
            return None
        of_tile = _DenseTiles(job, chain).kernels
    plan = make_plan(n1, n2, cost, budget - kept, symmetric=symmetric, kept_bytes=kept)
    return FusedTiles(plan, of_tile, chain, tangent)


def _is_diagonal(job: Job, tile: Tile) -> bool:
    return job.x2 is None and tile.rows == tile.columns


@dataclass(frozen=True, slots=True, eq=False)
class _DenseTiles:
    job: Job
    chain: Chain

    def kernels(self, tile: Tile) -> LimitKernels:
        one = self.job.x1[tile.rows].flatten(1)
        if _is_diagonal(self.job, tile):
            return fused_dense_kernels(self.chain.dense, one)
        two = (self.job.x1 if self.job.x2 is None else self.job.x2)[tile.columns].flatten(1)
        return fused_dense_kernels(self.chain.dense, one, two)


@dataclass(frozen=True, slots=True, eq=False)
class _ImageTiles:
    job: Job
    chain: LimitChain
    rows: PreparedImages | None = None
    columns: PreparedImages | None = None

    def prepared(self) -> "_ImageTiles":
        """With the variances of all examples computed once."""
        rows = prepare_images(self.chain, self.job.x1)
        columns = rows if self.job.x2 is None else prepare_images(self.chain, self.job.x2)
        return _ImageTiles(self.job, self.chain, rows, columns)

    def kernels(self, tile: Tile) -> LimitKernels:
        x2 = self.job.x1 if self.job.x2 is None else self.job.x2
        rows = prepare_images(self.chain, self.job.x1[tile.rows]) if self.rows is None else self.rows[tile.rows]
        if _is_diagonal(self.job, tile):
            return fused_image_kernels(rows)
        columns = prepare_images(self.chain, x2[tile.columns]) if self.columns is None else self.columns[tile.columns]
        return fused_image_kernels(rows, columns)


def _image_numbers(chain: LimitChain, shape: tuple[int, int, int]) -> int:
    """Numbers that a prepared image holds: itself, two for each position of each layer, and margins of two rows."""
    channels, height, width = shape
    total = channels * (height + 2) * width
    for segment in segments_of(chain, (height, width)):
        total += 2 * (segment.positions + 2 * segment.size[1]) * len(segment.activated)
    return total
