"""Which gate of the feature network each gate of the value network takes."""

from collections.abc import Mapping, Sequence
from typing import Literal

from neuralpath._checks import describe

GateOrder = Literal["reversed"] | Sequence[int] | Mapping[int | str, int | str]
"""A permutation, "reversed", or from value gates to feature gates by index or name; gates not named keep their own."""


def check_order(order: object) -> None:
    """Refuse what can be no order, before the number of gates is known."""
    if order is None or order == "reversed" or isinstance(order, Mapping):
        return
    if isinstance(order, str) or not isinstance(order, Sequence):
        got = repr(order) if isinstance(order, str) else describe(order)
        raise TypeError(
            '`gate_order` must be None, "reversed", a permutation such as (2, 0, 1), or a mapping from the value '
            f"network's gates to the feature network's, got {got}."
        )
    if any(isinstance(index, bool) or not isinstance(index, int) for index in order):
        raise TypeError(f"`gate_order` must be a permutation of integers, got {tuple(order)!r}.")
    if sorted(order) != list(range(len(order))):
        raise ValueError(
            f"`gate_order` must be a permutation of 0 to {len(order) - 1}, got {tuple(order)!r}; to use a gate twice, "
            "give a mapping."
        )


def sources(order: GateOrder | None, feature_names: Sequence[str], value_names: Sequence[str]) -> tuple[int, ...]:
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
    return tuple(int(index) for index in order)


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
    if isinstance(gate, int) and not isinstance(gate, bool) and 0 <= gate < len(names):
        return gate
    raise ValueError(
        f"{what}, {gate!r}, is no gate of the {network} network; they are 0 to {len(names) - 1}: {', '.join(names)}."
    )
