"""Kernels of the pair reading, tile by tile: what is to be computed, and how one tile is."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._loops import use_bits
from neuralpath._precision import without_autocast
from neuralpath.graph import CHUNK_BYTES, Gates, PathGraph, check_gates, check_input, walk
from neuralpath.kernels.path.chain import dense_chain
from neuralpath.kernels.path.contraction import Frame
from neuralpath.kernels.path.cost import pair_cost
from neuralpath.kernels.path.images import ImageChain, image_chain
from neuralpath.kernels.path.reading import Inputs, PairReading
from neuralpath.kernels.path.scaled import Scaled
from neuralpath.kernels.tiling.plan import Tile, make_plan
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel
from neuralpath.kernels.tiling.workspace import Workspace


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A kernel to be computed: the graph, both batches, and how large the weights are."""

    graph: PathGraph
    x1: Tensor
    x2: Tensor | None
    gates1: Gates | None
    gates2: Gates | None
    variances: Mapping[str, float]
    bias_variance: float
    orders: int
    unit_scales: bool
    gates_memory: int = CHUNK_BYTES
    """What hidden values may take while gates are computed."""

    def batch(self, rows: slice, *, second: bool) -> Inputs:
        """Some examples of a batch with their gates."""
        x, gates = (self.x1, self.gates1) if not second or self.x2 is None else (self.x2, self.gates2)
        part = x[rows]
        return Inputs(part, self._gates(part) if gates is None else gates.batch(rows))

    def with_gates(self) -> "Job":
        """The same job with the gates of all examples computed once."""
        gates1 = self._gates(self.x1) if self.gates1 is None else self.gates1
        gates2 = self.gates2
        if self.x2 is not None and gates2 is None:
            gates2 = self._gates(self.x2)
        return replace(self, gates1=gates1, gates2=gates2)

    def _gates(self, x: Tensor) -> Gates:
        return self.graph.gates(x, memory=self.gates_memory)


def make_job(
    graph: PathGraph,
    x1: Tensor,
    x2: Tensor | None,
    gates1: Gates | None,
    gates2: Gates | None,
    variances: Mapping[str, float],
    bias_variance: float,
    orders: int,
    unit_scales: bool,
) -> Job:
    """A job with its arguments checked; see ``path_kernel`` for what they mean."""
    check_input("x1", x1, graph)
    if x2 is not None:
        check_input("x2", x2, graph)
        if x2.dtype != x1.dtype or x2.device != x1.device:
            raise ValueError(
                f"`x1` and `x2` must have one dtype and device, got {x1.dtype} on {x1.device} and "
                f"{x2.dtype} on {x2.device}."
            )
        if (gates1 is None) != (gates2 is None):
            raise ValueError("`gates1` and `gates2` replace the gates of `x1` and `x2`: give both or neither.")
    elif gates2 is not None:
        raise ValueError("`gates2` are the gates of `x2`, which is not given.")
    if gates1 is not None:
        check_gates("gates1", gates1, graph, len(x1))
    if gates2 is not None and x2 is not None:
        check_gates("gates2", gates2, graph, len(x2))
    x1 = x1.detach()
    x2 = None if x2 is None else x2.detach()
    return Job(graph, x1, x2, gates1, gates2, variances, bias_variance, orders, unit_scales)


@without_autocast()
def tiled(what: str, job: Job, budget: int) -> TiledKernel:
    """The plan of a job and the function that computes a tile; a dense chain is packed once, for all tiles."""
    n1, n2 = len(job.x1), len(job.x1 if job.x2 is None else job.x2)
    chain = dense_chain(job.graph)
    if chain is not None:
        packed = chain.prepared(job.x1, job.x2, job.gates1, job.gates2, job.variances)
        if packed is not None:
            plan = make_plan(n1, n2, packed.cost(), budget, symmetric=job.x2 is None, kept_bytes=packed.kept_bytes)
            return TiledKernel(what, plan, packed.tile, job.x1.dtype, job.x1.device)
    images = image_chain(job.graph) if job.orders == 1 else None
    if images is not None and not images.fits(job.x1):
        images = None
    cost, kept = pair_cost(job.graph, job.x1.dtype, job.orders), 0
    if images is not None:
        buffers = images.buffer_bytes(job.x1.dtype)
        if budget - buffers >= images.cost(job.x1.dtype).smallest:
            cost, kept = images.cost(job.x1.dtype), buffers
        else:
            images = None
    job = replace(job, gates_memory=min(CHUNK_BYTES, (budget - kept) // 4))
    gates_bytes = cost.gates_per_example * (n1 + (0 if job.x2 is None else n2))
    # Gates that take too much of the budget are computed anew for the rows and columns of each tile.
    if gates_bytes <= min((budget - kept) // 4, budget - kept - cost.smallest):
        job = job.with_gates()
        kept += gates_bytes
    plan = make_plan(n1, n2, cost, budget, symmetric=job.x2 is None, kept_bytes=kept)
    workspace = Workspace()
    return TiledKernel(what, plan, lambda tile: _tile(job, tile, images, workspace), job.x1.dtype, job.x1.device)


@torch.no_grad()
def _tile(job: Job, tile: Tile, images: ImageChain | None, workspace: Workspace) -> Float[Tensor, "rows columns"]:
    rows, columns = tile.shape
    symmetric = job.x2 is None and tile.rows == tile.columns
    frame = Frame(rows, columns, job.orders, job.x1.dtype, job.x1.device, 0 if symmetric else rows, workspace)
    one = job.batch(tile.rows, second=False)
    two = one if symmetric else job.batch(tile.columns, second=True)
    reading = PairReading(
        (one, two), job.graph.state, frame, job.variances, job.bias_variance, unit_scales=job.unit_scales
    )
    given = {}
    if images is not None and use_bits(*(side.gates[g.name] for side in (one, two) for g in images.gates)):
        summed = images.summed((one, two), job.variances, job.bias_variance, frame)
        given[images.dense.name] = reading.after_linear(images.dense, (reading.weighted(images.dense, summed),))
    sums: Scaled = reading.finish(walk(job.graph, reading, given))
    zero = torch.zeros_like(sums.exponent)
    return sums.at(zero)[-1].reshape(rows, columns)
