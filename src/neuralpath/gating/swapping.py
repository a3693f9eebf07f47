"""Running any module with gates from another run, or recording its own."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath._checks import describe
from neuralpath.gating.direct import run_under
from neuralpath.gating.modes import Recording, Replacing
from neuralpath.gating.places import Places
from neuralpath.gating.spellings import GateFunction
from neuralpath.graph.forward import Gates
from neuralpath.graph.replay import run

SAMPLE_ROWS = 2
"""Examples that are run to see a network's gates: batch norm in training mode needs more than one."""


def recorded_gates(
    module: nn.Module, x: Float[Tensor, "batch ..."], gate: GateFunction | None = None, *, linear: bool = False
) -> Gates:
    """The gates of a module's run on a batch, in the order in which they are used.

    They are found by operation, in the module's present mode (training or evaluation). In evaluation mode they are
    those of ``trace(module, x[:1]).gates(x)``, under the same names, except that a functional max pool is counted
    without the average pools around it. Gradients flow through gates that are not hard.

    Args:
        module: any module that takes one batch.
        x: the batch.
        gate: computes the gates from the pre-activations, for example ``SoftGate(10)``; without it each
            activation's own gate is taken. Max pools always give their positions.
        linear: pass pre-activations on unchanged, so that the module is a linear network.

    >>> recorded_gates(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.ones(4, 2))
    Gates of 4 examples (1: (3,))

    """
    check_module("module", module)
    recording = _recorded(module, x, gate, linear, run_under)
    return Gates(tuple(recording.names), tuple(recording.layers))


def run_with_gates(
    module: nn.Module,
    x: Float[Tensor, "batch ..."],
    gates: Gates | Sequence[Shaped[Tensor, "_batch ..."]],
) -> Any:
    """What a module gives on a batch when its gates are replaced: ``q * G`` in place of each activation.

    The n-th gate operation that runs (activation or max pool) takes the n-th gate. Differentiable in the module's
    parameters, in ``x`` and in gates that are floats.

    Args:
        module: any module that takes one batch, in training or evaluation mode.
        x: the batch.
        gates: as ``recorded_gates`` or ``graph.gates`` give them, or a sequence of tensors: boolean or floating-point
            gates of the pre-activation's shape, int64 flat positions for a max pool.

    Raises:
        ValueError, TypeError: the gates do not fit; the message says which one, and both shapes.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> x = torch.randn(4, 2)
    >>> bool((run_with_gates(net, x, recorded_gates(net, x)) == net(x)).all())
    True

    """
    check_module("module", module)
    layers, names = (gates.layers, gates.names) if isinstance(gates, Gates) else (gates, ())
    mode = Replacing(layers, names)
    y = run_under(mode, module, x)
    mode.finish()
    return y


def sample_gates(
    module: nn.Module, x: Float[Tensor, "batch ..."], gate: GateFunction | None = None, *, linear: bool = False
) -> Recording:
    """The gates, with their names, of one or two examples; the module and the random generators stay as they are."""
    rows = x.detach()[:SAMPLE_ROWS]
    if len(rows) < SAMPLE_ROWS:
        rows = rows[:1].expand(SAMPLE_ROWS, *x.shape[1:])
    devices = [x.device] if x.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        return _recorded(module, rows, gate, linear, _run_aside)


def _run_aside(mode: Recording, module: nn.Module, x: Tensor) -> None:
    with mode:
        run(module, x)


def _recorded(module: nn.Module, x: Tensor, gate: GateFunction | None, linear: bool, runner: Any) -> Recording:
    places = Places()
    recording = Recording(gate, linear=linear, places=places)
    with places.follow(module):
        runner(recording, module, x)
    return recording


def check_module(name: str, module: object) -> None:
    """Refuse what is not a module whose operations can be seen."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"`{name}` must be a torch.nn.Module, got {describe(module)}.")
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise TypeError(
            f"`{name}` has parts that are compiled by torch.jit, whose operations cannot be seen; use the module that "
            "they were made from."
        )
