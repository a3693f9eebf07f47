"""A network in the limit of infinite width: the distribution of each node's values, its activations and variances."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from neuralpath import gates as g, graph as graphs
from neuralpath._checks import check_number, describe
from neuralpath.gates import Gate
from neuralpath.graph import ComputedOperand, Operand, PathGraph, State, check_graph, nodes as n, refuse_tied
from neuralpath.kernels.limit.activations import Activation, Identity, Numbers, Pair, Rectifier, check_gated
from neuralpath.kernels.limit.mixtures import Gelu, Softplus, SoftRectifier
from neuralpath.kernels.limit.quadrature import ByQuadrature

ActivationLike = Activation | Gate | Callable[[Numbers], Numbers]
ActivationChoice = ActivationLike | Mapping[str, ActivationLike] | None  # for all nodes or by name; None: their own
Activated = n.GateNode | n.ActivationNode
Variance = float | Mapping[str, float]  # one number for all nodes, or one for each node by its name
OutputVariance = float | Literal["equal", "half"]  # of the output layer: that of the others, half of it, or a number


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
    to its own weights counts with ``own_variances``. They differ in the output layer only (the limits of erratum E1).
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
    """Check a graph and resolve the settings of ``LimitKernel`` for each of its nodes."""
    check_graph(graph)
    refuse_tied(graph, "the kernel of infinite width")
    activations = _activations(graph, activation)
    distributions = _distributions(graph, activations, linear_features=linear_features)
    if any("gate" in pair.value for pair in carried):
        for name, used in activations.items():
            check_gated(used, name)
    if weight_variance is None:
        weight_variance = 1.0 if linear_features else _default_weight_variance(activations)
    linear = (node for node in graph.nodes if isinstance(node, n.LinearNode))
    hidden = [node.name for node in linear if not distributions[node.inputs[0]].fixed]
    biases = [node.name for node in graph.nodes if isinstance(node, n.BiasNode)]
    own = _by_name("weight_variance", weight_variance, hidden, "layer that does not read the input")
    variances = dict(own)
    for name in _output_layers(graph) & set(hidden):
        if output_variance == "half":
            variances[name] = own[name] / 2
        elif output_variance != "equal":
            variances[name] = check_number("output_variance", output_variance, " (or 'equal' or 'half')")
    of_biases = _by_name("bias_variance", bias_variance, biases, "bias")
    gradients = of_biases if bias_gradient is None else _by_name("bias_gradient", bias_gradient, biases, "bias")
    return LimitNetwork(
        graph, distributions, activations, variances, own, of_biases, gradients, carried, paths, linear_features
    )


def _output_layers(graph: PathGraph) -> set[str]:
    """Names of the linear nodes that reach the output, and no other linear node."""
    reaches_output, reaches_linear = {graph.output_name}, set[str]()
    linear = {node.name for node in graph.nodes if isinstance(node, n.LinearNode)}
    for node in reversed(graph.nodes):
        if node.name in reaches_output:
            reaches_output.update(node.inputs)
        if node.name in linear | reaches_linear:
            reaches_linear.update(node.inputs)
    return linear & reaches_output - reaches_linear


def _default_weight_variance(activations: Mapping[str, Activation]) -> float:
    """The variance times fan-in that keeps the size of signals, if it is the same for all activations."""
    values = {name: normalizer(activation) for name, activation in activations.items()}
    if len(set(values.values())) > 1:
        listed = ", ".join(f"{value:.4g} at {name!r}" for name, value in values.items())
        raise ValueError(f"the activations need different weight variances ({listed}): give `weight_variance`.")
    return next(iter(values.values()), 1.0)


def normalizer(activation: Activation) -> float:
    """The weight variance times fan-in that keeps the size of signals; 2, as for ReLU, unless the activation says."""
    if isinstance(activation, Rectifier):
        return 2 / (1 + activation.slope**2)
    return getattr(activation, "normalizer", 2.0)


def _by_name(argument: str, value: Variance, nodes: list[str], what: str) -> dict[str, float]:
    """One number for each node, checked; biases may have 0."""
    or_zero = what == "bias"
    if not isinstance(value, Mapping):
        return dict.fromkeys(nodes, check_number(argument, value, f" (or one for each {what})", or_zero=or_zero))
    if set(value) != set(nodes):
        others = (set(nodes) - set(value), set(value) - set(nodes))
        missing, unknown = (", ".join(sorted(names)) or "none" for names in others)
        raise ValueError(f"`{argument}` needs one number for each {what}; missing: {missing}, unknown: {unknown}.")
    return {node: check_number(f"{argument}[{node!r}]", number, or_zero=or_zero) for node, number in value.items()}


def as_activation(choice: object) -> Activation:
    """An activation with its expectations: in closed form where there is one, else by quadrature."""
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
            kinds = "a gate such as `SoftGate(8.0)`, an elementwise function, or an activation with its expectations"
            raise TypeError(f"`activation` must be {kinds}, got {describe(choice)}.")


def _activations(graph: PathGraph, choice: ActivationChoice) -> dict[str, Activation]:
    """The activation of every gate and activation node by its name; ``choice`` replaces all, or those it names."""
    nodes = {node.name: node for node in graph.nodes if isinstance(node, Activated)}
    if choice is not None and not isinstance(choice, Mapping):
        return dict.fromkeys(nodes, as_activation(choice))
    replaced = {name: as_activation(value) for name, value in (choice or {}).items()}
    if unknown := ", ".join(sorted(set(replaced) - set(nodes))):
        names = ", ".join(nodes) or "(none)"
        raise ValueError(f"`activation` names nodes that are not activations: {unknown}; the activations are {names}.")
    state = graph.state
    return {name: replaced[name] if name in replaced else _own_activation(node, state) for name, node in nodes.items()}


def _own_activation(node: Activated, state: State) -> Activation:
    if isinstance(node, n.GateNode):
        if node.slope is None:
            return as_activation(node.gate)
        # One slope per channel is refused later, by name (`_distribution`).
        return Rectifier(float(node.slope.evaluate(state).detach().reshape(-1)[0]))
    if node.operation == "softplus":
        return Softplus(float(node.arguments[0] if node.arguments else node.keywords.get("beta", 1.0)))
    name = f"{node.operation} at {node.name!r}"
    return ByQuadrature(lambda q: node.function(q, *node.arguments, **node.keywords), name=name)


class _NoLimit(Exception):
    """A node has no limit: the reason, and the node whose channels and positions its values have."""

    def __init__(self, reason: str, like: NodeDistribution | None = None) -> None:
        super().__init__(reason)
        self.like = like


def _distributions(
    graph: PathGraph, activations: Mapping[str, Activation], *, linear_features: bool
) -> dict[str, NodeDistribution]:
    """The distribution of every node, or an error with the reason for every node that has no limit."""
    distributions, refusals = dict[str, NodeDistribution](), dict[str, str]()
    state = graph.state
    for node in graph.nodes:
        inputs = [distributions[name] for name in node.inputs]
        try:
            if isinstance(node, Activated):
                values = _activated(node, inputs[0], activations[node.name], state)
                # Linear features: the network that makes the gates has no activations, so its values stay normal.
                distributions[node.name] = inputs[0] if linear_features else values
            else:
                distributions[node.name] = _distribution(node, inputs, state)
        except _NoLimit as error:
            refusals[node.name] = str(error)
            # Continue as after a linear node, so that one cause gives one line.
            flat, shape = (False, node.shape) if error.like is None else (error.like.flat, error.like.shape)
            distributions[node.name] = NodeDistribution(False, True, frozenset([node.name]), flat, shape)
    if distributions[graph.output_name].fixed:
        refusals[graph.output_name] = "the output depends on no random weights"
    if refusals:
        lines = "".join(f"\n  {name!r}: {reason}" for name, reason in refusals.items())
        raise ValueError(f"the kernel of infinite width is not known for this network:{lines}")
    return distributions


def _activated(node: Activated, values: NodeDistribution, activation: Activation, state: State) -> NodeDistribution:
    """The distribution after an activation."""
    slope = node.slope if isinstance(node, n.GateNode) else None
    if slope is not None and not _uniform(by_position(slope, node, values.shape or (1,), state)):
        raise _NoLimit("slopes that differ from channel to channel", values)
    if values.fixed or isinstance(activation, Identity):
        return values
    if not values.normal:
        raise _NoLimit("an activation of values that are not normal: they come from another activation", values)
    return replace(values, normal=False)


def _distribution(node: n.Node, inputs: Sequence[NodeDistribution], state: State) -> NodeDistribution:
    """The distribution of a node that is not an activation."""
    fixed = NodeDistribution(True, shape=node.shape)
    values = inputs[0] if inputs else fixed
    match node:
        case n.LinearNode():
            if node.groups > 1:
                raise _NoLimit("a convolution in groups: its limit depends on the widths of the groups")
            if node.windows and values.flat:
                raise _NoLimit("a convolution over flattened values")
            return NodeDistribution(False, True, frozenset([node.name]), False, node.shape)
        case n.BiasNode():
            if _calls(node.value, graphs.batch_norm_shift):
                return values  # its scale has been refused
            if values.fixed:
                raise _NoLimit("a trained shift of the input, which has no limit of many channels")
            own = (1,) * (len(node.shape) - len(node.value_shape)) + node.value_shape
            if node.shape and node.shape[0] > 1 and own[0] == 1:
                raise _NoLimit("a bias that all channels share: they are then not independent", values)
            return values
        case n.ScaleNode() if _calls(node.factor, graphs.batch_norm_scale):
            raise _NoLimit("batch norm: its statistics belong to one network of finite width", values)
    if all(branch.fixed for branch in inputs):
        return fixed
    match node:
        case n.ScaleNode():
            if not _uniform(by_position(node.factor, node, values.shape, state)):
                raise _NoLimit("a scale that differs from channel to channel: they are then not alike", values)
            return values
        case n.AddNode():
            return _sum(inputs)
        case n.ConcatNode():
            raise _NoLimit("a concatenation: the limit depends on the ratio of the widths")
        case n.SelectNode() if values.flat or node.indices[0] is not None:
            raise _NoLimit("picks, repeats or reorders channels, which have no names in the limit")
        case n.MaxPoolNode():
            raise _NoLimit("max pooling: the largest of several normal variables has no such closed limit")
        case n.ReshapeNode():
            return _reshaped(values, node.shape or (1,))
        case _:  # a selection of positions, or an average pool
            return replace(values, shape=node.shape)


def _sum(branches: Sequence[NodeDistribution]) -> NodeDistribution:
    """The distribution of a sum, not all of whose branches are fixed."""
    random = [branch for branch in branches if not branch.fixed]
    if len(random) < len(branches):
        raise _NoLimit("adds the input, or a constant, to random values: its width or mean does not vanish", random[0])
    if len({(branch.flat, branch.shape[1:]) for branch in branches}) > 1:
        raise _NoLimit("adds branches that are flattened differently", random[0])
    sources = Counter(name for branch in branches for name in branch.sources)
    if shared := ", ".join(repr(name) for name in sorted(sources) if sources[name] > 1):
        reason = f"branches that come from the same layer meet ({shared}): their covariance is not derived"
        raise _NoLimit(reason, random[0])
    return replace(random[0], normal=all(branch.normal for branch in branches), sources=frozenset(sources))


def _reshaped(values: NodeDistribution, shape: n.Shape) -> NodeDistribution:
    """The distribution of random values with new axes; positions stay known when they are flattened."""
    if values.flat and len(shape) > 1:
        raise _NoLimit("gives flattened positions a new shape")
    if values.flat or len(values.shape) == 1 == len(shape):
        return values
    if len(shape) == 1:
        flat = math.prod(values.shape[1:]) > 1
        return replace(values, flat=flat, shape=values.shape if flat else shape)
    return replace(values, shape=shape)


def _calls(operand: Operand, function: object) -> bool:
    return isinstance(operand, ComputedOperand) and operand.function is function


def by_position(operand: Operand, node: n.Node, shape: n.Shape, state: State) -> Float[Tensor, "channel *space"]:
    """A factor of a node's values for each channel and position, flattened or not."""
    return operand.evaluate(state).detach().broadcast_to(node.shape).reshape(shape)


def _uniform(factor: Float[Tensor, "channel *space"]) -> bool:
    return bool((factor == factor[:1]).all())
