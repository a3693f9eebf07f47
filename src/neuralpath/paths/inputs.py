"""What the functions of this folder take: a network, batches of examples, gates."""

from jaxtyping import Float
from torch import Tensor, nn

from neuralpath.graph import Gates, PathGraph, check_gates

Network = nn.Module | PathGraph
Batch = Float[Tensor, "batch *shape"]
Batch1 = Float[Tensor, "batch1 *shape"]
Batch2 = Float[Tensor, "batch2 *shape"]


def checked_gates(graph: PathGraph, x: Tensor, gates: Gates | None, name: str = "gates") -> Gates:
    """The gates to use: those that ``x`` opens, or others instead, which must fit."""
    if gates is None:
        return graph.gates(x)
    check_gates(name, gates, graph, len(x))
    return gates
