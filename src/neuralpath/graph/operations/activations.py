"""Gates, in every spelling of ReLU, and activations that are not gates."""

from functools import partial
from typing import Any

from neuralpath import gates as g
from neuralpath.graph import nodes as n
from neuralpath.graph.builder import Builder, Refused, Signal
from neuralpath.graph.nodes import ComputedOperand, Operand, is_zero, per_channel
from neuralpath.graph.operations.table import OPERATIONS, label_of, reads


def _activation(operation: Any, build: Builder, x: Any, *args: Any, **kwargs: Any) -> Signal:
    name = operation._opname
    label = label_of(build, name)
    gate = g.GATE_OPERATIONS[operation](*args, **kwargs) if operation in g.GATE_OPERATIONS else None
    if gate is not None:
        return build.append(n.GateNode, x.shape, x, label=label, gate=gate)
    if operation not in g.UNGATED_ACTIVATIONS:
        raise Refused(f"with the arguments {args} it is not a gate, and not supported")
    fields = {"operation": name, "function": operation, "arguments": args, "keywords": kwargs}
    return build.append(n.ActivationNode, x.shape, x, label=label, **fields)


for _operation in {*g.GATE_OPERATIONS, *g.UNGATED_ACTIVATIONS}:
    OPERATIONS[_operation] = partial(_activation, _operation)


@reads(*g.GATING_MAXIMUM)
def _maximum(build: Builder, a: Any, b: Any = None, maximum: Any = None) -> Signal:
    x, other = (a, b) if isinstance(a, Signal) else (b, a)
    if isinstance(other, Signal):
        raise Refused("a maximum of two values that both depend on the input is not supported")
    if maximum is not None or other is None or not is_zero(build.constant(other, x.shape), build.state):
        raise Refused("a maximum with a constant other than 0 is not a gate, and not supported")
    return build.append(n.GateNode, x.shape, x, label="relu", gate=g.HardGate())


@reads(*g.PARAMETRIC_GATES)
def _prelu(build: Builder, x: Signal, slope: Any) -> Signal:
    if not isinstance(slope, Operand):
        raise Refused("a PReLU whose slope depends on the input is not supported")
    slope = ComputedOperand(per_channel, (slope, len(x.shape) - 1))
    return build.append(n.GateNode, x.shape, x, label=label_of(build, "prelu"), gate=g.LeakyGate(0.0), slope=slope)
