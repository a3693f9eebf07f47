"""Which gate of the feature network each gate of the value network takes, and how masks are transformed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, SupportsIndex

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from neuralpath._checks import as_integer, describe
from neuralpath.gating.modes import Recording
from neuralpath.graph import align

Permutation = Sequence[SupportsIndex] | Int[np.ndarray, " gate"] | Int[Tensor, " gate"]
GateOrder = Literal["reversed"] | Permutation | Mapping[int | str, int | str]
"""A permutation, "reversed", or a mapping from value gates to feature gates by index or name; other gates keep their
own index."""

PlainOrder = Literal["reversed"] | tuple[int, ...] | Mapping[int | str, int | str]

GateTransform = Callable[[Tensor, tuple[int, ...]], Tensor]
"""From gates of shape (batch, *shape) and the shape of the value network's layer to gates of that shape."""

GateTransforms = GateTransform | Mapping[int | str, GateTransform]
"""One transform for all gates, or a mapping from gates of the value network, by index or name."""


@dataclass(frozen=True)
class TileGates:
    r"""A gate transform that shifts a mask in space and repeats it over the channels of a wider value network.

    .. math:: G'[c, i] = G[c \bmod w, \; i - s]

    Symbols: :math:`w` is the number of the mask's channels, :math:`s` is ``shift``; positions wrap around. Masks of
    dense layers have no space and are only repeated.

    Args:
        shift: Number of positions to shift by: one number for every axis of space, or one for each.

    >>> mask = torch.tensor([[[True, False, False]]])
    >>> TileGates(shift=1)(mask, (2, 3)).int().tolist()
    [[[0, 1, 0], [0, 1, 0]]]
    """

    shift: int | tuple[int, ...] = 0

    def __post_init__(self) -> None:
        shifts = tuple(self.shift) if isinstance(self.shift, Sequence) else (self.shift,)
        plain = [as_integer(shift) for shift in shifts]
        if None in plain or isinstance(self.shift, str):
            raise TypeError(f"`shift` must be an integer, or one for each axis of space, got {self.shift!r}.")
        object.__setattr__(self, "shift", tuple(plain) if isinstance(self.shift, Sequence) else plain[0])

    def __call__(self, gate: Shaped[Tensor, "batch *shape"], shape: tuple[int, ...]) -> Shaped[Tensor, "batch *out"]:
        """The masks for a layer of the value network of this shape, from those of the feature network."""
        channels, *space = gate.shape[1:]
        if tuple(space) != shape[1:] or not shape or shape[0] < channels:
            problem = f"a mask of shape {tuple(gate.shape[1:])} cannot be tiled to {shape}"
            raise ValueError(f"{problem}: it needs the same positions and at least as many channels")
        shifts = (self.shift,) * len(space) if isinstance(self.shift, int) else tuple(self.shift)
        if space and len(shifts) != len(space):
            raise ValueError(f"`shift` {shifts} does not fit a mask with {len(space)} axes of space")
        if space and any(shifts):
            if gate.dtype == torch.int64:
                advice = "leave this gate out of a mapping as `gate_transform`, or tile it without a shift"
                raise ValueError(f"the positions of a max pool cannot be shifted; {advice}")
            gate = gate.roll(shifts, tuple(range(2, gate.ndim)))
        return gate if shape[0] == channels else gate[:, torch.arange(shape[0], device=gate.device) % channels]


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
    """The source of every gate, in the order in which the value network uses its gates."""

    pairs: tuple[GatePair, ...]
    n_feature_gates: int

    @property
    def names(self) -> tuple[str, ...]:
        """The value network's gates."""
        return tuple(pair.value_name for pair in self.pairs)

    def arrange(self, layers: Sequence[Shaped[Tensor, "_batch ..."]]) -> tuple[Shaped[Tensor, "_batch ..."], ...]:
        """The gates of the value network, from those of the feature network."""
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
    """Match every gate of the value network with one of the feature network, of the same kind and shape."""
    for network, recording in (("feature", feature), ("value", value)):
        if not recording.names:
            raise ValueError(f"the {network} network has no gates: no ReLU or other gate, and no max pool.")
    key = "a key of `gate_transform`"
    if isinstance(transforms, Mapping):
        transform_of = {_gate_index(gate, value.names, key, "value"): t for gate, t in transforms.items()}
    else:
        transform_of = {} if transforms is None else dict.fromkeys(range(len(value.names)), transforms)
    pairs = []
    for index, source in enumerate(sources(order, feature.names, value.names)):
        value_shape, feature_shape = tuple(value.layers[index].shape[1:]), tuple(feature.layers[source].shape[1:])
        names = value.names[index], feature.names[source]
        pair = GatePair(names[0], value_shape, names[1], feature_shape, source, transform_of.get(index))
        _check_pair(pair, feature, value.in_spaces[index])
        pairs.append(pair)
    return Matching(tuple(pairs), len(feature.layers))


