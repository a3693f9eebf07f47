r"""Infinite-width kernels of chains of layers with ReLUs by compiled loops: all layers in one pass over the pairs.

Pre-activations of two examples have a covariance :math:`\Sigma` and a tangent kernel :math:`\tilde K`. A dense layer of
weight variance g / fan-in and bias variance b gives :math:`\Sigma = g A + b`, :math:`\tilde K = g C + b`, and an
activation f gives :math:`A = E[f f']`, :math:`C = A + \tilde K E[f' f'']`. At the input of the first layer A and C are
the inner product of the examples, not divided by their length.

**Vectors.** The result overwrites the Gram matrix of the inputs, so no other memory of its size is needed:

             0        TILE      2 TILE                    columns n2
           0 +---------+---------+---------+- - -+
             |  tile   |  tile   |  tile   |     |   stripe 1: STRIPE_PAIRS pairs. First torch.mm writes its part of the
        TILE +---------+---------+---------+- - -+   Gram matrix, then all layers run on its tiles, in threads.
             | (copied)|  tile   |  tile   |     |
             +---------+---------+---------+- - -+   stripe 2
      rows   | (copied)| (copied)|  tile   |     |   symmetric kernels: tiles on and above the diagonal are computed,
        n1   +---------+---------+---------+- - -+   and each is copied to its mirror image.

A row of a tile goes through all layers while it is in the cache. Layers are computed in double precision for inputs of
either precision: the angle between similar examples is the square root of a small difference, and its error would grow
with each layer. On the diagonal, where the angle is 0, the values are exact. An example whose variance is 0 (a zero
input, without biases) has an angle of pi / 2 with every other, so that its kernels are 0 and finite.

**Images** (CNTK). The same recursion on all pairs of positions: :math:`\Sigma[i, i']` and :math:`\tilde K[i, i']`. A
convolution averages over its window, applied to both positions together; padding counts as 0, or wraps around. Average
pooling averages over window times window. At the end, global average pooling takes the mean over all i, i', flattening
the mean over i = i', and dense layers follow. One pair of images after the other goes through all layers. The loops
(`_loops/limit_loops.py`) read, for each image:

    images    (batch, channel, w + h*w + w)     one margin row of zeros before and after the pixels, so that the image
                                                 shifted by dx is a slice
    profiles  (batch, 2, layer after layer)      for each layer and position the standard deviation and its inverse:
              | w | h*w of layer 1 | w | w | h'*w' of layer 2 | w | ...

A position whose variance is 0 has an angle of pi / 2 with every other. In single precision, angles below about 1e-3
are rounding error; the angle of a position with itself is exact. Flattened chains, which need few pairs, are computed
in double precision always.
"""

import queue
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from neuralpath._loops import bend_of, in_threads, limit_loops as loops, n_threads, use_bits
from neuralpath._progress import Step
from neuralpath.kernels.limit import fused_chains as chains
from neuralpath.kernels.limit.fused_chains import DenseStep, LimitChain, Segment, Size
from neuralpath.kernels.limit.limit_network import LimitNetwork
from neuralpath.kernels.tiling import Cost, Tile, TiledKernel, make_plan

DENSE_PAIRS = 512**2  # pairs of a tile of vectors in a plan: the Gram product runs at full speed
IMAGE_PAIRS = 64**2  # pairs of a tile of images: enough for all threads, and to make the fixed cost of a tile small
TILE = 128  # rows and columns of a tile of the loops: its two values for each pair stay in the second-level cache
GRAM_ROWS = 4 * TILE  # rows of one matrix product: few enough to skip most of the lower half, enough to be fast

# Pairs of a stripe: some tenths of a second, after which a progress bar moves. Products and loops do not alternate
# more often, because the threads of a matrix product spin for a while before they sleep and would slow down the loops.
STRIPE_PAIRS = 2**23

# A cosine beyond which inner products are summed again in double precision, as the lengths are. An angle near 0 has
# half of their digits only: in single precision an example would be at an angle of 5e-4 with its own copy.
NEAR = 0.999

Steps = Sequence[DenseStep]  # every step but the last has an activation
Vectors = Float[Tensor, "_batch unit"]
Matrix = Float[Tensor, "_batch1 _batch2"]
Numbers = Float[Tensor, " batch"]  # one for each example
OwnMoments = Float[Tensor, "2 _batch"]  # A and C of each example with itself


