"""One fold over a path graph: a reading says what each kind of node means, the walk does the rest."""

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from neuralpath.graph import nodes as n

StateT = TypeVar("StateT")


@runtime_checkable
class Reading(Protocol[StateT]):
    """The meaning of every kind of node, for one quantity. The method's name is the node's ``kind``."""

    def input(self, node: n.InputNode) -> StateT:
        """State at the network's input."""
        ...

    def constant(self, node: n.ConstantNode) -> StateT:
        """State of an added constant."""
        ...

    def mix(self, node: n.MixNode, state: StateT) -> StateT:
        """State after a linear layer or convolution."""
        ...

    def bias(self, node: n.BiasNode, state: StateT) -> StateT:
        """State after adding a parameter."""
        ...

    def gate(self, node: n.GateNode, state: StateT) -> StateT:
        """State after a gate."""
        ...

    def activation(self, node: n.ActivationNode, state: StateT) -> StateT:
        """State after an activation that is not read as a gate."""
        ...

    def scale(self, node: n.ScaleNode, state: StateT) -> StateT:
        """State after a constant factor."""
        ...

    def add(self, node: n.AddNode, *states: StateT) -> StateT:
        """State where branches meet."""
        ...

    def concat(self, node: n.ConcatNode, *states: StateT) -> StateT:
        """State of branches stacked along the channels."""
        ...

    def select(self, node: n.SelectNode, state: StateT) -> StateT:
        """State after reading units by index."""
        ...

    def average_pool(self, node: n.AveragePoolNode, state: StateT) -> StateT:
        """State after a fixed linear map of the positions."""
        ...

    def max_pool(self, node: n.MaxPoolNode, state: StateT) -> StateT:
        """State after picking one position of each window."""
        ...

    def reshape(self, node: n.ReshapeNode, state: StateT) -> StateT:
        """State after renaming the axes."""
        ...


@runtime_checkable
class Walkable(Protocol):
    """What the walk needs of a graph: nodes in an order in which inputs come first, and the last one's name."""

    @property
    def nodes(self) -> tuple[n.Node, ...]:
        """The nodes, inputs first."""
        ...

    @property
    def output_name(self) -> str:
        """Name of the node that is the network's output."""
        ...


class _States(Generic[StateT]):
    """States by node name; each is let go after its last use, so that memory stays that of one layer or two."""

    def __init__(self, nodes: Sequence[n.Node], output_name: str) -> None:
        self._states: dict[str, StateT] = {}
        self._last_use = {name: node.name for node in nodes for name in node.inputs}
        self._last_use[output_name] = ""

    def take(self, node: n.Node) -> list[StateT]:
        states = [self._states[name] for name in node.inputs]
        for name in set(node.inputs):
            if self._last_use[name] == node.name:
                del self._states[name]
        return states

    def put(self, name: str, state: StateT) -> None:
        if name in self._last_use:
            self._states[name] = state

    def output(self, name: str) -> StateT:
        return self._states[name]


def walk(graph: Walkable, reading: Reading[Any]) -> Any:
    """Fold a graph with a reading, and return the state at its output.

    Cost: one call of the reading for each node; at most the states that are still needed are held.
    """
    states: _States[Any] = _States(graph.nodes, graph.output_name)
    for node in graph.nodes:
        states.put(node.name, getattr(reading, node.kind)(node, *states.take(node)))
    return states.output(graph.output_name)
