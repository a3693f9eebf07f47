"""How large the random weights are: the variance of each linear node and of the biases."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from neuralpath._checks import check_number
from neuralpath.graph import PathGraph, check_graph, nodes as n

Fan = Literal["in", "out"]


@dataclass(frozen=True)
class FanVariance:
    """A rule: the variance of a linear node is ``scale`` divided by its fan-in (weights summed for one output unit).

    ``FanVariance(2.0)`` is He's rule; ``FanVariance(1.0)`` keeps the second moment of open gates at 1.

    >>> import torch, neuralpath as npath
    >>> graph = npath.trace(npath.nets.FC(4, width=8, depth=2), torch.ones(1, 4))
    >>> he = npath.expected_tangent_kernel(graph, torch.ones(1, 4), weight_variance=FanVariance(2.0))
    >>> by_name = npath.expected_tangent_kernel(
    ...     graph, torch.ones(1, 4), weight_variance={"layers.linear1": 2 / 4, "layers.linear2": 2 / 8}
    ... )
    >>> bool(torch.allclose(he, by_name))
    True
    """

    scale: float = 2.0

    def __post_init__(self) -> None:
        check_number("scale", self.scale)

    def of(self, node: n.LinearNode) -> float:
        """The variance of a linear node."""
        return self.scale / node.fan_in


Variance = float | FanVariance | Mapping[str, float]


def weight_variances(graph: PathGraph, weight_variance: Variance) -> dict[str, float]:
    """The variance of every linear node, from one number, a rule, or one number for each node by its name.

    Raises: ValueError if a name is missing, unknown, or a variance is not positive; TypeError for anything else.
    """
    check_graph(graph)
    linear_nodes = [node for node in graph.nodes if isinstance(node, n.LinearNode)]
    if isinstance(weight_variance, FanVariance):
        return {node.name: weight_variance.of(node) for node in linear_nodes}
    if isinstance(weight_variance, Mapping):
        names = {node.name for node in linear_nodes}
        if set(weight_variance) != names:
            raise ValueError(
                f"`weight_variance` must have one number for each linear node ({', '.join(sorted(names))}); "
                f"missing: {', '.join(sorted(names - set(weight_variance))) or 'none'}, "
                f"unknown: {', '.join(sorted(set(weight_variance) - names)) or 'none'}."
            )
        return {name: check_number(f"weight_variance[{name!r}]", value) for name, value in weight_variance.items()}
    other = " (or a rule such as `FanVariance(2.0)`, or one for each linear node by its name)"
    return dict.fromkeys((node.name for node in linear_nodes), check_number("weight_variance", weight_variance, other))
