"""Choosing among the named parts of an experiment."""

from dataclasses import replace
from typing import Any, Protocol, TypeVar, runtime_checkable


@runtime_checkable
class Named(Protocol):
    """A part of an experiment."""

    @property
    def name(self) -> str:
        """By which it is chosen."""


Part = TypeVar("Part", bound=Named)


def chosen_parts(parts: tuple[Part, ...], only: tuple[str, ...]) -> tuple[Part, ...]:
    """The parts with these names, or all if there are no names.

    Raises: ValueError for a name that no part has.
    """
    names = [part.name for part in parts]
    if unknown := [name for name in only if name not in names]:
        raise ValueError(f"`only` must be among {', '.join(names)}; got {', '.join(map(repr, unknown))}.")
    return tuple(part for part in parts if not only or part.name in only)


def is_part_of(config: Any, preset: Any) -> bool:
    """Whether a config is a preset, or has some of its parts and nothing else that differs."""
    return config == preset or (hasattr(preset, "only") and replace(config, only=preset.only) == preset)
