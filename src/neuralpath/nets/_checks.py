"""Checks of the arguments that the constructors share; every message names the argument."""

import difflib
import operator
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def check_integer(name: str, value: int, least: int = 1) -> int:
    """Return `value` as a plain integer if it is one, of numpy's too, and at least `least`."""
    try:
        plain = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        plain = None
    if plain is None or plain < least:
        raise ValueError(f"`{name}` must be an integer of at least {least}, got {value!r}.")
    return plain


def check_sizes(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """Return `values` as a tuple if all of them are positive integers."""
    if not isinstance(values, Sequence):
        raise TypeError(f"`{name}` must be a sequence of integers, got {type(values).__name__}.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must hold positive integers only, got {tuple(values)!r}.")
    return tuple(values)


def expand_sizes(name: str, value: int | Sequence[int], count: int) -> tuple[int, ...]:
    """One size per layer: an integer is repeated, a sequence must have `count` entries."""
    if not isinstance(value, Sequence):
        return (check_integer(name, value),) * count
    if len(value) != count:
        raise ValueError(f"`{name}` must be one integer or {count} of them, one per layer; got {tuple(value)!r}.")
    return check_sizes(name, value)


def layer_widths(
    width: int | Sequence[int], n_layers: int | None, counted_by: str, *, extra: int = 0
) -> tuple[int, ...]:
    """Widths of the layers, from one width and a number of layers or from one width per layer.

    `n_layers` is the argument called `counted_by`; it counts `extra` more layers than have a width.
    It may be left out where `width` is a sequence.
    """
    if n_layers is None:
        if not isinstance(width, Sequence):
            raise ValueError(f"`{counted_by}` is needed where `width` is one integer for all layers.")
        return check_sizes("width", width)
    count = check_integer(counted_by, n_layers) - extra
    if isinstance(width, Sequence) and len(width) != count:
        raise ValueError(
            f"`width` must be one integer or {count} of them for `{counted_by}`={n_layers}; "
            f"got {tuple(width)!r}. With a sequence, `{counted_by}` may be left out."
        )
    return expand_sizes("width", width, count)


def check_image_shape(input_shape: Sequence[int]) -> tuple[int, int, int]:
    """Return `input_shape` as (channels, height, width)."""
    sizes = check_sizes("input_shape", input_shape)
    if len(sizes) != 3:
        raise ValueError(f"`input_shape` must be (channels, height, width) without the batch, got {sizes!r}.")
    return sizes[0], sizes[1], sizes[2]


def look_up(table: Mapping[str, T], name: str, what: str) -> T:
    """Entry of a table of lower-case names; an unknown name is answered with the nearest known one."""
    key = name.lower().replace("_", "-")
    if key in table:
        return table[key]
    nearest = difflib.get_close_matches(key, table, n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    raise ValueError(f"`{what}`: {name!r} is unknown.{hint} Known: {', '.join(table)}.")
