"""Running a module under a gate mode, directly where its steps are known.

A call of a module and a function mode cost some microseconds for each operation, which is much beside a small
matrix product. Torch's own plain layers and containers do nothing but what is written here; everything else is
called as it is, under the mode. The operations, and so the numbers, are the same.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as hooks_for_all

from neuralpath.gating.modes import GateMode
from neuralpath.nets import FC


def run_under(mode: GateMode, module: nn.Module, x: Tensor) -> Any:
    """``module(x)`` under a mode that records or replaces gates."""
    if hooks_for_all._has_any_global_hook():
        return _called(mode, module, x)
    return _run(mode, module, x)


def _run(mode: GateMode, module: nn.Module, x: Tensor) -> Any:
    own = module.__dict__
    # Hooks, a method of its own or a compiled call make a module do more than its class says.
    if (
        own["_forward_pre_hooks"]
        or own["_forward_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or "forward" in own
        or "_compiled_call_impl" in own
    ):
        return _called(mode, module, x)
    # Exact types only: a subclass may do anything. Parametrized layers have classes of their own.
    kind = type(module)
    if kind is nn.Linear:
        parameters = own["_parameters"]  # `module.weight` costs as much as a small addition
        if "weight" in parameters and "bias" in parameters:
            return F.linear(x, parameters["weight"], parameters["bias"])
    elif kind is nn.ReLU:
        return mode.relu(x, own["inplace"])
    elif kind is nn.Sequential:
        for part in own["_modules"].values():
            x = _run(mode, part, x)
        return x
    elif kind is FC:
        return _run(mode, own["_modules"]["layers"], x.flatten(1))
    return _called(mode, module, x)


def _called(mode: GateMode, module: nn.Module, x: Tensor) -> Any:
    with mode:
        return module(x)
