"""One fold over a path graph: a reading says what each kind of node means, the walk does the rest.

The forward pass is the reading that defines a graph. A gate of NaN is closed (``nan > 0`` is false), so a network of
NaN would have gates, path counts and a path kernel that look like those of any other network. So NaN is refused where
gates are computed.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from neuralpath._checks import is_finite
from neuralpath._resources import without_autocast
from neuralpath.gates import apply_gate
from neuralpath.graph import nodes as n
from neuralpath.graph.nodes import State

if TYPE_CHECKING:
    from neuralpath.graph.path_graph import PathGraph

S = TypeVar("S")
Values = Float[Tensor, "batch ..."]


@runtime_checkable
class Reading(Protocol[S]):
    """For one quantity the meaning of each ``kind`` of node: from the states of its inputs to its own state."""

    def input(self, node: n.InputNode) -> S: ...
    def constant(self, node: n.ConstantNode) -> S: ...
    def linear(self, node: n.LinearNode, state: S) -> S: ...
    def bias(self, node: n.BiasNode, state: S) -> S: ...
    def gate(self, node: n.GateNode, state: S) -> S: ...
    def activation(self, node: n.ActivationNode, state: S) -> S: ...
    def scale(self, node: n.ScaleNode, state: S) -> S: ...
    def add(self, node: n.AddNode, *states: S) -> S: ...
    def concat(self, node: n.ConcatNode, *states: S) -> S: ...
    def select(self, node: n.SelectNode, state: S) -> S: ...
    def average_pool(self, node: n.AveragePoolNode, state: S) -> S: ...
    def max_pool(self, node: n.MaxPoolNode, state: S) -> S: ...
    def reshape(self, node: n.ReshapeNode, state: S) -> S: ...


@without_autocast()
def walk(graph: "PathGraph", reading: Reading[Any], known: Mapping[str, Any] | None = None) -> Any:
    """Fold a graph with a reading, and return the state at its output.

    Readings compute in the precision of their tensors, under torch's autocast too.

    Nodes that only lead to nodes whose states are ``known`` are skipped. Cost: one call of the reading for each node. A
    state is freed after its last use, so memory stays that of a layer or two.
    """
    states: dict[str, Any] = dict(known or {})
    nodes = n.needed_nodes(graph.nodes, graph.output_name, states)
    last_use = {name: node.name for node in nodes for name in node.inputs}
    for node in nodes:
        if node.name not in last_use and node.name != graph.output_name:
            continue  # an input that nothing reads
        inputs = [states[name] for name in node.inputs]
        for name in set(node.inputs):
            if last_use[name] == node.name and name != graph.output_name:
                del states[name]
        states[node.name] = getattr(reading, node.kind)(node, *inputs)
        del inputs
    return states[graph.output_name]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Gates:
    """Gate values of a batch, one tensor for each gate layer.

    A hard gate is boolean, any other is a float, with the shape of the node. The gates of a max pool are
    one int64 tensor: for each output unit the flat position, within its channel, that it was read from.
    ``gates["relu1"]`` is the layer of that name, ``gates[0]`` the first layer.

    Args:
        layers: The tensor of each gate layer by its name, in the order of the network; the batch is the first axis.

    >>> import neuralpath as npath
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3, bias=False), torch.nn.ReLU())
    >>> gates = npath.trace(model, torch.ones(1, 2)).gates(torch.zeros(4, 2))
    >>> gates
    Gates of 4 examples (1: (3,))
    >>> bool(gates["1"].any())  # a pre-activation of 0 opens no gate
    False
    """

    layers: dict[str, Shaped[Tensor, "batch ..."]]

    def __post_init__(self) -> None:
        sizes = {layer.shape[0] for layer in self.layers.values()}
        if len(sizes) > 1:
            raise ValueError(f"`layers` must share one batch size, got {sorted(sizes)}.")

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, layer: str | int) -> Shaped[Tensor, "batch ..."]:
        if isinstance(layer, int):
            return tuple(self.layers.values())[layer]
        if layer not in self.layers:
            raise KeyError(f"there is no gate {layer!r}; the gates are {', '.join(self.layers)}")
        return self.layers[layer]

    def __repr__(self) -> str:
        layers = ", ".join(f"{name}: {tuple(layer.shape[1:])}" for name, layer in self.layers.items())
        return f"Gates of {self.n_examples} examples ({layers})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the gate layers, in the order of the network."""
        return tuple(self.layers)

    @property
    def n_examples(self) -> int:
        """Number of examples; 0 for a graph without gates."""
        return len(self[0]) if self.layers else 0

    def batch(self, rows: slice | Shaped[Tensor, " rows"]) -> "Gates":
        """The gates of some of the examples."""
        return Gates({name: layer[rows] for name, layer in self.layers.items()})


