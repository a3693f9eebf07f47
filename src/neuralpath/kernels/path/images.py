"""Image networks without skips: all convolutions of a pair of images in one compiled pass."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from neuralpath._loops import (
    WindowSteps,
    arrange_positions,
    image_chains,
    n_short_words,
    n_threads,
    pack_positions,
    use_bits,
)
from neuralpath.gates import HardGate
from neuralpath.graph import PathGraph, nodes as n
from neuralpath.kernels.path.contraction import Frame
from neuralpath.kernels.path.convolution import FEW_CHANNELS, KERNEL_DTYPES, window_steps
from neuralpath.kernels.path.reading import Inputs
from neuralpath.kernels.path.scaled import Scaled, measured
from neuralpath.kernels.tiling.plan import Cost

TILE_PAIRS = 32**2
"""Pairs of a tile: enough that the rest of the graph, walked once for a tile, costs nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageChain:
    """The part of a graph from the image to its first dense layer: convolutions, each with a hard gate after it."""

    linear_nodes: tuple[n.LinearNode, ...]
    biased: tuple[bool, ...]
    gates: tuple[n.GateNode, ...]
    share: float | None  # factor of each position where they are pooled; None where they are flattened
    dense: n.LinearNode  # the layer that reads the sum

    def fits(self, x: Tensor) -> bool:
        """Whether the compiled pass can be used for such inputs."""
        return x.device.type == "cpu" and x.dtype in KERNEL_DTYPES and use_bits()

    def cost(self, dtype: torch.dtype) -> Cost:
        """A tile holds packed gates; pair values are only those of the pair that a thread is at."""
        gates = sum(node.n_units for node in self.gates)
        return Cost(4 * dtype.itemsize + 16, 2 * gates + 4 * self.linear_nodes[0].n_units, TILE_PAIRS, gates)

    def buffer_bytes(self, dtype: torch.dtype) -> int:
        """Memory of the pair values of one lag, for all threads."""
        return n_threads() * sum(_room(self._steps(dtype))) * dtype.itemsize

    def summed(
        self, sides: tuple[Inputs, Inputs], variances: Mapping[str, float], bias_variance: float, frame: Frame
    ) -> Scaled:
        """What the first dense layer sums, for all pairs of a tile."""
        images = [arrange_positions(side.x.flatten(2), self.linear_nodes[0].in_space[0]) for side in sides]
        gates = [self._packed(side) for side in sides]
        gains = np.array([variances[linear.name] for linear in self.linear_nodes])
        biases = np.array([bias_variance * biased for biased in self.biased])
        out = np.zeros((frame.batch1, frame.batch2))
        exponents = np.zeros((frame.batch1, frame.batch2), np.int64)
        steps = self._steps(frame.dtype)
        values, blocks = _room(steps)
        buffers = frame.workspace.empty((n_threads(), values + blocks), frame.dtype).numpy()
        image_chains(
            out, exponents, _wanted(frame), *images, *(np.abs(image).max((1, 2, 3)).astype(float) for image in images),
            *gates, self._layers(steps), gains, biases, buffers, values // 2, self.share is not None,
        )  # fmt: skip
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
    """The chain of convolutions that a graph begins with, or ``None`` where it begins otherwise."""
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
                pass  # flattening changes nothing that the sum sees
            case _:
                return None
    return None


def _room(steps: Sequence[WindowSteps]) -> tuple[int, int]:
    """Entries for the values of one lag, of two layers, and for the blocks of all layers."""
    return 2 * max(s.rows * s.side**2 for s in steps), sum(s.n_blocks * s.block for s in steps)


def _wanted(frame: Frame) -> np.ndarray:
    rows, columns = np.indices((frame.batch1, frame.batch2)).reshape(2, -1)
    return np.stack([rows, columns], axis=1)[rows <= columns + frame.skip]


def _is_global(node: n.AveragePoolNode) -> bool:
    return all(m.shape[0] == 1 and bool((m == m[0, 0]).all()) for m in node.matrices)
