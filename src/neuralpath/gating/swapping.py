"""Running any module with given gates, or recording its own gates.

A call of a module under a function mode costs some microseconds for each operation, which is much compared with a
small matrix product. So torch's plain layers and containers are run directly; any other module is called as usual,
under the mode. The operations, and so the numbers, are the same.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from neuralpath._checks import describe
from neuralpath.gating.modes import GateMode, ModuleStack, Recording, Replacing
from neuralpath.gating.spellings import GateFunction
from neuralpath.gating.ungated import UngatedOperations
from neuralpath.graph import Gates, run
from neuralpath.nets import FC

GateLayers = Gates | Sequence[Shaped[Tensor, "_batch ..."]]
SAMPLE_ROWS = 2  # examples that are run to find gates: batch norm in training mode needs more than one


def recorded_gates(
    module: nn.Module, x: Float[Tensor, "batch ..."], gate: GateFunction | None = None, *, linear: bool = False
) -> Gates:
    """The gates of a module on a batch, in the order in which the module uses them.

    Gates are found by operation, in the module's current mode (training or evaluation). In evaluation mode they are
    those of ``trace(module, x[:1]).gates(x)``, with the same names, except that a functional max pool is counted
    without the average pools around it. Gradients flow through gates that are not hard.

    Args:
        module: Any module that takes one batch.
        x: The batch.
        gate: Computes the gates from the pre-activations, for example ``SoftGate(10)``; None takes each activation's
            own gate. Max pools always give their positions.
        linear: Whether activations return their input unchanged, so that the module is a linear network.

    >>> recorded_gates(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.ones(4, 2))
    Gates of 4 examples (1: (3,))
    """
    check_module("module", module)
    check_examples(x)
    stack = ModuleStack()
    recording = Recording(gate, linear=linear, stack=stack)
    with stack.follow(module):
        run_under(recording, module, x)
    return Gates(dict(zip(recording.names, recording.layers, strict=True)))


def run_with_gates(module: nn.Module, x: Float[Tensor, "batch ..."], gates: GateLayers) -> Any:
    """The output of a module on a batch with its gates replaced: ``q * G`` instead of each activation.

    The n-th gate operation that runs (activation or max pool) takes the n-th gate. Everything else runs unchanged,
    including activations without a gate, such as tanh (`GatedNetwork` refuses those). The output is differentiable in
    the module's parameters, in ``x`` and in floating-point gates.

    Args:
        module: Any module that takes one batch, in training or evaluation mode.
        x: The batch.
        gates: The result of ``recorded_gates`` or ``graph.gates``, or a sequence of tensors: boolean or floating-point
            gates of the pre-activation's shape, int64 flat positions for a max pool.

    Raises:
        ValueError, TypeError: A gate does not fit; the message has its index and both shapes.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> x = torch.randn(4, 2)
    >>> bool((run_with_gates(net, x, recorded_gates(net, x)) == net(x)).all())
    True
    """
    check_module("module", module)
    check_examples(x)
    return run_replacing(module, x, gates)


def run_replacing(module: nn.Module, x: Tensor, gates: GateLayers) -> Any:
    """``module(x)`` with the given gates, one for each gate operation that runs."""
    layers, names = (tuple(gates.layers.values()), gates.names) if isinstance(gates, Gates) else (gates, ())
    mode = Replacing(layers, names)
    y = run_under(mode, module, x)
    mode.finish()
    return y


def run_under(mode: GateMode, module: nn.Module, x: Tensor) -> Any:
    """``module(x)`` under a mode that records or replaces gates."""
    return (_call_under if torch_modules._has_any_global_hook() else _run_directly)(mode, module, x)


def _run_directly(mode: GateMode, module: nn.Module, x: Tensor) -> Any:
    own = module.__dict__
    # With hooks, a method of its own or a compiled call a module does more than its class.
    hooked = own["_forward_pre_hooks"] or own["_forward_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]
    if hooked or "forward" in own or "_compiled_call_impl" in own:
        return _call_under(mode, module, x)
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
            x = _run_directly(mode, part, x)
        return x
    elif kind is FC:
        return _run_directly(mode, own["_modules"]["layers"], x.flatten(1))
    return _call_under(mode, module, x)


def _call_under(mode: GateMode, module: nn.Module, x: Tensor) -> Any:
    with mode:
        return module(x)


def sample_gates(
    module: nn.Module, x: Tensor, gate: GateFunction | None = None, *, linear: bool = False, refused: str | None = None
) -> Recording:
    """The gates of two examples, with their names; the module and the random generators do not change.

    ``refused`` is the message, with a placeholder for names and locations, for a module that has nonlinear operations
    except gates and those that `UngatedOperations` allows; None allows all.
    """
    rows = x.detach()[:SAMPLE_ROWS]
    if len(rows) < SAMPLE_ROWS:
        rows = rows[:1].expand(SAMPLE_ROWS, *x.shape[1:])
    devices = [x.device] if x.device.type == "cuda" else []
    stack = ModuleStack()
    recording = Recording(gate, linear=linear, stack=stack)
    ungated = UngatedOperations(stack, linear=linear)
    watch = nullcontext() if refused is None else ungated.watch(module, rows)
    with torch.random.fork_rng(devices=devices), stack.follow(module), recording, watch:
        output = run(module, rows)
    if refused is not None and (names := ungated.between(output)):
        raise ValueError(refused.format(", ".join(names)))
    return recording


def check_examples(x: object) -> None:
    """Refuse anything but a batch of examples."""
    if not isinstance(x, Tensor) or x.ndim == 0:
        error = ValueError if isinstance(x, Tensor) else TypeError
        raise error(f"`x` must be a tensor of examples, such as `torch.from_numpy(x)`, got {describe(x)}.")


def check_module(name: str, module: object) -> None:
    """Refuse anything but a module whose operations are visible to Python."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"`{name}` must be a torch.nn.Module, got {describe(module)}.")
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        problem = "has parts that are compiled by torch.jit, whose operations are not visible"
        raise TypeError(f"`{name}` {problem}; use the original module.")
