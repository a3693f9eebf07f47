"""A run's whole state as a checkpoint, and back."""

import hashlib
import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from neuralpath.gating import drawn_late
from neuralpath.training.checkpoints import Checkpoint, CheckpointError, CheckpointWarning
from neuralpath.training.metrics import EpochMetrics, Measurement, Sums
from neuralpath.training.objectives import Objective
from neuralpath.training.optimizers import load_optimizer_state, optimizer_state

_MODEL, _BUFFER, _OPTIMIZER, _GENERATOR = "model.", "buffer.", "optimizer.", "generator."


@dataclass
class RunState:
    """Everything of a run that changes. ``epoch`` and ``batch`` count what is finished."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    sums: Sums
    epoch: int = 0
    batch: int = 0
    step: int = 0
    history: list[EpochMetrics] = field(default_factory=list)
    seconds: float = 0.0
    stopped_early: bool = False
    is_finished: bool = False
    gates_kept: dict[str, bool] | None = None
    """Which parts of the data had their fixed gates kept; None before that is known."""
    generators: dict[str, Tensor] = field(default_factory=dict)
    """States to go on with in the middle of an epoch, after a run has been taken up."""


def generator_states(device: torch.device) -> dict[str, Shaped[Tensor, " _byte"]]:
    """States of torch's global generators that a step may draw from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_generator_states(states: Mapping[str, Shaped[Tensor, " _byte"]], device: torch.device) -> None:
    """The inverse of ``generator_states``."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def take_snapshot(state: RunState, device: torch.device, about: Mapping[str, Any]) -> Checkpoint:
    """The state with what identifies the run; ``about`` is compared when the run is taken up again."""
    of_optimizer, values_of_optimizer = optimizer_state(state.optimizer)
    tensors = {
        **_prefixed(_MODEL, state.model.state_dict()),
        **_prefixed(_BUFFER, _unsaved_buffers(state.model)),
        **_prefixed(_OPTIMIZER, of_optimizer),
        **_prefixed(_GENERATOR, generator_states(device)),
    }
    values = {
        "about": dict(about),
        "epoch": state.epoch,
        "batch": state.batch,
        "step": state.step,
        "sums": state.sums.as_json(),
        "history": [asdict(metrics) for metrics in state.history],
        "seconds": state.seconds,
        "stopped_early": state.stopped_early,
        "is_finished": state.is_finished,
        "gates_kept": state.gates_kept,
        "optimizer": values_of_optimizer,
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }
    # Tied weights appear under several names and safetensors refuses shared memory: every entry gets its own.
    return Checkpoint({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}, values)


def restore(state: RunState, checkpoint: Checkpoint, objective: Objective, device: torch.device) -> None:
    """Put a run back to where a checkpoint was taken.

    Raises: CheckpointError if the weights do not fit the model; the message names them.
    """
    saved = checkpoint.tensors
    load_weights(state.model, weights_of(checkpoint))
    with torch.no_grad():
        for name, buffer in _unsaved_buffers(state.model).items():
            buffer.copy_(saved[_BUFFER + name])
    values = checkpoint.values
    on_device = {name: tensor.to(device) for name, tensor in _under(_OPTIMIZER, saved).items()}
    load_optimizer_state(state.optimizer, on_device, values["optimizer"])
    state.generators = _under(_GENERATOR, saved)
    state.sums = Sums(objective, **values["sums"])
    state.epoch, state.batch, state.step = values["epoch"], values["batch"], values["step"]
    state.history = [_metrics(entry) for entry in values["history"]]
    state.seconds = values["seconds"]
    state.stopped_early, state.is_finished = values["stopped_early"], values["is_finished"]
    state.gates_kept = values["gates_kept"]


def weights_of(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The model's weights in a checkpoint."""
    return _under(_MODEL, checkpoint.tensors)


def check_versions(saved: Mapping[str, Any], where: object) -> None:
    """Say so if the run goes on with other versions or another number of threads than it was saved with."""
    now = {**versions(), "threads": torch.get_num_threads()}
    found = differences({**saved["versions"], "threads": saved["threads"]}, now)
    if found:
        warnings.warn(
            f"the run in {where} goes on in other circumstances, so its result may differ in rounding: "
            f"{'; '.join(found)}.",
            CheckpointWarning,
            stacklevel=2,
        )


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load weights into a model.

    A fixed random image that a value network sees may be there or not, as the first batch brings it.

    Raises: CheckpointError that names the keys that do not fit.

    >>> first, second = nn.Linear(3, 2), nn.Linear(3, 2)
    >>> load_weights(second, first.state_dict())
    >>> bool((first.weight == second.weight).all())
    True
    """
    check_weights(model, weights)
    model.load_state_dict(dict(weights))


def check_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that do not fit a model.

    Raises: CheckpointError that names the keys that do not fit.
    """
    own, optional = model.state_dict(), drawn_late(model)
    problems = (
        ("missing", [name for name in own if name not in weights and name not in optional]),
        ("unknown to the model", [name for name in weights if name not in own and name not in optional]),
        (
            "of another kind",
            [
                f"{name} ({_kind(weights[name])}, the model has {_kind(own[name])})"
                for name in own
                if name in weights and _kind(weights[name]) != _kind(own[name])
            ],
        ),
    )
    found = "; ".join(f"{what}: {_some(names)}" for what, names in problems if names)
    if found:
        raise CheckpointError(f"the weights do not fit the model; {found}.")


def versions() -> dict[str, str]:
    """What the rounding of a run depends on, besides the machine."""
    return {
        "neuralpath": version("neuralpath"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.machine(),
    }


def fingerprint(*tensors: Shaped[Tensor, "example ..."]) -> str:
    """SHA-256 of the bytes of some tensors; about a second for a gigabyte."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)  # as bytes: numpy has no bfloat16
    return digest.hexdigest()


def _unsaved_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Buffers that a state dict leaves out, which a step may change all the same."""
    saved = model.state_dict()
    return {name: buffer for name, buffer in model.named_buffers() if name not in saved}


def _prefixed(prefix: str, tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise TypeError(
                f"the model's state has {name!r}, a {type(value).__name__}: only tensors can be saved in a checkpoint. "
                "Train without `folder`, or keep that state in a buffer."
            )
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _metrics(entry: Mapping[str, Any]) -> EpochMetrics:
    test = None if entry["test"] is None else Measurement(**entry["test"])
    return EpochMetrics(entry["epoch"], Measurement(**entry["train"]), test, entry["seconds"])


def _some(names: Sequence[str], shown: int = 4) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"{', '.join(names[:shown])}{more}"


def _kind(tensor: Shaped[Tensor, "..."]) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def differences(there: Any, here: Any, path: str = "") -> list[str]:
    """What two records of plain values differ in, in words."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        found = []
        for key in dict.fromkeys((*there, *here)):
            found += differences(there.get(key), here.get(key), f"{path}.{key}" if path else key)
        return found
    return [] if there == here else [f"{path} is {there!r} there and {here!r} here"]
