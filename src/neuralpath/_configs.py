"""Configs as JSON, in both directions: frozen dataclasses of plain values, of tuples and of other configs.

The JSON of a config is part of the fingerprint of a run, so equal configs must give equal JSON in every version.
A field that a config gets later is declared with ``field(default=..., metadata=ADDED_LATER)`` and is left out of the
JSON while it has its default value. Configs that were stored before the field existed therefore keep their fingerprint.
"""

import types
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

ADDED_LATER = {"added": True}  # metadata of a field that did not exist when the first records were written
T = TypeVar("T")


class UnreadableConfig(ValueError):
    """A stored config does not match the fields of this version's config; the message names the field."""


def to_json(config: Any) -> Any:
    """A config, or a container of configs, as plain JSON values.

    A dataclass becomes a dictionary of its fields, and of its class as ``kind``: two classes may have equal fields.
    """
    if type(config) in (str, int, float, bool):  # most values of a fingerprint; the other tests take time
        return config
    if is_dataclass(config) and not isinstance(config, type):
        stored = [f.name for f in fields(config) if f.metadata != ADDED_LATER or getattr(config, f.name) != f.default]
        return {"kind": type(config).__name__, **{name: to_json(getattr(config, name)) for name in stored}}
    if isinstance(config, dict):
        return {str(key): to_json(value) for key, value in config.items()}
    if isinstance(config, tuple | list):
        return [to_json(value) for value in config]
    return config


def from_json(cls: type[T], value: Any) -> T:
    """The config that `to_json` has written; the annotations of the class say how each entry is read."""
    return _read(cls, value, cls.__name__)


def _read(annotation: Any, value: Any, path: str) -> Any:
    """The value as its annotation says; ``path`` is the dotted name of the field, for messages."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if is_dataclass(annotation):
        return _read_dataclass(annotation, value, path)
    if origin in (Union, types.UnionType):
        return _read_union(arguments, value, path)
    if origin is Literal:
        if value not in arguments:
            raise UnreadableConfig(f"{path} must be one of {', '.join(map(repr, arguments))}, got {value!r}.")
        return value
    if origin is tuple and isinstance(value, list):
        entries = [arguments[0]] * len(value) if arguments[-1:] == (Ellipsis,) else list(arguments)
        if len(entries) != len(value):
            raise UnreadableConfig(f"{path} must have {len(entries)} entries, got {len(value)}.")
        return tuple(_read(entries[index], entry, f"{path}[{index}]") for index, entry in enumerate(value))
    if annotation is float and isinstance(value, int) and not isinstance(value, bool):
        return value  # stays an integer: 1 and 1.0 have different fingerprints
    is_bool = isinstance(value, bool)
    if isinstance(annotation, type) and isinstance(value, annotation) and (annotation is bool or not is_bool):
        return value
    raise UnreadableConfig(f"{path} must be {getattr(annotation, '__name__', annotation)}, got {value!r}.")


def _read_dataclass(cls: Any, value: Any, path: str) -> Any:
    if not isinstance(value, dict) or value.get("kind") != cls.__name__:
        raise UnreadableConfig(f"{path} must be a {cls.__name__}, got {value!r}.")
    hints = get_type_hints(cls)
    known = {f.name for f in fields(cls) if f.init}
    required = {f.name for f in fields(cls) if f.init and f.metadata != ADDED_LATER}
    stored = set(value) - {"kind"}
    if not required <= stored <= known:
        unknown, missing = ", ".join(sorted(stored - known)), ", ".join(sorted(required - stored))
        differences = f"unknown fields [{unknown}], missing fields [{missing}]"
        raise UnreadableConfig(f"{path} was written by another version: {differences}.")
    return cls(**{name: _read(hints[name], value[name], f"{path}.{name}") for name in sorted(stored)})


def _read_union(annotations: tuple[Any, ...], value: Any, path: str) -> Any:
    problem = f"{path} must be null, got {value!r}."
    if value is None and type(None) in annotations:
        return None
    for annotation in (option for option in annotations if option is not type(None)):
        try:
            return _read(annotation, value, path)
        except UnreadableConfig as error:
            problem = str(error)
    raise UnreadableConfig(problem)
