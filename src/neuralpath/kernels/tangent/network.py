"""What is differentiated: a function of a batch and of named parameters, run with gradients."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from neuralpath._checks import describe
from neuralpath.graph import own_names, tensor_places


@runtime_checkable
class Network(Protocol):
    """A function of a batch, and the parameters that it may be differentiated by."""

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """The parameters by name, each once."""
        ...

    def run(self, x: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Any:
        """The output for a batch, some parameters or buffers replaced by ``tensors``."""
        ...


@dataclass(frozen=True, eq=False)
class ModuleNetwork:
    """A module as the user wrote it."""

    model: nn.Module
    names: Mapping[str, str] = field(init=False)
    places: tuple[str, ...] = field(init=False)
    compiled: bool = field(init=False)

    def __post_init__(self) -> None:
        compiled = any(hasattr(m, "_orig_mod") or m._compiled_call_impl is not None for m in self.model.modules())
        object.__setattr__(self, "compiled", compiled)
        object.__setattr__(self, "names", own_names(self.model))
        object.__setattr__(self, "places", tuple(tensor_places(self.model)))

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """The parameters by name, each once."""
        return dict(self.model.named_parameters())

    def run(self, x: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Any:
        """The output for a batch, some parameters or buffers replaced by ``tensors``.

        The model gets copies of its input and of its buffers, so that one that changes them leaves both alone.
        """
        given = dict(tensors or {})
        for name, buffer in self.model.named_buffers():
            given.setdefault(name, buffer.clone())
        replaced = {place: given[self.names[place]] for place in self.places if self.names[place] in given}
        # What is compiled runs as it was written: its operations are looked at one by one.
        with torch.compiler.set_stance("force_eager") if self.compiled else nullcontext():
            if not replaced:
                return self.model(x.clone())
            # Ties are in `replaced` already; torch's own handling leaves a module with two names without tensors.
            return torch.func.functional_call(self.model, replaced, (x.clone(),), tie_weights=False)


def flat_outputs(y: Any, n_examples: int, x: Tensor) -> Tensor:
    """The outputs as a matrix, one row for each example.

    Raises: TypeError if the model returns anything but one real tensor; ValueError if the batch is not its first axis.
    """
    if not isinstance(y, Tensor) or not y.is_floating_point():
        raise TypeError(
            f"`model` must return one floating-point tensor, but it returned {describe(y)}; wrap it in a module that "
            "returns the tensor of interest, for example its logits."
        )
    if y.ndim == 0 or y.shape[0] != n_examples:
        squeezed = n_examples == 1 and y.ndim < 2  # such a model drops the batch axis of a single example
        if not squeezed:
            raise ValueError(
                f"`model` must return one row for each example, the batch first, but for {describe(x)} it returned "
                f"{describe(y)}; move the batch to the front in a wrapping module."
            )
    return y.reshape(n_examples, -1)


def double(network: Network, x: Tensor) -> Tensor:
    """The outputs in double precision, without gradients."""
    tensors = {name: p.detach().double() for name, p in network.parameters.items() if p.is_floating_point()}
    if isinstance(network, ModuleNetwork):
        buffers = network.model.named_buffers()
        tensors |= {name: b.double() if b.is_floating_point() else b.clone() for name, b in buffers}
    with torch.no_grad():
        y = network.run(x.double() if x.is_floating_point() else x, tensors)
    return flat_outputs(y, len(x), x)
