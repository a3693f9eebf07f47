"""Which gate of the feature network each gate of the value network takes."""

import operator
from collections.abc import Mapping, Sequence
from typing import Literal, SupportsIndex

import numpy as np
from jaxtyping import Int
from torch import Tensor

from neuralpath._checks import describe

Permutation = Sequence[SupportsIndex] | Int[np.ndarray, " gate"] | Int[Tensor, " gate"]
GateOrder = Literal["reversed"] | Permutation | Mapping[int | str, int | str]
"""A permutation, "reversed", or from value gates to feature gates by index or name; gates not named keep their own."""

PlainOrder = Literal["reversed"] | tuple[int, ...] | Mapping[int | str, int | str]


def as_order(order: object) -> PlainOrder | None:
    """An order with a permutation as a tuple of plain integers; what can be no order is refused.

    The number of gates is not known yet.
    """
    if order is None or isinstance(order, Mapping):
        return order
    if isinstance(order, str) and order == "reversed":
        return "reversed"
    if isinstance(order, str) or not isinstance(order, Sequence | np.ndarray | Tensor):
        got = repr(order) if isinstance(order, str) else describe(order)
        raise TypeError(
            '`gate_order` must be None, "reversed", a permutation such as (2, 0, 1), or a mapping from the value '
            f"network's gates to the feature network's, got {got}."
        )
    entries = tuple(order.tolist() if isinstance(order, np.ndarray | Tensor) else order)
    permutation = [as_index(entry) for entry in entries]
    if None in permutation:
        raise TypeError(f"`gate_order` must be a permutation of integers, got {entries!r}.")
    plain = tuple(index for index in permutation if index is not None)
    if sorted(plain) != list(range(len(plain))):
        raise ValueError(
            f"`gate_order` must be a permutation of 0 to {len(plain) - 1}, got {plain!r}; to use a gate twice, "
            "give a mapping."
        )
    return plain


def as_index(value: object) -> int | None:
    """A plain integer, for integers of numpy and torch too; None for anything else."""
    try:
        return None if isinstance(value, bool | np.bool_) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def sources(order: PlainOrder | None, feature_names: Sequence[str], value_names: Sequence[str]) -> tuple[int, ...]:
    """For each gate of the value network, the index of the feature network's gate that it takes.

    Raises: ValueError if the networks have not the same number of gates, or a name or index is unknown.
    """
    n_feature, n_value = len(feature_names), len(value_names)
    if isinstance(order, Mapping):
        return _mapped(order, feature_names, value_names)
    if n_feature != n_value:
        raise ValueError(
            f"the feature network has {n_feature} gates ({', '.join(feature_names)}) but the value network has "
            f"{n_value} ({', '.join(value_names)}); give a `gate_order` that maps each of the latter to one of the "
            "former."
        )
    if order is None:
        return tuple(range(n_value))
    if order == "reversed":
        return tuple(reversed(range(n_value)))
    if len(order) != n_value:
        raise ValueError(
            f"`gate_order` has {len(order)} entries, but there are {n_value} gates: {', '.join(value_names)}."
        )
    return order


def _mapped(
    order: Mapping[int | str, int | str], feature_names: Sequence[str], value_names: Sequence[str]
) -> tuple[int, ...]:
    chosen = {
        index_of(gate, value_names, "a key of `gate_order`", "value"): index_of(
            source, feature_names, "a value of `gate_order`", "feature"
        )
        for gate, source in order.items()
    }
    found = [chosen.get(index, index) for index in range(len(value_names))]
    for name, index in zip(value_names, found, strict=True):
        if index >= len(feature_names):
            raise ValueError(
                f"the value network's gate {name!r} has no gate: the feature network has only {len(feature_names)} "
                f"({', '.join(feature_names)}); name one for it in `gate_order`."
            )
    return tuple(found)


def index_of(gate: object, names: Sequence[str], what: str, network: str) -> int:
    """The position of a gate that is given by its index or by its name."""
    if isinstance(gate, str) and gate in names:
        return names.index(gate)
    index = as_index(gate)
    if index is not None and 0 <= index < len(names):
        return index
    raise ValueError(
        f"{what}, {gate!r}, is no gate of the {network} network; they are 0 to {len(names) - 1}: {', '.join(names)}."
    )
