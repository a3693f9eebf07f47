"""A network in the limit of infinite width: the distribution of each node's values, its activations and variances."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from neuralpath import gates as g
from neuralpath._checks import check_number, describe
from neuralpath.gates import Gate
from neuralpath.graph import (
    ComputedOperand,
    Operand,
    PathGraph,
    State,
    batch_norm_scale,
    batch_norm_shift,
    check_graph,
    nodes as n,
    refuse_tied,
    walk,
)
from neuralpath.kernels.limit.activations import Activation, Identity, Numbers, Pair, Rectifier, check_gated
from neuralpath.kernels.limit.mixtures import Gelu, Softplus, SoftRectifier
from neuralpath.kernels.limit.quadrature import ByQuadrature

ActivationLike = Activation | Gate | Callable[[Numbers], Numbers]
"""An activation with its expectations, a gate, or any elementwise function."""

ActivationChoice = ActivationLike | Mapping[str, ActivationLike] | None
"""One activation for all nodes, or activations by the names of their nodes; by default the graph's own."""

Variance = float | Mapping[str, float]
"""One number for all nodes, or one for each node by its name."""

OutputVariance = float | Literal["equal", "half"]
"""Weight variance of the output layer times fan-in: that of the other layers, half of it, or a number."""


@dataclass(frozen=True, slots=True)
class NodeDistribution:
    """The distribution of a node's values over random weights, as far as the recursion needs it."""

    fixed: bool  # a function of the input alone
    normal: bool = False
    sources: frozenset[str] = frozenset()  # linear nodes that the values depend on with no linear node between
    flat: bool = False  # channels and positions share one axis
    shape: n.Shape = ()  # channels and positions, before flattening


@dataclass(frozen=True, slots=True, eq=False)
class LimitNetwork:
    """A graph with all settings resolved to one value per node, and the kernels that are computed for it.

    A linear node multiplies second moments and tangent kernels from below by ``variances``; the gradient with respect
    to its own weights counts with ``own_variances``. The two differ in the output layer only: they choose between the
    two limits of erratum E1.
    """

    graph: PathGraph
    distributions: Mapping[str, NodeDistribution]
    activations: Mapping[str, Activation]
    variances: Mapping[str, float]  # of weights, times fan-in
    own_variances: Mapping[str, float]
    bias_variances: Mapping[str, float]
    bias_gradients: Mapping[str, float]
    carried: tuple[Pair, ...]  # for each kernel besides the second moments: its factor at an activation
    paths: bool = False  # the carried kernel is the path kernel: linear nodes average it
    linear_features: bool = False


def limit_network(
    graph: PathGraph,
    carried: tuple[Pair, ...],
    *,
    activation: ActivationChoice = None,
    weight_variance: Variance | None = None,
    output_variance: OutputVariance = "equal",
    bias_variance: Variance = 0.0,
    bias_gradient: Variance | None = None,
    paths: bool = False,
    linear_features: bool = False,
) -> LimitNetwork:
    """Check a graph and resolve the settings of ``LimitKernel`` for each of its nodes.

    Raises: ValueError for tied weights, nodes without a limit, activations without a gate where gates are carried, and
    names or numbers that do not fit; TypeError for settings of another type.
    """
    check_graph(graph)
    refuse_tied(graph, "the kernel of infinite width")
    activations = _activations(graph, activation)
    reading = _DistributionReading(graph, activations, linear_features=linear_features)
    walk(graph, reading)
    if reading.distributions[graph.output_name].fixed:
        reading.refusals[graph.output_name] = "the output depends on no random weights"
    if reading.refusals:
        lines = "".join(f"\n  {name!r}: {reason}" for name, reason in reading.refusals.items())
        raise ValueError(f"the kernel of infinite width is not known for this network:{lines}")
    if any("gate" in pair.value for pair in carried):
        for name, used in activations.items():
            check_gated(used, name)
    if weight_variance is None:
        weight_variance = Identity().normalizer if linear_features else _common_normalizer(activations)
    linear = [node for node in graph.nodes if isinstance(node, n.LinearNode)]
    hidden = [node.name for node in linear if not reading.distributions[node.inputs[0]].fixed]
    biases = [node.name for node in graph.nodes if isinstance(node, n.BiasNode)]
    own = _by_name("weight_variance", weight_variance, hidden, "layer that does not read the input")
    variances = dict(own)
    for name in output_layers(graph) & set(hidden):
        if output_variance == "half":
            variances[name] = own[name] / 2
        elif output_variance != "equal":
            variances[name] = check_number("output_variance", output_variance, " (or 'equal' or 'half')")
    of_biases = _by_name("bias_variance", bias_variance, biases, "bias", or_zero=True)
    gradients = of_biases
    if bias_gradient is not None:
        gradients = _by_name("bias_gradient", bias_gradient, biases, "bias", or_zero=True)
    distributions = reading.distributions
    return LimitNetwork(
        graph, distributions, activations, variances, own, of_biases, gradients, carried, paths, linear_features
    )


