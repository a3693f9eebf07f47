"""The forward pass with given weights and gates, and the same pass that refuses NaN.

A gate of NaN is closed (``nan > 0`` is false), so a network of NaN would have gates, path counts and a path kernel that
look like those of any other network. So NaN is refused where gates are computed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from neuralpath._checks import is_finite
from neuralpath.gates import apply_gate
from neuralpath.graph import linear_maps, nodes as n
from neuralpath.graph.operands import Operand, State

Values = Float[Tensor, "batch ..."]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Gates:
    """Gate values of a batch, one tensor for each gate layer.

    A hard gate is boolean, any other is a float, with the shape of the node. The gates of a max pool are
    one int64 tensor: for each output unit the flat position, within its channel, that it was read from.
    ``gates["relu1"]`` is the layer of that name, ``gates[0]`` the first layer.

    Args:
        layers: The tensor of each gate layer by its name, in the order of the network; the batch is the first axis.

    >>> import neuralpath as npath
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3, bias=False), torch.nn.ReLU())
    >>> gates = npath.trace(model, torch.ones(1, 2)).gates(torch.zeros(4, 2))
    >>> gates
    Gates of 4 examples (1: (3,))
    >>> bool(gates["1"].any())  # a pre-activation of 0 opens no gate
    False
    """

    layers: dict[str, Shaped[Tensor, "batch ..."]]

    def __post_init__(self) -> None:
        sizes = {layer.shape[0] for layer in self.layers.values()}
        if len(sizes) > 1:
            raise ValueError(f"`layers` must share one batch size, got {sorted(sizes)}.")

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, layer: str | int) -> Shaped[Tensor, "batch ..."]:
        if isinstance(layer, int):
            return tuple(self.layers.values())[layer]
        if layer not in self.layers:
            raise KeyError(f"there is no gate {layer!r}; the gates are {', '.join(self.layers)}")
        return self.layers[layer]

    def __repr__(self) -> str:
        layers = ", ".join(f"{name}: {tuple(layer.shape[1:])}" for name, layer in self.layers.items())
        return f"Gates of {self.n_examples} examples ({layers})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the gate layers, in the order of the network."""
        return tuple(self.layers)

    @property
    def n_examples(self) -> int:
        """Number of examples; 0 for a graph without gates."""
        return len(self[0]) if self.layers else 0

    def batch(self, rows: slice | Shaped[Tensor, " rows"]) -> "Gates":
        """The gates of some of the examples."""
        return Gates({name: layer[rows] for name, layer in self.layers.items()})


class Forward:
    """The reading that computes the values of a batch; gates come from ``gates``, or else from the values themselves.

    ``record`` is called with the name and the gates of each gate layer.
    """

    def __init__(
        self,
        x: Values,
        state: State,
        gates: Gates | None = None,
        record: Callable[[str, Shaped[Tensor, "batch ..."]], None] | None = None,
    ) -> None:
        self._x = x
        self._state = state
        self._gates = gates
        self._record = record

    def _gate_values(self, node: n.Node, compute: Callable[[], Tensor]) -> Shaped[Tensor, "batch ..."]:
        gate = compute() if self._gates is None else self._gates[node.name]
        if self._record is not None:
            self._record(node.name, gate)
        return gate

    def input(self, node: n.InputNode) -> Values:
        return self._x

    def constant(self, node: n.ConstantNode) -> Values:
        value = node.value.evaluate(self._state).to(self._x)
        return value.expand(self._x.shape[0], *node.shape)

    def linear(self, node: n.LinearNode, z: Values) -> Values:
        return linear_maps.linear(node, z, node.weight.evaluate(self._state))

    def bias(self, node: n.BiasNode, z: Values) -> Values:
        return z + node.value.evaluate(self._state).to(z)

    def gate(self, node: n.GateNode, q: Values) -> Values:
        return apply_gate(q, self._gate_values(node, lambda: gate_of(node, q, self._state)))

    def activation(self, node: n.ActivationNode, q: Values) -> Values:
        return node.function(q, *node.arguments, **node.keywords)

    def scale(self, node: n.ScaleNode, z: Values) -> Values:
        return z * node.factor.evaluate(self._state).to(z)

    def add(self, node: n.AddNode, *branches: Values) -> Values:
        total = branches[0]
        for branch in branches[1:]:
            total = total + branch
        return total

    def concat(self, node: n.ConcatNode, *branches: Values) -> Values:
        return torch.cat(branches, dim=1)

    def select(self, node: n.SelectNode, z: Values) -> Values:
        return linear_maps.select(node, z)

    def average_pool(self, node: n.AveragePoolNode, z: Values) -> Values:
        return linear_maps.average(z, node.matrices)

    def max_pool(self, node: n.MaxPoolNode, z: Values) -> Values:
        index = self._gate_values(node, lambda: linear_maps.max_positions(node, z))
        return linear_maps.gather_positions(z, index)

    def reshape(self, node: n.ReshapeNode, z: Values) -> Values:
        return z.reshape(z.shape[0], *node.shape)


def gate_of(node: n.GateNode, q: Values, state: State) -> Shaped[Tensor, "batch *shape"]:
    """Gate values of the pre-activations ``q`` at a gate node."""
    if node.slope is not None:
        slope = node.slope.evaluate(state)
        return torch.where(q > 0, torch.ones_like(q), slope.expand_as(q))
    return node.gate(q)


def check_tensors(nodes: Iterable[n.Node], state: State) -> None:
    """Refuse a model's tensors that are not finite, by name.

    Cost: one pass over the tensors. Functions of finite tensors are not checked; ``check_operands`` checks them.
    Raises: ValueError.
    """
    if not all(is_finite(tensor) for tensor in state.values()):
        check_operands(nodes, state)


def check_operands(nodes: Iterable[n.Node], state: State) -> None:
    """Refuse operands that are not finite, by the names of the node and of the model's tensors.

    A tensor that is not finite may be read through a function whose value is finite, such as a bound of infinity; and a
    function of finite tensors may give NaN, such as the normalization of a weight of length 0. Constants that are
    written in the model's code are not checked.

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
        what, bad = f"{operand}, computed from {', '.join(map(repr, tensors))}", ~torch.isfinite(value)
    return (
        f"`model` has NaN or infinity in {what}, in {int(bad.sum())} of {bad.numel()} entries; the node {node.name!r} "
        "reads it. Such a network has no gates: look for training that has diverged, or weights that were never set."
    )


class FiniteForward(Forward):
    """The forward pass that refuses NaN at a gate, naming the node.

    Finite numbers give NaN where they exceed the range of the dtype: infinity minus infinity. Infinity alone is
    allowed, since its gate is known. Cost: one pass over the values at each gate.
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
        self._refuse_nan(node, q)
        return super().gate(node, q)

    def max_pool(self, node: n.MaxPoolNode, z: Values) -> Values:
        self._refuse_nan(node, z)
        return super().max_pool(node, z)

    def _refuse_nan(self, node: n.Node, values: Values) -> None:
        if values.numel() and bool(values.amax().isnan()):
            check_operands(self._nodes, self._state)  # names the tensor where NaN came in, if it was a tensor
            raise ValueError(
                f"the gates of {node.name!r} would be computed from NaN: earlier values exceed the range of "
                f"{str(values.dtype).removeprefix('torch.')}; scale the inputs or the weights, or use a wider dtype."
            )
