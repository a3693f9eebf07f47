"""The gates of a feature network, one for each gate of a value network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxtyping import Shaped
from torch import Tensor

from neuralpath.gating.modes import Recording
from neuralpath.gating.orders import PlainOrder, index_of, sources
from neuralpath.gating.transforms import GateTransform
from neuralpath.graph import align

GateTransforms = GateTransform | Mapping[int | str, GateTransform]
"""One transform for all gates, or one for some gates of the value network, by index or name."""


@dataclass(frozen=True)
class GatePair:
    """One gate of the value network and the gate of the feature network that it takes."""

    value_name: str
    value_shape: tuple[int, ...]  # of one example
    feature_name: str
    feature_shape: tuple[int, ...]
    source: int  # index among the feature network's gates
    transform: GateTransform | None


@dataclass(frozen=True)
class Matching:
    """Which gate goes where; in the order in which the value network uses its gates."""

    pairs: tuple[GatePair, ...]
    n_feature_gates: int

    @property
    def names(self) -> tuple[str, ...]:
        """The value network's gates."""
        return tuple(pair.value_name for pair in self.pairs)

    def arrange(self, layers: Sequence[Shaped[Tensor, "_batch ..."]]) -> tuple[Shaped[Tensor, "_batch ..."], ...]:
        """The gates that the value network gets, from those of the feature network."""
        return tuple(
            layers[pair.source] if pair.transform is None else pair.transform(layers[pair.source], pair.value_shape)
            for pair in self.pairs
        )

    def __str__(self) -> str:
        rows = [(p.value_name, str(p.value_shape), p.feature_name, str(p.feature_shape)) for p in self.pairs]
        return align([("value gate", "shape", "feature gate", "shape"), *rows])


def match_gates(
    feature: Recording, value: Recording, order: PlainOrder | None, transforms: GateTransforms | None
) -> Matching:
    """Give every gate of the value network one of the feature network, or say which does not fit.

    Raises: ValueError if a network has no gates, or a gate has another kind or shape.
    """
    for network, recording in (("feature", feature), ("value", value)):
        if not recording.names:
            raise ValueError(
                f"the {network} network has no gates: none of its operations is a ReLU, another activation that is a "
                "gate, or a max pool."
            )
    chosen = _chosen(transforms, value.names)
    pairs = []
    for index, source in enumerate(sources(order, feature.names, value.names)):
        pair = GatePair(
            value.names[index], tuple(value.layers[index].shape[1:]),
            feature.names[source], tuple(feature.layers[source].shape[1:]), source, chosen[index],
        )  # fmt: skip
        _check_pair(pair, feature, value.in_spaces[index])
        pairs.append(pair)
    return Matching(tuple(pairs), len(feature.layers))


def _chosen(transforms: GateTransforms | None, names: Sequence[str]) -> list[GateTransform | None]:
    if not isinstance(transforms, Mapping):
        return [transforms] * len(names)
    by_index = {index_of(k, names, "a key of `gate_transform`", "value"): t for k, t in transforms.items()}
    return [by_index.get(index) for index in range(len(names))]


def _check_pair(pair: GatePair, feature: Recording, value_space: tuple[int, ...] | None) -> None:
    where = f"the value network's gate {pair.value_name!r} takes the feature network's gate {pair.feature_name!r}"
    space = feature.in_spaces[pair.source]
    if (space is None) != (value_space is None):
        kinds = ["an activation" if s is None else "a max pool" for s in (value_space, space)]
        raise ValueError(f"{where}, but the one is {kinds[0]} and the other {kinds[1]}; give another `gate_order`.")
    if space != value_space:
        raise ValueError(f"{where}, but the one pools {value_space} positions and the other {space}.")
    shape = pair.feature_shape
    if pair.transform is not None:
        try:
            shape = tuple(pair.transform(feature.layers[pair.source], pair.value_shape).shape[1:])
        except ValueError as error:
            raise ValueError(f"{where}: {error}.") from error
    if shape != pair.value_shape:
        hint = "" if pair.transform is not None else " `gate_transform=TileGates()` repeats masks over more channels."
        raise ValueError(
            f"{where}, but the one has the shape {pair.value_shape} and the other {shape}; gates go to layers of the "
            f"same shape.{hint}"
        )
