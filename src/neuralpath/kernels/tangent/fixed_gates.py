"""A path graph as a network to differentiate, its gates alive or held constant."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jaxtyping import Float, Shaped
from torch import Tensor

from neuralpath.gates import HardGate, LeakyGate, LinearGate
from neuralpath.graph import Forward, PathGraph, nodes as n, parameters_of, walk


class _ConstantGates(Forward):
    """The forward pass in which no gradient flows through the gates."""

    def _gate_values(self, node: n.Node, compute: Callable[[], Tensor]) -> Shaped[Tensor, "batch ..."]:
        return super()._gate_values(node, compute).detach()


@dataclass(frozen=True, eq=False)
class GraphNetwork:
    """What a path graph computes, with gates that depend on the parameters or that are constant."""

    graph: PathGraph
    constant_gates: bool

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """The parameters by name, each once."""
        return self.graph.params

    def run(self, x: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Float[Tensor, "batch ..."]:
        """The output for a batch, some parameters or buffers replaced by ``tensors``."""
        reading = _ConstantGates if self.constant_gates else Forward
        # A copy, since torch saves nothing for a backward pass that was made in inference mode.
        return walk(self.graph, reading(x.clone(), {**self.graph.state, **(tensors or {})}))


def gates_are_hard(graph: PathGraph) -> bool:
    """Whether every gate is constant almost everywhere, so that no gradient flows through it."""
    return all(
        isinstance(node, n.MaxPoolNode)
        or (isinstance(node.gate, HardGate | LeakyGate | LinearGate) and not _has_trained_slope(node))
        for node in graph.gate_nodes
    )


def _has_trained_slope(node: n.GateNode) -> bool:
    return node.slope is not None and bool(parameters_of(node.slope))
