"""One fold over a path graph: a reading says what each kind of node means, the walk does the rest."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from neuralpath._resources import without_autocast
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

    def linear(self, node: n.LinearNode, state: StateT) -> StateT:
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


@without_autocast()
def walk(graph: Walkable, reading: Reading[Any], given: Mapping[str, Any] | None = None) -> Any:
    """Fold a graph with a reading, and return the state at its output.

    Readings compute in the precision of their tensors, under torch's autocast too.

    Args:
        graph: The path graph.
        reading: What each kind of node means.
        given: States of nodes that are known already; nodes that only lead to these are skipped.

    Cost: one call of the reading for each node. A state is freed after its last use, so memory stays that of a layer or
    two.
    """
    states: dict[str, Any] = dict(given or {})
    nodes = _needed(graph, states)
    last_use = {name: node.name for node in nodes for name in node.inputs}
    for node in nodes:
        inputs = [states[name] for name in node.inputs]
        for name in set(node.inputs):
            if last_use[name] == node.name and name != graph.output_name:
                del states[name]
        states[node.name] = getattr(reading, node.kind)(node, *inputs)
        del inputs
        if node.name not in last_use and node.name != graph.output_name:
            del states[node.name]
    return states[graph.output_name]


def _needed(graph: Walkable, given: Mapping[str, Any]) -> list[n.Node]:
    """The nodes that the output depends on, apart from those whose states are given, inputs first."""
    wanted = {graph.output_name}
    needed = []
    for node in reversed(graph.nodes):
        if node.name in wanted and node.name not in given:
            wanted.update(node.inputs)
            needed.append(node)
    return needed[::-1]