@dataclass(frozen=True, slots=True, eq=False)
class LimitKernels:
    """The output kernel (covariance of the outputs, NNGP) and the tangent kernel."""

    output: Matrix
    tangent: Matrix


class Combination(NamedTuple):
    """A sum of the output kernel, the tangent kernel and a constant, by their factors."""

    output: float = 0.0
    tangent: float = 0.0
    constant: float = 0.0

    def of(self, kernels: LimitKernels) -> Matrix:
        """The sum for computed kernels."""
        if self in (OUTPUT, TANGENT):
            return kernels.output if self == OUTPUT else kernels.tangent
        return self.output * kernels.output + self.tangent * kernels.tangent + self.constant


OUTPUT, TANGENT = Combination(output=1.0), Combination(tangent=1.0)


def can_fuse(*tensors: Tensor) -> bool:
    """Whether the fused kernels apply: single or double precision on the CPU, with numba on."""
    return use_bits() and all(t.device.type == "cpu" and t.dtype in (torch.float32, torch.float64) for t in tensors)


def fused_tiles(
    name: str, network: LimitNetwork, x1: Tensor, x2: Tensor | None, budget: int, *, overflow_hint: str
) -> TiledKernel | None:
    """Tiles by the fused kernels; ``None`` if the network is not a chain, or their memory exceeds the budget."""
    others, symmetric = x1 if x2 is None else x2, x2 is None
    chain = chains.chain_of(network)
    if chain is None or not can_fuse(x1, others):
        return None
    share = chain.output_share
    if network.carried:
        combination = Combination(output=1 - share, tangent=share)
    else:
        combination = Combination(output=share, constant=(1 - share) * chain.dense[-1].bias_variance)
    n1, n2, size = len(x1), len(others), x1.element_size()
    if not chain.steps:
        # A tile is its own Gram matrix: it needs no other memory.
        cost = Cost(size, 16 * (len(chain.dense) + 1) + 8, DENSE_PAIRS)
        if cost.smallest > budget:
            return None
        rows, columns = x1.flatten(1), others.flatten(1)

        def dense_tile(tile: Tile) -> Float[Tensor, "rows columns"]:
            second = None if symmetric and tile.rows == tile.columns else columns[tile.columns]
            return dense_kernel(chain.dense, combination, rows[tile.rows], second)

        def write(out: Matrix, progress: Step) -> None:
            write_dense_kernel(out, chain.dense, combination, rows, None if symmetric else columns, progress)

        plan = make_plan(n1, n2, cost, budget, symmetric=symmetric)
        return TiledKernel(name, plan, dense_tile, x1.dtype, x1.device, write=write, overflow_hint=overflow_hint)
    shape = (x1.shape[1], x1.shape[2], x1.shape[3])
    per_example = image_bytes(chain, shape)
    # Two lists of pairs, both moments in double precision, and the results.
    cost = Cost(2 * 16 + 2 * 16 + 4 * size, per_example, IMAGE_PAIRS)
    shared = n_threads() * workspace_bytes(chain, shape, x1.dtype)
    if budget - shared < cost.smallest:
        return None
    # All images are prepared once where they fit into memory, else again for each tile.
    all_bytes = per_example * (n1 + (0 if symmetric else n2))
    images1 = images2 = None
    if all_bytes <= min(budget // 4, budget - shared - cost.smallest):
        shared += all_bytes
        images1 = prepare_images(chain, x1)
        images2 = images1 if x2 is None else prepare_images(chain, x2)

    def image_tile(tile: Tile) -> Float[Tensor, "rows columns"]:
        first = prepare_images(chain, x1[tile.rows]) if images1 is None else images1[tile.rows]
        second = None
        if not symmetric or tile.rows != tile.columns:
            second = prepare_images(chain, others[tile.columns]) if images2 is None else images2[tile.columns]
        return combination.of(fused_image_kernels(first, second))

    plan = make_plan(n1, n2, cost, budget - shared, symmetric=symmetric, kept_bytes=shared)
    return TiledKernel(name, plan, image_tile, x1.dtype, x1.device, overflow_hint=overflow_hint)


def dense_kernel(steps: Steps, combination: Combination, x1: Vectors, x2: Vectors | None = None) -> Matrix:
    """`write_dense_kernel` into a new matrix."""
    out = torch.empty(len(x1), len(x1 if x2 is None else x2), dtype=x1.dtype)
    write_dense_kernel(out, steps, combination, x1, x2)
    return out


def write_dense_kernel(
    out: Matrix,
    steps: Steps,
    combination: Combination,
    x1: Vectors,
    x2: Vectors | None,
    progress: Step | None = None,
    stripe_pairs: int = STRIPE_PAIRS,
) -> None:
    """Write a combination of both kernels of two batches, or of one with itself, into a contiguous ``out``.

    ``can_fuse`` must hold for the batches. ``progress`` is called with the number of pairs of each finished stripe.
    Cost: the Gram matrix, then about 90 operations for each pair and layer.
    """
    rows, symmetric = x1.detach(), x2 is None
    columns = rows if x2 is None else x2.detach()
    variances = _squared_lengths(rows)
    profile1 = _profiles(steps, variances)
    profile2 = profile1 if symmetric else _profiles(steps, _squared_lengths(columns))
    constants, values = _constants(steps), out.numpy()
    inputs = rows.contiguous().numpy(), columns.contiguous().numpy()
    factors = tuple(combination)
    n1, n2 = out.shape
    height = max(1, stripe_pairs // max(n2 * TILE, 1)) * TILE
    for top in range(0, n1, height):
        bottom = min(top + height, n1)
        for start in range(top, bottom, GRAM_ROWS):
            part = slice(start, min(start + GRAM_ROWS, bottom))
            left = start if symmetric else 0  # of a symmetric kernel the entries on and above the diagonal, roughly
            torch.mm(rows[part], columns[left:].T, out=out[part, left:])
        corners = _tile_corners(top, bottom, n2, symmetric)

        def run(share: slice, corners: np.ndarray = corners) -> None:
            loops.run_tiles_in_place(
                values, *inputs, NEAR, profile1, profile2, constants, factors, corners[share], TILE, symmetric
            )

        in_threads(run, len(corners))
        if progress is not None:
            count = bottom - top
            progress(count * (n1 - top) - count * (count - 1) // 2 if symmetric else count * n2)
    if symmetric:
        output, tangent = _diagonals(steps, variances, variances)
        out.diagonal().copy_(combination.output * output + combination.tangent * tangent + combination.constant)


def _tile_corners(top: int, bottom: int, n2: int, symmetric: bool) -> np.ndarray:
    """First row and column of each tile that is computed; a list of them gives each thread an equal share."""
    corners = [(i, j) for i in range(top, bottom, TILE) for j in range(i if symmetric else 0, n2, TILE)]
    return np.array(corners, np.int64)


def _apply_dense_steps(
    steps: Steps, matrices: Float[Tensor, "2 batch1 batch2"], own1: OwnMoments, own2: OwnMoments | None
) -> tuple[Matrix, Matrix]:
    """Take A and C of all pairs through dense layers, in double precision; ``own2``: None for one batch with itself."""
    (covariance, tangent), symmetric = matrices, own2 is None
    profile1 = _profiles(steps, own1[0])
    profile2 = profile1 if own2 is None else _profiles(steps, own2[0])
    output, result = torch.empty_like(covariance), torch.empty_like(covariance)
    arrays = output.numpy(), result.numpy(), covariance.numpy(), tangent.numpy()
    constants, corners = _constants(steps), _tile_corners(0, len(covariance), covariance.shape[1], symmetric)

    def run(share: slice) -> None:
        loops.run_tiles(*arrays, profile1, profile2, constants, corners[share], TILE, symmetric)

    in_threads(run, len(corners))
    if symmetric:
        for kernel, diagonal in zip((output, result), _diagonals(steps, own1[0], own1[1]), strict=True):
            kernel.diagonal().copy_(diagonal)
    return output, result


def _spreads(variances: Float[Tensor, "*shape"]) -> Float[Tensor, "2 *shape"]:
    """Standard deviations and their inverses; 0 where the variance is 0, which makes the angle pi / 2."""
    deviation = variances.sqrt()
    return torch.stack([deviation, torch.where(deviation > 0, 1 / deviation, 0.0)])


def _squared_lengths(x: Vectors) -> Numbers:
    """Squared lengths in double precision, without torch, which would wake its threads for so little work."""
    lengths = np.empty(len(x))
    loops.squared_lengths(lengths, x.contiguous().numpy())
    return torch.from_numpy(lengths)


def _diagonals(steps: Steps, variance: Numbers, tangent: Numbers) -> tuple[Numbers, Numbers]:
    """Both kernels of each example with itself."""
    for step in steps:
        variance = step.weight_variance * variance + step.bias_variance
        tangent = step.weight_variance * tangent + step.bias_variance
        if step.slope is not None:
            share = (1 + step.slope**2) / 2
            variance, tangent = share * variance, share * (variance + tangent)
    return variance, tangent


def _profiles(steps: Steps, variance: Numbers) -> np.ndarray:
    """``_spreads`` of the pre-activations of each layer but the output, in the layout (layer, 2, batch)."""
    layers = [variance.new_empty((0, 2, len(variance)))]
    for step in steps[:-1]:
        variance = step.weight_variance * variance + step.bias_variance
        layers.append(_spreads(variance)[None])
        assert step.slope is not None
        variance = (1 + step.slope**2) / 2 * variance
    return torch.cat(layers).numpy()


def _constants(steps: Steps) -> np.ndarray:
    """For each layer: weight variance, bias variance, and the constants of its activation (unused without one)."""
    return np.array([(s.weight_variance, s.bias_variance, *bend_of(s.slope or 0.0)) for s in steps])


@dataclass(frozen=True, slots=True, eq=False)
class PreparedImages:
    """Images with the variances of all their positions in all layers, which every pair needs; computed once."""

    chain: LimitChain
    segments: tuple[Segment, ...]
    dtype: torch.dtype  # of the results
    images: np.ndarray  # drawn above
    profiles: np.ndarray
    own: OwnMoments  # before the dense layers

    @property
    def end(self) -> int:
        """How values become A and C before the dense layers: a sum over all pairs, or over equal positions."""
        return loops.SUM if self.chain.pooled else loops.DIAGONAL

    def __getitem__(self, rows: slice) -> "PreparedImages":
        return replace(self, images=self.images[rows], profiles=self.profiles[rows], own=self.own[:, rows])


def prepare_images(chain: LimitChain, x: Float[Tensor, "_batch _channel _height _width"]) -> PreparedImages:
    """Compute the variances of each position, layer by layer; after a pool they need pairs of nearby positions."""
    segments = chains.segments_of(chain, (x.shape[2], x.shape[3]))
    dtype = x.dtype if chain.pooled else torch.float64
    images = _with_margin(x.detach().to(dtype))
    nothing, own = images.new_zeros((len(x), 2, 0)), torch.zeros(2, len(x), dtype=torch.float64)
    prepared = PreparedImages(chain, segments, x.dtype, images.numpy(), nothing.numpy(), own)
    parts, itself = [nothing], np.repeat(np.arange(len(x), dtype=np.int64)[:, None], 2, axis=1)
    variance = x.detach().double().square().sum(1)
    for index, segment in enumerate(segments):
        if index > 0:
            # What the segment reads, for each position with itself, by its loops without its layers.
            until = (*segments[:index], replace(segment, layers=()))
            values = _run_pairs(until, prepared, prepared, itself, loops.READ, same=True)
            variance = torch.from_numpy(values).reshape(len(x), *segment.size)
        for step in segment.activated:
            variance = variance if step is segment.source else _window_sums(step, variance)
            variance = step.weight_variance / (step.window[0] * step.window[1]) * variance + step.bias_variance
            parts.append(_with_margin(_spreads(variance).transpose(0, 1).to(dtype)))
            variance = (1 + step.slope**2) / 2 * variance
        prepared = replace(prepared, profiles=torch.cat(parts, 2).numpy())
    if len(chain.dense) == 1:  # a single dense layer has no angles
        return prepared
    moments = _run_pairs(segments, prepared, prepared, itself, prepared.end, same=True)
    return replace(prepared, own=torch.from_numpy(moments.T))


def fused_image_kernels(rows: PreparedImages, columns: PreparedImages | None = None) -> LimitKernels:
    """Output and tangent kernel of a chain for two batches of prepared images, or for one with itself."""
    others, symmetric = rows if columns is None else columns, columns is None
    n1, n2 = len(rows.images), len(others.images)
    upper = np.triu(np.ones((n1, n2), bool)) if symmetric else np.ones((n1, n2), bool)
    # Column by column, so that neighbors in the list share an image.
    pairs = np.argwhere(upper.T)[:, ::-1].astype(np.int64)
    moments = _run_pairs(rows.segments, rows, others, np.ascontiguousarray(pairs), rows.end, same=symmetric)
    matrices = np.empty((2, n1, n2))
    matrices[:, pairs[:, 0], pairs[:, 1]] = moments.T
    if symmetric:
        matrices[:, pairs[:, 1], pairs[:, 0]] = moments.T
    # A symmetric kernel has A and C of each image with itself on its diagonal.
    own = torch.from_numpy(matrices.diagonal(axis1=1, axis2=2).copy()) if symmetric else rows.own
    own2 = None if columns is None else columns.own
    output, tangent = _apply_dense_steps(rows.chain.dense, torch.from_numpy(matrices), own, own2)
    return LimitKernels(output.to(rows.dtype), tangent.to(rows.dtype))


def image_bytes(chain: LimitChain, shape: tuple[int, int, int]) -> int:
    """Memory of a prepared image, at most: itself, two numbers for each position of each layer, and the margins."""
    channels, height, width = shape
    segments = chains.segments_of(chain, (height, width))
    profiles = sum(2 * (s.positions + 2 * s.size[1]) * len(s.activated) for s in segments)
    return 8 * (channels * (height + 2) * width + profiles)


def workspace_bytes(chain: LimitChain, shape: tuple[int, int, int], dtype: torch.dtype) -> int:
    """Memory of one thread for images of a shape (channels, height, width), independent of their number."""
    segments = chains.segments_of(chain, (shape[1], shape[2]))
    shapes, _ = _workspace(segments, chains.needed_displacements(segments, chain.pooled), shape[0])
    return sum(a * b for a, b in shapes) * (dtype if chain.pooled else torch.float64).itemsize


def _workspace(
    segments: Sequence[Segment], needed: Sequence[chains.Displacements], n_channels: int
) -> tuple[tuple[Size, Size, Size], int]:
    """Shapes of the buffers of one thread (``loops.Memory``), and the margin that the sums along x may read."""
    most = max(s.positions for s in segments)
    stored = [2 * len(ys) * len(xs) * s.positions for s, (ys, xs) in zip(segments[:-1], needed[:-1], strict=True)]
    rows = max((n_channels if s.source is None else 0) + 2 * len(s.activated) for s in segments)
    margin = max(s.size[1] + max((step.window[1] for step in s.layers), default=0) for s in segments)
    return ((3, most + 2 * margin), (rows, 2 * most), (2, max(stored, default=0))), margin


def _run_pairs(
    segments: Sequence[Segment],
    rows: PreparedImages,
    columns: PreparedImages,
    pairs: np.ndarray,
    end: int,
    *,
    same: bool,
) -> np.ndarray:
    """The results of a list of pairs, which are divided among threads with memory of their own; ``same``: one batch."""
    results = np.zeros((len(pairs), segments[-1].positions if end == loops.READ else 2))
    needed = chains.needed_displacements(segments, end == loops.SUM)
    program = chains.program_of(segments, needed, rows.images.dtype)
    shapes, margin = _workspace(segments, needed, rows.images.shape[1])
    free: queue.SimpleQueue[loops.Memory] = queue.SimpleQueue()
    for _ in range(n_threads()):
        free.put(loops.Memory(*(np.zeros(shape, rows.images.dtype) for shape in shapes)))
    sides = rows.images, columns.images, rows.profiles, columns.profiles

    def run(share: slice) -> None:
        memory = free.get()
        try:
            loops.run_pairs(results[share], pairs[share], *sides, program, memory, margin, same, end)
        finally:
            free.put(memory)

    in_threads(run, len(pairs))
    return results


def _window_sums(step: chains.ConvolutionStep, values: Float[Tensor, "batch h w"]) -> Float[Tensor, "batch h w"]:
    """Sums over the window of a convolution that keeps the size, position by position."""
    sides = ((0, 0), *zip(step.before, step.after, strict=True))
    padded = np.pad(values.numpy(), sides, mode="wrap" if step.circular else "constant")
    (height, width), total = values.shape[1:], np.zeros(values.shape)
    for y, x in np.ndindex(step.window):
        total += padded[:, y : y + height, x : x + width]
    return torch.from_numpy(total)


def _with_margin(images: Float[Tensor, "batch channel height width"]) -> Float[Tensor, "batch channel _padded"]:
    """Flat images with a row of zeros before and after."""
    return functional.pad(images.flatten(2), (images.shape[3], images.shape[3])).contiguous()
