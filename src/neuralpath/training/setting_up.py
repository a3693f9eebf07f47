"""From a model, data and a config to what the loop needs: checked data, targets, gates that are kept."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath._checks import describe
from neuralpath._memory import memory_budget
from neuralpath.data import Split
from neuralpath.training.batches import (
    Augment,
    Batches,
    Loader,
    LoaderBatches,
    TensorBatches,
    check_split,
    pair_of,
)
from neuralpath.training.config import TrainingConfig
from neuralpath.training.evaluation import Examples, LoaderExamples, TensorExamples
from neuralpath.training.fixed_gates import KeptGates, depend_on_the_batch, keep_gates, warn_recomputed
from neuralpath.training.objectives import Objective, objective_for
from neuralpath.training.passes import Forward, Gated, forward_of, gate_dtype, with_fixed_gates
from neuralpath.training.snapshot import fingerprint
from neuralpath.training.surroundings import modes_kept

Data = Split | Loader


@dataclass(frozen=True, eq=False)
class Task:
    """A model with its data, checked to fit together."""

    model: nn.Module
    train: Data
    test: Data | None
    objective: Objective
    probe: Float[Tensor, "_example n_outputs"]
    """An output of the model, for its number of outputs and its dtype."""
    targets: Mapping[str, Shaped[Tensor, "_examples ..."]]
    """Targets of the parts, "train" and "test", that are in memory."""
    device: torch.device
    forward: Forward
    """From a batch to outputs, as training takes them, in the precision of the config."""
    measured_forward: Forward
    """The same in full precision: rounded outputs tie, and the first of equal ones would be taken for the answer."""


@dataclass(frozen=True, eq=False)
class Sources:
    """Where the loop takes its batches from."""

    batches: Batches
    train_examples: Examples
    test_examples: Examples | None


def check_task(model: nn.Module, train: Data, test: Data | None, config: TrainingConfig) -> Task:
    """Check the data against the model, by one example; splits are moved to the model's device.

    Raises: ValueError or TypeError that names what does not fit.
    """
    parameters = list(model.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise ValueError("`model` has no parameter that requires a gradient: there is nothing to train.")
    device, dtype = parameters[0].device, parameters[0].dtype
    train = _check_data("train", train, device, dtype)
    test = None if test is None else _check_data("test", test, device, dtype)
    images, labels = _first_pair(train)
    objective = objective_for(config, labels)
    probe = _probe(model, images[:1].to(device), "train")
    if not isinstance(probe, Tensor) or probe.ndim != 2 or len(probe) != 1:
        raise ValueError(
            f"`model` must give a tensor of shape (batch, outputs), got {describe(probe)} for one example."
        )
    if test is not None:
        test_images, test_labels = _first_pair(test)
        if test_labels.dtype != labels.dtype:
            raise TypeError(f"`train` has {describe(labels)} of labels, but `test` has {describe(test_labels)}.")
        if test_images.dtype != images.dtype or test_images.shape[1:] != images.shape[1:]:
            _probe(model, test_images[:1].to(device), "test")
    parts = {name: data for name, data in (("train", train), ("test", test)) if isinstance(data, Split)}
    targets = {name: objective.targets(data.labels, probe, f"{name}.labels") for name, data in parts.items()}
    return Task(
        model, train, test, objective, probe, targets, device, forward_of(model, config.precision), forward_of(model)
    )


def _probe(model: nn.Module, example: Shaped[Tensor, "_example ..."], name: str) -> Any:
    """What the model gives for one example of the data of this name.

    Raises: ValueError if it cannot take it.
    """
    try:
        with modes_kept(model), torch.no_grad():
            return model.eval()(example)
    except Exception as error:  # a user's model may fail in any way
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ValueError(
            f"`model` could not run on one example of `{name}`, {describe(example)}: {reason.removesuffix('.')}. Do "
            "the model's input size and number of channels fit the data?"
        ) from error


def _gates_depend_on_the_batch(task: Task, gated: Gated) -> bool:
    if not isinstance(task.train, Split) or not depend_on_the_batch(gated.gates, task.train.images):
        return False
    warnings.warn(
        "the gates of an example depend on the batch that it is in, so they are not kept, and the feature network runs "
        "for every batch; gates, and normalizations in front of them, should look at one example only.",
        stacklevel=3,
    )
    return True


def make_sources(
    task: Task, config: TrainingConfig, augment: Augment | None, kept_before: dict[str, bool] | None
) -> tuple[Sources, dict[str, bool]]:
    """Batches and examples, with fixed gates computed where they can be kept, and which of them were.

    A run that is taken up keeps what it kept before, whatever memory is free now: gates computed in other batches
    may round differently.
    """
    gated = with_fixed_gates(task.model)
    if gated is not None and kept_before is None and _gates_depend_on_the_batch(task, gated):
        gated = None
    kept: dict[str, KeptGates | None] = {"train": None, "test": None}
    budget = memory_budget(config.gate_memory)
    for name, data in (("train", task.train), ("test", task.test)):
        if gated is None or not isinstance(data, Split) or (name == "train" and augment is not None):
            continue
        if kept_before is not None and not kept_before[name]:
            continue
        limit = budget if kept_before is None else None
        kept[name] = found = keep_gates(
            gated.gates, data.images, block=config.evaluation_batch_size, budget=limit,
            dtype=gate_dtype(data.images.dtype, config.precision if name == "train" else "full"),
        )  # fmt: skip
        if found is None:
            warn_recomputed(name, budget)
        else:
            budget -= found.n_bytes
    sources = Sources(
        batches=_batches(task, config, augment, kept["train"]),
        train_examples=_examples(task, "train", task.train, config, kept["train"]),
        test_examples=None if task.test is None else _examples(task, "test", task.test, config, kept["test"]),
    )
    return sources, {name: gates is not None for name, gates in kept.items()}


def describe_data(data: Data | None) -> Any:
    """What identifies data: a checksum of a split; of a loader only its number of batches can be known."""
    if data is None:
        return None
    return {"sha256": fingerprint(data.images, data.labels)} if isinstance(data, Split) else {"batches": len(data)}


def _check_data(name: str, data: Data, device: torch.device, dtype: torch.dtype) -> Data:
    if isinstance(data, Split):
        check_split(name, data, dtype)
        return Split(data.images.to(device), data.labels.to(device))
    if isinstance(data, Tensor) or not isinstance(data, Loader):
        raise TypeError(f"`{name}` must be a Split, or a loader of pairs with a length, got {describe(data)}.")
    if len(data) == 0:
        raise ValueError(f"`{name}` has no batches.")
    return data


def _first_pair(data: Data) -> tuple[Tensor, Tensor]:
    """Images and labels: all of a split, the first batch of a loader."""
    if isinstance(data, Split):
        return data.images, data.labels
    with torch.random.fork_rng(devices=[]):
        return pair_of(next(iter(data)))


def _batches(task: Task, config: TrainingConfig, augment: Augment | None, kept: KeptGates | None) -> Batches:
    if isinstance(task.train, Split):
        return TensorBatches(task.train.images, task.targets["train"], config, kept=kept, augment=augment)
    return LoaderBatches(task.train, task.objective, task.probe, config, device=task.device, augment=augment)


def _examples(task: Task, name: str, data: Data, config: TrainingConfig, kept: KeptGates | None) -> Examples:
    if isinstance(data, Split):
        return TensorExamples(data.images, task.targets[name], config.evaluation_batch_size, kept)
    return LoaderExamples(name, data, task.objective, task.probe, seed=config.seed, device=task.device)
