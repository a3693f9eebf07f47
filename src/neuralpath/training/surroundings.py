"""What a run changes around it and puts back: modes of the model, threads and generators of torch."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Put every module back to training or evaluation mode, as it was."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def threads_kept(count: int | None) -> Iterator[None]:
    """Let torch use so many threads (None: as many as it does), and as many as before afterwards."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def generators_kept(model: nn.Module) -> Iterator[None]:
    """Leave torch's global generators as they are found."""
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    with torch.random.fork_rng(sorted(devices, key=str)):
        yield
