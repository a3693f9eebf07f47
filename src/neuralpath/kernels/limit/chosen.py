"""Which activation stands at a node of a graph, in the limit."""

from collections.abc import Callable, Mapping
from typing import Any

from neuralpath import gates as g
from neuralpath._checks import describe
from neuralpath.gates import Gate
from neuralpath.graph import PathGraph, State, nodes as n
from neuralpath.kernels.limit.activations import Activation, Identity, Numbers, Rectifier
from neuralpath.kernels.limit.mixtures import Gelu, Softplus, SoftRectifier
from neuralpath.kernels.limit.quadrature import ByQuadrature

ActivationLike = Activation | Gate | Callable[[Numbers], Numbers]
"""What can be given as an activation: one with its expectations, a gate, or any elementwise function."""

ActivationChoice = ActivationLike | Mapping[str, ActivationLike] | None
"""An activation for all nodes, or for some by their names; by default the graph's own."""


def as_activation(given: object) -> Activation:
    """An activation with its expectations: in closed form where there is one, else by quadrature.

    Raises: TypeError for what is neither an activation, a gate nor a function.
    """
    match given:
        case g.HardGate():
            return Rectifier()
        case g.LeakyGate(slope=slope):
            return Rectifier(slope)
        case g.LinearGate():
            return Identity()
        case g.SoftGate(beta=beta, factor=factor):
            return SoftRectifier(factor, beta)
        case g.GeluGate(approximate="none"):
            return Gelu()
        case g.GeluGate() | g.ClippedGate() | g.HardswishGate() | g.MishGate():
            return ByQuadrature(lambda q: q * given(q), given, name=str(given))
        case Activation():
            return given
        case _ if callable(given):
            return ByQuadrature(given, name=f"the activation {getattr(given, '__name__', given)}")
        case _:
            raise TypeError(
                f"`activation` must be a gate such as `SoftGate(8.0)`, an elementwise function of a tensor, or an "
                f"activation with its expectations, got {describe(given)}."
            )


def activations_of(graph: PathGraph, given: ActivationChoice) -> dict[str, Activation]:
    """The activation of every gate and activation node by its name; ``given`` replaces all, or some by name.

    Raises: ValueError for a name that is no such node; TypeError for what is no activation.
    """
    nodes = {node.name: node for node in graph.nodes if isinstance(node, n.GateNode | n.ActivationNode)}
    if given is not None and not isinstance(given, Mapping):
        return dict.fromkeys(nodes, as_activation(given))
    replaced = {name: as_activation(value) for name, value in (given or {}).items()}
    unknown = sorted(set(replaced) - set(nodes))
    if unknown:
        raise ValueError(
            f"`activation` has names that are no activations of the graph: {', '.join(unknown)}; they are "
            f"{', '.join(nodes) or '(none)'}."
        )
    state = graph.state
    return {name: replaced[name] if name in replaced else _own(node, state) for name, node in nodes.items()}


def _own(node: n.GateNode | n.ActivationNode, state: State) -> Activation:
    if isinstance(node, n.GateNode):
        if node.slope is None:
            return as_activation(node.gate)
        # Whether one slope serves all channels is looked at by the structure, which names the node.
        return Rectifier(float(node.slope.evaluate(state).detach().reshape(-1)[0]))
    if node.operation == "softplus":
        return Softplus(float(_argument(node, 0, "beta", 1.0)))
    return ByQuadrature(
        lambda q: node.function(q, *node.arguments, **node.keywords), name=f"{node.operation} at {node.name!r}"
    )


def _argument(node: n.ActivationNode, place: int, name: str, default: float) -> Any:
    return node.arguments[place] if len(node.arguments) > place else node.keywords.get(name, default)
