"""The kinds of node that a ReLU network is made of, the tensors that they read, and windows of convolutions and pools.

A node never copies a weight. It has operands: tensors of the model, and functions of them, which each walk evaluates
anew. So a graph follows the model as it trains, and gradients flow into any tensors that replace the model's own.

A node's value for one example has the shape ``(channels, *space)``, or ``(units,)`` after flattening. Between two
linear nodes everything is weightless, acts on each channel separately, and is linear once the gates are fixed. So path
quantities are exact.

Every window operation is separable, so it is described axis by axis, by a small table: one row for each output
position, one column for each place in the window, holding the input position that is read. A window of size 3 with
stride 2 and one zero before and after, on 5 input positions::

    output 0:  OUTSIDE  0  1
    output 1:        1  2  3
    output 2:        3  4  OUTSIDE
"""

import math
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from neuralpath.gates import Gate

OUTSIDE = -1  # the entry of a table where a window reaches over the edge and reads nothing
Shape = tuple[int, ...]
WindowTable = Int[Tensor, "_out _window"]
Axes = tuple[Float[Tensor, "_out _n_in"], ...]  # a map of positions, one matrix for each axis of space

_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_MAX_POOLS: dict[int, Any] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}

State = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Leaf:
    """A tensor of the model, by its name in the model."""

    name: str
    is_parameter: bool

    def evaluate(self, state: State) -> Tensor:
        """The tensor itself."""
        return state[self.name]

    def leaves(self) -> "Iterator[Leaf]":
        """The tensors of the model that this operand depends on."""
        yield self

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Literal:
    """A number or a tensor written in the model's code."""

    value: float | Tensor

    def evaluate(self, state: State) -> Tensor:
        """The value as a tensor; a number becomes a 0-dimensional one, exact, that promotes nothing."""
        return self.value if isinstance(self.value, Tensor) else torch.tensor(self.value, dtype=torch.float64)

    def leaves(self) -> Iterator[Leaf]:
        """Nothing: a literal depends on no tensor of the model."""
        return iter(())

    def __str__(self) -> str:
        return f"tensor{tuple(self.value.shape)}" if isinstance(self.value, Tensor) else f"{self.value:.6g}"


@dataclass(frozen=True, eq=False)
class ComputedOperand:
    """A function of other operands, such as a transposed, normalized or folded weight."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def evaluate(self, state: State) -> Any:
        """The function's value at the current tensors."""
        args = (_evaluate(arg, state) for arg in self.args)
        return self.function(*args, **{key: _evaluate(value, state) for key, value in self.kwargs.items()})

    def leaves(self) -> Iterator[Leaf]:
        """The tensors of the model that this operand depends on."""
        return _leaves((*self.args, *self.kwargs.values()))

    def __str__(self) -> str:
        if self.function in RESHAPED:
            return str(self.args[0])
        name = str(getattr(self.function, "_opname", getattr(self.function, "__name__", "function"))).strip("_")
        names = tuple(dict.fromkeys(leaf.name for leaf in self.leaves()))
        modules = {leaf.rpartition(".")[0] for leaf in names}
        if len(names) > 1 and len(modules) == 1 and modules != {""}:
            names = tuple(modules)  # several tensors of one module, such as a batch norm: the name of the module
        return f"{name}({', '.join(names)})" if names else name


Operand = Leaf | Literal | ComputedOperand


def parameters_of(operand: Operand) -> tuple[str, ...]:
    """Names of the model's parameters that an operand depends on, each once."""
    return tuple(dict.fromkeys(leaf.name for leaf in operand.leaves() if leaf.is_parameter))


