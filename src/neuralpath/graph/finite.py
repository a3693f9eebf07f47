"""NaN and infinity in what a network is made of: refused where gates are made, since no comparison shows them.

A gate of NaN is closed (``nan > 0`` is false), so that a network of NaN has gates, path counts and a path kernel that
look like any other.
"""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Shaped
from torch import Tensor

from neuralpath._checks import is_finite
from neuralpath.graph import nodes as n
from neuralpath.graph.forward import Forward, Values
from neuralpath.graph.operands import Operand, State


def check_tensors(nodes: Iterable[n.Node], state: State) -> None:
    """Refuse a model's tensors that are not finite, by name.

    Cost: one pass over them. What a function makes of finite tensors is not looked at; ``check_operands`` does that.
    Raises: ValueError.
    """
    if not all(is_finite(tensor) for tensor in state.values()):
        check_operands(nodes, state)


def check_operands(nodes: Iterable[n.Node], state: State) -> None:
    """Refuse what is not finite where nodes read it, by the names of the node and of the model's tensors.

    A tensor that is not finite may be read through a function that makes it so, such as a bound of infinity; and a
    function of finite tensors may give NaN, such as a weight of length 0 that is normalized. Constants that are written
    in the model's code are left alone.

    Raises: ValueError.
    """
    for node in nodes:
        for operand in n.operands_of(node):
            names = dict.fromkeys(leaf.name for leaf in operand.leaves())
            if names and not is_finite(value := operand.evaluate(state)):
                raise ValueError(_reason(node, operand, value, {name: state[name] for name in names}))


def _reason(node: n.Node, operand: Operand, value: Tensor, tensors: State) -> str:
    broken = [name for name, tensor in tensors.items() if not is_finite(tensor)]
    if broken:
        what, bad = repr(broken[0]), ~torch.isfinite(tensors[broken[0]])
    else:
        what, bad = f"{operand}, made of {', '.join(map(repr, tensors))}", ~torch.isfinite(value)
    return (
        f"`model` has NaN or infinity in {what}, in {int(bad.sum())} of {bad.numel()} entries; the node {node.name!r} "
        "reads it. Such a network has no gates: look for training that has diverged, or weights that were never set."
    )


class FiniteForward(Forward):
    """The forward pass that refuses NaN where a gate would be made of it, naming the node.

    Finite numbers give NaN where they pass the range of the dtype: infinity less infinity. Infinity alone is let
    through, since the gate of it is known. Cost: one pass over the values at each gate.
    """

    def __init__(
        self,
        nodes: Iterable[n.Node],
        x: Values,
        state: State,
        record: Callable[[str, Shaped[Tensor, "batch ..."]], None] | None = None,
    ) -> None:
        super().__init__(x, state, record=record)
        self._nodes = nodes

    def gate(self, node: n.GateNode, q: Values) -> Values:
        """Values after a gate of numbers."""
        self._refuse_nan(node, q)
        return super().gate(node, q)

    def max_pool(self, node: n.MaxPoolNode, z: Values) -> Values:
        """Values after a max pool of numbers."""
        self._refuse_nan(node, z)
        return super().max_pool(node, z)

    def _refuse_nan(self, node: n.Node, values: Values) -> None:
        if values.numel() and bool(values.amax().isnan()):
            check_operands(self._nodes, self._state)  # which knows better where NaN came in
            raise ValueError(
                f"the gates of {node.name!r} would be made of NaN: values on the way there pass the range of "
                f"{str(values.dtype).removeprefix('torch.')}; scale the inputs or the weights, or use a wider dtype."
            )
