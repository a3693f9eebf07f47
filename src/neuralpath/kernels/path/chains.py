"""Networks without skip connections, computed by one compiled pass: fully connected chains, and chains of convolutions.

A fully connected chain is the Gram matrix of the inputs times the overlaps of the gates of each layer:

    x1 x2^T   *   popcount(gates1 & gates2) of layer 1   *   popcount(...) of layer 2   *  ...

A chain of convolutions goes through all its layers for one pair of images at a time, so that the pair values of a pair
stay in the cache.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._loops import (
    PackedLayers,
    WindowSteps,
    Words,
    arrange_positions,
    image_chains,
    multiply_by_overlaps,
    n_short_words,
    n_threads,
    pack_positions,
    use_bits,
)
from neuralpath.gates import HardGate
from neuralpath.graph import CHUNK_BYTES, Gates, PathGraph, nodes as n
from neuralpath.kernels.path.contraction import Frame
from neuralpath.kernels.path.convolution import FEW_CHANNELS, KERNEL_DTYPES, window_steps
from neuralpath.kernels.path.entries import Scaled, measured
from neuralpath.kernels.tiling import Cost, Tile

EXAMPLES = 4096
"""Examples whose gates are computed together."""

ROW_BLOCK = 512
"""Rows of a tile: large enough for a fast Gram product, small enough to waste little of the lower half."""

TILE_PAIRS = 32**2
"""Pairs of a tile: enough that the walk through the rest of the graph, once for each tile, costs nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """One batch: its examples and the gates that are applied to it."""

    x: Float[Tensor, "batch *shape"]
    gates: Gates


@dataclass(frozen=True, slots=True, eq=False)
class GatedBatch:
    """Examples, and the gates that replace their own, if any."""

    x: Float[Tensor, "batch *shape"]
    gates: Gates | None

    def with_gates(self, graph: PathGraph, memory: int) -> "GatedBatch":
        """The batch with the gates of all examples computed."""
        return self if self.gates is not None else GatedBatch(self.x, graph.gates(self.x, memory=memory))

    def part(self, rows: slice, graph: PathGraph, memory: int) -> Inputs:
        """Consecutive examples with their gates."""
        x = self.x[rows]
        return Inputs(x, graph.gates(x, memory=memory) if self.gates is None else self.gates.batch(rows))


@dataclass(frozen=True, slots=True, eq=False)
class WeightMoments:
    """Second moments of the random weights and biases, and whether scale factors count as 1."""

    variances: Mapping[str, float]  # by linear node
    bias_variance: float
    unit_scales: bool


@dataclass(frozen=True, slots=True)
class DenseChain:
    """A bias-free chain of dense layers with a hard gate after each but the last."""

    graph: PathGraph
    linear_nodes: tuple[n.LinearNode, ...]
    gates: tuple[n.GateNode, ...]

    def packed(
        self, batch1: GatedBatch, batch2: GatedBatch | None, variances: Mapping[str, float]
    ) -> "PackedChain | None":
        """The inputs and packed gates of both batches; None where bits cannot be used (other gates, dtype, device)."""
        if batch1.x.dtype not in (torch.float32, torch.float64):
            return None
        rows = self._packed_gates(batch1)
        columns = rows if batch2 is None else self._packed_gates(batch2)
        if rows is None or columns is None:
            return None
        # The first variance scales the Gram matrix, each other one the overlap in front of its layer.
        first, *others = (variances[linear.name] for linear in self.linear_nodes)
        x1 = batch1.x.flatten(1)
        x2 = x1 if batch2 is None else batch2.x.flatten(1)
        return PackedChain(x1, x2, rows, columns, first, tuple(others))

    def _packed_gates(self, batch: GatedBatch) -> PackedLayers | None:
        """Gates are computed and packed for a part of the examples at a time: unpacked they need far more memory."""
        parts = []
        for start in range(0, len(batch.x), EXAMPLES):
            rows = slice(start, start + EXAMPLES)
            layers = tuple(batch.part(rows, self.graph, CHUNK_BYTES).gates.layers.values())
            if not use_bits(*layers):
                return None
            parts.append(PackedLayers.of(layers))
        return PackedLayers.joined(parts)


