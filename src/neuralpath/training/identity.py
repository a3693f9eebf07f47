"""What tells one run from another: settings, data, the model and the augmentation as they are printed."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from inspect import getclosurevars, isfunction, ismethod, signature
from typing import Any

import torch
from torch import Tensor, nn

from neuralpath._configs import to_json
from neuralpath.training.batches import Augment
from neuralpath.training.checkpoints import CheckpointError
from neuralpath.training.config import TrainingConfig
from neuralpath.training.setting_up import Task, describe_data
from neuralpath.training.snapshot import differences, fingerprint

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_PLAIN = bool | int | float | str | None


def describe_run(
    task: Task, config: TrainingConfig, augment: Augment | None, identity: Mapping[str, Any] | None, *, with_data: bool
) -> dict[str, Any]:
    """What must agree when a run is taken up; data are only read through where that will be asked.

    Weights are not part of it: those of a run that is taken up come from its checkpoint, so that the model may be made
    anew, with other random weights. Nor are what a model or a callable object does not print.
    """
    given = to_json(dict(identity or {}))
    try:
        json.dumps(given, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"`identity` must hold plain JSON values, such as numbers and strings: {error}.") from error
    about = {
        "config": to_json(config),
        "identity": given,
        "augment": None if augment is None else getattr(augment, "__qualname__", type(augment).__qualname__),
        "augmentation": None if augment is None else describe_callable(augment),
        "device": task.device.type,
        "model": printed(task.model),
    }
    return {**about, "train": describe_data(task.train), "test": describe_data(task.test)} if with_data else about


def check_same_run(about: Mapping[str, Any], saved: Mapping[str, Any], where: object) -> None:
    """Refuse to go on with a run that is another one; models are compared apart (`check_same_model`).

    What a checkpoint of an earlier version did not hold is not compared.

    Raises: CheckpointError that says what differs.
    """
    about = {key: value for key, value in about.items() if key in saved and key != "model"}
    if "model" not in saved:  # of that time, when some callers did not say whose run it is
        about["identity"] = {key: value for key, value in about["identity"].items() if key in saved["identity"]}
    found = differences({key: value for key, value in saved.items() if key != "model"}, about)
    if found:
        raise _another_run(where, "; ".join(found))


def check_same_model(about: Mapping[str, Any], saved: Mapping[str, Any], where: object) -> None:
    """Refuse to go on with a model that prints as another one, such as one with another order of gates.

    Raises: CheckpointError that shows the first line that differs.
    """
    if "model" not in saved or about["model"] == saved["model"]:
        return
    there, here = saved["model"].splitlines(), about["model"].splitlines()
    line = next((i for i, (a, b) in enumerate(zip(there, here, strict=False)) if a != b), min(len(there), len(here)))
    one, other = (repr(lines[line].strip()) if line < len(lines) else "no more" for lines in (there, here))
    raise _another_run(where, f"line {line + 1} of the model as it is printed is {one} there and {other} here")


def _another_run(where: object, what: str) -> CheckpointError:
    return CheckpointError(
        f"{where} holds the checkpoints of another run, which cannot go on with these settings: {what}. Give each run "
        "a folder of its own, or use the settings of the first."
    )


def printed(value: object) -> str:
    """How a value prints, without addresses in memory, which are others in every process.

    >>> printed([printed]) == "[<function printed>]"
    True
    """
    return _ADDRESS.sub("", repr(value))


def describe_callable(function: Callable[..., Any]) -> str:
    """A function by its name and the numbers and words that it was made with; any other callable as it prints.

    >>> describe_callable(partial(divmod, 7))
    'partial(<built-in function divmod>, 7)'
    """
    if isinstance(function, partial):
        settings = [printed(value) for value in function.args]
        settings += [f"{name}={printed(value)}" for name, value in function.keywords.items()]
        return f"partial({', '.join([describe_callable(function.func), *settings])})"
    if ismethod(function):
        return f"{function.__func__.__qualname__} of {_described(function.__self__)}"
    if not isfunction(function):
        return _described(function)
    around = getclosurevars(function).nonlocals
    defaults = {name: p.default for name, p in signature(function).parameters.items() if p.default is not p.empty}
    made_with = {**around, **defaults}
    shown = [f"{name}={value!r}" for name, value in made_with.items() if isinstance(value, _PLAIN)]
    return f"{function.__qualname__}({', '.join(shown)})" if shown else function.__qualname__


def _described(value: object) -> str:
    """A value as it prints, or by its class where it says nothing of itself."""
    return type(value).__qualname__ if type(value).__repr__ is object.__repr__ else printed(value)


def text_digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def weights_digest(module: nn.Module) -> str:
    """SHA-256 of all tensors of a module's state, with their names, shapes and dtypes."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        if isinstance(tensor, Tensor):
            flat = tensor.detach().cpu().reshape(-1).view(torch.uint8)
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {fingerprint(flat)}\n".encode())
    return digest.hexdigest()
