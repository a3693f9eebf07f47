"""What is to be computed: a graph's limit, with its activations and the size of its weights."""

from collections.abc import Mapping
from dataclasses import dataclass

from neuralpath.graph import PathGraph, check_graph, refuse_tied
from neuralpath.kernels.limit.activations import Activation, Pair, check_gated
from neuralpath.kernels.limit.chosen import ActivationChoice, activations_of
from neuralpath.kernels.limit.structure import Place, Structure, refuse_without_limit
from neuralpath.kernels.limit.weights import OutputVariance, Variance, Weights, make_weights

WAY_OUT = "scale the inputs, or give them in float64"
"""What to do about kernels beyond the range of their dtype."""


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """A network's limit, and which kernels are carried besides the covariances."""

    graph: PathGraph
    places: Mapping[str, Place]
    activations: Mapping[str, Activation]
    weights: Weights
    carried: tuple[Pair, ...]  # what an activation multiplies each carried kernel with
    paths: bool = False  # the carried kernel is that of paths: linear_nodes only average it
    linear_features: bool = False


def make_limit(
    graph: PathGraph,
    carried: tuple[Pair, ...],
    *,
    activation: ActivationChoice,
    weight_variance: Variance | None,
    output_variance: OutputVariance = "equal",
    bias_variance: Variance,
    bias_gradient: Variance | None = None,
    paths: bool = False,
    linear_features: bool = False,
) -> Limit:
    """The limit of a graph; see ``limit_tangent_kernel`` for what the arguments mean.

    Raises: ValueError for tied weights, parts without a limit or, where gates are carried, activations without one.
    """
    check_graph(graph)
    refuse_tied(graph, "the kernel of infinite width")
    activations = activations_of(graph, activation)
    structure = Structure(graph, activations, linear_features=linear_features)
    refuse_without_limit(structure)
    if any("gate" in pair.value for pair in carried):
        for name, used in activations.items():
            check_gated(used, name)
    places = structure.places
    weights = make_weights(
        graph, places, activations, weight_variance, output_variance, bias_variance, bias_gradient
    )  # fmt: skip
    return Limit(graph, places, activations, weights, carried, paths, linear_features)
