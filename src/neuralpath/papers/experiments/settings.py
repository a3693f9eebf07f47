"""Checks of the settings of experiments, which refuse bad ones before any run begins, and the choice of parts."""

import math
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable


def check_integers(least: int, **settings: int | tuple[int, ...]) -> None:
    """Refuse numbers below ``least``, with a `ValueError` that names the setting; each is one number or several.

    >>> check_integers(1, width=8, widths=(4, 0))
    Traceback (most recent call last):
    ValueError: `widths` must be integers of at least 1, got (4, 0).
    """
    for name, value in settings.items():
        numbers, what = (value, "integers") if isinstance(value, tuple) else ((value,), "an integer")
        if any(isinstance(number, bool) or not isinstance(number, int) or number < least for number in numbers):
            raise ValueError(f"`{name}` must be {what} of at least {least}, got {value}.")


def check_given(**settings: tuple[object, ...]) -> None:
    """Refuse settings without an entry, of which there would be no run, with a `ValueError` that names the setting."""
    for name, values in settings.items():
        if not values:
            raise ValueError(f"`{name}` is empty: give at least one.")


def check_shares(**settings: float) -> None:
    """Refuse numbers that are not above 0 and up to 1, with a `ValueError` that names the setting."""
    for name, value in settings.items():
        if not 0 < value <= 1:
            raise ValueError(f"`{name}` must be a share above 0 and up to 1, got {value}.")


def check_positive(**settings: float) -> None:
    """Refuse numbers that are not above 0 and finite, with a `ValueError` that names the setting."""
    for name, value in settings.items():
        if not 0 < value < math.inf:
            raise ValueError(f"`{name}` must be a finite number above 0, got {value}.")


def check_seeds(config: Any, where: str = "") -> None:
    """Refuse a config in which, at whatever depth, there are no seeds, one below 0, or one of them twice."""
    if isinstance(config, tuple):
        for index, entry in enumerate(config):
            check_seeds(entry, f"{where}{index}.")
    elif is_dataclass(config) and not isinstance(config, type):
        for part in fields(config):
            value, name = getattr(config, part.name), f"{where}{part.name}"
            if part.name == "seeds":
                check_given(**{name: value})
                check_integers(0, **{name: value})
                if len(set(value)) < len(value):
                    raise ValueError(f"`{name}` must differ, since each is a run of its own; got {tuple(value)}.")
            check_seeds(value, f"{name}.")


@runtime_checkable
class _Named(Protocol):
    @property
    def name(self) -> str: ...


PartType = TypeVar("PartType", bound=_Named)


def chosen_parts(parts: tuple[PartType, ...], only: tuple[str, ...]) -> tuple[PartType, ...]:
    """The parts with these names, or all if there are no names; no part may be missing."""
    names = [part.name for part in parts]
    if unknown := [name for name in only if name not in names]:
        raise ValueError(f"`only` must be among {', '.join(names)}; got {', '.join(map(repr, unknown))}.")
    return tuple(part for part in parts if not only or part.name in only)


def is_part_of(config: Any, preset: Any) -> bool:
    """Whether a config is a preset, or has some of its parts and nothing else that differs."""
    return config == preset or (hasattr(preset, "only") and replace(config, only=preset.only) == preset)