class Forward:
    """The reading that computes the values of a batch, with gates from outside or those of the values."""

    def __init__(self, x: Values, state: State, gates: Gates | None = None) -> None:
        self._x, self._state, self._gates = x, state, gates

    def _gate_values(self, node: n.Node, compute: Callable[[], Tensor]) -> Shaped[Tensor, "batch ..."]:
        return compute() if self._gates is None else self._gates[node.name]

    def input(self, node: n.InputNode) -> Values:
        return self._x

    def constant(self, node: n.ConstantNode) -> Values:
        value = node.value.evaluate(self._state).to(self._x)
        return value.expand(self._x.shape[0], *node.shape)

    def linear(self, node: n.LinearNode, z: Values) -> Values:
        return node.apply(z, node.weight.evaluate(self._state))

    def bias(self, node: n.BiasNode, z: Values) -> Values:
        return z + node.value.evaluate(self._state).to(z)

    def gate(self, node: n.GateNode, q: Values) -> Values:
        return apply_gate(q, self._gate_values(node, lambda: self._gate_of(node, q)))

    def _gate_of(self, node: n.GateNode, q: Values) -> Shaped[Tensor, "batch *shape"]:
        if node.slope is None:
            return node.gate(q)
        return torch.where(q > 0, torch.ones_like(q), node.slope.evaluate(self._state).expand_as(q))

    def activation(self, node: n.ActivationNode, q: Values) -> Values:
        return node.function(q, *node.arguments, **node.keywords)

    def scale(self, node: n.ScaleNode, z: Values) -> Values:
        return z * node.factor.evaluate(self._state).to(z)

    def add(self, node: n.AddNode, *branches: Values) -> Values:
        return reduce(torch.add, branches)

    def concat(self, node: n.ConcatNode, *branches: Values) -> Values:
        return torch.cat(branches, dim=1)

    def select(self, node: n.SelectNode, z: Values) -> Values:
        return node.apply(z)

    def average_pool(self, node: n.AveragePoolNode, z: Values) -> Values:
        return n.average(z, node.matrices)

    def max_pool(self, node: n.MaxPoolNode, z: Values) -> Values:
        return n.gather_positions(z, self._gate_values(node, lambda: node.largest(z)))

    def reshape(self, node: n.ReshapeNode, z: Values) -> Values:
        return z.reshape(z.shape[0], *node.shape)


class RecordingForward(Forward):
    """The forward pass that records gates by layer, and refuses NaN at a gate; the gate of infinity is known."""

    def __init__(self, nodes: Iterable[n.Node], x: Values, state: State, recorded: dict[str, list[Tensor]]) -> None:
        super().__init__(x, state)
        self._nodes, self._recorded = nodes, recorded

    def _gate_values(self, node: n.Node, compute: Callable[[], Tensor]) -> Shaped[Tensor, "batch ..."]:
        self._recorded[node.name].append(gate := compute())
        return gate

    def gate(self, node: n.GateNode, q: Values) -> Values:
        self._refuse_nan(node, q)
        return super().gate(node, q)

    def max_pool(self, node: n.MaxPoolNode, z: Values) -> Values:
        self._refuse_nan(node, z)
        return super().max_pool(node, z)

    def _refuse_nan(self, node: n.Node, values: Values) -> None:
        if values.numel() and bool(values.amax().isnan()):
            check_operands(self._nodes, self._state)  # names the tensor where NaN came in, if it was a tensor
            raise ValueError(
                f"the gates of {node.name!r} would be computed from NaN: earlier values exceed the range of "
                f"{str(values.dtype).removeprefix('torch.')}; scale the inputs or the weights, or use a wider dtype."
            )


def check_operands(nodes: Iterable[n.Node], state: State) -> None:
    """Refuse operands that are not finite, by the names of the node and of the model's tensors.

    A function of infinity may be finite, and one of finite tensors may be NaN, so the value of the function counts.
    Constants that are written in the model's code are not checked.
    """
    for node in nodes:
        for operand in n.operands_of(node):
            names = dict.fromkeys(leaf.name for leaf in operand.leaves())
            if not names or is_finite(value := operand.evaluate(state)):
                continue
            what = f"{operand}, computed from {', '.join(map(repr, names))}"
            if broken := next((name for name in names if not is_finite(state[name])), None):
                what, value = repr(broken), state[broken]
            n_broken = int((~torch.isfinite(value)).sum())
            raise ValueError(
                f"`model` has NaN or infinity in {what}, in {n_broken} of {value.numel()} entries; the node "
                f"{node.name!r} reads it. Look for training that has diverged, or weights that were never set."
            )
