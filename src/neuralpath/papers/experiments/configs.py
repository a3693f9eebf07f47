"""Configs from the JSON that was kept of them."""

import types
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from neuralpath.training import ADDED

T = TypeVar("T")


class UnreadableConfig(ValueError):
    """A stored config does not fit this version's."""


def from_json(kind: type[T], value: Any) -> T:
    """The frozen record that `neuralpath.training.config.as_json` has written.

    Raises: UnreadableConfig naming the field that does not fit.
    """
    read: T = _read(kind, value, kind.__name__)
    return read


def _read(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _read_record(kind, value, where)
    if origin in (Union, types.UnionType):
        return _read_union(arguments, value, where)
    if origin is Literal:
        if value not in arguments:
            raise UnreadableConfig(f"{where} must be one of {', '.join(map(repr, arguments))}, got {value!r}.")
        return value
    if origin is tuple and isinstance(value, list):
        kinds = [arguments[0]] * len(value) if arguments[-1:] == (Ellipsis,) else list(arguments)
        if len(kinds) != len(value):
            raise UnreadableConfig(f"{where} must have {len(kinds)} entries, got {len(value)}.")
        return tuple(_read(kinds[index], entry, f"{where}[{index}]") for index, entry in enumerate(value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return value  # as it was: 1 and 1.0 have different fingerprints
    if isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise UnreadableConfig(f"{where} must be {getattr(kind, '__name__', kind)}, got {value!r}.")


def _read_record(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict) or value.get("kind") != kind.__name__:
        raise UnreadableConfig(f"{where} must be a {kind.__name__}, got {value!r}.")
    hints = get_type_hints(kind)
    needed = {field.name for field in fields(kind) if field.init and field.metadata != ADDED}
    known, given = {field.name for field in fields(kind) if field.init}, set(value) - {"kind"}
    if not needed <= given <= known:
        extra, missing = ", ".join(sorted(given - known)), ", ".join(sorted(needed - given))
        raise UnreadableConfig(f"{where} was kept by another version: unknown fields [{extra}], missing [{missing}].")
    return kind(**{name: _read(hints[name], value[name], f"{where}.{name}") for name in sorted(given)})


def _read_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    problems = []
    for kind in kinds:
        if kind is type(None):
            if value is None:
                return None
            continue
        try:
            return _read(kind, value, where)
        except UnreadableConfig as error:
            problems.append(str(error))
    raise UnreadableConfig(problems[-1] if problems else f"{where} must be nothing, got {value!r}.")
