"""The kinds of node that a ReLU network is made of, and the windows of convolutions and pools.

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
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from neuralpath.gates import Gate
from neuralpath.graph.operands import Operand, parameters_of

OUTSIDE = -1
"""The entry of a table where a window reaches over the edge and reads nothing."""

WindowTable = Int[Tensor, "_out _window"]


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
        reach = self.dilation * (self.size - 1) + 1
        free = n_in + self.before + self.after - reach
        count = (math.ceil(free / self.stride) if ceil else free // self.stride) + 1
        # With ceil, a last window that would start in the padding behind the axis is dropped.
        if ceil and (count - 1) * self.stride >= n_in + self.before:
            count -= 1
        return count

    def table(self, n_in: int, *, ceil: bool = False) -> WindowTable:
        """The input position that each place of each window reads."""
        starts = torch.arange(self.n_out(n_in, ceil=ceil)) * self.stride - self.before
        table = starts[:, None] + torch.arange(self.size) * self.dilation
        return torch.where((table >= 0) & (table < n_in), table, OUTSIDE)


def adaptive_table(n_in: int, n_out: int) -> WindowTable:
    """Windows of torch's adaptive pooling; shorter windows are filled up with ``OUTSIDE``."""
    starts = [(i * n_in) // n_out for i in range(n_out)]
    ends = [-((-(i + 1) * n_in) // n_out) for i in range(n_out)]
    longest = max(end - start for start, end in zip(starts, ends, strict=True))
    rows = [
        [*range(start, end), *[OUTSIDE] * (longest - (end - start))] for start, end in zip(starts, ends, strict=True)
    ]
    return torch.tensor(rows)


def incidence(table: WindowTable, n_in: int) -> Float[Tensor, "_out _n_in"]:
    """The 0/1 matrix (counts, where a window reads a position twice) of a table, in float64."""
    matrix = torch.zeros(table.shape[0], n_in + 1, dtype=torch.float64)
    # OUTSIDE is -1, the extra last column, which is then dropped.
    rows = torch.arange(table.shape[0])[:, None].expand_as(table)
    matrix.index_put_((rows, table), torch.ones((), dtype=torch.float64), accumulate=True)
    return matrix[:, :n_in].contiguous()


Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Node:
    """One step of the network: a name, where its inputs come from, and the shape of its value."""

    kind: ClassVar[str]

    name: str
    inputs: tuple[str, ...]
    shape: Shape

    @property
    def n_space(self) -> int:
        """Number of spatial axes."""
        return len(self.shape) - 1

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

    kind = "input"


@dataclass(frozen=True, eq=False)
class ConstantNode(Node):
    """A constant that is added to the signal (not a parameter): paths start here too, with no weight."""

    kind = "constant"
    value: Operand


@dataclass(frozen=True, eq=False)
class LinearNode(Node):
    """A linear layer or convolution: one weight of every path that goes through it.

    ``weight`` has the shape ``(out channels, in channels / groups, *window)``; a dense layer is the case
    without space. Padding here is with zeros; other modes are a ``SelectNode`` in front.
    """

    kind = "linear"
    weight: Operand
    weight_shape: Shape
    in_space: Shape = ()
    windows: tuple[Window, ...] = ()
    groups: int = 1

    @property
    def parameters(self) -> tuple[str, ...]:
        """The model's parameters that the weight is made of."""
        return parameters_of(self.weight)

    @property
    def fan_in(self) -> int:
        """Number of weights that are summed for one output unit (away from the edges)."""
        return prod(self.weight_shape[1:])


@dataclass(frozen=True, eq=False)
class BiasNode(Node):
    """Adds a parameter: a path starts here with signal 1 and the bias as its first weight.

    ``value`` broadcasts against the node's shape from the right. ``parameters`` are the model's parameters
    that count as its weight: for batch norm the bias alone, although the running mean is folded in.
    """

    kind = "bias"
    value: Operand
    value_shape: Shape
    parameters: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class GateNode(Node):
    """Multiplies the signal by a gate of itself. For PReLU ``slope`` is the parameter of the leaky gate."""

    kind = "gate"
    gate: Gate
    slope: Operand | None = None


@dataclass(frozen=True, eq=False)
class ActivationNode(Node):
    """An activation that is not read as a gate, such as softplus; path quantities do not support it."""

    kind = "activation"
    operation: str
    function: Any
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ScaleNode(Node):
    """Multiplies by a constant that broadcasts against the node's shape from the right."""

    kind = "scale"
    factor: Operand


@dataclass(frozen=True, eq=False)
class AddNode(Node):
    """Sums branches: a path chooses one of them."""

    kind = "add"


@dataclass(frozen=True, eq=False)
class ConcatNode(Node):
    """Stacks branches along the channels."""

    kind = "concat"
    sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SelectNode(Node):
    """Reads units by index, axis by axis, ``OUTSIDE`` giving 0: slices, splits, flips and every padding.

    ``indices`` has one entry for each axis, channels first; ``None`` leaves the axis as it is.
    """

    kind = "select"
    in_shape: Shape
    indices: tuple[Int[Tensor, " _n"] | None, ...]


@dataclass(frozen=True, eq=False)
class AveragePoolNode(Node):
    """A fixed linear map of the positions: average, adaptive and global pooling, sums over space.

    ``matrices`` has one matrix (positions out, positions in) for each spatial axis; the map is their product.
    """

    kind = "average_pool"
    matrices: tuple[Float[Tensor, "_out _n_in"], ...]


@dataclass(frozen=True, eq=False)
class MaxPoolNode(Node):
    """Picks one position of each window: a gate with one mask for each output position."""

    kind = "max_pool"
    tables: tuple[WindowTable, ...]
    in_space: Shape
    windows: tuple[Window, ...] | None  # None for adaptive windows
    ceil: bool = False

    @property
    def disjoint(self) -> bool:
        """Whether no input position lies in two windows."""
        return all((t[t >= 0].bincount() <= 1).all() for t in self.tables)


@dataclass(frozen=True, eq=False)
class ReshapeNode(Node):
    """Renames the axes: flattening, squeezing, and any view of a signal that no weight has touched."""

    kind = "reshape"
    in_shape: Shape


def operands_of(node: Node) -> tuple[Operand, ...]:
    """The tensors of the model that a node reads."""
    match node:
        case LinearNode(weight=operand) | BiasNode(value=operand) | ConstantNode(value=operand):
            return (operand,)
        case ScaleNode(factor=operand):
            return (operand,)
        case GateNode(slope=slope) if slope is not None:
            return (slope,)
        case _:
            return ()


def needed_nodes(nodes: Sequence[Node], output_name: str) -> tuple[Node, ...]:
    """The nodes that the output depends on, in order; the input stays even where nothing reads it."""
    names = {output_name}
    needed = []
    for node in reversed(nodes):
        if node.name in names or isinstance(node, InputNode):
            names.update(node.inputs)
            needed.append(node)
    return tuple(reversed(needed))