def own_names(model: nn.Module) -> dict[str, str]:
    """From every name of a tensor of the model to its first one, which is torch's own where modules share it."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(tensor), name) for name, tensor in named_tensors(model).items()}


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and buffers by every name that they have."""
    named = (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    return {name: tensor for tensors in named for name, tensor in tensors}


def _evaluate(arg: Any, state: State) -> Any:
    if isinstance(arg, Operand):
        return arg.evaluate(state)
    return [_evaluate(item, state) for item in arg] if isinstance(arg, list | tuple) else arg


def _leaves(arg: Any) -> Iterator[Leaf]:
    if isinstance(arg, Operand):
        yield from arg.leaves()
    elif isinstance(arg, list | tuple):
        for item in arg:
            yield from _leaves(item)


def batch_norm_scale(weight: Tensor | None, variance: Tensor, eps: float, n_space: int) -> Tensor:
    """The factor of evaluation-mode batch norm for each channel, shaped to broadcast over space."""
    scale = torch.rsqrt(variance + eps)
    return per_channel(scale if weight is None else scale * weight, n_space)


def batch_norm_shift(
    weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor, eps: float, n_space: int
) -> Tensor:
    """The shift of evaluation-mode batch norm for each channel, after the scale, shaped to broadcast over space."""
    shift = -per_channel(mean, n_space) * batch_norm_scale(weight, variance, eps, n_space)
    return shift if bias is None else shift + per_channel(bias, n_space)


def per_channel(tensor: Tensor, n_space: int) -> Tensor:
    """A tensor with one value per channel, shaped to broadcast over space."""
    return tensor.reshape(-1, *(1,) * n_space)


def transposed(weight: Tensor) -> Tensor:
    """The matrix of ``x @ weight`` in the order (outputs, inputs)."""
    return weight.mT


def as_row(weight: Tensor) -> Tensor:
    """The matrix of ``x @ weight`` for a weight that is a vector."""
    return weight.reshape(1, -1)


RESHAPED = (per_channel, transposed, as_row)  # functions that only change the shape


def number_of(tensor: Tensor) -> Tensor:
    """A tensor's only entry, as ``tensor.item()`` gives it: a number that no gradient flows into."""
    return tensor.detach().reshape(())


def floating(tensor: Tensor) -> Tensor:
    """Integers as float64, which is exact; torch would compute with them in float32."""
    return tensor if tensor.is_floating_point() else tensor.double()


def is_zero(operand: Operand, state: State) -> bool:
    """Whether a constant is 0 everywhere and cannot change with the model's tensors."""
    return not any(True for _ in operand.leaves()) and bool((operand.evaluate(state) == 0).all())


@dataclass(frozen=True)
class Window:
    """A sliding window along one axis."""

    size: int
    stride: int = 1
    dilation: int = 1
    before: int = 0  # zero positions in front of the axis
    after: int = 0  # and behind it

    def n_out(self, n_in: int, *, ceil: bool = False) -> int:
        """Number of output positions for ``n_in`` input positions, by torch's rule."""
        free = n_in + self.before + self.after - self.dilation * (self.size - 1) - 1
        count = (math.ceil(free / self.stride) if ceil else free // self.stride) + 1
        # With ceil, a last window that would start in the padding behind the axis is dropped.
        return count - 1 if ceil and (count - 1) * self.stride >= n_in + self.before else count

    def table(self, n_in: int, *, ceil: bool = False) -> WindowTable:
        """The input position that each place of each window reads."""
        starts = torch.arange(self.n_out(n_in, ceil=ceil)) * self.stride - self.before
        table = starts[:, None] + torch.arange(self.size) * self.dilation
        return torch.where((table >= 0) & (table < n_in), table, OUTSIDE)


def adaptive_table(n_in: int, n_out: int) -> WindowTable:
    """Windows of torch's adaptive pooling; shorter windows are filled up with ``OUTSIDE``."""
    windows = [range((i * n_in) // n_out, -((-(i + 1) * n_in) // n_out)) for i in range(n_out)]
    longest = max(map(len, windows))
    return torch.tensor([[*window, *[OUTSIDE] * (longest - len(window))] for window in windows])


def incidence(table: WindowTable, n_in: int) -> Float[Tensor, "_out _n_in"]:
    """The 0/1 matrix (counts, where a window reads a position twice) of a table, in float64."""
    matrix = torch.zeros(table.shape[0], n_in + 1, dtype=torch.float64)
    # OUTSIDE is -1, the extra last column, which is then dropped.
    rows = torch.arange(table.shape[0])[:, None].expand_as(table)
    matrix.index_put_((rows, table), torch.ones((), dtype=torch.float64), accumulate=True)
    return matrix[:, :n_in].contiguous()


def window_positions(tables: tuple[WindowTable, ...], in_space: Shape) -> Int[Tensor, "out window"]:
    """Flat input position of each place of each window, ``OUTSIDE`` beyond the edge, from a table for each axis."""
    positions = torch.zeros(1, 1, dtype=torch.int64)
    for table, size in zip(tables, in_space, strict=True):
        outer, inner = positions[:, None, :, None], table[None, :, None, :]
        joined = torch.where((outer < 0) | (inner < 0), OUTSIDE, outer * size + inner)
        positions = joined.reshape(outer.shape[0] * table.shape[0], -1)
    return positions


def gather_positions(
    z: Shaped[Tensor, "batch channels *space"], index: Int[Tensor, "batch channels *out"]
) -> Shaped[Tensor, "batch channels *out"]:
    """Read each output position of each channel at its own flat input position."""
    return z.flatten(2).gather(2, index.flatten(2)).reshape(index.shape)


def is_global_pool(axes: Axes) -> bool:
    """Whether a map of positions is one average, or sum, over all of them."""
    return bool(axes) and all(matrix.shape[0] == 1 and bool((matrix == matrix[0, 0]).all()) for matrix in axes)


def average(z: Float[Tensor, "batch *shape"], matrices: Axes) -> Float[Tensor, "batch *out"]:
    """Apply one matrix along each spatial axis, the cheapest (strongest reduction) first."""
    for axis in sorted(range(len(matrices)), key=lambda a: matrices[a].shape[0] / matrices[a].shape[1]):
        z = torch.tensordot(z, matrices[axis].to(z), dims=([axis + 2], [1])).movedim(-1, axis + 2)
    return z


@dataclass(frozen=True, eq=False)
class Node:
    """One step of the network: a name, where its inputs come from, and the shape of its value."""

    kind: ClassVar[str]  # the method of a `Reading` for such nodes: "max_pool" of MaxPoolNode

    name: str
    inputs: tuple[str, ...]
    shape: Shape

    def __init_subclass__(cls) -> None:
        cls.kind = "_".join(re.findall("[A-Z][a-z]*", cls.__name__.removesuffix("Node"))).lower()

    @property
    def n_units(self) -> int:
        """Number of units."""
        return prod(self.shape)

    @property
    def n_positions(self) -> int:
        """Number of positions of one channel."""
        return prod(self.shape[1:])


@dataclass(frozen=True, eq=False)
class InputNode(Node):
    """The network's input: where paths start, with the signal x."""


@dataclass(frozen=True, eq=False)
class ConstantNode(Node):
    """A constant that is added to the signal (not a parameter): paths start here too, with no weight."""

    value: Operand


@dataclass(frozen=True, eq=False)
class LinearNode(Node):
    """A convolution, or without space a dense layer: one weight of every path that goes through it."""

    weight: Operand
    weight_shape: Shape  # (out channels, in channels / groups, *window)
    in_space: Shape = ()
    windows: tuple[Window, ...] = ()  # padded with zeros; other modes are a ``SelectNode`` in front
    groups: int = 1

    @property
    def parameters(self) -> tuple[str, ...]:
        """The model's parameters that the weight is made of."""
        return parameters_of(self.weight)

    @property
    def fan_in(self) -> int:
        """Number of weights that are summed for one output unit (away from the edges)."""
        return prod(self.weight_shape[1:])

    def apply(self, z: Float[Tensor, "batch *shape"], weight: Float[Tensor, "..."]) -> Float[Tensor, "batch *out"]:
        """The node's values with a weight, from a batch of values before it."""
        if not self.windows:
            return F.linear(z, weight)
        padding = [window.before for window in self.windows]
        if padding != [window.after for window in self.windows]:
            # F.pad counts axes from the last.
            z = F.pad(z, [side for w in reversed(self.windows) for side in (w.before, w.after)])
            padding = [0] * len(padding)
        stride, dilation = [w.stride for w in self.windows], [w.dilation for w in self.windows]
        convolution = _CONVOLUTIONS[len(self.windows)]
        return convolution(z, weight, stride=stride, padding=padding, dilation=dilation, groups=self.groups)

    def apply_ones(self, z: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch *out"]:
        """The same with weights that are all 1; all output channels of a group are views of the same memory."""
        out = self.weight_shape[0]
        sums = z.unflatten(1, (self.groups, -1)).sum(2)  # of the channels of a group first, then of the window
        if self.windows:
            sums = self.apply(sums, sums.new_ones(self.groups, 1, *self.weight_shape[2:]))
        copies = sums.unsqueeze(2).expand(-1, -1, out // self.groups, *sums.shape[2:])
        return copies.reshape(len(z), out, *sums.shape[2:])


@dataclass(frozen=True, eq=False)
class BiasNode(Node):
    """Adds a parameter: a path starts here with signal 1 and the bias as its first weight."""

    value: Operand
    value_shape: Shape  # broadcasts against the node's shape from the right
    parameters: tuple[
        str, ...
    ]  # that count as its weight: for batch norm the bias alone, although the mean is folded in


@dataclass(frozen=True, eq=False)
class GateNode(Node):
    """Multiplies the signal by a gate of itself. For PReLU ``slope`` is the parameter of the leaky gate."""

    gate: Gate
    slope: Operand | None = None


@dataclass(frozen=True, eq=False)
class ActivationNode(Node):
    """An activation that is not read as a gate, such as softplus; path quantities do not support it."""

    operation: str
    function: Any
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ScaleNode(Node):
    """Multiplies by a constant that broadcasts against the node's shape from the right."""

    factor: Operand


@dataclass(frozen=True, eq=False)
class AddNode(Node):
    """Sums branches: a path chooses one of them."""


@dataclass(frozen=True, eq=False)
class ConcatNode(Node):
    """Stacks branches along the channels."""

    sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SelectNode(Node):
    """Reads units by index, axis by axis, ``OUTSIDE`` giving 0: slices, splits, flips and every padding."""

    in_shape: Shape
    indices: tuple[Int[Tensor, " _n"] | None, ...]  # for each axis, channels first; None leaves it as it is

    def apply(self, z: Shaped[Tensor, "batch *shape"]) -> Shaped[Tensor, "batch *out"]:
        """The values that are read from a batch of values."""
        for axis, index in enumerate(self.indices, start=1):
            if index is None:
                continue
            index = index.to(z.device)
            z = z.index_select(axis, index.clamp(min=0))
            if (index < 0).any():
                z = z.masked_fill((index < 0).reshape(-1, *(1,) * (z.ndim - axis - 1)), 0)
        return z


@dataclass(frozen=True, eq=False)
class AveragePoolNode(Node):
    """A fixed linear map of the positions, axis by axis: average, adaptive and global pooling, sums over space."""

    matrices: Axes


@dataclass(frozen=True, eq=False)
class MaxPoolNode(Node):
    """Picks one position of each window: a gate with one mask for each output position."""

    tables: tuple[WindowTable, ...]
    in_space: Shape
    windows: tuple[Window, ...] | None  # None for adaptive windows
    ceil: bool = False

    @property
    def disjoint(self) -> bool:
        """Whether no input position lies in two windows."""
        return all((t[t >= 0].bincount() <= 1).all() for t in self.tables)

    @cached_property
    def positions(self) -> Int[Tensor, "out window"]:
        """Flat input position of each place of each window, ``OUTSIDE`` beyond the edge."""
        return window_positions(self.tables, self.in_space)

    def places(self, z: Float[Tensor, "batch *shape"], outside: float) -> Float[Tensor, "batch channels out window"]:
        """The values at each place of each window, with a value for those beyond the edge."""
        positions = self.positions.to(z.device)
        return z.flatten(2)[:, :, positions.clamp(min=0)].masked_fill(positions < 0, outside)

    def largest(self, z: Float[Tensor, "batch *shape"]) -> Int[Tensor, "batch *out"]:
        """Flat input position of the largest entry of each window."""
        z = z.detach()
        if self.windows is not None:  # torch's own, whose windows are padded alike on both sides
            settings = ([getattr(w, name) for w in self.windows] for name in ("size", "stride", "before", "dilation"))
            pool = _MAX_POOLS[len(self.windows)]
            return pool(z, *settings, ceil_mode=self.ceil, return_indices=True)[1]
        place = self.places(z, -torch.inf).argmax(-1, keepdim=True)
        index = self.positions.to(z.device).expand(*place.shape[:2], -1, -1).gather(-1, place).squeeze(-1)
        return index.reshape(z.shape[0], *self.shape)


@dataclass(frozen=True, eq=False)
class ReshapeNode(Node):
    """Renames the axes: flattening, squeezing, and any view of a signal that no weight has touched."""

    in_shape: Shape


def operands_of(node: Node) -> tuple[Operand, ...]:
    """The tensors of the model that a node reads."""
    return tuple(value for value in vars(node).values() if isinstance(value, Operand))


def needed_nodes(nodes: Sequence[Node], output_name: str, known: Container[str] = ()) -> tuple[Node, ...]:
    """The nodes that the output depends on, up to known ones, in order; the input stays where nothing reads it."""
    names, needed = {output_name}, []
    for node in reversed(nodes):
        if node.name not in known and (node.name in names or isinstance(node, InputNode)):
            names.update(node.inputs)
            needed.append(node)
    return tuple(reversed(needed))
