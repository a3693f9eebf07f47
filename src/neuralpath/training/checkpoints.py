"""Checkpoints of a training run, one at the end of an epoch, and resuming from them.

A checkpoint is two files: ``checkpoint-000007.safetensors`` has the tensors of the model and the optimizer after 7
epochs, and ``checkpoint-000007.json`` has everything else and the checksums of both. Each file appears whole or not at
all. The JSON is written last, so a checkpoint exists once its JSON does. The checkpoint before is removed only then:
a process that is killed at any instant loses at most the epoch that it was in.
"""

import json
import platform
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Shaped
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from neuralpath._configs import to_json
from neuralpath._files import AlreadyLocked, exclusive_lock, write_atomically
from neuralpath._hashing import json_digest, repr_without_addresses, sha256, tensors_digest
from neuralpath.data import Split
from neuralpath.gating import drawn_late
from neuralpath.training.config import TrainingConfig
from neuralpath.training.metrics import EpochMetrics, Measurement
from neuralpath.training.training_task import TrainingTask

FORMAT = 2
_NAME = re.compile(r"checkpoint-(\d+)\.json")


class CheckpointError(ValueError):
    """A folder of checkpoints cannot be used; the message says why and what to do."""


class CheckpointWarning(UserWarning):
    """A checkpoint was written with other versions, or a stored result is damaged; the run continues."""


