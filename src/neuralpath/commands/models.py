"""Models named on the command line: a callable or a module in a user's file, or a built-in network."""

import ast
import collections.abc
import importlib.util
import inspect
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from neuralpath.commands.arguments import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn


def load_model(
    name: str, input_shape: Sequence[int], settings: Sequence[str], *, n_classes: int | None = None
) -> "nn.Module":
    """Build the model that a command line names, in evaluation mode.

    Args:
        name: ``file.py:NAME``, or the name of a built-in network.
        input_shape: Shape of one example, for built-in networks.
        settings: Arguments of the callable, such as ``width=128``.
        n_classes: Number of outputs of a built-in network, unless the settings give it.

    Raises:
        UserError: With the file, the line and the reason.
    """
    from torch import nn

    arguments = _parse_settings(settings)
    if is_file_name(name):
        model = _from_file(name, arguments)
    else:
        by_classes = n_classes is not None and "n_outputs" not in arguments
        model = _by_name(name, input_shape, {**arguments, "n_outputs": n_classes} if by_classes else arguments)
        if by_classes:
            print(f"{name} has {n_classes} outputs, one for each class", file=sys.stderr)
    if not isinstance(model, nn.Module):
        raise UserError(f"{name} returned a {type(model).__name__}, not a torch.nn.Module.")
    model.eval()  # not in the return statement: a user's eval() may return nothing
    return model


def is_file_name(name: str) -> bool:
    """Whether a model is named by its file, not by the name of a built-in network."""
    return ":" in name or name.endswith(".py")


def _by_name(name: str, input_shape: Sequence[int], arguments: dict[str, Any]) -> Any:
    from neuralpath import nets

    constructor = nets.BY_NAME.get(name.lower().replace("_", "-"))
    if constructor is not None:
        check_arguments(name, constructor, arguments, given=("input_shape", "generator"))
    try:
        return nets.build(name, input_shape=tuple(input_shape), **arguments)
    except (TypeError, ValueError, RuntimeError, MemoryError, OverflowError) as error:
        if not isinstance(error, TypeError | ValueError) or "Overflow" in str(error):  # torch's, of sizes beyond memory
            given = " ".join(f"{key}={value!r}" for key, value in arguments.items())
            raise UserError(f"{name} cannot be built with {given}; is it too large? {_first_line(error)}") from error
        if constructor is not None:
            hint = f" --set takes: {listed_arguments(constructor, ('input_shape', 'generator'))}."
        else:
            hint = " Give your own model as file.py:NAME."
        raise UserError(f"{str(error).removesuffix('.')}.{hint}") from error


def _first_line(error: Exception) -> str:
    """The first line of an error, without the calls that torch lists below it."""
    return str(error).partition("\n")[0]


def _from_file(name: str, arguments: dict[str, Any]) -> Any:
    file, _, attribute = name.rpartition(":") if ":" in name else (name, "", "")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"there is no file {file!r}; give a model as file.py:NAME.")
    module = _module_of(path)
    with _importable(module, path.resolve().parent):
        return _from_module(module, path, attribute, arguments)


def _from_module(module: ModuleType, path: Path, attribute: str, arguments: dict[str, Any]) -> Any:
    """Run a user's file, and build its model."""
    assert module.__spec__ is not None
    assert module.__spec__.loader is not None
    file = str(path)
    try:
        module.__spec__.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script that ends itself would end this command silently
        raise UserError(_describe(f"{file} could not be imported", path, error)) from error
    if not attribute:
        names = ", ".join(sorted(_callables(module))) or "none"
        raise UserError(f"name the module or callable of {file}, as {file}:NAME. Callables in it: {names}.")
    if not hasattr(module, attribute):
        names = ", ".join(sorted(_callables(module))) or "none"
        raise UserError(f"{file} has no {attribute!r}. Callables in it: {names}.")
    target = getattr(module, attribute)
    if _is_module(target):
        if arguments:
            raise UserError(f"{attribute} in {file} is a module, which takes no arguments; leave out --set.")
        return target
    if not callable(target):
        raise UserError(
            f"{attribute!r} in {file} is a {type(target).__name__}; expected a module or a callable that returns one."
        )
    check_arguments(f"{attribute} in {file}", target, arguments)
    try:
        return target(**arguments)
    except (Exception, SystemExit) as error:
        raise UserError(_describe(f"{attribute} in {file} failed", path, error)) from error


def _is_module(target: object) -> bool:
    from torch import nn

    return isinstance(target, nn.Module)


def _module_of(path: Path) -> ModuleType:
    """The module of a file, before its code runs."""
    name = path.stem
    while name in sys.modules:  # a user's `random.py` is not Python's
        name = f"_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file.")
    return importlib.util.module_from_spec(spec)


