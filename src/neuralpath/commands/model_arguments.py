"""Arguments of a model on the command line, checked before it is made: names, and kinds of value."""

import collections.abc
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Union, get_args, get_origin

from neuralpath.commands.errors import UserError


def check_arguments(
    what: str, target: Callable[..., Any], arguments: Mapping[str, Any], *, given: Sequence[str] = ()
) -> None:
    """Refuse arguments that a callable does not take, lacks, or expects as numbers where they are words.

    ``given`` are those that the command gives itself.

    Raises: UserError with the nearest name, or the kind that is expected, and all arguments.
    """
    parameters = _parameters(target, given)
    if parameters is None:
        return
    all_of_them = f"--set takes: {listed_arguments(target, given)}."
    any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    named = {name: p for name, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    for name, value in arguments.items():
        if name not in named and not any_name:
            near = get_close_matches(name, named, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UserError(f"{what} has no argument {name!r}.{hint} {all_of_them}")
        if name in named and isinstance(value, str) and (kinds := _kinds(named[name].annotation)):
            raise UserError(f"{what}: `{name}` must be {kinds}, got {value!r}.")
    missing = [name for name, p in named.items() if p.default is p.empty and name not in arguments]
    if missing:
        raise UserError(f"{what} needs {' and '.join(missing)}. {all_of_them}")


def listed_arguments(target: Callable[..., Any], given: Sequence[str] = ()) -> str:
    """The arguments of a callable with their defaults.

    >>> def make(width: int, depth: int = 3): ...
    >>> listed_arguments(make)
    'width, depth=3'
    """
    parameters = _parameters(target, given) or {}
    shown = [
        f"{name}={parameter.default!r}" if parameter.default is not parameter.empty else name
        for name, parameter in parameters.items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    return ", ".join(shown) or "nothing"


def _parameters(target: Callable[..., Any], given: Sequence[str]) -> dict[str, inspect.Parameter] | None:
    """By name, without those that are given otherwise; None where Python cannot tell."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # some callables that are written in C
        return None
    return {name: parameter for name, parameter in signature.parameters.items() if name not in given}


_WORDS: dict[Any, str] = {
    int: "an integer", float: "a number", bool: "True or False", collections.abc.Sequence: "a sequence such as (8, 16)",
    tuple: "a sequence such as (8, 16)", list: "a sequence such as [8, 16]",
}  # fmt: skip


def _kinds(annotation: Any) -> str:
    """What an argument may be, in words; none where a word of text will do, or nothing is known."""
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    kinds = [get_origin(option) or option for option in options if option is not type(None)]
    if not kinds or any(kind not in _WORDS for kind in kinds):
        return ""
    return " or ".join(dict.fromkeys(_WORDS[kind] for kind in kinds))