@dataclass(frozen=True, slots=True, eq=False)
class PackedChain:
    """Inputs and packed gates of a fully connected network, ready for tiles."""

    x1: Float[Tensor, "batch1 d_in"]
    x2: Float[Tensor, "batch2 d_in"]
    rows: PackedLayers
    columns: PackedLayers
    gain: float
    scales: tuple[float, ...]

    def cost(self) -> Cost:
        """A tile holds its values and the words of its columns."""
        return Cost(2 * self.x1.element_size(), 8 * self.rows.rows.shape[1], ROW_BLOCK**2)

    @property
    def kept_bytes(self) -> int:
        """Memory of the packed gates of all examples."""
        return self.rows.rows.nbytes + (0 if self.columns is self.rows else self.columns.rows.nbytes)

    def tile(self, tile: Tile) -> Float[Tensor, "rows columns"]:
        """Gram matrix times overlaps for a block of rows and columns."""
        out = self.x1[tile.rows] @ self.x2[tile.columns].T
        if self.gain != 1.0:
            out *= self.gain
        words: Words = self.columns.tiles(tile.columns.start, tile.columns.stop)
        on_diagonal = self.rows is self.columns and tile.rows == tile.columns
        multiply_by_overlaps(out, self.rows, tile.rows.start, words, self.scales, skip_below=0 if on_diagonal else None)
        return out


def dense_chain(graph: PathGraph) -> DenseChain | None:
    """The graph as a chain of dense layers and hard gates without biases, or None if it is not one."""
    nodes = [node for node in graph.nodes if not isinstance(node, n.ReshapeNode)]
    if not isinstance(nodes[0], n.InputNode) or any(len(node.inputs) != 1 for node in nodes[1:]):
        return None
    linear_nodes, gates = nodes[1::2], nodes[2::2]
    is_chain = (
        len(nodes) >= 4
        and len(nodes) % 2 == 0
        and all(isinstance(node, n.LinearNode) and not node.windows for node in linear_nodes)
        and all(isinstance(node, n.GateNode) for node in gates)
    )
    return DenseChain(graph, tuple(linear_nodes), tuple(gates)) if is_chain else None  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class ImageChain:
    """The part of a graph from the image to its first dense layer: convolutions, each with a hard gate after it."""

    linear_nodes: tuple[n.LinearNode, ...]
    biased: tuple[bool, ...]
    gates: tuple[n.GateNode, ...]
    share: float | None  # factor of each position where they are pooled; None where they are flattened
    dense: n.LinearNode  # the layer that reads the sum

    def fits(self, x: Tensor) -> bool:
        """Whether the compiled pass can take these inputs."""
        return x.device.type == "cpu" and x.dtype in KERNEL_DTYPES and use_bits()

    def cost(self, dtype: torch.dtype) -> Cost:
        """A tile holds packed gates; a thread holds only the pair values of its current pair."""
        gates = sum(node.n_units for node in self.gates)
        return Cost(4 * dtype.itemsize + 16, 2 * gates + 4 * self.linear_nodes[0].n_units, TILE_PAIRS, gates)

    def buffer_bytes(self, dtype: torch.dtype) -> int:
        """Memory of the pair values of one lag, for all threads."""
        return n_threads() * sum(_buffer_sizes(self._steps(dtype))) * dtype.itemsize

    def summed(
        self, sides: tuple[Inputs, Inputs], variances: Mapping[str, float], bias_variance: float, frame: Frame
    ) -> Scaled:
        """The sums that the first dense layer reads, for all pairs of a tile."""
        images = [arrange_positions(side.x.flatten(2), self.linear_nodes[0].in_space[0]) for side in sides]
        largest = [np.abs(image).max((1, 2, 3)).astype(float) for image in images]
        gates = [self._packed(side) for side in sides]
        gains = np.array([variances[linear.name] for linear in self.linear_nodes])
        biases = np.array([bias_variance * biased for biased in self.biased])
        out = np.zeros((frame.batch1, frame.batch2))
        exponents = np.zeros((frame.batch1, frame.batch2), np.int64)
        steps = self._steps(frame.dtype)
        values, blocks = _buffer_sizes(steps)
        buffers = frame.workspace.empty((n_threads(), values + blocks), frame.dtype).numpy()
        image_chains(
            out,
            exponents,
            _needed_pairs(frame),
            *images,
            *largest,
            *gates,
            self._layers(steps),
            gains,
            biases,
            buffers,
            values // 2,
            self.share is not None,
        )
        sums = torch.from_numpy(out) * (1.0 if self.share is None else self.share**2)
        return measured(sums[None].to(frame.dtype), torch.from_numpy(exponents))

    def _packed(self, side: Inputs) -> np.ndarray:
        layers = [pack_positions(side.gates[node.name].flatten(2), node.shape[1]) for node in self.gates]
        return np.concatenate([layer.reshape(len(layer), -1) for layer in layers], axis=1)

    def _steps(self, dtype: torch.dtype) -> list[WindowSteps]:
        return [window_steps(linear.windows, linear.in_space, dtype.itemsize) for linear in self.linear_nodes]

    def _layers(self, steps: list[WindowSteps]) -> np.ndarray:
        rows, start = [], 0
        for layer, linear, gate in zip(steps, self.linear_nodes, self.gates, strict=True):
            n_words = n_short_words(gate.shape[0])
            rows.append([*layer, start, n_words])
            start += n_words * linear.n_positions
        return np.array(rows)