@contextmanager
def _importable(module: ModuleType, folder: Path) -> Iterator[None]:
    """Make a module and its neighbors importable while its code builds a model; dataclasses need this.

    Only so long: Python pickles importable code by name, and the workers of a cluster do not have the file.
    """
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.modules.pop(module.__name__, None)
        with suppress(ValueError):  # the file may have changed the path itself
            sys.path.remove(str(folder))


def _describe(what: str, path: Path, error: BaseException) -> str:
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path.resolve()
    ]
    lines += [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = f" (line {lines[-1]})" if lines else ""
    return f"{what}{line}: {type(error).__name__}: {error}"


def _callables(module: ModuleType) -> list[str]:
    own = vars(module).items()
    return [
        k for k, v in own if callable(v) and not k.startswith("_") and getattr(v, "__module__", "") == module.__name__
    ]


def _parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    parsed = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"--set takes name=value, such as width=128; got {setting!r}.")
        try:
            parsed[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError):
            parsed[key] = text  # a word, such as pooling=max
    return parsed


def check_arguments(
    what: str, target: Callable[..., Any], arguments: Mapping[str, Any], *, given: Sequence[str] = ()
) -> None:
    """Refuse arguments that a callable does not take, that are missing, or that are words instead of numbers.

    Args:
        what: The callable, for messages.
        target: The callable.
        arguments: Its arguments by name.
        given: Names of arguments that the command sets itself.

    Raises:
        UserError: With the nearest name or the expected type, and all arguments.
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
        if name in named and isinstance(value, str) and (expected := _expected(named[name].annotation)):
            raise UserError(f"{what}: `{name}` must be {expected}, got {value!r}.")
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
    """Parameters by name, without those that the command sets; None if Python does not know them."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # some callables written in C
        return None
    return {name: parameter for name, parameter in signature.parameters.items() if name not in given}


_WORDS: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    bool: "True or False",
    collections.abc.Sequence: "a sequence such as (8, 16)",
    tuple: "a sequence such as (8, 16)",
    list: "a sequence such as [8, 16]",
}


def _expected(annotation: Any) -> str:
    """The expected type in words; empty if a string is accepted or the type is unknown."""
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    accepted = [get_origin(option) or option for option in options if option is not type(None)]
    if not accepted or any(option not in _WORDS for option in accepted):
        return ""
    return " or ".join(dict.fromkeys(_WORDS[option] for option in accepted))


def load_weights(model: "nn.Module", path: Path) -> None:
    """Load a safetensors file or a state dict of torch into a model, without running code from the file.

    Args:
        model: The model.
        path: The file.

    Raises:
        UserError: That names the file, or the keys that do not fit.
    """
    from torch.nn.parameter import is_lazy

    from neuralpath.gating import drawn_late

    state = _read_weights(path)
    own, late = model.state_dict(), drawn_late(model)
    shared = [key for key in own if key in state and not is_lazy(own[key])]  # a lazy one takes the shape in the file
    problems = [f"missing {key}" for key in own if key not in state and key not in late]
    problems += [f"unknown {key}" for key in state if key not in own and key not in late]
    problems += [
        f"{key} has the shape {tuple(state[key].shape)}, not {tuple(own[key].shape)}"
        for key in shared
        if state[key].shape != own[key].shape
    ]
    problems += [
        f"{key} holds {state[key].dtype}, not real numbers"
        for key in shared
        if own[key].is_floating_point() and not state[key].is_floating_point()
    ]
    if problems:
        more = f", and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise UserError(f"{path} does not fit the model: {'; '.join(problems[:5])}{more}.")
    model.load_state_dict(state)


def _read_weights(path: Path) -> "dict[str, Tensor]":
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    kind = "a safetensors file" if path.suffix == ".safetensors" else "a state dict saved by torch"
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, weights_only=True, map_location="cpu")
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read as {kind}: {error}") from error
    except Exception as error:  # a damaged file can raise anything in torch's reader
        raise UserError(
            f"{path} cannot be read as {kind}: it is damaged, or holds more than tensors, which could run code when it "
            "is loaded; save model.state_dict() instead."
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise UserError(f"{path} holds no state dict: expected tensors by name, as model.state_dict() gives.")
    if odd := [key for key, value in state.items() if not _is_dense(value)]:
        raise UserError(f"{path} does not hold the values of {odd[0]} as a dense tensor, which a model needs.")
    return state


def _is_dense(tensor: "Tensor") -> bool:
    """Whether a tensor stores all its values, with strides, as a model's own tensors do."""
    import torch

    return tensor.layout == torch.strided and not tensor.is_meta and not tensor.is_nested
