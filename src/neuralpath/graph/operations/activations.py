"""Gates, in every spelling of ReLU, and activations that are not gates."""

from typing import Any

from neuralpath import gates as g
from neuralpath.graph import nodes as n
from neuralpath.graph.builder import Builder, Refused, Signal
from neuralpath.graph.operands import ComputedOperand, Operand, is_zero, per_channel
from neuralpath.graph.operations.table import OPERATIONS, Handler, label_of, reads


def _gate(operation: Any) -> Handler:
    def read(build: Builder, x: Any, *args: Any, **kwargs: Any) -> Signal:
        name = operation._opname
        gate = g.GATE_OPERATIONS[operation](*args, **kwargs) if operation in g.GATE_OPERATIONS else None
        if gate is not None:
            return build.append(n.GateNode, x.shape, x, label=label_of(build, name), gate=gate)
        if operation not in g.UNGATED_ACTIVATIONS:
            raise Refused(f"with the arguments {args} it is neither a gate nor an activation that is known")
        return build.append(
            n.ActivationNode,
            x.shape,
            x,
            label=label_of(build, name),
            operation=name,
            function=operation,
            arguments=args,
            keywords=kwargs,
        )

    return read


for _operation in {*g.GATE_OPERATIONS, *g.UNGATED_ACTIVATIONS}:
    OPERATIONS[_operation] = _gate(_operation)


@reads(*g.GATING_MAXIMUM)
def _maximum(build: Builder, a: Any, b: Any = None, maximum: Any = None) -> Signal:
    x, other = (a, b) if isinstance(a, Signal) else (b, a)
    if isinstance(other, Signal):
        raise Refused("takes the larger of two values that both depend on the input")
    if maximum is not None or other is None or not is_zero(build.constant(other, x.shape), build.state):
        raise Refused("a maximum with a constant other than 0 is not a gate")
    return build.append(n.GateNode, x.shape, x, label="relu", gate=g.HardGate())


@reads(*g.PARAMETRIC_GATES)
def _prelu(build: Builder, x: Signal, slope: Any) -> Signal:
    if not isinstance(slope, Operand):
        raise Refused("a PReLU whose slope depends on the input")
    slope = ComputedOperand(per_channel, (slope, len(x.shape) - 1))
    return build.append(n.GateNode, x.shape, x, label=label_of(build, "prelu"), gate=g.LeakyGate(0.0), slope=slope)
