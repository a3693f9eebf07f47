"""Models named on the command line: a callable or a module in a user's file, or a built-in network."""

import ast
import importlib.util
import inspect
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

from neuralpath.commands.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

Settings = dict[str, Any]  # arguments of a callable by name


def load_model(
    name: str, input_shape: Sequence[int], settings: Sequence[str], *, n_classes: int | None = None
) -> "nn.Module":
    """Build the model that a command line names, ``file.py:NAME`` or a built-in network, in evaluation mode.

    Built-in networks get the shape of one example, and ``n_classes`` outputs, unless the settings give their number.
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


def _by_name(name: str, input_shape: Sequence[int], arguments: Settings) -> Any:
    from neuralpath import nets

    constructor, own = nets.BY_NAME.get(name.lower().replace("_", "-")), ("input_shape", "generator")
    hint = "Give your own model as file.py:NAME."
    if constructor is not None:
        hint = f"--set takes: {listed_arguments(constructor, own)}."
        _check_arguments(name, constructor, arguments, preset=own)
    try:
        return nets.build(name, input_shape=tuple(input_shape), **arguments)
    except (TypeError, ValueError, RuntimeError, MemoryError, OverflowError) as error:
        if isinstance(error, TypeError | ValueError) and "Overflow" not in str(error):
            raise UserError(f"{str(error).removesuffix('.')}. {hint}") from error
        # Torch's error, of sizes beyond memory; below its first line it lists its calls.
        settings, reason = " ".join(f"{key}={value!r}" for key, value in arguments.items()), str(error).split("\n")[0]
        raise UserError(f"{name} cannot be built with {settings}; is it too large? {reason}") from error


def _from_file(name: str, arguments: Settings) -> Any:
    """Run a user's file, and build its model."""
    file, _, attribute = name.rpartition(":") if ":" in name else (name, "", "")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"there is no file {file!r}; give a model as file.py:NAME.")
    module_name = path.stem
    while module_name in sys.modules:  # a user's `random.py` is not Python's
        module_name = f"_{module_name}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    with _importable(module, path.resolve().parent):
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:  # a script that ends itself would end this command silently
            raise UserError(_describe(f"{file} could not be imported", path, error)) from error
        return _from_module(module, path, attribute, arguments)


def _from_module(module: ModuleType, path: Path, attribute: str, arguments: Settings) -> Any:
    from torch import nn

    if not hasattr(module, attribute):
        own = [name for name, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
        callables = sorted(name for name in own if callable(getattr(module, name)) and not name.startswith("_"))
        problem = f"{path} has no {attribute!r}" if attribute else f"name the model in {path}, as {path}:NAME"
        raise UserError(f"{problem}. Callables in it: {', '.join(callables) or 'none'}.")
    target = getattr(module, attribute)
    if isinstance(target, nn.Module):
        if arguments:
            raise UserError(f"{attribute} in {path} is a module, which takes no arguments; leave out --set.")
        return target
    if not callable(target):
        kind = type(target).__name__
        raise UserError(f"{attribute!r} in {path} is a {kind}; expected a module or a callable that returns one.")
    _check_arguments(f"{attribute} in {path}", target, arguments)
    try:
        return target(**arguments)
    except (Exception, SystemExit) as error:
        raise UserError(_describe(f"{attribute} in {path} failed", path, error)) from error


@contextmanager
def _importable(module: ModuleType, folder: Path) -> Iterator[None]:
    """Make a module and its neighbors importable while its code builds a model; dataclasses need this.

    Not longer: Python pickles importable code by name, and the workers of a cluster do not have the file.
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
    """An error of a user's file, with the last line of the file that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    line = f" (line {lines[-1]})" if lines else ""
    return f"{what}{line}: {type(error).__name__}: {error}"


def _parse_settings(settings: Sequence[str]) -> Settings:
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


def _check_arguments(what: str, target: Callable[..., Any], arguments: Settings, preset: Sequence[str] = ()) -> None:
    """Refuse arguments that a callable does not take, that are missing, or that are words instead of numbers.

    ``what`` is the callable in messages, and ``preset`` names the arguments that the command sets itself.
    """
    try:
        kinds = {parameter.kind for parameter in inspect.signature(target).parameters.values()}
    except (TypeError, ValueError):  # Python does not know the parameters of some callables written in C
        return
    named, all_of_them = _named_parameters(target, preset), f"--set takes: {listed_arguments(target, preset)}."
    for name, value in arguments.items():
        if name not in named and inspect.Parameter.VAR_KEYWORD not in kinds:
            near = get_close_matches(name, named, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UserError(f"{what} has no argument {name!r}.{hint} {all_of_them}")
        if name in named and isinstance(value, str) and (expected := _expected(named[name].annotation)):
            raise UserError(f"{what}: `{name}` must be {expected}, got {value!r}.")
    if missing := [name for name, p in named.items() if p.default is p.empty and name not in arguments]:
        raise UserError(f"{what} needs {' and '.join(missing)}. {all_of_them}")


def listed_arguments(target: Callable[..., Any], preset: Sequence[str] = ()) -> str:
    """The arguments of a callable with their defaults.

    >>> def make(width: int, depth: int = 3): ...
    >>> listed_arguments(make)
    'width, depth=3'
    """
    named = _named_parameters(target, preset).items()
    return ", ".join(name if p.default is p.empty else f"{name}={p.default!r}" for name, p in named) or "nothing"


def _named_parameters(target: Callable[..., Any], preset: Sequence[str]) -> dict[str, inspect.Parameter]:
    """Parameters by name, without those that the command sets, ``*args`` and ``**kwargs``."""
    parameters = inspect.signature(target).parameters
    any_number = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: p for name, p in parameters.items() if name not in preset and p.kind not in any_number}


_WORDS: dict[Any, str] = {int: "an integer", float: "a number", bool: "True or False"}
_WORDS |= {Sequence: "a sequence such as (8, 16)", tuple: "a sequence such as (8, 16)", list: "a list such as [8, 16]"}


def _expected(annotation: Any) -> str:
    """The expected type in words; empty if a string is accepted or the type is unknown."""
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    accepted = [get_origin(option) or option for option in options if option is not type(None)]
    if not accepted or any(option not in _WORDS for option in accepted):
        return ""
    return " or ".join(dict.fromkeys(_WORDS[option] for option in accepted))


def load_weights(model: "nn.Module", path: Path) -> None:
    """Load a safetensors file or a state dict of torch into a model, without running code from the file."""
    from torch.nn.parameter import is_lazy

    from neuralpath.gating import drawn_late

    state = _read_weights(path)
    own, late = model.state_dict(), drawn_late(model)
    shared = [key for key in own if key in state and not is_lazy(own[key])]  # a lazy one takes the shape in the file
    problems = [f"missing {key}" for key in own if key not in state and key not in late]
    problems += [f"unknown {key}" for key in state if key not in own and key not in late]
    for key in shared:
        if state[key].shape != own[key].shape:
            problems.append(f"{key} has the shape {tuple(state[key].shape)}, not {tuple(own[key].shape)}")
        if own[key].is_floating_point() and not state[key].is_floating_point():
            problems.append(f"{key} holds {state[key].dtype}, not real numbers")
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
    for key, tensor in state.items():  # a model's own tensors store all their values, with strides
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_nested:
            raise UserError(f"{path} does not hold the values of {key} as a dense tensor, which a model needs.")
    return state
