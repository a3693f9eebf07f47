"""The weights that a kernel was computed with, so that a machine notices a model that has changed since."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from neuralpath._hashing import tensor_digest
from neuralpath.graph import PathGraph
from neuralpath.kernels import Fingerprint

Weights = Mapping[str, str] | None


def weights_of(model: nn.Module | PathGraph | None, kernel: Any = None) -> Weights:
    """A digest of each tensor of a model, by name; None where the kernel reads none, as those of infinite width.

    Cost: one pass over the weights, about a second for a billion bytes.
    """
    if model is None or callable(kernel) or (isinstance(kernel, str) and kernel.startswith(("limit-", "linear"))):
        return None
    module = model.model if isinstance(model, PathGraph) else model
    return {name: tensor_digest(tensor) for name, tensor in module.state_dict().items()}


def check_weights(was: Weights, now: Weights) -> None:
    """Refuse a model that is not the one of the fit: its kernel would not fit the coefficients.

    Raises: ValueError, naming what differs.
    """
    changed = Fingerprint({"weights": was or {}}).differences(Fingerprint({"weights": now or {}}))
    if changed:
        raise ValueError(
            f"`model` is not as it was when the machine was fitted, it differs in its {', '.join(changed)}: its kernel "
            "would not fit the coefficients. Fit again, or give the machine a copy of a model that goes on training."
        )