def _check_pair(pair: GatePair, feature: Recording, value_space: tuple[int, ...] | None) -> None:
    where = f"the value network's gate {pair.value_name!r} takes the feature network's gate {pair.feature_name!r}"
    space = feature.in_spaces[pair.source]
    if (space is None) != (value_space is None):
        names = ["an activation" if s is None else "a max pool" for s in (value_space, space)]
        raise ValueError(f"{where}, but the former is {names[0]} and the latter {names[1]}; give another `gate_order`.")
    if space != value_space:
        raise ValueError(f"{where}, but the former pools {value_space} positions and the latter {space}.")
    shape = pair.feature_shape
    if pair.transform is not None:
        try:
            shape = tuple(pair.transform(feature.layers[pair.source], pair.value_shape).shape[1:])
        except ValueError as error:
            raise ValueError(f"{where}: {error}.") from error
    if shape != pair.value_shape:
        hint = "" if pair.transform is not None else " `gate_transform=TileGates()` repeats masks over more channels."
        own = pair.value_shape
        raise ValueError(f"{where}, but the former has the shape {own} and the latter {shape}; they must agree.{hint}")


def as_order(order: object) -> PlainOrder | None:
    """A gate order with plain integers; the number of gates is checked when it is known."""
    if order is None or isinstance(order, Mapping):
        return order
    if isinstance(order, str) and order == "reversed":
        return "reversed"
    if isinstance(order, str) or not isinstance(order, Sequence | np.ndarray | Tensor):
        got = repr(order) if isinstance(order, str) else describe(order)
        expected = 'None, "reversed", a permutation such as (2, 0, 1), or a mapping from value gates to feature gates'
        raise TypeError(f"`gate_order` must be {expected}, got {got}.")
    entries = tuple(order.tolist() if isinstance(order, np.ndarray | Tensor) else order)
    plain = tuple(index for entry in entries if (index := as_integer(entry)) is not None)
    if len(plain) != len(entries):
        raise TypeError(f"`gate_order` must be a permutation of integers, got {entries!r}.")
    if sorted(plain) != list(range(len(plain))):
        expected = f"a permutation of 0 to {len(plain) - 1}, got {plain!r}"
        raise ValueError(f"`gate_order` must be {expected}; to use a gate twice, give a mapping.")
    return plain


def sources(order: PlainOrder | None, feature_names: Sequence[str], value_names: Sequence[str]) -> tuple[int, ...]:
    """For each gate of the value network, the index of the feature network's gate that it takes."""
    n_feature, n_value = len(feature_names), len(value_names)
    if isinstance(order, Mapping):
        indices = list(range(n_value))
        for gate, source in order.items():
            index = _gate_index(gate, value_names, "a key of `gate_order`", "value")
            indices[index] = _gate_index(source, feature_names, "a value of `gate_order`", "feature")
        for name, index in zip(value_names, indices, strict=True):
            if index >= n_feature:
                problem = f"the feature network has only {n_feature} ({', '.join(feature_names)})"
                raise ValueError(f"the value network's gate {name!r} has no gate: {problem}; map it in `gate_order`.")
        return tuple(indices)
    if n_feature != n_value:
        raise ValueError(
            f"the feature network has {n_feature} gates ({', '.join(feature_names)}) but the value network has "
            f"{n_value} ({', '.join(value_names)}); give a `gate_order` that maps each of the latter to one of the "
            "former."
        )
    if order is None or order == "reversed":
        return tuple(range(n_value))[:: 1 if order is None else -1]
    if len(order) != n_value:
        raise ValueError(f"`gate_order` has {len(order)} entries for {n_value} gates: {', '.join(value_names)}.")
    return order


def _gate_index(gate: object, names: Sequence[str], what: str, network: str) -> int:
    """The index of a gate, from its index or its name."""
    if isinstance(gate, str) and gate in names:
        return names.index(gate)
    index = as_integer(gate)
    if index is not None and 0 <= index < len(names):
        return index
    known = f"0 to {len(names) - 1}: {', '.join(names)}"
    raise ValueError(f"{what}, {gate!r}, is not a gate of the {network} network; its gates are {known}.")
