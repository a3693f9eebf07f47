"""Torch's optimizers from a config, and their state as tensors and plain values."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from neuralpath.training.config import SGD, Adam, OptimizerConfig


def make_optimizer(config: OptimizerConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer in the form that is fastest for many small tensors.

    Adam and SGD update all tensors in one fused call. Torch has no such call for RMSprop, where ``foreach`` makes
    the fewest calls.
    """
    params = list(parameters)
    if isinstance(config, Adam):
        return torch.optim.Adam(
            params, lr=config.lr, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay,
            decoupled_weight_decay=config.decoupled, fused=True,
        )  # fmt: skip
    if isinstance(config, SGD):
        return torch.optim.SGD(
            params, lr=config.lr, momentum=config.momentum, nesterov=config.nesterov,
            weight_decay=config.weight_decay, fused=True,
        )  # fmt: skip
    return torch.optim.RMSprop(
        params, lr=config.lr, alpha=config.alpha, eps=config.eps, momentum=config.momentum,
        weight_decay=config.weight_decay, foreach=True,
    )  # fmt: skip


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this learning rate from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_state(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What the optimizer remembers: tensors and plain values, both by ``parameter number/name``.

    Its settings are not part of it, as the config has them and the schedule sets the rate at every step.
    """
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for number, entries in optimizer.state_dict()["state"].items():
        for name, value in entries.items():
            (tensors if isinstance(value, Tensor) else values)[f"{number}/{name}"] = value
    return tensors, values


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], values: Mapping[str, Any]
) -> None:
    """The inverse of ``optimizer_state``."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **values}.items():
        number, _, name = key.partition("/")
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