@dataclass
class TrainingState:
    """Everything that changes during a run."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    epoch: int = 0  # number of finished epochs
    step: int = 0  # number of finished steps
    history: list[EpochMetrics] = field(default_factory=list)
    stopped_early: bool = False
    # Whether the fixed gates of each part of the data are stored; None before that is known.
    has_packed_gates: dict[str, bool] | None = None
    threads: int | None = None  # of torch at the last checkpoint; None before

    def is_finished(self, config: TrainingConfig) -> bool:
        """Whether the run has done all epochs, or stopped early."""
        return self.epoch == config.epochs or self.stopped_early


class CheckpointFolder:
    """The checkpoints of one run in a folder; without a folder nothing is stored."""

    def __init__(self, folder: Path | None, description: Mapping[str, Any]) -> None:
        self._folder = folder
        self._description = dict(description)
        self._epoch: int | None = None  # of the newest checkpoint

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the folder, which is created if it does not exist."""
        if self._folder is None:
            yield
            return
        with ExitStack() as stack:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(exclusive_lock(self._folder))
            except AlreadyLocked:
                problem = f"another process is training in {self._folder}; give each run its own folder."
                raise CheckpointError(problem) from None
            except OSError as error:
                raise CheckpointError(f"the folder {self._folder} cannot be used: {error.strerror}.") from error
            yield

    def restore(self, state: TrainingState) -> None:
        """Load the newest checkpoint into a state; without a checkpoint the state stays as it is."""
        files = [] if self._folder is None else self._folder.iterdir()
        epochs = {int(match[1]): path for path in files if (match := _NAME.fullmatch(path.name))}
        if not epochs:
            return
        tensors, values = self._read(epochs[max(epochs)])
        self._check_same_run(values)
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "buffer": {}, "optimizer": {}}
        for name, tensor in tensors.items():
            part, _, key = name.partition(".")
            parts[part][key] = tensor
        load_weights(state.model, parts["model"])
        with torch.no_grad():
            for name, buffer in _unsaved_buffers(state.model).items():
                buffer.copy_(parts["buffer"][name])
        device = next(state.model.parameters()).device
        entries: dict[int, dict[str, Any]] = {}
        for key, value in {**parts["optimizer"], **values["optimizer"]}.items():
            number, _, name = key.partition("/")
            entries.setdefault(int(number), {})[name] = value.to(device) if isinstance(value, Tensor) else value
        state.optimizer.load_state_dict({**state.optimizer.state_dict(), "state": entries})
        for name in ("epoch", "step", "stopped_early", "has_packed_gates", "threads"):
            setattr(state, name, values[name])
        for entry in values["history"]:
            measured = {part: entry[part] and Measurement(**entry[part]) for part in ("train", "test")}
            state.history.append(EpochMetrics(**entry | measured))
        self._epoch = state.epoch

    def save(self, state: TrainingState) -> None:
        """Write a checkpoint of the state, then remove the one before."""
        if self._folder is None:
            return
        # The settings of the optimizer are not part of its state: the config has them, and the schedule sets the rate
        # at every step. Its tensors and plain values have the keys ``parameter number/name``.
        optimizer = {
            f"{number}/{name}": value
            for number, entries in state.optimizer.state_dict()["state"].items()
            for name, value in entries.items()
        }
        plain = {key: value for key, value in optimizer.items() if not isinstance(value, Tensor)}
        parts = {"model": state.model.state_dict(), "buffer": _unsaved_buffers(state.model), "optimizer": optimizer}
        tensors = {}
        for part, entries in parts.items():
            for name, value in entries.items():
                if isinstance(value, Tensor):
                    # Tied weights have several names, and safetensors refuses shared memory: every entry is a copy.
                    tensors[f"{part}.{name}"] = value.detach().cpu().clone().contiguous()
                elif part != "optimizer":
                    problem = f"the model's state has {name!r}, a {type(value).__name__}"
                    raise TypeError(f"{problem}; a checkpoint stores only tensors: train without `folder`.")
        data = save(tensors)
        values = {
            "description": self._description,
            "epoch": state.epoch,
            "step": state.step,
            "history": [asdict(metrics) for metrics in state.history],
            "stopped_early": state.stopped_early,
            "has_packed_gates": state.has_packed_gates,
            "optimizer": plain,
            "threads": torch.get_num_threads(),
            "versions": versions(),
        }
        body = {"format": FORMAT, "tensors": {"bytes": len(data), "sha256": sha256(data)}, "values": values}
        record = json.dumps({"sha256": json_digest(body), **body}, indent=1, allow_nan=False).encode()
        path = self._folder / f"checkpoint-{state.epoch:06d}.json"
        try:
            write_atomically(path.with_suffix(".safetensors"), data)
            write_atomically(path, record)
            # Sorted, so that a JSON is removed before its tensors.
            for other in sorted(self._folder.glob("checkpoint-*")):
                if other not in (path, path.with_suffix(".safetensors")):
                    other.unlink(missing_ok=True)
        except OSError as error:
            problem = f"fails: {error.strerror}" if self._folder.is_dir() else "was removed during the run"
            raise CheckpointError(f"no checkpoint can be written to {self._folder}, which {problem}.") from error
        self._epoch = state.epoch

    def __str__(self) -> str:
        if self._folder is None:
            return "no checkpoint was written, because no `folder` was given"
        if self._epoch is None:
            return f"no checkpoint had been written to {self._folder} yet"
        return f"the last checkpoint in {self._folder} is of epoch {self._epoch}"

    def _read(self, json_path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors and the other values of a checkpoint, verified."""
        tensor_path = json_path.with_suffix(".safetensors")
        try:
            record = json.loads(json_path.read_bytes())
            digest, is_older = record.pop("sha256"), record["format"] < FORMAT
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise self._damaged(json_path, "it cannot be read") from error
        if json_digest(record) != digest:
            raise self._damaged(json_path, "its checksum is wrong")
        if record["format"] != FORMAT:
            written = f"format {record['format']} of {'an earlier' if is_older else 'a later'} version"
            raise CheckpointError(f"{json_path} has {written}, this one reads format {FORMAT}; start in a new folder.")
        try:
            data = tensor_path.read_bytes()
            if (len(data), sha256(data)) != (record["tensors"]["bytes"], record["tensors"]["sha256"]):
                raise self._damaged(tensor_path, f"{len(data)} bytes with a wrong checksum")
            # Copies, in memory that torch aligns: vector code may round differently on other alignments.
            return {name: tensor.clone() for name, tensor in load(data).items()}, record["values"]
        except (OSError, SafetensorError) as error:
            raise self._damaged(tensor_path, str(error)) from error

    def _damaged(self, path: Path, problem: str) -> CheckpointError:
        return CheckpointError(f"{path} is damaged ({problem}); remove {self._folder} to start the run again.")

    def _check_same_run(self, values: Mapping[str, Any]) -> None:
        """Refuse to resume another run, and warn of other versions."""
        stored, current = dict(values["description"]), dict(self._description)
        changed = differences(values["versions"], versions())
        if changed:  # other versions may print the same model in another way
            stored.pop("model"), current.pop("model")
        if different := "; ".join(differences(stored, current)):
            raise CheckpointError(
                f"{self._folder} has the checkpoints of another run: {different}. Give each run its own folder, or use "
                "the settings of the first run."
            )
        if changed:
            problem = f"the run in {self._folder} is resumed with other versions, so its result may differ by rounding"
            warnings.warn(f"{problem}: {'; '.join(changed)}.", CheckpointWarning, stacklevel=2)


def describe_run(task: TrainingTask, identity: Mapping[str, Any] | None) -> dict[str, Any]:
    """A description of a run as JSON values, which must be equal when the run is resumed.

    Weights are not part of it: those of a resumed run come from the checkpoint. Of a loader only its length is known.
    """
    data: dict[str, Any] = dict.fromkeys(("train", "test"))
    for part, value in task.data.items():
        data[part] = {"batches": len(value)}
        if isinstance(value, Split):
            data[part] = {"sha256": tensors_digest(value.images, value.labels)}
    augment = task.augment
    return {
        "config": to_json(task.config),
        "identity": to_json(dict(identity or {})),
        "augment": None if augment is None else getattr(augment, "__qualname__", type(augment).__qualname__),
        "device": task.device.type,
        "model": repr_without_addresses(task.model).splitlines(),
        **data,
    }


def differences(stored: Any, current: Any, path: str = "") -> list[str]:
    """The differences between two JSON values, in words; of two lists the first one only."""
    if isinstance(stored, Mapping) and isinstance(current, Mapping):
        parts = []
        for key in dict.fromkeys((*stored, *current)):
            parts += differences(stored.get(key), current.get(key), f"{path}.{key}" if path else key)
        return parts
    if isinstance(stored, list) and isinstance(current, list) and stored != current:
        index = next(i for i in range(len(stored) + 1) if stored[i : i + 1] != current[i : i + 1])
        left, right = (entries[index] if index < len(entries) else None for entries in (stored, current))
        return differences(left, right, f"{path}[{index}]")
    return [] if stored == current else [f"{path} is {stored!r} in the folder and {current!r} here"]


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load weights into a model.

    Args:
        model: The model, which is changed. A fixed random image that its value network sees may be missing in either,
            because the first batch draws it.
        weights: Tensors by the names of the model's ``state_dict``.

    Raises:
        CheckpointError: If names, shapes or dtypes differ; the message lists them.

    >>> first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    >>> load_weights(second, first.state_dict())
    >>> bool((first.weight == second.weight).all())
    True
    """
    own, optional = model.state_dict(), drawn_late(model)
    missing = [name for name in own if name not in weights and name not in optional]
    unknown = [name for name in weights if name not in own and name not in optional]
    kinds = [(name, _kind(weights[name]), _kind(own[name])) for name in own if name in weights]
    different = [f"{name} ({stored}, the model has {kind})" for name, stored, kind in kinds if stored != kind]
    problems = {"missing": missing, "unknown to the model": unknown, "different": different}
    shortened = {problem: names[:4] + ["more"] * (len(names) > 4) for problem, names in problems.items() if names}
    if listed := "; ".join(f"{problem}: {', '.join(names)}" for problem, names in shortened.items()):
        raise CheckpointError(f"the weights do not fit the model; {listed}.")
    model.load_state_dict(dict(weights))


def _kind(tensor: Shaped[Tensor, "..."]) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def versions() -> dict[str, str]:
    """The versions that the rounding of a run depends on, besides the machine."""
    own, python, machine = version("neuralpath"), platform.python_version(), platform.machine()
    return {"neuralpath": own, "torch": torch.__version__, "python": python, "platform": machine}


def _unsaved_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Buffers that are not part of the state dict, although a step may change them."""
    saved = model.state_dict()
    return {name: buffer for name, buffer in model.named_buffers() if name not in saved}
