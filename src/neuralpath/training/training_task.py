"""Checks of a model with its data, and the sources of batches for the training loop."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath._checks import check_batch, check_finite, describe
from neuralpath._resources import memory_budget
from neuralpath.data import Split
from neuralpath.graph import Gates
from neuralpath.training.batches import (
    Augment,
    Batch,
    Loader,
    LoaderBatches,
    TensorBatches,
    TensorExamples,
    check_labels,
    check_pair,
)
from neuralpath.training.config import Precision, TrainingConfig
from neuralpath.training.context import restored_modes
from neuralpath.training.fixed_gates import PackedGates, gates_depend_on_batch, pack_gates, warn_recomputed
from neuralpath.training.metrics import Forward
from neuralpath.training.objectives import Objective, objective_for

Data = Split | Loader


@runtime_checkable
class Gated(Protocol):
    """A model whose gates can be computed apart from its output, such as ``GatedNetwork``."""

    @property
    def gates_fixed(self) -> bool:
        """Whether training leaves the gates of every example unchanged."""

    def gates(self, x: Float[Tensor, "batch ..."]) -> Gates:
        """The gates of a batch."""

    def value_output(self, x: Float[Tensor, "batch ..."], gates: Gates) -> Float[Tensor, "batch n_outputs"]:
        """The output with given gates; hard gates may be 0 and 1 in the dtype of the model."""


@dataclass(frozen=True, eq=False)
class TrainingTask:
    """A model with its data, checked to fit together."""

    model: nn.Module
    data: Mapping[str, Data]
    """The training data as "train", and the test data as "test" if there are any."""
    objective: Objective
    probe: Float[Tensor, "_example n_outputs"]
    """An output of the model, for its number of outputs and its dtype."""
    targets: Mapping[str, Shaped[Tensor, "_examples ..."]]
    """Targets of the data in memory, with the same keys as ``data``."""
    device: torch.device
    forward: Forward
    """The forward pass of training, in the precision of the config."""
    measured_forward: Forward
    """The same in full precision: rounded outputs may be equal, and argmax would take the first of them."""


def check_task(model: nn.Module, train: Data, test: Data | None, config: TrainingConfig) -> TrainingTask:
    """Check the data against the model with one example; splits are moved to the model's device.

    Raises: ValueError or TypeError that names the argument and the problem.
    """
    parameters = list(model.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise ValueError("`model` has no parameter that requires a gradient: there is nothing to train.")
    device, dtype = parameters[0].device, parameters[0].dtype
    parts = {"train": train} if test is None else {"train": train, "test": test}
    data = {part: _check_data(f"{part}_data", value, device, dtype) for part, value in parts.items()}
    first = {part: _first_pair(value) for part, value in data.items()}
    images, labels = first["train"]
    objective = objective_for(config, labels)
    probe = _run_example(model, images[:1].to(device), "train_data")
    if not isinstance(probe, Tensor) or probe.ndim != 2 or len(probe) != 1:
        raise ValueError(
            f"`model` must return a tensor of shape (batch, outputs), got {describe(probe)} for one example."
        )
    if "test" in first:
        test_images, test_labels = first["test"]
        if test_labels.dtype != labels.dtype:
            raise TypeError(
                f"the labels of `train_data` are {describe(labels)}, but those of `test_data` {describe(test_labels)}."
            )
        if test_images.dtype != images.dtype or test_images.shape[1:] != images.shape[1:]:
            _run_example(model, test_images[:1].to(device), "test_data")
    targets = {
        part: objective.targets(value.labels, probe, f"{part}_data.labels")
        for part, value in data.items()
        if isinstance(value, Split)
    }
    forward = forward_pass(model, config.precision)
    return TrainingTask(model, data, objective, probe, targets, device, forward, forward_pass(model))


def _check_data(name: str, data: Data, device: torch.device, dtype: torch.dtype) -> Data:
    if isinstance(data, Split):
        if len(data) == 0:
            raise ValueError(f"`{name}` has no examples.")
        check_batch(f"{name}.images", data.images, tuple(data.images.shape[1:]), dtype=dtype)
        check_labels(f"{name}.labels", data.images, data.labels)
        if data.labels.is_floating_point():
            check_finite(f"{name}.labels", data.labels)
        return Split(data.images.to(device), data.labels.to(device))
    if isinstance(data, Tensor) or not isinstance(data, Loader):
        raise TypeError(
            f"`{name}` must be a neuralpath.data.Split, or a loader of pairs with a length, got {describe(data)}."
        )
    if len(data) == 0:
        raise ValueError(f"`{name}` has no batches.")
    return data


def _first_pair(data: Data) -> tuple[Tensor, Tensor]:
    """Images and labels: all of a split, the first batch of a loader."""
    if isinstance(data, Split):
        return data.images, data.labels
    with torch.random.fork_rng(devices=[]):
        return check_pair(next(iter(data)))


def _run_example(model: nn.Module, example: Shaped[Tensor, "_example ..."], name: str) -> Any:
    """The output of the model for one example of the data with this name."""
    try:
        with restored_modes(model), torch.no_grad():
            return model.eval()(example)
    except Exception as error:  # a user's model may raise anything
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ValueError(
            f"`model` could not run on one example of `{name}`, {describe(example)}: {reason.removesuffix('.')}. "
            "Check that the input size and the number of channels fit."
        ) from error


@dataclass(frozen=True, eq=False)
class Sources:
    """The sources of batches for the training loop."""

    batches: TensorBatches | LoaderBatches
    examples: Mapping[str, TensorExamples | LoaderBatches]
    """For measurements, with the same keys as the task's ``data``."""
    has_packed_gates: dict[str, bool]
    """Whether the fixed gates of each part are stored, with the same keys."""