def output_layers(graph: PathGraph) -> frozenset[str]:
    """Names of the linear nodes that reach the output through no other linear node."""
    linear = [node for node in graph.nodes if isinstance(node, n.LinearNode)]
    below = frozenset[str]().union(*(_ancestors(graph, node.inputs) for node in linear))
    ending = _ancestors(graph, (graph.output_name,)) - below
    return frozenset(node.name for node in linear if node.name in ending)


def _ancestors(graph: PathGraph, names: tuple[str, ...]) -> frozenset[str]:
    """The named nodes and all nodes that they depend on."""
    reached = set(names)
    for node in reversed(graph.nodes):
        if node.name in reached:
            reached.update(node.inputs)
    return frozenset(reached)


def _common_normalizer(activations: Mapping[str, Activation]) -> float:
    values = {name: activation.normalizer for name, activation in activations.items()}
    if len(set(values.values())) > 1:
        listed = ", ".join(f"{value:.4g} at {name!r}" for name, value in values.items())
        raise ValueError(f"the activations need different weight variances ({listed}): give `weight_variance`.")
    return next(iter(values.values()), Identity().normalizer)


def _by_name(argument: str, value: Variance, nodes: list[str], what: str, *, or_zero: bool = False) -> dict[str, float]:
    """One number for each node, checked."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(nodes, check_number(argument, value, f" (or one for each {what})", or_zero=or_zero))
    if set(value) != set(nodes):
        raise ValueError(
            f"`{argument}` must have one number for each {what} ({', '.join(nodes) or 'there is none'}); missing: "
            f"{', '.join(sorted(set(nodes) - set(value))) or 'none'}, unknown: "
            f"{', '.join(sorted(set(value) - set(nodes))) or 'none'}."
        )
    return {node: check_number(f"{argument}[{node!r}]", number, or_zero=or_zero) for node, number in value.items()}


def as_activation(choice: object) -> Activation:
    """An activation with its expectations: in closed form where there is one, else by quadrature.

    Raises: TypeError for an object that is neither an activation, a gate nor a function.
    """
    match choice:
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
            return ByQuadrature(lambda q: q * choice(q), choice, name=str(choice))
        case Activation():
            return choice
        case _ if callable(choice):
            return ByQuadrature(choice, name=f"the activation {getattr(choice, '__name__', choice)}")
        case _:
            raise TypeError(
                f"`activation` must be a gate such as `SoftGate(8.0)`, an elementwise function of a tensor, or an "
                f"activation with its expectations, got {describe(choice)}."
            )


def _activations(graph: PathGraph, choice: ActivationChoice) -> dict[str, Activation]:
    """The activation of every gate and activation node by its name; ``choice`` replaces all, or those it names."""
    nodes = {node.name: node for node in graph.nodes if isinstance(node, n.GateNode | n.ActivationNode)}
    if choice is not None and not isinstance(choice, Mapping):
        return dict.fromkeys(nodes, as_activation(choice))
    replaced = {name: as_activation(value) for name, value in (choice or {}).items()}
    unknown = sorted(set(replaced) - set(nodes))
    if unknown:
        raise ValueError(
            f"`activation` has names that are not activations of the graph: {', '.join(unknown)}; its activations are "
            f"{', '.join(nodes) or '(none)'}."
        )
    state = graph.state
    return {name: replaced[name] if name in replaced else _own_activation(node, state) for name, node in nodes.items()}


def _own_activation(node: n.GateNode | n.ActivationNode, state: State) -> Activation:
    if isinstance(node, n.GateNode):
        if node.slope is None:
            return as_activation(node.gate)
        # One slope per channel is refused later, by name (`_DistributionReading.gate`).
        return Rectifier(float(node.slope.evaluate(state).detach().reshape(-1)[0]))
    if node.operation == "softplus":
        beta = node.arguments[0] if node.arguments else node.keywords.get("beta", 1.0)
        return Softplus(float(beta))
    return ByQuadrature(
        lambda q: node.function(q, *node.arguments, **node.keywords), name=f"{node.operation} at {node.name!r}"
    )


class _DistributionReading:
    """The distribution of every node, and the reason for every node that has no limit."""

    def __init__(self, graph: PathGraph, activations: Mapping[str, Activation], *, linear_features: bool) -> None:
        self._state = graph.state
        self._activations = activations
        self._linear_features = linear_features
        self.distributions: dict[str, NodeDistribution] = {}
        self.refusals: dict[str, str] = {}

    def _set(self, node: n.Node, distribution: NodeDistribution) -> NodeDistribution:
        self.distributions[node.name] = distribution
        return distribution

    def _refuse(self, node: n.Node, reason: str, like: NodeDistribution | None = None) -> NodeDistribution:
        """Note a refusal and continue as after a linear node, so that one cause gives one line."""
        self.refusals[node.name] = reason
        flat, shape = (False, node.shape) if like is None else (like.flat, like.shape)
        return self._set(node, NodeDistribution(False, True, frozenset([node.name]), flat, shape))

    def input(self, node: n.InputNode) -> NodeDistribution:
        return self._set(node, NodeDistribution(True, shape=node.shape))

    def constant(self, node: n.ConstantNode) -> NodeDistribution:
        return self._set(node, NodeDistribution(True, shape=node.shape))

    def linear(self, node: n.LinearNode, values: NodeDistribution) -> NodeDistribution:
        if node.groups > 1:
            return self._refuse(node, "a convolution in groups: its limit depends on the widths of the groups")
        if node.windows and values.flat:
            return self._refuse(node, "a convolution over flattened values")
        return self._set(node, NodeDistribution(False, True, frozenset([node.name]), False, node.shape))

    def bias(self, node: n.BiasNode, values: NodeDistribution) -> NodeDistribution:
        if _calls(node.value, batch_norm_shift):
            return self._set(node, values)  # its scale has been refused
        if values.fixed:
            return self._refuse(node, "a trained shift of the input, which has no limit of many channels")
        n_channels = node.shape[0] if node.shape else 1
        own = (1,) * (len(node.shape) - len(node.value_shape)) + node.value_shape
        if n_channels > 1 and own[0] == 1:
            return self._refuse(node, "a bias that all channels share: they are then not independent", values)
        return self._set(node, values)

    def gate(self, node: n.GateNode, values: NodeDistribution) -> NodeDistribution:
        if node.slope is not None and not _uniform(by_position(node.slope, node, values.shape or (1,), self._state)):
            return self._refuse(node, "slopes that differ from channel to channel", values)
        return self.activation(node, values)

    def activation(self, node: n.GateNode | n.ActivationNode, values: NodeDistribution) -> NodeDistribution:
        if values.fixed or isinstance(self._activations[node.name], Identity):
            return self._set(node, values)
        if not values.normal:
            reason = "an activation of values that are not normal: they come from another activation, not from weights"
            return self._refuse(node, reason, values)
        return self._set(node, replace(values, normal=self._linear_features))

    def scale(self, node: n.ScaleNode, values: NodeDistribution) -> NodeDistribution:
        if _calls(node.factor, batch_norm_scale):
            reason = "batch norm: its statistics belong to one network of finite width, there is no such limit"
            return self._refuse(node, reason, values)
        if not values.fixed and not _uniform(by_position(node.factor, node, values.shape, self._state)):
            return self._refuse(node, "a scale that differs from channel to channel: they are then not alike", values)
        return self._set(node, values)

    def add(self, node: n.AddNode, *branches: NodeDistribution) -> NodeDistribution:
        random = [branch for branch in branches if not branch.fixed]
        if not random:
            return self._set(node, branches[0])
        if len(random) < len(branches):
            reason = "adds the input, or a constant, to random values: their width or mean does not vanish"
            return self._refuse(node, reason, random[0])
        if len({(branch.flat, branch.shape[1:]) for branch in branches}) > 1:
            return self._refuse(node, "adds branches that are flattened differently", random[0])
        sources: set[str] = set()
        for branch in branches:
            if shared := sources & branch.sources:
                names = ", ".join(repr(name) for name in sorted(shared))
                reason = f"branches that come from the same layer meet ({names}): their covariance is not derived"
                return self._refuse(node, reason, random[0])
            sources |= branch.sources
        normal = all(branch.normal for branch in branches)
        return self._set(node, replace(random[0], normal=normal, sources=frozenset(sources)))

    def concat(self, node: n.ConcatNode, *branches: NodeDistribution) -> NodeDistribution:
        if all(branch.fixed for branch in branches):
            return self._set(node, NodeDistribution(True, shape=node.shape))
        return self._refuse(node, "a concatenation: the limit depends on the ratio of the widths")

    def select(self, node: n.SelectNode, values: NodeDistribution) -> NodeDistribution:
        if not values.fixed and (values.flat or node.indices[0] is not None):
            return self._refuse(node, "picks, repeats or reorders channels, which have no names in the limit")
        return self._set(node, replace(values, shape=node.shape))

    def average_pool(self, node: n.AveragePoolNode, values: NodeDistribution) -> NodeDistribution:
        return self._set(node, replace(values, shape=node.shape))

    def max_pool(self, node: n.MaxPoolNode, values: NodeDistribution) -> NodeDistribution:
        if values.fixed:
            return self._set(node, NodeDistribution(True, shape=node.shape))
        return self._refuse(node, "max pooling: the largest of several normal variables has no such closed limit")

    def reshape(self, node: n.ReshapeNode, values: NodeDistribution) -> NodeDistribution:
        shape = node.shape or (1,)
        if values.fixed:
            return self._set(node, NodeDistribution(True, shape=node.shape))
        if values.flat and len(shape) > 1:
            return self._refuse(node, "gives flattened positions a new shape")
        if values.flat or len(values.shape) == 1 == len(shape):
            return self._set(node, values)
        if len(shape) == 1:
            flat = math.prod(values.shape[1:]) > 1
            return self._set(node, replace(values, flat=flat, shape=values.shape if flat else shape))
        return self._set(node, replace(values, shape=shape))


def _calls(operand: Operand, function: object) -> bool:
    return isinstance(operand, ComputedOperand) and operand.function is function


def by_position(operand: Operand, node: n.Node, shape: n.Shape, state: State) -> Float[Tensor, "channel *space"]:
    """A factor of a node's values for each channel and position, flattened or not."""
    return operand.evaluate(state).detach().broadcast_to(node.shape).reshape(shape)


def _uniform(factor: Float[Tensor, "channel *space"]) -> bool:
    return bool((factor == factor[:1]).all())
