"""Models named on the command line: a callable in a user's file, or one of the papers' networks."""

import ast
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from neuralpath.commands.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn


def load_model(name: str, input_shape: Sequence[int], settings: Sequence[str]) -> "nn.Module":
    """The model that a command line names, built with the settings, in evaluation mode.

    Raises: UserError with the file, the line and the reason.
    """
    from torch import nn

    arguments = _parse_settings(settings)
    if ":" in name or name.endswith(".py"):
        model = _from_file(name, arguments)
    else:
        model = _by_name(name, input_shape, arguments)
    if not isinstance(model, nn.Module):
        raise UserError(f"{name} returned a {type(model).__name__}, not a torch.nn.Module.")
    return model.eval()


def _by_name(name: str, input_shape: Sequence[int], arguments: dict[str, Any]) -> Any:
    from neuralpath import nets

    try:
        return nets.build(name, input_shape=tuple(input_shape), **arguments)
    except (TypeError, ValueError) as error:
        if name in nets.BY_NAME:
            hint = " Give its arguments with --set, such as `--set width=128 depth=6`."
        else:
            hint = " A model of your own is given as file.py:callable."
        raise UserError(f"{str(error).removesuffix('.')}.{hint}") from error


def _from_file(name: str, arguments: dict[str, Any]) -> Any:
    file, _, attribute = name.rpartition(":") if ":" in name else (name, "", "")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"there is no file {file!r}; a model is given as file.py:callable.")
    module = _import_file(path)
    if not attribute:
        names = ", ".join(sorted(_callables(module))) or "none"
        raise UserError(f"say which callable of {file} makes the model, as {file}:NAME. It has: {names}.")
    if not hasattr(module, attribute):
        names = ", ".join(sorted(_callables(module))) or "none"
        raise UserError(f"{file} has no {attribute!r}. Callables in it: {names}.")
    target = getattr(module, attribute)
    if not callable(target):
        raise UserError(f"{attribute!r} in {file} is a {type(target).__name__}, not a callable that returns a module.")
    try:
        inspect.signature(target).bind(**arguments)
    except TypeError as error:
        raise UserError(f"{attribute} in {file} cannot be called so: {error}; give arguments with --set.") from error
    try:
        return target(**arguments)
    except (Exception, SystemExit) as error:  # a script may end itself, which would end this command without a word
        raise UserError(_describe(f"{attribute} in {file} failed", path, error)) from error


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))  # so that the file can import its neighbours
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UserError(_describe(f"{path} could not be imported", path, error)) from error
    finally:
        sys.path.pop(0)
    return module


def _describe(what: str, path: Path, error: BaseException) -> str:
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path.resolve()
    ]
    lines += [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    place = f" (line {lines[-1]})" if lines else ""
    return f"{what}{place}: {type(error).__name__}: {error}"


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
        except (ValueError, SyntaxError):
            parsed[key] = text  # a word, such as pooling=max
    return parsed


def load_weights(model: "nn.Module", path: Path) -> None:
    """Load a safetensors file, or a state dict that torch has saved, into a model; no code of a file is ever run.

    Raises: UserError that names the file, or the keys that do not fit.
    """
    state = _read_weights(path)
    own = model.state_dict()
    problems = [f"missing {key}" for key in own if key not in state]
    problems += [f"unknown {key}" for key in state if key not in own]
    problems += [
        f"{key} has the shape {tuple(state[key].shape)}, not {tuple(own[key].shape)}"
        for key in own
        if key in state and state[key].shape != own[key].shape
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
    except Exception as error:  # a damaged file makes the reader of pickles fail in any way
        raise UserError(
            f"{path} cannot be read as {kind}: it is damaged, or holds more than tensors, which could run code when it "
            "is loaded; save model.state_dict() instead."
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise UserError(f"{path} holds no state dict: expected tensors by name, as model.state_dict() gives.")
    return state
