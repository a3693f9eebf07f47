"""Torch's optimisers from a config, and their state as tensors and plain values."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from neuralpath.training.config import SGD, Adam, Optimiser


def make_optimiser(config: Optimiser, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimiser in the form that is fastest for many small tensors.

    Adam and SGD update all tensors in one fused call. Torch has no such call for RMSprop, where ``foreach`` makes
    the fewest calls.
    """
    params = list(parameters)
    if isinstance(config, Adam):
        return torch.optim.Adam(
            params, lr=config.rate, betas=config.betas, eps=config.epsilon, weight_decay=config.weight_decay,
            decoupled_weight_decay=config.decoupled, fused=True,
        )  # fmt: skip
    if isinstance(config, SGD):
        return torch.optim.SGD(
            params, lr=config.rate, momentum=config.momentum, nesterov=config.nesterov,
            weight_decay=config.weight_decay, fused=True,
        )  # fmt: skip
    return torch.optim.RMSprop(
        params, lr=config.rate, alpha=config.smoothing, eps=config.epsilon, momentum=config.momentum,
        weight_decay=config.weight_decay, foreach=True,
    )  # fmt: skip


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Use this learning rate from the next step on."""
    for group in optimiser.param_groups:
        group["lr"] = rate


def optimiser_state(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What the optimiser remembers: tensors and plain values, both by ``parameter number/name``.

    Its settings are not part of it, as the config has them and the schedule sets the rate at every step.
    """
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for number, entries in optimiser.state_dict()["state"].items():
        for name, value in entries.items():
            (tensors if isinstance(value, Tensor) else values)[f"{number}/{name}"] = value
    return tensors, values


def load_optimiser_state(
    optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor], values: Mapping[str, Any]
) -> None:
    """The inverse of ``optimiser_state``."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **values}.items():
        number, _, name = key.partition("/")
        state.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
