"""Networks that are chains of layers with (leaky) ReLUs, which the fused kernels compute as a whole."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._loops import n_threads
from neuralpath.graph import OUTSIDE, nodes as n
from neuralpath.kernels.limit.activations import Activation, Identity, Pair, Rectifier
from neuralpath.kernels.limit.fused_dense import Combination, DenseStep, DenseTiles, can_fuse
from neuralpath.kernels.limit.fused_images import ImageTiles, image_bytes, workspace_bytes
from neuralpath.kernels.limit.fused_program import ConvolutionStep, LimitChain, PoolStep
from neuralpath.kernels.limit.limit_network import LimitNetwork
from neuralpath.kernels.tiling import Cost, TiledKernel, make_plan

DENSE_PAIRS = 512**2
"""Pairs of a tile of vectors: the Gram product runs at full speed."""

IMAGE_PAIRS = 64**2
"""Pairs of a tile of images: enough for all threads, and to make the fixed cost of a tile negligible."""

Sides = tuple[tuple[int, int], tuple[int, int]]  # rows and columns padded before, and after


@dataclass(frozen=True, slots=True)
class FusedChain:
    """A whole network as a chain: dense layers, after convolutions where ``images`` is given."""

    dense: tuple[DenseStep, ...]
    images: LimitChain | None
    output_share: float  # the output layer's variance over the factor of its own gradient

    def combination(self, *, tangent: bool) -> Combination:
        """The tangent or the output kernel, with the output layer's own variance."""
        share, bias = self.output_share, self.dense[-1].bias_variance
        if tangent:
            return Combination(output=1 - share, tangent=share)
        return Combination(output=share, constant=(1 - share) * bias)


