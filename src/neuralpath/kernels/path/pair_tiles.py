"""Tiles of the path kernel and of the expected tangent kernel, by the fastest of three methods.

*Chains of dense layers* without biases: the Gram matrix of the inputs times the overlaps of the gates of each layer,

    x1 x2^T   *   popcount(gates1 & gates2) of layer 1   *   popcount(...) of layer 2   *  ...

    packed once for all tiles:    rows  (example, word)    | words of layer 1 | words of layer 2 | ...
    in each tile:                 Gram product of a block, multiplied in place by one compiled pass over the words

*Chains of convolutions* up to a dense layer: one compiled pass goes through all layers for one pair of images at
a time, so that the pair values of a pair stay in the cache. The layers use the two halves of a buffer in turn:

    buffers  (thread, entry)      | values of one layer | values of the next | blocks of layer 1 | of layer 2 | ...
    gates    (example, word)      | layer 1: (y, word, x) | layer 2: (y, word, x) | ...
    layers   (layer, number)      | numbers of `WindowSteps` | first word of its gates | words of a position |

*Any other network* is walked with a `PairReading` for each tile.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath import _loops as loops
from neuralpath.gates import HardGate
from neuralpath.graph import CHUNK_BYTES, Gates, PathGraph, nodes as n, walk
from neuralpath.kernels.path.contraction import FEW_CHANNELS, Frame, Workspace
from neuralpath.kernels.path.entries import measured
from neuralpath.kernels.path.reading import Inputs, PairReading, WeightMoments
from neuralpath.kernels.tiling import Cost, Plan, Tile, TiledKernel, make_plan

USEFUL_BYTES = 2**28  # pair values of a tile beyond which larger tiles gain nothing: they exceed every cache
MAX_PAIRS = 2**22  # of a tile
# Examples in a block on the diagonal: of a dense chain a call costs more than a pair, of any other network less.
CHAIN_DIAGONAL, WALK_DIAGONAL = 32, 4
EXAMPLES = 4096  # whose gates are computed together before they are packed: unpacked they need far more memory
ROW_BLOCK = 512  # rows of a tile of a dense chain: a fast Gram product that wastes little of the lower half
TILE_PAIRS = 32**2  # of a tile of images: the walk through the rest of the graph, once for each tile, costs nothing


@dataclass(frozen=True, slots=True, eq=False)
class GatedBatch:
    """Examples, and the gates that replace their own, if any."""

    x: Float[Tensor, "batch *shape"]
    gates: Gates | None

    def with_gates(self, graph: PathGraph, memory: int) -> "GatedBatch":
        return self if self.gates is not None else GatedBatch(self.x, graph.gates(self.x, memory=memory))

    def part(self, rows: slice, graph: PathGraph, memory: int) -> Inputs:
        """Consecutive examples with their gates."""
        x = self.x[rows]
        return Inputs(x, graph.gates(x, memory=memory) if self.gates is None else self.gates.batch(rows))


Batches = tuple[GatedBatch, GatedBatch | None]  # of rows and columns; None: the same batch


def pair_tiles(
    name: str, graph: PathGraph, batches: Batches, weights: WeightMoments, budget: int, hint: str, factor: float | None
) -> TiledKernel:
    """Second moments times ``factor``, or with None the sums of their derivatives by all variances, as tiles."""
    batch1, batch2 = batches
    x1, symmetric = batch1.x, batch2 is None
    orders, scale = (2, 1.0) if factor is None else (1, factor)
    n1, n2 = len(x1), len(x1 if batch2 is None else batch2.x)

    def tiled(plan: Plan, compute: Callable[[Tile], Tensor], block: int) -> TiledKernel:
        scaled = compute if scale == 1.0 else lambda tile: compute(tile).mul_(scale)
        return TiledKernel(name, plan, scaled, x1.dtype, x1.device, diagonal_block=block, overflow_hint=hint)

    packed = _pack_dense_chain(graph, batches, weights.variances)
    if packed is not None:
        # A tile holds its values and the words of its columns.
        cost = Cost(2 * x1.element_size(), 8 * packed.rows.rows.shape[1], ROW_BLOCK**2)
        plan = make_plan(n1, n2, cost, budget, symmetric=symmetric, kept_bytes=packed.kept_bytes)
        return tiled(plan, packed.tile, CHAIN_DIAGONAL)

    cost, kept = pair_cost(graph, x1.dtype, orders), 0
    images = image_chain(graph) if orders == 1 and loops.has_loops(x1.dtype, x1.device) else None
    if images is not None and images.buffer_bytes(x1.dtype) + images.cost(x1.dtype).smallest > budget:
        images = None
    if images is not None:
        cost, kept = images.cost(x1.dtype), images.buffer_bytes(x1.dtype)
    gates_memory = min(CHUNK_BYTES, (budget - kept) // 4)
    gates_bytes = cost.gates_per_example * (n1 + (0 if symmetric else n2))
    # Gates that take too much of the budget are computed again for the rows and columns of each tile.
    if gates_bytes <= min((budget - kept) // 4, budget - kept - cost.smallest):
        batch1 = batch1.with_gates(graph, gates_memory)
        batch2 = None if batch2 is None else batch2.with_gates(graph, gates_memory)
        kept += gates_bytes
    plan = make_plan(n1, n2, cost, budget, symmetric=symmetric, kept_bytes=kept)
    workspace = functools.cache(Workspace)  # one for all tiles that are walked, made by the first

    @torch.no_grad()
    def walked(tile: Tile) -> Float[Tensor, "rows columns"]:
        on_diagonal = batch2 is None and tile.rows == tile.columns
        skip = 0 if on_diagonal else tile.shape[0]
        left = batch1.part(tile.rows, graph, gates_memory)
        right = left if on_diagonal else (batch2 or batch1).part(tile.columns, graph, gates_memory)
        sides, known = (left, right), {}
        chain = images
        if chain is not None and not loops.use_bits(*(side.gates[gate.name] for side in sides for gate in chain.gates)):
            chain = None  # gates that the user gives may be soft
        if chain is not None:
            values, exponents = chain.summed(sides, weights, skip)
            if chain.dense.name == graph.output_name:
                with np.errstate(over="ignore"):  # the tile reports it
                    values = np.ldexp(values * weights.variances[chain.dense.name], exponents.astype(np.int32))
                return torch.from_numpy(values).to(x1.dtype)
        frame = Frame(*tile.shape, orders, x1.dtype, x1.device, skip, workspace())
        reading = PairReading(sides, graph.state, frame, weights)
        if chain is not None:
            summed = measured(torch.from_numpy(values)[None].to(x1.dtype), torch.from_numpy(exponents))
            known[chain.dense.name] = reading.after_linear(chain.dense, (reading.weighted(chain.dense, summed),))
        sums = reading.finish(walk(graph, reading, known))
        return sums.at(torch.zeros_like(sums.exponent))[-1].reshape(tile.shape)

    return tiled(plan, walked, WALK_DIAGONAL)


@dataclass(frozen=True, slots=True, eq=False)
class _PackedChain:
    """Inputs and packed gates of a bias-free chain of dense layers, ready for tiles."""

    x1: Float[Tensor, "batch1 d_in"]
    x2: Float[Tensor, "batch2 d_in"]
    rows: loops.PackedLayers
    columns: loops.PackedLayers
    gain: float  # variance of the first layer, which scales the Gram matrix
    scales: tuple[float, ...]  # variances of the others, each of which scales the overlap in front of its layer

    @property
    def kept_bytes(self) -> int:
        """Memory of the packed gates of all examples."""
        return self.rows.rows.nbytes + (0 if self.columns is self.rows else self.columns.rows.nbytes)

    def tile(self, tile: Tile) -> Float[Tensor, "rows columns"]:
        """Gram matrix times overlaps for a block of rows and columns."""
        out = self.x1[tile.rows] @ self.x2[tile.columns].T
        if self.gain != 1.0:
            out *= self.gain
        words = self.columns.tiles(tile.columns.start, tile.columns.stop)
        on_diagonal = self.rows is self.columns and tile.rows == tile.columns
        skip = 0 if on_diagonal else None
        loops.multiply_by_overlaps(out, self.rows, tile.rows.start, words, self.scales, skip_below=skip)
        return out


def dense_chain(graph: PathGraph) -> tuple[n.LinearNode, ...] | None:
    """The layers of a graph of input, linear, gate, linear, ..., linear, all dense and without biases; else None."""
    nodes = [node for node in graph.nodes if not isinstance(node, n.ReshapeNode)]
    if not isinstance(nodes[0], n.InputNode) or any(len(node.inputs) != 1 for node in nodes[1:]):
        return None
    layers = tuple(node for node in nodes[1::2] if isinstance(node, n.LinearNode) and not node.windows)
    n_gates = sum(isinstance(node, n.GateNode) for node in nodes[2::2])
    return layers if len(nodes) >= 4 and len(nodes) == 2 * len(layers) == 2 * (n_gates + 1) else None


def _pack_dense_chain(graph: PathGraph, batches: Batches, variances: Mapping[str, float]) -> _PackedChain | None:
    """Inputs and packed gates; None where the graph is no such chain, or bits cannot be used (gates, dtype, device)."""
    batch1, batch2 = batches
    layers = dense_chain(graph)
    if layers is None or batch1.x.dtype not in (torch.float32, torch.float64):
        return None
    rows = _packed_gates(graph, batch1)
    columns = rows if batch2 is None else _packed_gates(graph, batch2)
    if rows is None or columns is None:
        return None
    gain, *scales = (variances[linear.name] for linear in layers)
    x1 = batch1.x.flatten(1)
    x2 = x1 if batch2 is None else batch2.x.flatten(1)
    return _PackedChain(x1, x2, rows, columns, gain, tuple(scales))


def _packed_gates(graph: PathGraph, batch: GatedBatch) -> loops.PackedLayers | None:
    parts = []
    for start in range(0, len(batch.x), EXAMPLES):
        layers = tuple(batch.part(slice(start, start + EXAMPLES), graph, CHUNK_BYTES).gates.layers.values())
        if not loops.use_bits(*layers):
            return None
        parts.append(loops.PackedLayers.of(layers))
    return loops.PackedLayers.joined(parts)


@dataclass(frozen=True, slots=True, eq=False)
class ImageChain:
    """The part of a graph from the image to its first dense layer: convolutions, each with a hard gate after it."""

    linear_nodes: tuple[n.LinearNode, ...]
    biased: tuple[bool, ...]
    gates: tuple[n.GateNode, ...]
    share: float | None  # factor of each position where they are pooled; None where they are flattened
    dense: n.LinearNode  # the layer that reads the sum

    def cost(self, dtype: torch.dtype) -> Cost:
        """A tile holds packed gates; a thread holds only the pair values of its current pair."""
        gates = sum(node.n_units for node in self.gates)
        return Cost(4 * dtype.itemsize + 16, 2 * gates + 4 * self.linear_nodes[0].n_units, TILE_PAIRS, gates)

    def buffer_bytes(self, dtype: torch.dtype) -> int:
        """Memory of the pair values of one lag, for all threads."""
        return loops.n_threads() * sum(_buffer_sizes(self._steps(dtype))) * dtype.itemsize

    def summed(self, sides: tuple[Inputs, Inputs], weights: WeightMoments, skip: int) -> tuple[np.ndarray, np.ndarray]:
        """The sums ``values * 2**exponents`` that the first dense layer reads, for pairs with row <= column + skip."""
        images = [loops.arrange_positions(side.x.flatten(2), self.linear_nodes[0].in_space[0]) for side in sides]
        largest = [np.abs(image).max((1, 2, 3)).astype(float) for image in images]
        gates = [self._packed(side) for side in sides]
        gains = np.array([weights.variances[linear.name] for linear in self.linear_nodes])
        biases = np.array([weights.bias_variance * biased for biased in self.biased])
        out, exponents = (np.zeros((len(images[0]), len(images[1])), dtype) for dtype in (float, np.int64))
        steps = self._steps(sides[0].x.dtype)
        layers = self._layers(steps)
        values, blocks = _buffer_sizes(steps)
        buffers = np.empty((loops.n_threads(), values + blocks), images[0].dtype)
        needed = np.argwhere(np.tri(*out.T.shape, skip, bool).T)
        is_pooled = self.share is not None
        inputs = (*images, *largest, *gates)
        loops.image_chains(out, exponents, needed, *inputs, layers, gains, biases, buffers, values // 2, is_pooled)
        return out * (1.0 if self.share is None else self.share**2), exponents

    def _packed(self, side: Inputs) -> np.ndarray:
        layers = [loops.pack_positions(side.gates[node.name].flatten(2), node.shape[1]) for node in self.gates]
        return np.concatenate([layer.reshape(len(layer), -1) for layer in layers], axis=1)

    def _steps(self, dtype: torch.dtype) -> list[loops.WindowSteps]:
        return [loops.WindowSteps.of(linear.windows, linear.in_space, dtype.itemsize) for linear in self.linear_nodes]

    def _layers(self, steps: list[loops.WindowSteps]) -> np.ndarray:
        rows, start = [], 0
        for layer, linear, gate in zip(steps, self.linear_nodes, self.gates, strict=True):
            n_words = loops.n_short_words(gate.shape[0])
            rows.append([*layer, start, n_words])
            start += n_words * linear.n_positions
        return np.array(rows)


def image_chain(graph: PathGraph) -> ImageChain | None:
    """The chain of convolutions that a graph begins with, or None if it begins otherwise."""
    first = graph.nodes[0]
    if len(first.shape) != 3 or first.shape[0] > FEW_CHANNELS or not isinstance(first, n.InputNode):
        return None
    readers = Counter(name for node in graph.nodes for name in node.inputs)
    linear_nodes: list[n.LinearNode] = []
    gates: list[n.GateNode] = []
    biased: list[bool] = []
    share = None
    for before, node in pairwise(graph.nodes):
        if node.inputs != (before.name,) or readers[before.name] != 1:
            return None
        is_gated = len(linear_nodes) == len(gates)  # else a gate is due
        match node:
            case n.LinearNode() if not node.windows:
                complete = is_gated and gates
                return ImageChain(tuple(linear_nodes), tuple(biased), tuple(gates), share, node) if complete else None
            case n.LinearNode(groups=1) if is_gated and share is None:
                linear_nodes.append(node)
                biased.append(False)
            case n.BiasNode() if not is_gated and not biased[-1] and node.value_shape == (node.shape[0], 1, 1):
                biased[-1] = True
            case n.GateNode(gate=HardGate(), slope=None) if not is_gated:
                gates.append(node)
            case n.AveragePoolNode() if is_gated and share is None and n.is_global_pool(node.matrices):
                share = math.prod(float(matrix[0, 0]) for matrix in node.matrices)
            case n.ReshapeNode() if len(node.shape) == 1 and is_gated:
                pass  # flattening does not change the sum
            case _:
                return None
    return None


def _buffer_sizes(steps: Sequence[loops.WindowSteps]) -> tuple[int, int]:
    """Entries for the values of one lag, of two layers, and for the blocks of all layers."""
    return 2 * max(s.rows * s.side**2 for s in steps), sum(s.n_blocks * s.block for s in steps)


def pair_cost(graph: PathGraph, dtype: torch.dtype, orders: int) -> Cost:
    """Memory that a walk needs for one pair and for one example; ``orders`` is 2 with derivatives, else 1."""
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
            scratch = math.prod(node.in_space) ** 2 * size if node.windows else 0
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
