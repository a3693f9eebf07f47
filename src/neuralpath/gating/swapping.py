"""Running any module with gates from another run, or recording its own."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath._checks import describe
from neuralpath.gating.direct import run_under
from neuralpath.gating.modes import Recording, Replacing
from neuralpath.gating.places import Places
from neuralpath.gating.spellings import GateFunction
from neuralpath.gating.ungated import UngatedOperations
from neuralpath.graph import Gates, run

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
    check_examples(x)
    places = Places()
    recording = Recording(gate, linear=linear, places=places)
    with places.follow(module):
        run_under(recording, module, x)
    return Gates(dict(zip(recording.names, recording.layers, strict=True)))


def run_with_gates(
    module: nn.Module,
    x: Float[Tensor, "batch ..."],
    gates: Gates | Sequence[Shaped[Tensor, "_batch ..."]],
) -> Any:
    """What a module gives on a batch when its gates are replaced: ``q * G`` in place of each activation.

    The n-th gate operation that runs (activation or max pool) takes the n-th gate. Everything else runs as it is,
    activations without a gate, such as tanh, included (`GatedNetwork` refuses those). Differentiable in the module's
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
    check_examples(x)
    layers, names = (tuple(gates.layers.values()), gates.names) if isinstance(gates, Gates) else (gates, ())
    mode = Replacing(layers, names)
    y = run_under(mode, module, x)
    mode.finish()
    return y


def sample_gates(
    module: nn.Module,
    x: Float[Tensor, "batch ..."],
    gate: GateFunction | None = None,
    *,
    linear: bool = False,
    refused: str | None = None,
) -> Recording:
    """The gates, with their names, of one or two examples; the module and the random generators stay as they are.

    With ``refused``, a message with a place for names, the module may have no other nonlinear operations than gates
    and what `UngatedOperations` lets pass.

    Raises: ValueError that names all such operations, and where they are.
    """
    rows = x.detach()[:SAMPLE_ROWS]
    if len(rows) < SAMPLE_ROWS:
        rows = rows[:1].expand(SAMPLE_ROWS, *x.shape[1:])
    devices = [x.device] if x.device.type == "cuda" else []
    places = Places()
    recording = Recording(gate, linear=linear, places=places)
    ungated = UngatedOperations(places, linear=linear)
    watch = nullcontext() if refused is None else ungated.watch(module, rows)
    with torch.random.fork_rng(devices=devices), places.follow(module), recording, watch:
        output = run(module, rows)
    if refused is not None and (found := ungated.between(output)):
        raise ValueError(refused.format(", ".join(found)))
    return recording


def check_examples(x: object) -> None:
    """Refuse what is no batch of tensors."""
    if not isinstance(x, Tensor) or x.ndim == 0:
        kind = TypeError if not isinstance(x, Tensor) else ValueError
        raise kind(f"`x` must be a tensor of examples, such as `torch.from_numpy(x)`, got {describe(x)}.")


def check_module(name: str, module: object) -> None:
    """Refuse what is not a module whose operations can be seen."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"`{name}` must be a torch.nn.Module, got {describe(module)}.")
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise TypeError(
            f"`{name}` has parts that are compiled by torch.jit, whose operations cannot be seen; use the module that "
            "they were made from."
        )
