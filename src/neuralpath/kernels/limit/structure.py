"""What a graph is in the limit: which parts of it have one, and which position pairs are needed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from jaxtyping import Float
from torch import Tensor

from neuralpath.graph import Call, Operand, PathGraph, State, batch_norm_scale, batch_norm_shift, nodes as n, walk
from neuralpath.kernels.limit.activations import Activation, Identity


@dataclass(frozen=True, slots=True)
class Place:
    """What is known of a node's values: fixed by the input, or random, and then normal or not, and made of what."""

    fixed: bool
    normal: bool = False
    sources: frozenset[str] = frozenset()  # linear_nodes that the values depend on with no other linear node between
    flat: bool = False  # channels and positions are one axis
    shape: n.Shape = ()  # channels and positions, before flattening


class Structure:
    """Finds everything in a graph that has no limit, or none that is derived: the names and the reasons."""

    def __init__(self, graph: PathGraph, activations: Mapping[str, Activation], *, linear_features: bool) -> None:
        self._state = graph.state
        self._activations = activations
        self._linear_features = linear_features
        self.places: dict[str, Place] = {}
        self.refusals: dict[str, str] = {}
        walk(graph, self)
        if self.places[graph.output_name].fixed:
            self.refusals[graph.output_name] = "the output depends on no random weights"

    def _refused(self, node: n.Node, reason: str, like: Place | None = None) -> Place:
        """Note a refusal, and go on as if the node had been read, so that one cause gives one line."""
        self.refusals[node.name] = reason
        flat, shape = (False, node.shape) if like is None else (like.flat, like.shape)
        return self._kept(node, Place(False, True, frozenset([node.name]), flat, shape))

    def _kept(self, node: n.Node, place: Place) -> Place:
        self.places[node.name] = place
        return place

    def input(self, node: n.InputNode) -> Place:
        return self._kept(node, Place(True, shape=node.shape))

    def constant(self, node: n.ConstantNode) -> Place:
        return self._kept(node, Place(True, shape=node.shape))

    def linear(self, node: n.LinearNode, place: Place) -> Place:
        if node.groups > 1:
            return self._refused(node, "a convolution in groups: its limit depends on the widths of the groups")
        if node.windows and place.flat:
            return self._refused(node, "a convolution over what has been flattened")
        return self._kept(node, Place(False, True, frozenset([node.name]), False, node.shape))

    def bias(self, node: n.BiasNode, place: Place) -> Place:
        if _is(node.value, batch_norm_shift):
            return self._kept(node, place)  # its scale has been refused
        if place.fixed:
            return self._refused(node, "a trained shift of the input, which has no limit of many channels")
        n_channels = node.shape[0] if node.shape else 1
        own = (1,) * (len(node.shape) - len(node.value_shape)) + node.value_shape
        if n_channels > 1 and own[0] == 1:
            return self._refused(node, "a bias that all channels share: they are then not independent", place)
        return self._kept(node, place)

    def gate(self, node: n.GateNode, place: Place) -> Place:
        if node.slope is not None and not _uniform(by_position(node.slope, node, place.shape or (1,), self._state)):
            return self._refused(node, "slopes that differ from channel to channel", place)
        return self._activated(node, place)

    def activation(self, node: n.ActivationNode, place: Place) -> Place:
        return self._activated(node, place)

    def _activated(self, node: n.GateNode | n.ActivationNode, place: Place) -> Place:
        if place.fixed or isinstance(self._activations[node.name], Identity):
            return self._kept(node, place)
        if not place.normal:
            return self._refused(
                node,
                "an activation of values that are not normal, as an activation stands before it with no weights "
                "between; only sums of what layers with weights put out are derived",
                place,
            )
        return self._kept(node, replace(place, normal=self._linear_features))

    def scale(self, node: n.ScaleNode, place: Place) -> Place:
        if _is(node.factor, batch_norm_scale):
            return self._refused(
                node, "batch norm: its statistics belong to one network of finite width, there is no such limit", place
            )
        if not place.fixed and not _uniform(by_position(node.factor, node, place.shape, self._state)):
            return self._refused(node, "a scale that differs from channel to channel: they are then not alike", place)
        return self._kept(node, place)

    def add(self, node: n.AddNode, *places: Place) -> Place:
        if all(place.fixed for place in places):
            return self._kept(node, places[0])
        random = [place for place in places if not place.fixed]
        if len(random) < len(places):
            return self._refused(
                node, "adds the input, or a constant, to random values: their width or mean does not vanish", random[0]
            )
        if len({(place.flat, place.shape[1:]) for place in places}) > 1:
            return self._refused(node, "adds branches that are flattened in different ways", random[0])
        met: set[str] = set()
        for place in places:
            if met & place.sources:
                names = ", ".join(repr(name) for name in sorted(met & place.sources))
                return self._refused(
                    node, f"branches that come from the same layer meet ({names}): their covariance is not derived",
                    random[0],
                )  # fmt: skip
            met |= place.sources
        normal = all(place.normal for place in places)
        return self._kept(node, replace(random[0], normal=normal, sources=frozenset(met)))

    def concat(self, node: n.ConcatNode, *places: Place) -> Place:
        if all(place.fixed for place in places):
            return self._kept(node, Place(True, shape=node.shape))
        return self._refused(node, "a concatenation: the limit depends on the ratio of the widths")

    def select(self, node: n.SelectNode, place: Place) -> Place:
        if place.fixed:
            return self._kept(node, Place(True, shape=node.shape))
        if place.flat or node.indices[0] is not None:
            return self._refused(node, "picks, repeats or reorders channels, which have no names in the limit")
        return self._kept(node, replace(place, shape=node.shape))

    def average_pool(self, node: n.AveragePoolNode, place: Place) -> Place:
        return self._kept(node, replace(place, shape=node.shape))

    def max_pool(self, node: n.MaxPoolNode, place: Place) -> Place:
        if place.fixed:
            return self._kept(node, Place(True, shape=node.shape))
        return self._refused(node, "max pooling: the largest of several normal variables has no such closed limit")

    def reshape(self, node: n.ReshapeNode, place: Place) -> Place:
        shape = node.shape or (1,)
        if place.fixed:
            return self._kept(node, Place(True, shape=node.shape))
        if place.flat and len(shape) > 1:
            return self._refused(node, "gives positions that have been flattened a new shape")
        if place.flat or len(place.shape) == 1 == len(shape):
            return self._kept(node, place)
        if len(shape) == 1:
            flat = math.prod(place.shape[1:]) > 1
            return self._kept(node, replace(place, flat=flat, shape=place.shape if flat else shape))
        return self._kept(node, replace(place, shape=shape))


