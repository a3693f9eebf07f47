"""Machines in files: safetensors for arrays, JSON for the rest, and no code in either."""

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from sklearn.utils.validation import check_is_fitted

from neuralpath._checks import describe
from neuralpath._files import write_atomically
from neuralpath.estimators.cholesky import Factor
from neuralpath.estimators.moments import Moments
from neuralpath.estimators.solving import SolveReport
from neuralpath.estimators.weights import Weights

FORMAT = 1
"""Number of the layout below; a file of another one is refused."""

RECORDS = {record.__name__: record for record in (Factor, Moments, SolveReport)}

FROM_MODEL = ("choice_", "graph_", "weights_")
"""Fitted attributes that hold the model and are made again from the one that is given, or are kept apart."""

_KEY = "neuralpath.machine"
_GIVEN = "given"  # stands for a model or a function, which are not in the file

Machine = TypeVar("Machine", bound="SavedMachine")


class SavedMachine:
    """Saving to and loading from one file, without pickle."""

    weights_: Weights  # of the model, when the machine was fitted

    def save(self, path: str | Path, *, with_factor: bool = False) -> None:
        """Write a fitted machine to a file: training rows, coefficients, parameters and report.

        A model and a kernel function are not in it: they are given again to ``load``. ``with_factor`` adds the Cholesky
        factor, 8 n^2 bytes, which ``return_std``, ``leave_one_out`` and ``ridge_path`` need.
        Raises: ValueError for labels or parameters that are neither numbers nor words; OSError.
        """
        check_is_fitted(self)
        arrays: dict[str, np.ndarray] = {}
        fitted = {name: value for name, value in vars(self).items() if name.endswith("_") and name not in FROM_MODEL}
        if "factor_" in fitted and not with_factor:
            fitted["factor_"] = None
        given = self.get_params(deep=False)  # type: ignore[attr-defined]
        values = {
            "format": FORMAT,
            "machine": type(self).__name__,
            "params": {name: _param(name, value) for name, value in given.items()},
            "weights": self.weights_,
            "fitted": {name: _encode(name, value, arrays) for name, value in fitted.items()},
        }
        write_atomically(Path(path), save(arrays, {_KEY: json.dumps(values)}))

    @classmethod
    def load(cls: type[Machine], path: str | Path, *, model: Any = None, kernel: Any = None) -> Machine:
        """Read a machine that ``save`` has written; nothing in the file is run.

        ``model`` and ``kernel`` are the model and the kernel function of the saved machine, if it had them.
        Raises: ValueError if the file is damaged, of another kind of machine or of another format, if a model or
        function is missing, if the kernel depends on weights and the model has others, or if the model or function
        gives other values for training rows than at the fit; FileNotFoundError.
        """
        values, arrays = _read(Path(path))
        if values["machine"] != cls.__name__:
            raise ValueError(f"{path} holds a {values['machine']}: load it with `{values['machine']}.load`.")
        params = dict(values["params"])
        for name, now in (("model", model), ("kernel", kernel)):
            if (params.get(name) == _GIVEN) != (now is not None):
                raise ValueError(
                    f"the machine in {path} was fitted with a `{name}` that is not in the file: give it again, "
                    f"`{cls.__name__}.load(path, {name}=...)`."
                    if now is None
                    else f"the machine in {path} was fitted without a `{name}` of its own: leave it out."
                )
            if now is not None:
                params[name] = now
        if isinstance(params.get("input_shape"), list):
            params["input_shape"] = tuple(params["input_shape"])
        machine = cls(**params)
        for name, value in values["fitted"].items():
            setattr(machine, name, _decode(value, arrays))
        machine.weights_ = values["weights"]
        machine._use_model()
        return machine

    @abstractmethod
    def _use_model(self) -> None:
        """Make again the fitted attributes that hold the model, which must have the weights of the fit."""


def _read(path: Path) -> tuple[dict[str, Any], Mapping[str, np.ndarray]]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; `machine.save(path)` writes one.")
    try:
        with safe_open(path, framework="numpy") as file:
            values = json.loads((file.metadata() or {})[_KEY])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a mapping)
        form = values["format"]
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged, or no machine of neuralpath: {error}.") from error
    if form != FORMAT:
        raise ValueError(f"{path} has format {form}, this version reads format {FORMAT}: fit and save it again.")
    return values, arrays


def _param(name: str, value: Any) -> Any:
    """A parameter as JSON."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_param(name, part) for part in value]
    if name in ("model", "kernel"):
        return _GIVEN
    raise ValueError(f"`{name}` must be a number or a word to be saved, got {describe(value)}.")


def _encode(name: str, value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A fitted attribute as JSON, its numbers put into ``arrays``."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        arrays[name] = np.ascontiguousarray(value)
        return {"array": name}
    if isinstance(value, np.ndarray):
        words = value.tolist()
        if value.ndim != 1 or not all(isinstance(word, str) for word in words):
            raise ValueError(f"`{name}` must be numbers or words to be saved, got {describe(value)} of {value.dtype}.")
        return {"words": words, "dtype": value.dtype.str}
    if type(value).__name__ in RECORDS:
        parts = {f.name: _encode(f"{name}.{f.name}", getattr(value, f.name), arrays) for f in fields(value)}
        return {"record": type(value).__name__, "parts": parts}
    return {"value": _param(name, value)}


def _decode(value: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    if "array" in value:
        return arrays[value["array"]]
    if "words" in value:
        return np.array(value["words"], dtype=value["dtype"])
    if "record" in value:
        return RECORDS[value["record"]](**{name: _decode(part, arrays) for name, part in value["parts"].items()})
    return value["value"]
