"""Chains of convolutions for `fused_images.py`, and the program of arrays that the compiled loops follow.

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
from dataclasses import dataclass

import numpy as np
import torch

from neuralpath._loops import CONVOLUTION, IMAGES, POOL, Program, bend_of
from neuralpath.kernels.limit.fused_dense import DenseStep

Size = tuple[int, int]
"""Rows and columns."""


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

    def output_size(self, size: Size) -> Size:
        """Rows and columns of its output."""
        return _outputs(size, self.window, self.stride, self.before, self.after)

    def keeps(self, size: Size) -> bool:
        """Whether position i of the output is the window around position i of the input."""
        return self.stride == (1, 1) and self.output_size(size) == size


@dataclass(frozen=True, slots=True)
class PoolStep:
    """Average pooling without padding, after an activation. Sizes are (y, x)."""

    window: Size
    stride: Size

    def output_size(self, size: Size) -> Size:
        """Rows and columns of its output."""
        return _outputs(size, self.window, self.stride, (0, 0), (0, 0))


@dataclass(frozen=True, slots=True)
class LimitChain:
    """Convolutions with activations and pools between them, global average pooling or flattening, dense layers."""

    steps: tuple[ConvolutionStep | PoolStep, ...]
    pooled: bool  # global average pooling, or flattening
    dense: tuple[DenseStep, ...]


def _outputs(size: Size, window: Size, stride: Size, before: Size, after: Size) -> Size:
    y, x = ((size[k] + before[k] + after[k] - window[k]) // stride[k] + 1 for k in (0, 1))
    return y, x


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


Displacements = tuple[list[int], list[int]]


def segments_of(chain: LimitChain, size: Size) -> tuple[Segment, ...]:
    """A chain cut into segments where displacements mix."""
    segments = [Segment(None, size, size)]
    for step in chain.steps:
        here = segments[-1]
        if isinstance(step, ConvolutionStep) and step.keeps(here.size):
            segments[-1] = Segment(here.source, here.source_size, here.size, (*here.layers, step))
        else:
            segments.append(Segment(step, here.size, step.output_size(here.size)))
    return tuple(segments)


def needed_displacements(segments: Sequence[Segment], everything: bool) -> list[Displacements]:
    """The displacements (y and x) of each segment that the last segment needs.

    ``everything``: the last segment needs all of its displacements (pooling), or only 0 (flattening).
    """
    last = segments[-1].size
    needed = [tuple(list(range(n)) if everything else [0] for n in last)]
    for segment in reversed(segments[1:]):
        step = segment.source
        assert step is not None
        reach = [window if isinstance(step, PoolStep) else 1 for window in step.window]
        sets = tuple(
            sorted(
                {
                    (step.stride[k] * shift + extra) % segment.source_size[k]
                    for d in needed[0][k]
                    for shift in (d, d - segment.size[k])  # d modulo the size: also second positions before the first
                    if shift > -segment.size[k]
                    for extra in range(1 - reach[k], reach[k])
                }
            )
            for k in (0, 1)
        )
        needed.insert(0, sets)
    return [(ys, xs) for ys, xs in needed]


def program_of(segments: Sequence[Segment], needed: Sequence[Displacements], dtype: torch.dtype) -> Program:
    """A chain as the arrays that the compiled loops read; `Program` draws them."""
    real = torch.empty(0, dtype=dtype).numpy().dtype
    most = max(max(*s.size, *s.source_size) for s in segments)
    rows: list[list[int]] = []
    layers: list[list[int]] = []
    constants: list[list[float]] = []
    start = 0
    displacements = np.zeros((len(segments), 2, most), np.int64)
    slots = np.zeros((len(segments), 2, most), np.int64)
    columns = np.zeros((len(segments), max(s.positions for s in segments)), real)
    for index, (segment, axes) in enumerate(zip(segments, needed, strict=True)):
        rows.append([*_source_row(segment), len(layers), len(segment.layers), len(axes[0]), len(axes[1])])
        for step in segment.activated:
            layers.append([*step.window, *step.before, int(step.circular), start])
            scale = step.weight_variance / math.prod(step.window)
            constants.append([scale, step.bias_variance, *bend_of(step.slope)])
            start += segment.positions + 2 * segment.size[1]
        for k, values in enumerate(axes):
            displacements[index, k, : len(values)] = values
            slots[index, k, values] = range(len(values))
        columns[index, : segment.positions] = np.tile(np.arange(segment.size[1]), segment.size[0])
    layer_rows, constant_rows = np.array(layers, np.int64).reshape(-1, 6), np.array(constants, real).reshape(-1, 5)
    return Program(np.array(rows, np.int64), layer_rows, constant_rows, displacements, slots, columns)


def _source_row(segment: Segment) -> list[int]:
    """The first twelve numbers of a segment: its kind, sizes and source; see `Program`."""
    step = segment.source
    if step is None:
        return [IMAGES, *segment.size, *segment.source_size, 0, 0, 0, 0, 0, 0, 0]
    head = [*segment.size, *segment.source_size, *step.window, *step.stride]
    if isinstance(step, PoolStep):
        return [POOL, *head, 0, 0, 0]
    return [CONVOLUTION, *head, *step.before, int(step.circular)]