def _is(operand: Operand, function: object) -> bool:
    return isinstance(operand, Call) and operand.function is function


def by_position(operand: Operand, node: n.Node, shape: n.Shape, state: State) -> Float[Tensor, "channel *space"]:
    """A factor of a node's values for each channel and position, flattened or not."""
    return operand.evaluate(state).detach().broadcast_to(node.shape).reshape(shape)


def _uniform(factor: Float[Tensor, "channel *space"]) -> bool:
    return bool((factor == factor[:1]).all())


def refuse_without_limit(structure: Structure) -> None:
    """Refuse a graph that has no limit, naming every node that is in the way.

    Raises: ValueError.
    """
    if structure.refusals:
        lines = "".join(f"\n  {name!r}: {reason}" for name, reason in structure.refusals.items())
        raise ValueError(f"the kernel of infinite width is not known for this network:{lines}")


class Need(IntEnum):
    """Which pairs of positions of a node are needed."""

    NONE = 0
    EQUAL = 1  # only the same position in both examples
    ALL = 2


def needed_pairs(graph: PathGraph, places: Mapping[str, Place], demands: Mapping[str, Need]) -> dict[str, Need]:
    """Needs of all nodes, from those in ``demands`` backwards.

    A window moves both positions alike, so equal positions need equal positions only; pooling joins them all.
    """
    needs = {node.name: demands.get(node.name, Need.NONE) for node in graph.nodes}
    for node in reversed(graph.nodes):
        own = needs[node.name]
        for name in node.inputs:
            need = own
            if own is not Need.NONE:
                if isinstance(node, n.AveragePoolNode) and math.prod(places[name].shape[1:]) > 1:
                    need = Need.ALL
                elif isinstance(node, n.LinearNode) and not node.windows:
                    need = Need.EQUAL
            needs[name] = max(needs[name], need)
    return needs
