"""Tiles of the path kernel and of the expected tangent kernel: which method computes them, and one tile."""

from collections.abc import Callable
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._loops import use_bits
from neuralpath.graph import CHUNK_BYTES, PathGraph, nodes as n, walk
from neuralpath.kernels.path.chains import GatedBatch, ImageChain, Inputs, WeightMoments, dense_chain, image_chain
from neuralpath.kernels.path.contraction import Frame, Workspace
from neuralpath.kernels.path.reading import PairReading
from neuralpath.kernels.tiling import Cost, Plan, Tile, TiledKernel, make_plan

USEFUL_BYTES = 2**28
"""Pair values of a tile beyond which larger tiles gain nothing: they exceed every cache."""

MAX_PAIRS = 2**22
"""Pairs of a tile, at most."""

CHAIN_DIAGONAL = 32
"""Examples in a block on the diagonal of a dense chain, where a call costs more than a pair."""

WALK_DIAGONAL = 4
"""Examples in a block on the diagonal of any other network, where a pair costs more than a call."""


def pair_tiles(
    name: str,
    graph: PathGraph,
    batch1: GatedBatch,
    batch2: GatedBatch | None,
    weights: WeightMoments,
    budget: int,
    *,
    overflow_hint: str,
    derivative: bool = False,
    factor: float = 1.0,
) -> TiledKernel:
    """The kernel of a graph as tiles, by the fastest method that fits it.

    A dense chain is packed into bits once for all tiles. An image network without skip connections goes through one
    compiled pass for each tile. Any other network is walked with a `PairReading` for each tile.

    Args:
        name: Name of the kernel.
        graph: The network.
        batch1: Examples of the rows.
        batch2: Examples of the columns; None: the same batch.
        weights: Second moments of weights and biases.
        budget: Memory in bytes.
        overflow_hint: Advice for a matrix that exceeds the range of its dtype.
        derivative: Return the sum of the derivatives by all variances, instead of the second moment.
        factor: Multiplies every entry.
    """
    x1, symmetric = batch1.x, batch2 is None
    n1, n2 = len(x1), len(x1 if batch2 is None else batch2.x)

    def tiled(plan: Plan, compute: Callable[[Tile], Tensor], diagonal_block: int) -> TiledKernel:
        scaled = compute if factor == 1.0 else lambda tile: compute(tile).mul_(factor)
        return TiledKernel(
            name, plan, scaled, x1.dtype, x1.device, diagonal_block=diagonal_block, overflow_hint=overflow_hint
        )

    chain = dense_chain(graph)
    packed = None if chain is None else chain.packed(batch1, batch2, weights.variances)
    if packed is not None:
        plan = make_plan(n1, n2, packed.cost(), budget, symmetric=symmetric, kept_bytes=packed.kept_bytes)
        return tiled(plan, packed.tile, CHAIN_DIAGONAL)

    images = None if derivative else image_chain(graph)
    cost, kept = pair_cost(graph, x1.dtype, orders=2 if derivative else 1), 0
    if images is not None and images.fits(x1):
        buffers = images.buffer_bytes(x1.dtype)
        if budget - buffers >= images.cost(x1.dtype).smallest:
            cost, kept = images.cost(x1.dtype), buffers
        else:
            images = None
    else:
        images = None
    gates_memory = min(CHUNK_BYTES, (budget - kept) // 4)
    gates_bytes = cost.gates_per_example * (n1 + (0 if symmetric else n2))
    # Gates that take too much of the budget are computed again for the rows and columns of each tile.
    if gates_bytes <= min((budget - kept) // 4, budget - kept - cost.smallest):
        batch1 = batch1.with_gates(graph, gates_memory)
        batch2 = None if batch2 is None else batch2.with_gates(graph, gates_memory)
        kept += gates_bytes
    plan = make_plan(n1, n2, cost, budget, symmetric=symmetric, kept_bytes=kept)
    workspace = Workspace()

    @torch.no_grad()
    def walked(tile: Tile) -> Float[Tensor, "rows columns"]:
        on_diagonal = batch2 is None and tile.rows == tile.columns
        skip = 0 if on_diagonal else tile.shape[0]
        frame = Frame(*tile.shape, 2 if derivative else 1, x1.dtype, x1.device, skip, workspace)
        left = batch1.part(tile.rows, graph, gates_memory)
        right = left if on_diagonal else (batch2 or batch1).part(tile.columns, graph, gates_memory)
        return _walked_tile(graph, (left, right), weights, frame, images)

    return tiled(plan, walked, WALK_DIAGONAL)


def _walked_tile(
    graph: PathGraph, sides: tuple[Inputs, Inputs], weights: WeightMoments, frame: Frame, images: ImageChain | None
) -> Float[Tensor, "rows columns"]:
    reading = PairReading(sides, graph.state, frame, weights)
    known = {}
    if images is not None and use_bits(*(side.gates[gate.name] for side in sides for gate in images.gates)):
        summed = images.summed(sides, weights.variances, weights.bias_variance, frame)
        known[images.dense.name] = reading.after_linear(images.dense, (reading.weighted(images.dense, summed),))
    sums = reading.finish(walk(graph, reading, known))
    return sums.at(torch.zeros_like(sums.exponent))[-1].reshape(frame.batch1, frame.batch2)


def pair_cost(graph: PathGraph, dtype: torch.dtype, orders: int) -> Cost:
    """Memory that a walk with a `PairReading` needs for one pair and for one example.

    Args:
        graph: The network.
        dtype: Dtype of the pair values.
        orders: 1 for the values, 2 with their derivatives.
    """
    size = dtype.itemsize * orders
    sources: dict[str, frozenset[str]] = {}  # by node: the linear nodes whose pair values its state refers to
    values: dict[str, int] = {}  # by linear node: bytes of its pair values
    last_use = {name: node.name for node in graph.nodes for name in node.inputs}
    alive: set[str] = set()
    peak = size
    for node in graph.nodes:
        reached = frozenset().union(*(sources[name] for name in node.inputs)) if node.inputs else frozenset()
        if isinstance(node, n.LinearNode):
            values[node.name] = node.groups * node.n_positions**2 * size
            scratch = prod(node.in_space) ** 2 * size if node.windows else 0
            scratch += 2 * values[node.name] * (orders - 1)  # the derivative is put together from copies
            referenced = frozenset().union(*(sources[name] for name in alive)) if alive else frozenset()
            peak = max(peak, sum(values[s] for s in referenced | reached) + values[node.name] + scratch)
            reached = frozenset([node.name])
        sources[node.name] = reached
        alive.add(node.name)
        alive -= {name for name in alive if last_use.get(name) == node.name}
    peak += 3 * peak // 4  # temporary values of a step, and freed blocks that the allocator keeps
    gates = sum(node.n_units * (8 if isinstance(node, n.MaxPoolNode) else 1) for node in graph.gate_nodes)
    widest = 4 * max(node.n_units for node in graph.nodes) * dtype.itemsize
    return Cost(peak, gates + widest, max(4, min(MAX_PAIRS, USEFUL_BYTES // peak)), gates)