def make_sources(
    task: TrainingTask,
    config: TrainingConfig,
    augment: Augment | None,
    has_packed_gates: Mapping[str, bool] | None = None,
) -> Sources:
    """Sources of batches, with fixed gates computed and stored where they fit into the memory budget.

    Args:
        task: The model and its data.
        config: Settings of the run.
        augment: Random changes of the training batches; the gates of changed images are not stored.
        has_packed_gates: Of a resumed run: the parts whose gates were stored at first, which are stored again however
            much memory is free now. Gates that are computed in other batches may be rounded differently.
    """
    gated = fixed_gates_of(task.model)
    if gated is not None and has_packed_gates is None and _gates_depend_on_batch(task, gated):
        gated = None
    budget = memory_budget(config.gate_memory)
    packed: dict[str, PackedGates | None] = dict.fromkeys(task.data)
    for part, data in task.data.items():
        if gated is None or not isinstance(data, Split) or (part == "train" and augment is not None):
            continue
        if has_packed_gates is not None and not has_packed_gates[part]:
            continue
        # Hard gates are multiplied fastest in the dtype of the other factor.
        dtype = torch.bfloat16 if part == "train" and config.precision == "bfloat16" else data.images.dtype
        limit = budget if has_packed_gates is None else None
        gates = pack_gates(gated.gates, data.images, block=config.evaluation_batch_size, budget=limit, dtype=dtype)
        packed[part] = gates
        if gates is None:
            warn_recomputed(part, budget)
        else:
            budget -= gates.n_bytes
    return Sources(
        _training_batches(task, config, augment, packed["train"]),
        {part: _examples(task, part, config, packed[part]) for part in task.data},
        {part: gates is not None for part, gates in packed.items()},
    )


def _gates_depend_on_batch(task: TrainingTask, gated: Gated) -> bool:
    train = task.data["train"]
    if not isinstance(train, Split) or not gates_depend_on_batch(gated.gates, train.images):
        return False
    warnings.warn(
        "the gates of an example depend on the other examples of its batch, so they are not stored, and the feature "
        "network runs for every batch; gates, and normalizations before them, should use one example only.",
        stacklevel=3,
    )
    return True


def _training_batches(
    task: TrainingTask, config: TrainingConfig, augment: Augment | None, gates: PackedGates | None
) -> TensorBatches | LoaderBatches:
    data = task.data["train"]
    if isinstance(data, Split):
        return TensorBatches(data.images, task.targets["train"], config, gates=gates, augment=augment)
    return LoaderBatches(
        data, "order", task.objective, task.probe, seed=config.seed, device=task.device, augment=augment
    )


def _examples(
    task: TrainingTask, part: str, config: TrainingConfig, gates: PackedGates | None
) -> TensorExamples | LoaderBatches:
    data = task.data[part]
    if isinstance(data, Split):
        return TensorExamples(data.images, task.targets[part], config.evaluation_batch_size, gates)
    return LoaderBatches(data, part, task.objective, task.probe, seed=config.seed, device=task.device)


def fixed_gates_of(model: nn.Module) -> Gated | None:
    """The model, if training leaves the gates of every example unchanged; else None."""
    with restored_modes(model):
        model.train()
        return model if isinstance(model, Gated) and model.gates_fixed else None


def forward_pass(model: nn.Module, precision: Precision = "full") -> Forward:
    """The forward pass of a batch; the feature network does not run if the batch has gates.

    Raises: TypeError for bfloat16 if the weights are not float32.
    """
    if precision == "full":
        return partial(_forward, model)
    first = next(model.parameters())
    if first.dtype != torch.float32:
        raise TypeError(f"`precision` bfloat16 needs a model of float32, the weights of this one are {first.dtype}.")
    return partial(_mixed_forward, model, fixed_gates_of(model), first.device.type)


def _forward(model: nn.Module, batch: Batch) -> Float[Tensor, "batch n_outputs"]:
    # Only `Gated` models have batches with gates; an `isinstance` check of the protocol would cost more than a layer.
    return model(batch.images) if batch.gates is None else cast(Gated, model).value_output(batch.images, batch.gates)


def _mixed_forward(
    model: nn.Module, fixed: Gated | None, device: str, batch: Batch
) -> Float[Tensor, "batch n_outputs"]:
    if fixed is not None and batch.gates is None:
        batch = batch._replace(gates=fixed.gates(batch.images))  # in full precision, so that rounding flips no gate
    # The context is left after every batch, because it caches rounded copies of the weights.
    with torch.autocast(device, torch.bfloat16):
        outputs = _forward(model, batch)
    return outputs.float()