def image_chain(graph: PathGraph) -> ImageChain | None:
    """The chain of convolutions that a graph begins with, or None if it begins otherwise."""
    nodes = list(graph.nodes)
    if len(nodes[0].shape) != 3 or nodes[0].shape[0] > FEW_CHANNELS or not isinstance(nodes[0], n.InputNode):
        return None
    readers: dict[str, int] = {}
    for node in nodes:
        for name in node.inputs:
            readers[name] = readers.get(name, 0) + 1
    linear_nodes: list[n.LinearNode] = []
    biased: list[bool] = []
    gates: list[n.GateNode] = []
    share: float | None = None
    pooled = False
    for before, node in pairwise(nodes):
        if node.inputs != (before.name,) or readers[before.name] != 1:
            return None
        match node:
            case n.LinearNode() if not node.windows:
                complete = len(linear_nodes) == len(gates) > 0
                return ImageChain(tuple(linear_nodes), tuple(biased), tuple(gates), share, node) if complete else None
            case n.LinearNode(groups=1) if len(linear_nodes) == len(gates) and not pooled:
                linear_nodes.append(node)
                biased.append(False)
            case n.BiasNode() if (
                len(linear_nodes) > len(gates) and not biased[-1] and node.value_shape == (node.shape[0], 1, 1)
            ):
                biased[-1] = True
            case n.GateNode(gate=HardGate(), slope=None) if len(linear_nodes) > len(gates):
                gates.append(node)
            case n.AveragePoolNode() if len(linear_nodes) == len(gates) and not pooled and _is_global(node):
                share, pooled = math.prod(float(matrix[0, 0]) for matrix in node.matrices), True
            case n.ReshapeNode() if len(node.shape) == 1 and len(linear_nodes) == len(gates):
                pass  # flattening does not change the sum
            case _:
                return None
    return None


def _buffer_sizes(steps: Sequence[WindowSteps]) -> tuple[int, int]:
    """Entries for the values of one lag, of two layers, and for the blocks of all layers."""
    return 2 * max(s.rows * s.side**2 for s in steps), sum(s.n_blocks * s.block for s in steps)


def _needed_pairs(frame: Frame) -> np.ndarray:
    rows, columns = np.indices((frame.batch1, frame.batch2)).reshape(2, -1)
    return np.stack([rows, columns], axis=1)[rows <= columns + frame.skip]


def _is_global(node: n.AveragePoolNode) -> bool:
    return all(m.shape[0] == 1 and bool((m == m[0, 0]).all()) for m in node.matrices)
