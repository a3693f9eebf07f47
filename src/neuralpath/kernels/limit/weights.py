"""How large the random weights and biases of a network of infinite width are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from neuralpath._checks import check_number
from neuralpath.graph import PathGraph, nodes as n
from neuralpath.kernels.limit.activations import Activation, Identity
from neuralpath.kernels.limit.structure import Place

Variance = float | Mapping[str, float]
"""One number for all nodes, or one for each by its name."""

OutputVariance = float | Literal["equal", "half"]
"""Variance of the output layer's weights times their number: as its weights otherwise have, half of it, or a number."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Variances of weights times fan-in, by the names of their nodes.

    What comes from below is passed on with ``passed``; the gradient by the layer's own weights counts with ``own``.
    They differ in the output layer only, and so choose between the two limits of erratum E1.
    """

    passed: Mapping[str, float]
    own: Mapping[str, float]
    biases: Mapping[str, float]
    bias_gradients: Mapping[str, float]


def make_weights(
    graph: PathGraph,
    places: Mapping[str, Place],
    activations: Mapping[str, Activation],
    weight_variance: Variance | None,
    output_variance: OutputVariance,
    bias_variance: Variance,
    bias_gradient: Variance | None,
) -> Weights:
    """Variances of all nodes, checked; see ``limit_tangent_kernel`` for what the arguments mean.

    Raises: ValueError or TypeError for what is no variance, and for names that do not fit.
    """
    linear_nodes = [
        node.name for node in graph.nodes if isinstance(node, n.LinearNode) and not places[node.inputs[0]].fixed
    ]
    biases = [node.name for node in graph.nodes if isinstance(node, n.BiasNode)]
    if weight_variance is None:
        weight_variance = _common_normalizer(activations)
    own = _by_name("weight_variance", weight_variance, linear_nodes, "layer that does not read the input")
    passed = dict(own)
    for name in last_mixes(graph) & set(linear_nodes):
        match output_variance:
            case "equal":
                pass
            case "half":
                passed[name] = own[name] / 2
            case _:
                passed[name] = check_number("output_variance", output_variance, " (or 'equal' or 'half')")
    variances = _by_name("bias_variance", bias_variance, biases, "bias", or_zero=True)
    gradients = variances
    if bias_gradient is not None:
        gradients = _by_name("bias_gradient", bias_gradient, biases, "bias", or_zero=True)
    return Weights(passed, own, variances, gradients)


def last_mixes(graph: PathGraph) -> frozenset[str]:
    """Names of the linear nodes that reach the output, and no other linear node: the output layer."""
    linear_nodes = [node for node in graph.nodes if isinstance(node, n.LinearNode)]
    above = frozenset().union(*(_above(graph, node.inputs) for node in linear_nodes)) if linear_nodes else frozenset()
    return frozenset(node.name for node in linear_nodes if node.name in _above(graph, (graph.output_name,)) - above)


def _above(graph: PathGraph, names: tuple[str, ...]) -> frozenset[str]:
    """Some nodes and all that they depend on."""
    found = set(names)
    for node in reversed(graph.nodes):
        if node.name in found:
            found.update(node.inputs)
    return frozenset(found)


def _common_normalizer(activations: Mapping[str, Activation]) -> float:
    values = {name: activation.normalizer for name, activation in activations.items()}
    if len(set(values.values())) > 1:
        listed = ", ".join(f"{value:.4g} at {name!r}" for name, value in values.items())
        raise ValueError(f"the activations go with different variances of weights ({listed}): give `weight_variance`.")
    return next(iter(values.values()), Identity().normalizer)


def _by_name(name: str, given: Variance, nodes: list[str], what: str, *, or_zero: bool = False) -> dict[str, float]:
    if not isinstance(given, Mapping):
        return dict.fromkeys(nodes, check_number(name, given, f" (or one for each {what})", or_zero=or_zero))
    if set(given) != set(nodes):
        raise ValueError(
            f"`{name}` must have one number for each {what} ({', '.join(nodes) or 'there is none'}); missing: "
            f"{', '.join(sorted(set(nodes) - set(given))) or 'none'}, unknown: "
            f"{', '.join(sorted(set(given) - set(nodes))) or 'none'}."
        )
    return {node: check_number(f"{name}[{node!r}]", value, or_zero=or_zero) for node, value in given.items()}