def fused_tiles(
    what: str, network: LimitNetwork, x1: Tensor, x2: Tensor | None, budget: int, *, overflow_hint: str
) -> TiledKernel | None:
    """Tiles by the fused kernels; ``None`` if the network is not a chain, or their memory exceeds the budget."""
    chain = chain_of(network)
    if chain is None or not can_fuse(*([x1] if x2 is None else [x1, x2])):
        return None
    combination = chain.combination(tangent=bool(network.carried))
    n1, n2 = len(x1), len(x1 if x2 is None else x2)
    size, symmetric = x1.element_size(), x2 is None
    if chain.images is None:
        # A tile is its own Gram matrix: it needs no other memory.
        cost = Cost(size, 16 * (len(chain.dense) + 1) + 8, DENSE_PAIRS)
        if cost.smallest > budget:
            return None
        vectors = DenseTiles(chain.dense, combination, x1.flatten(1), None if x2 is None else x2.flatten(1))
        plan = make_plan(n1, n2, cost, budget, symmetric=symmetric)
        return TiledKernel(
            what, plan, vectors.tile, x1.dtype, x1.device, write=vectors.write, overflow_hint=overflow_hint
        )
    shape = (x1.shape[1], x1.shape[2], x1.shape[3])
    per_example = image_bytes(chain.images, shape)
    # Two lists of pairs, both moments in double precision, and the results.
    cost = Cost(2 * 16 + 2 * 16 + 4 * size, per_example, IMAGE_PAIRS)
    shared = n_threads() * workspace_bytes(chain.images, shape, x1.dtype)
    if budget - shared < cost.smallest:
        return None
    images = ImageTiles(chain.images, combination, x1, x2)
    prepared = per_example * (n1 + (0 if symmetric else n2))
    if prepared <= min(budget // 4, budget - shared - cost.smallest):
        images, shared = images.prepared(), shared + prepared
    plan = make_plan(n1, n2, cost, budget - shared, symmetric=symmetric, kept_bytes=shared)
    return TiledKernel(what, plan, images.tile, x1.dtype, x1.device, overflow_hint=overflow_hint)


class _NoChain(Exception):
    """The graph is not a chain."""


@dataclass(slots=True)
class _Builder:
    """The steps of a chain, node by node."""

    network: LimitNetwork
    image: bool  # positions have axes of their own
    convolutions: list[ConvolutionStep | PoolStep] = field(default_factory=list)
    dense: list[DenseStep] = field(default_factory=list)
    pooled: bool | None = None  # whether positions were pooled or flattened; None before that
    padding: Sides | None = None  # of the next convolution, from a padding node
    circular: bool = False
    activated: bool = True  # whether the last layer has had its activation
    biased: bool = True  # or its bias

    def read(self, node: n.Node) -> None:
        """Append a node; raises _NoChain where it does not fit."""
        if self.padding is not None and not (isinstance(node, n.LinearNode) and node.windows):
            raise _NoChain
        match node:
            case n.ReshapeNode():
                self._reshape(node)
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

    def _reshape(self, node: n.ReshapeNode) -> None:
        if not self.image:
            return
        if len(node.shape) > 1:
            raise _NoChain
        self.image = False
        if self.convolutions and self.pooled is None:
            self.pooled = False

    def _convolution(self, node: n.LinearNode) -> None:
        y, x = node.windows
        if self.pooled is not None or (y.dilation, x.dilation) != (1, 1):
            raise _NoChain
        before, after = (y.before, x.before), (y.after, x.after)
        if self.padding is not None:
            if self.circular and any((*before, *after)):
                raise _NoChain
            before, after = (_plus(a, b) for a, b in zip((before, after), self.padding, strict=True))
        step = ConvolutionStep(
            (y.size, x.size), self._own(node), (y.stride, x.stride), before, after, self.circular, slope=1.0
        )
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
        if self.dense:
            self.dense[-1] = replace(self.dense[-1], **fields)
        else:
            last = self.convolutions[-1]
            self.convolutions[-1] = replace(last, **fields)  # type: ignore[arg-type]  # fields of both classes

    def _pool(self, node: n.AveragePoolNode) -> None:
        if self.pooled is not None:
            raise _NoChain
        self.activated = self.biased = True
        if all(bool((m == 1 / m.shape[1]).all()) and m.shape[0] == 1 for m in node.matrices):
            self.pooled = True
            return
        (height, down), (width, right) = (_window(matrix) for matrix in node.matrices)
        self.convolutions.append(PoolStep((height, width), (down, right)))

    def chain(self) -> FusedChain:
        """The whole chain; raises _NoChain unless it ends in a dense layer without activation."""
        if len(self.dense) + len(self.convolutions) < 2 or not self.dense or self.dense[-1].slope is not None:
            raise _NoChain
        # Dense layers without an activation between them have one of slope 1.
        between = (replace(step, slope=1.0 if step.slope is None else step.slope) for step in self.dense[:-1])
        dense = (*between, self.dense[-1])
        network = self.network
        last = [node.name for node in network.graph.nodes if isinstance(node, n.LinearNode)][-1]
        share = network.variances[last] / network.own_variances[last]
        if not self.convolutions:
            return FusedChain(dense, None, share)
        assert self.pooled is not None
        return FusedChain(dense, LimitChain(tuple(self.convolutions), self.pooled, dense), share)


def chain_of(network: LimitNetwork) -> FusedChain | None:
    """The network as a chain for the fused kernels, or ``None`` where it is not one."""
    nodes = network.graph.nodes
    if network.paths or network.carried not in ((), (Pair.SLOPES,)) or not isinstance(nodes[0], n.InputNode):
        return None
    if any(after.inputs != (before.name,) for before, after in pairwise(nodes)):
        return None
    if len(nodes[0].shape) not in (1, 3):
        return None
    builder = _Builder(network, image=len(nodes[0].shape) == 3)
    try:
        for node in nodes[1:]:
            builder.read(node)
        return builder.chain()
    except _NoChain:
        return None


def _plus(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] + b[0], a[1] + b[1]


def _padding(node: n.SelectNode) -> tuple[Sides, bool]:
    """Rows and columns that a selection pads, and whether it wraps around."""
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
    if size == 0 or stride < 1 or not torch.equal(matrix, expected):
        raise _NoChain
    if (matrix.shape[1] - size) // stride + 1 != len(matrix):  # the kernels pool all windows that fit
        raise _NoChain
    return size, stride
