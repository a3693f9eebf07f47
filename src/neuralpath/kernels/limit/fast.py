"""Tiles of chains by the fused kernels, which take a pair of examples through all layers at once."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from neuralpath._loops import n_threads
from neuralpath._progress import Step
from neuralpath.kernels.limit.chains import Chain, chain_of
from neuralpath.kernels.limit.fused_chain import LimitChain, segments_of
from neuralpath.kernels.limit.fused_dense import DenseStep, can_fuse
from neuralpath.kernels.limit.fused_gram import Combination, dense_kernel, write_dense_kernel
from neuralpath.kernels.limit.fused_images import PreparedImages, fused_image_kernels, prepare_images, workspace_bytes
from neuralpath.kernels.limit.limit_tiles import Job
from neuralpath.kernels.tiling.plan import Cost, Plan, Tile, make_plan

DENSE_PAIRS = 512**2
"""Pairs of a tile of vectors: the Gram product runs at full speed."""

IMAGE_PAIRS = 64**2
"""Pairs of a tile of images: enough for all threads, and to forget what is done once for a tile."""


@dataclass(frozen=True, slots=True, eq=False)
class FusedTiles:
    """The plan of a chain, its tiles, and the whole of it at once where that is better."""

    plan: Plan
    tile: Callable[[Tile], Float[Tensor, "rows columns"]]
    write: Callable[[Float[Tensor, "rows columns"], Step], None] | None = None


def fused_tiles(job: Job, budget: int) -> FusedTiles | None:
    """Tiles by the fused kernels, where the graph is a chain that they take and their memory fits the budget."""
    chain = chain_of(job.limit)
    if chain is None or not can_fuse(job.x1, *([] if job.x2 is None else [job.x2])):
        return None
    wanted = _wanted(chain, tangent=bool(job.limit.carried))
    if isinstance(chain.steps, LimitChain):
        return _image_tiles(job, chain.steps, wanted, budget)
    # The tile itself, which is its own Gram matrix.
    cost = Cost(job.x1.element_size(), 16 * (len(chain.dense) + 1) + 8, DENSE_PAIRS)
    if cost.smallest > budget:
        return None
    n1, n2 = _sizes(job)
    vectors = _Vectors(job, chain.dense, wanted)
    return FusedTiles(make_plan(n1, n2, cost, budget, symmetric=job.x2 is None), vectors.tile, vectors.write)


def _wanted(chain: Chain, *, tangent: bool) -> Combination:
    """The kernel that is asked for, with the output layer's own variance."""
    share, bias = chain.output_share, chain.dense[-1].bias_variance
    if tangent:
        return Combination(output=1 - share, tangent=share)
    return Combination(output=share, constant=(1 - share) * bias)


def _image_tiles(job: Job, chain: LimitChain, wanted: Combination, budget: int) -> FusedTiles | None:
    (_, channels, height, width), size = job.x1.shape, job.x1.element_size()
    shape = channels, height, width
    per_example = 8 * _image_numbers(chain, shape)
    # Two lists of pairs, both moments in double precision, and the results.
    cost = Cost(2 * 16 + 2 * 16 + 4 * size, per_example, IMAGE_PAIRS)
    kept = n_threads() * workspace_bytes(chain, shape, job.x1.dtype)
    if budget - kept < cost.smallest:
        return None
    (n1, n2), symmetric = _sizes(job), job.x2 is None
    images, prepared = _Images(job, chain, wanted), per_example * (n1 + (0 if symmetric else n2))
    if prepared <= min(budget // 4, budget - kept - cost.smallest):
        images, kept = images.prepared(), kept + prepared
    plan = make_plan(n1, n2, cost, budget - kept, symmetric=symmetric, kept_bytes=kept)
    return FusedTiles(plan, images.tile)


def _sizes(job: Job) -> tuple[int, int]:
    return len(job.x1), len(job.x1 if job.x2 is None else job.x2)


def _is_diagonal(job: Job, tile: Tile) -> bool:
    return job.x2 is None and tile.rows == tile.columns


@dataclass(frozen=True, slots=True, eq=False)
class _Vectors:
    job: Job
    steps: tuple[DenseStep, ...]
    wanted: Combination

    def tile(self, tile: Tile) -> Float[Tensor, "rows columns"]:
        one = self.job.x1[tile.rows].flatten(1)
        if _is_diagonal(self.job, tile):
            return dense_kernel(self.steps, self.wanted, one)
        two = (self.job.x1 if self.job.x2 is None else self.job.x2)[tile.columns].flatten(1)
        return dense_kernel(self.steps, self.wanted, one, two)

    def write(self, out: Float[Tensor, "rows columns"], step: Step) -> None:
        x2 = None if self.job.x2 is None else self.job.x2.flatten(1)
        write_dense_kernel(out, self.steps, self.wanted, self.job.x1.flatten(1), x2, step)


@dataclass(frozen=True, slots=True, eq=False)
class _Images:
    job: Job
    chain: LimitChain
    wanted: Combination
    rows: PreparedImages | None = None
    columns: PreparedImages | None = None

    def prepared(self) -> "_Images":
        """With the variances of all examples computed once."""
        rows = prepare_images(self.chain, self.job.x1)
        columns = rows if self.job.x2 is None else prepare_images(self.chain, self.job.x2)
        return replace(self, rows=rows, columns=columns)

    def tile(self, tile: Tile) -> Float[Tensor, "rows columns"]:
        x2 = self.job.x1 if self.job.x2 is None else self.job.x2
        rows = prepare_images(self.chain, self.job.x1[tile.rows]) if self.rows is None else self.rows[tile.rows]
        if _is_diagonal(self.job, tile):
            return self.wanted.of(fused_image_kernels(rows))
        columns = prepare_images(self.chain, x2[tile.columns]) if self.columns is None else self.columns[tile.columns]
        return self.wanted.of(fused_image_kernels(rows, columns))


def _image_numbers(chain: LimitChain, shape: tuple[int, int, int]) -> int:
    """Numbers that a prepared image holds: itself, two for each position of each layer, and margins of two rows."""
    channels, height, width = shape
    total = channels * (height + 2) * width
    for segment in segments_of(chain, (height, width)):
        total += 2 * (segment.positions + 2 * segment.size[1]) * len(segment.activated)
    return total
