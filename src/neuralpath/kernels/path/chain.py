"""Fully connected networks: the kernel is the input Gram matrix times gate overlaps, in one pass over bits."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._loops import PackedLayers, Words, multiply_by_overlaps, use_bits
from neuralpath.graph import CHUNK_BYTES, PathGraph, nodes as n
from neuralpath.kernels.path.reading import Batch
from neuralpath.kernels.tiling.plan import Cost, Tile

EXAMPLES = 4096
"""Examples whose gates are computed at once."""

ROW_BLOCK = 512
"""Rows of a tile: the Gram product runs at full speed, and little of the lower half is computed in vain."""


@dataclass(frozen=True, slots=True)
class DenseChain:
    """A bias-free chain of dense layers with a hard gate after each but the last."""

    graph: PathGraph
    linear_nodes: tuple[n.LinearNode, ...]
    gates: tuple[n.GateNode, ...]

    def packed(self, batch1: Batch, batch2: Batch | None, variances: Mapping[str, float]) -> "PackedChain | None":
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

    def _packed_gates(self, batch: Batch) -> PackedLayers | None:
        """Gates computed and packed some examples at a time: unpacked they need far more memory."""
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
    """The graph as a chain of dense layers and hard gates without biases, or ``None`` if it is not one."""
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
