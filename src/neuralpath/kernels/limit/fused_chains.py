"""Networks that are chains of layers with (leaky) ReLUs, and the program of arrays that the compiled loops follow.

A convolution moves both positions of a pair together, so it keeps their displacement i' - i. The loops therefore store
one small image for each displacement (dy, dx), and a chain is cut into *segments* wherever displacements mix:

    step          conv 3x3   conv 3x3   pool 2x2           conv 3x3   conv stride 2       conv 3x3
    segment      |--------- 0 ---------|-------------- 1 ------------|------------------ 2 -----------|
    reads         pixels                all displacements             all displacements
                  (IMAGES)              of segment 0 (POOL)           of segment 1 (CONVOLUTION)

Inside a segment every layer keeps the size of the image, and each displacement goes through all layers alone. At the
start of segments 1 and 2, each output displacement reads several displacements of the segment before, which must all
be stored. `needed_displacements` works out which ones, from the last segment back to the first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._loops import CONVOLUTION, IMAGES, POOL, Program, bend_of
from neuralpath.graph import OUTSIDE, nodes as n
from neuralpath.kernels.limit.activations import Activation, Identity, Pair, Rectifier
from neuralpath.kernels.limit.limit_network import LimitNetwork

Size = tuple[int, int]  # rows and columns


@dataclass(frozen=True, slots=True)
class DenseStep:
    """A dense layer and the leaky ReLU after it: its slope for negative values, or None for the output layer."""

    weight_variance: float  # times fan-in; for the first layer of a network: of one weight
    bias_variance: float = 0.0
    slope: float | None = 0.0


@dataclass(frozen=True, slots=True)
class ConvolutionStep:
    """A convolution and the leaky ReLU after it, by its slope for negative values (1.0: none). Sizes are (y, x)."""

    window: Size
    weight_variance: float  # times fan-in; for the first layer of a network: times the size of the window
    stride: Size = (1, 1)
    before: Size = (0, 0)  # padding above and to the left
    after: Size = (0, 0)
    circular: bool = False
    bias_variance: float = 0.0
    slope: float = 0.0


@dataclass(frozen=True, slots=True)
class PoolStep:
    """Average pooling without padding, after an activation. Sizes are (y, x)."""

    window: Size
    stride: Size
    before: ClassVar[Size] = (0, 0)
    after: ClassVar[Size] = (0, 0)
    circular: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class LimitChain:
    """A whole network: convolutions with activations and pools between them, pooling or flattening, dense layers."""

    steps: tuple[ConvolutionStep | PoolStep, ...]  # none: a network of dense layers
    pooled: bool  # global average pooling, or flattening
    dense: tuple[DenseStep, ...]
    output_share: float = 1.0  # the output layer's variance over the factor of its own gradient


class _NoChain(Exception):
    """The graph is not a chain."""


def chain_of(network: LimitNetwork) -> LimitChain | None:
    """The network as a chain for the fused kernels, or ``None`` where it is not one."""
    first, *nodes = network.graph.nodes
    covered = not network.paths and network.carried in ((), (Pair.SLOPES,))
    covered &= all(after.inputs == (before.name,) for before, after in pairwise(network.graph.nodes))
    if not covered or not isinstance(first, n.InputNode) or len(first.shape) not in (1, 3):
        return None
    builder = _Builder(network, image=len(first.shape) == 3)
    try:
        for node in nodes:
            builder.read(node)
        return builder.chain()
    except _NoChain:
        return None


@dataclass(slots=True)
class _Builder:
    """The steps of a chain, node by node. Nodes with several inputs fit nowhere."""

    network: LimitNetwork
    image: bool  # positions have axes of their own
    convolutions: list[ConvolutionStep | PoolStep] = field(default_factory=list)
    dense: list[DenseStep] = field(default_factory=list)
    pooled: bool | None = None  # whether positions were pooled or flattened; None before that
    padding: tuple[Size, Size] | None = None  # before and after the next convolution, from a padding node
    circular: bool = False
    activated: bool = True  # whether the last layer has had its activation
    biased: bool = True  # or its bias

    def read(self, node: n.Node) -> None:
        """Append a node, if it fits."""
        if self.padding is not None and not (isinstance(node, n.LinearNode) and node.windows):
            raise _NoChain
        match node:
            case n.ReshapeNode() if not self.image or len(node.shape) <= 1:
                self.image = False
                if self.convolutions and self.pooled is None:
                    self.pooled = False
            case n.SelectNode() if self.image and node.indices[0] is None and len(node.shape) == 3:
                self.padding, self.circular = _padding(node)
            case n.LinearNode(groups=1) if node.windows and self.image and len(node.windows) == 2:
                self._convolution(node)
            case n.LinearNode() if not node.windows and not self.image:
                self.dense.append(DenseStep(self._own(node), slope=None))
                self.activated = self.biased = False
            case n.BiasNode() if not self.biased:
                self._bias(node)
            case n.GateNode() | n.ActivationNode():
                self._activation(self.network.activations[node.name])
            case n.AveragePoolNode() if self.image and self.convolutions and len(node.matrices) == 2:
                self._pool(node)
            case _:
                raise _NoChain

    def _own(self, node: n.LinearNode) -> float:
        return self.network.own_variances.get(node.name, 1.0)  # the first layer has no entry: it reads the input

    def _convolution(self, node: n.LinearNode) -> None:
        y, x = node.windows
        zeros_and_wrapped = self.circular and any((y.before, x.before, y.after, x.after))
        if self.pooled is not None or (y.dilation, x.dilation) != (1, 1) or zeros_and_wrapped:
            raise _NoChain
        (top, left), (bottom, right) = self.padding or ((0, 0), (0, 0))
        before, after = (y.before + top, x.before + left), (y.after + bottom, x.after + right)
        size, stride = (y.size, x.size), (y.stride, x.stride)
        step = ConvolutionStep(size, self._own(node), stride, before, after, self.circular, slope=1.0)
        self.convolutions.append(step)
        self.padding, self.circular, self.activated, self.biased = None, False, False, False

    def _bias(self, node: n.BiasNode) -> None:
        network = self.network
        shared = node.value_shape == (node.shape[0], *(1,) * (len(node.shape) - 1)) if node.shape else True
        if not shared or network.bias_variances[node.name] != network.bias_gradients[node.name]:
            raise _NoChain
        self._change_last(bias_variance=network.bias_variances[node.name])
        self.biased = True

    def _activation(self, activation: Activation) -> None:
        if isinstance(activation, Identity):
            return
        if self.activated or not isinstance(activation, Rectifier):
            raise _NoChain
        self._change_last(slope=activation.slope)
        self.activated = self.biased = True

    def _change_last(self, **fields: float) -> None:
        """Change the last layer; after a pool there is neither a bias nor an activation."""
        layers: list[Any] = self.dense or self.convolutions
        layers[-1] = replace(layers[-1], **fields)

    def _pool(self, node: n.AveragePoolNode) -> None:
        if self.pooled is not None:
            raise _NoChain
        self.activated = self.biased = True
        if all(bool((m == 1 / m.shape[1]).all()) and m.shape[0] == 1 for m in node.matrices):
            self.pooled = True
            return
        (height, down), (width, right) = map(_window, node.matrices)
        self.convolutions.append(PoolStep((height, width), (down, right)))

    def chain(self) -> LimitChain:
        """The whole chain, if it ends in a dense layer without activation."""
        if len(self.dense) + len(self.convolutions) < 2 or not self.dense or self.dense[-1].slope is not None:
            raise _NoChain
        # Dense layers without an activation between them have one of slope 1.
        between = (replace(step, slope=1.0 if step.slope is None else step.slope) for step in self.dense[:-1])
        last = [node.name for node in self.network.graph.nodes if isinstance(node, n.LinearNode)][-1]
        share = self.network.variances[last] / self.network.own_variances[last]
        return LimitChain(tuple(self.convolutions), bool(self.pooled), (*between, self.dense[-1]), share)


def _padding(node: n.SelectNode) -> tuple[tuple[Size, Size], bool]:
    """Rows and columns that a selection pads, before and after, and whether it wraps around."""
    sides, circular = [], set()
    for index, size in zip(node.indices[1:], node.in_shape[1:], strict=True):
        if index is None:
            sides.append((0, 0))
            continue
        positions = torch.arange(len(index))
        for before in range(len(index) - size + 1):
            inside = (positions >= before) & (positions < before + size)
            if torch.equal(index, (positions - before) % size) and max(before, len(index) - size - before) <= size:
                circular.add(True)
            elif torch.equal(index, torch.where(inside, positions - before, OUTSIDE)):
                circular.add(False)
            else:
                continue
            sides.append((before, len(index) - size - before))
            break
        else:
            raise _NoChain
    if len(circular) != 1:
        raise _NoChain
    (top, bottom), (left, right) = sides
    return ((top, left), (bottom, right)), circular.pop()


def _window(matrix: Float[Tensor, "_out _n_in"]) -> tuple[int, int]:
    """Window and stride of average pooling without padding along an axis, from its matrix."""
    read = [row.nonzero()[:, 0] for row in matrix]
    size = len(read[0])
    # A single window may leave units at the end unread: a second one would begin beyond the axis.
    stride = int(read[1][0] - read[0][0]) if len(read) > 1 and len(read[1]) else matrix.shape[1]
    expected = torch.zeros_like(matrix)
    for row in range(len(matrix)):
        expected[row, row * stride : row * stride + size] = 1 / size
    # The kernels pool all windows that fit.
    if not size or stride < 1 or len(matrix) != (matrix.shape[1] - size) // stride + 1 or not matrix.equal(expected):
        raise _NoChain
    return size, stride


@dataclass(frozen=True, slots=True)
class Segment:
    """A step that mixes displacements, and the convolutions after it that keep the size of the image."""

    source: ConvolutionStep | PoolStep | None  # None: the segment reads pixels
    source_size: Size
    size: Size
    layers: tuple[ConvolutionStep, ...] = ()

    @property
    def positions(self) -> int:
        """Number of positions."""
        return self.size[0] * self.size[1]

    @property
    def activated(self) -> tuple[ConvolutionStep, ...]:
        """Its convolutions, including its source: each has an activation."""
        return (self.source, *self.layers) if isinstance(self.source, ConvolutionStep) else self.layers


Displacements = tuple[list[int], ...]  # along y and x


def segments_of(chain: LimitChain, size: Size) -> tuple[Segment, ...]:
    """A chain cut into segments where displacements mix."""
    segments = [Segment(None, size, size)]
    for step in chain.steps:
        here = segments[-1]
        y, x = ((here.size[k] + step.before[k] + step.after[k] - step.window[k]) // step.stride[k] + 1 for k in (0, 1))
        # Position i of the output may be the window around position i of the input.
        if isinstance(step, ConvolutionStep) and step.stride == (1, 1) and (y, x) == here.size:
            segments[-1] = replace(here, layers=(*here.layers, step))
        else:
            segments.append(Segment(step, here.size, (y, x)))
    return tuple(segments)


def needed_displacements(segments: Sequence[Segment], everything: bool) -> list[Displacements]:
    """The displacements of each segment that the last one needs; of its own ``everything`` (pooling), or 0 only."""
    height, width = segments[-1].size
    needed: list[Displacements] = [(list(range(height)), list(range(width))) if everything else ([0], [0])]
    for segment in reversed(segments[1:]):
        needed.insert(0, tuple(_read_displacements(segment, axis, needed[0][axis]) for axis in (0, 1)))
    return needed


def _read_displacements(segment: Segment, axis: int, needed: Sequence[int]) -> list[int]:
    """The displacements of the segment before that the source of a segment reads, along one axis.

    Output positions o and o' = o + d read stride * o + t and stride * o' + t': a convolution with equal taps t = t',
    so stride * d only; a pool with all pairs of taps, so also up to window - 1 more or less.
    """
    step = segment.source
    assert step is not None
    size, reach = segment.size[axis], step.window[axis] if isinstance(step, PoolStep) else 1
    # d is modulo the size: the second position may also be before the first.
    shifts = [shift for d in needed for shift in (d, d - size) if shift > -size]
    extras = range(1 - reach, reach)
    return sorted({(step.stride[axis] * d + extra) % segment.source_size[axis] for d in shifts for extra in extras})


def program_of(segments: Sequence[Segment], needed: Sequence[Displacements], dtype: np.dtype) -> Program:
    """A chain as the arrays that the compiled loops read, for values of a dtype; `Program` draws them."""
    most = max(max(*s.size, *s.source_size) for s in segments)
    rows, layers = list[list[int]](), list[list[int]]()
    constants: list[list[float]] = []
    start = 0  # of the next layer's profile, which has a margin row before and after its positions
    displacements, slots = np.zeros((2, len(segments), 2, most), np.int64)
    columns = np.zeros((len(segments), max(s.positions for s in segments)), dtype)
    for index, (segment, axes) in enumerate(zip(segments, needed, strict=True)):
        step = segment.source
        kind = IMAGES if step is None else POOL if isinstance(step, PoolStep) else CONVOLUTION
        source = [0] * 7 if step is None else [*step.window, *step.stride, *step.before, int(step.circular)]
        counts = [len(layers), len(segment.layers), *map(len, axes)]
        rows.append([kind, *segment.size, *segment.source_size, *source, *counts])
        for layer in segment.activated:
            layers.append([*layer.window, *layer.before, int(layer.circular), start])
            scale = layer.weight_variance / math.prod(layer.window)
            constants.append([scale, layer.bias_variance, *bend_of(layer.slope)])
            start += segment.positions + 2 * segment.size[1]
        for k, values in enumerate(axes):
            displacements[index, k, : len(values)] = values
            slots[index, k, values] = range(len(values))
        columns[index, : segment.positions] = np.tile(np.arange(segment.size[1]), segment.size[0])
    layer_rows, constant_rows = np.array(layers, np.int64).reshape(-1, 6), np.array(constants, dtype).reshape(-1, 5)
    return Program(np.array(rows, np.int64), layer_rows, constant_rows, displacements, slots, columns)
