"""Checks of a model with its data, its forward pass, and the batches for the training loop."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath._checks import check_batch, describe
from neuralpath._resources import format_memory, memory_budget
from neuralpath.data import Split
from neuralpath.gating import GatedNetwork
from neuralpath.training.batches import Augment, Batch, Loader, LoaderBatches, TensorBatches, check_labels, check_pair
from neuralpath.training.config import Precision, TrainingConfig
from neuralpath.training.context import restored_modes
from neuralpath.training.fixed_gates import PackedGates, gates_depend_on_batch, pack_gates
from neuralpath.training.metrics import Measurement, MetricSums, Objective, objective_for

Data = Split | Loader
Batches = TensorBatches | LoaderBatches
AllGates = dict[str, PackedGates | None]  # of each part of the data
Forward = Callable[[Batch], Float[Tensor, "batch n_outputs"]]


@dataclass(frozen=True, eq=False)
class TrainingTask:
    """A model with its data and settings, checked to fit together."""

    model: nn.Module
    config: TrainingConfig
    augment: Augment | None
    data: Mapping[str, Data]  # the training data as "train", and the test data as "test" if there are any
    objective: Objective
    targets: Mapping[str, Shaped[Tensor, "_examples ..."]]  # of the data in memory, with the same keys
    device: torch.device
    forward: Forward  # the forward pass of training, in the precision of the config
    # The same in full precision: rounded outputs may be equal, and argmax would take the first of them.
    measured_forward: Forward

    def batches(self, part: str, gates: PackedGates | None = None, *, training: bool = False) -> Batches:
        """Batches of a part of the data, for training or for measurements."""
        data, augment = self.data[part], self.augment if training else None
        if isinstance(data, Split):
            return TensorBatches(data.images, self.targets[part], self.config, gates, augment, in_order=not training)
        use = "order" if training else part
        return LoaderBatches(data, use, self.objective, self.config.seed, self.device, augment)

    def evaluate(self, batches: Iterable[Batch]) -> Measurement:
        """Mean loss and accuracy of the model in evaluation mode. Raises: NonFiniteLoss."""
        was_training = self.model.training
        self.model.eval()
        sums = MetricSums(self.objective)
        try:
            with torch.no_grad():
                for batch in batches:
                    outputs = self.measured_forward(batch)
                    sums.add(self.objective.loss(outputs, batch.targets), outputs, batch.targets)
        finally:
            self.model.train(was_training)
        return sums.mean()


def check_task(
    model: nn.Module, train: Data, test: Data | None, config: TrainingConfig, augment: Augment | None = None
) -> TrainingTask:
    """Check the data against the model with one example; splits are moved to the model's device."""
    parameters = list(model.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise ValueError("`model` has no parameter that requires a gradient: there is nothing to train.")
    device, dtype = parameters[0].device, parameters[0].dtype
    parts = {"train": train} if test is None else {"train": train, "test": test}
    data = {part: _check_data(f"{part}_data", value, device, dtype) for part, value in parts.items()}
    first = {part: _first_pair(value) for part, value in data.items()}
    images, labels = first["train"]
    output = _run_example(model, images[:1].to(device), "train_data")
    if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != 1:
        raise ValueError(f"`model` must return a tensor of shape (batch, outputs), got {describe(output)}.")
    objective = objective_for(config, labels, output)
    if "test" in first:
        test_images, test_labels = first["test"]
        if test_labels.dtype != labels.dtype:
            raise TypeError(f"labels are {labels.dtype} in `train_data`, but {test_labels.dtype} in `test_data`.")
        if test_images.dtype != images.dtype or test_images.shape[1:] != images.shape[1:]:
            _run_example(model, test_images[:1].to(device), "test_data")
    splits = {part: value for part, value in data.items() if isinstance(value, Split)}
    targets = {part: objective.targets(split.labels, f"{part}_data.labels") for part, split in splits.items()}
    forward, measured = forward_pass(model, config.precision), forward_pass(model)
    return TrainingTask(model, config, augment, data, objective, targets, device, forward, measured)


def _check_data(name: str, data: Data, device: torch.device, dtype: torch.dtype) -> Data:
    if isinstance(data, Split):
        check_batch(f"{name}.images", data.images, tuple(data.images.shape[1:]), dtype=dtype)
        check_labels(f"{name}.labels", data.images, data.labels)
        return Split(data.images.to(device), data.labels.to(device))
    if isinstance(data, Tensor) or not isinstance(data, Loader):
        raise TypeError(f"`{name}` must be a neuralpath.data.Split, or a loader with a length, got {describe(data)}.")
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
        problem = f"`model` could not run on one example of `{name}`, {describe(example)}"
        raise ValueError(f"{problem}: {reason.removesuffix('.')}.") from error


def forward_pass(model: nn.Module, precision: Precision = "full") -> Forward:
    """The forward pass of a batch; the feature network does not run if the batch has gates."""
    if precision == "full":
        return partial(_forward, model)
    first = next(model.parameters())
    if first.dtype != torch.float32:
        raise TypeError(f"`precision` bfloat16 needs a model of float32, the weights of this one are {first.dtype}.")
    return partial(_mixed_forward, model, _fixed_gates_of(model), first.device.type)


def _fixed_gates_of(model: nn.Module) -> GatedNetwork | None:
    """The model, if training leaves the gates of every example unchanged; else None."""
    with restored_modes(model):
        model.train()
        return model if isinstance(model, GatedNetwork) and model.gates_fixed else None


def _forward(model: nn.Module, batch: Batch) -> Float[Tensor, "batch n_outputs"]:
    if batch.gates is None:
        return model(batch.images)
    return cast(GatedNetwork, model).value_output(batch.images, batch.gates)


def _mixed_forward(model: nn.Module, fixed: GatedNetwork | None, device: str, batch: Batch) -> Float[Tensor, "batch _"]:
    if fixed is not None and batch.gates is None:
        batch = batch._replace(gates=fixed.gates(batch.images))  # in full precision, so that rounding flips no gate
    # The context is left after every batch, because it caches rounded copies of the weights.
    with torch.autocast(device, torch.bfloat16):
        outputs = _forward(model, batch)
    return outputs.float()


def pack_fixed_gates(task: TrainingTask, has_packed_gates: Mapping[str, bool] | None = None) -> AllGates:
    """The fixed gates of each part of the data; None where there are none, or they exceed the memory budget.

    The gates of augmented images are not stored. A resumed run gives ``has_packed_gates`` and stores the same parts
    again however much memory is free, since gates that are computed in other batches may be rounded differently.
    """
    config, gated, train = task.config, _fixed_gates_of(task.model), task.data["train"]
    is_first = has_packed_gates is None
    if gated is not None and is_first and isinstance(train, Split) and gates_depend_on_batch(gated.gates, train.images):
        problem = "the gates of an example depend on the other examples of its batch, so they are not stored"
        warnings.warn(f"{problem}, and the feature network runs for every batch.", stacklevel=2)
        gated = None
    budget = memory_budget(config.gate_memory)
    packed: AllGates = dict.fromkeys(task.data)
    for part, data in task.data.items():
        if gated is None or not isinstance(data, Split) or (part == "train" and task.augment is not None):
            continue
        if has_packed_gates is not None and not has_packed_gates[part]:
            continue
        # Hard gates are multiplied fastest in the dtype of the other factor.
        dtype = torch.bfloat16 if part == "train" and config.precision == "bfloat16" else data.images.dtype
        limit = budget if is_first else None
        gates = pack_gates(gated.gates, data.images, block=config.evaluation_batch_size, budget=limit, dtype=dtype)
        packed[part] = gates
        if gates is None:
            problem = f"the fixed gates of the {part} data need more than the memory budget of {format_memory(budget)}"
            advice = "the feature network runs again for every batch; raise `gate_memory` if more memory is free"
            warnings.warn(f"{problem}, so {advice}.", stacklevel=2)
        else:
            budget -= gates.n_bytes
    return packed
