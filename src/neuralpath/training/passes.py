"""A batch through a network, in the precision that is asked for."""

from collections.abc import Callable
from functools import partial
from typing import Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath.graph import Gates
from neuralpath.training.batches import Batch
from neuralpath.training.config import Precision
from neuralpath.training.surroundings import modes_kept

Forward = Callable[[Batch], Float[Tensor, "batch n_outputs"]]


@runtime_checkable
class Gated(Protocol):
    """A model whose gates can be computed apart from its output, such as ``GatedNetwork``."""

    @property
    def gates_fixed(self) -> bool:
        """Whether training leaves the gates of every example as they are."""

    def gates(self, x: Float[Tensor, "batch ..."]) -> Gates:
        """The gates of a batch."""

    def value_output(self, x: Float[Tensor, "batch ..."], gates: Gates) -> Float[Tensor, "batch n_outputs"]:
        """Output with given gates; hard gates may come as 0 and 1 in the dtype of the model."""


def with_fixed_gates(model: nn.Module) -> Gated | None:
    """The model, if training leaves the gates of every example as they are."""
    with modes_kept(model):
        model.train()  # what training will do to it
        return model if isinstance(model, Gated) and model.gates_fixed else None


def forward_of(model: nn.Module, precision: Precision = "full") -> Forward:
    """From a batch to outputs; the feature network is left out where its gates were kept.

    Raises: TypeError if products cannot be rounded to bfloat16 because the weights are not float32.
    """
    if precision == "full":
        return partial(_forward, model)
    first = next(model.parameters())
    if first.dtype != torch.float32:
        raise TypeError(f"`precision` bfloat16 needs a model of float32, the weights of this one are {first.dtype}.")
    return partial(_mixed_forward, model, with_fixed_gates(model), first.device.type)


def gate_dtype(images: torch.dtype, precision: Precision) -> torch.dtype:
    """The dtype in which hard gates are multiplied fastest: that of what they are multiplied with."""
    return images if precision == "full" else torch.bfloat16


def _forward(model: nn.Module, batch: Batch) -> Float[Tensor, "batch n_outputs"]:
    # Gates are kept for `Gated` models only; asking here whether this is one would cost more than a layer.
    return model(batch.images) if batch.gates is None else cast(Gated, model).value_output(batch.images, batch.gates)


def _mixed_forward(
    model: nn.Module, fixed: Gated | None, device: str, batch: Batch
) -> Float[Tensor, "batch n_outputs"]:
    if fixed is not None and batch.gates is None:
        batch = batch._replace(gates=fixed.gates(batch.images))  # fixed means: not rounded to the other side either
    # Left after every batch, since it keeps rounded copies of the weights until then.
    with torch.autocast(device, torch.bfloat16):
        outputs = _forward(model, batch)
    return outputs.float()
