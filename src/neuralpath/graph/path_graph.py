"""The path graph: a network as nodes, with the model's own tensors behind it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath._checks import check_batch, describe
from neuralpath.graph import nodes as n
from neuralpath.graph.counting import ExactCounts
from neuralpath.graph.forward import Forward, Gates
from neuralpath.graph.table import graph_table
from neuralpath.graph.walk import walk

GATES_CHUNK = 512  # examples whose hidden values are held at once while gates are computed


@dataclass(frozen=True, eq=False)
class PathGraph:
    """A network read as a graph of inputs, mixes, gates, adds, scales and pools; made by ``trace``.

    The graph holds no weights: it reads the model's own tensors each time, in evaluation mode, and so
    follows the model as it trains.
    """

    nodes: tuple[n.Node, ...]
    output_name: str
    model: nn.Module = field(repr=False)

    @cached_property
    def by_name(self) -> dict[str, n.Node]:
        """The nodes by their names."""
        return {node.name: node for node in self.nodes}

    @property
    def params(self) -> dict[str, Tensor]:
        """The model's own parameters that the graph reads, by their names in the model."""
        used = self._leaf_names
        return {k: v for k, v in self.model.named_parameters(remove_duplicate=False) if k in used}

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The model's own buffers that the graph reads, by their names in the model."""
        used = self._leaf_names
        return {k: v for k, v in self.model.named_buffers(remove_duplicate=False) if k in used}

    @property
    def state(self) -> dict[str, Tensor]:
        """Every tensor that the graph reads."""
        return {**self.buffers, **self.params}

    @cached_property
    def _leaf_names(self) -> frozenset[str]:
        return frozenset(leaf.name for node in self.nodes for op in n.operands_of(node) for leaf in op.leaves())

    @property
    def input_shape(self) -> n.Shape:
        """Shape of one example."""
        return next(node.shape for node in self.nodes if isinstance(node, n.InputNode))

    @property
    def output_shape(self) -> n.Shape:
        """Shape of the output for one example; ``()`` for a model that returns one number for each."""
        return self.by_name[self.output_name].shape

    @property
    def n_outputs(self) -> int:
        """Number of output units."""
        return prod(self.output_shape)

    @cached_property
    def gate_nodes(self) -> tuple[n.GateNode | n.MaxPoolNode, ...]:
        """The nodes that have gates: activations and max pools, in the order of the network."""
        return tuple(node for node in self.nodes if isinstance(node, n.GateNode | n.MaxPoolNode))

    @property
    def gate_names(self) -> tuple[str, ...]:
        """Names of the gate nodes, in the order of the network."""
        return tuple(node.name for node in self.gate_nodes)

    @cached_property
    def n_paths(self) -> int:
        """Number of paths into one output unit, exactly; where outputs differ, that of the largest.

        Weights, gates, masks, pooling factors and scales are all taken as 1; paths that start at a bias or
        at a constant count. Behind a dense layer all outputs have the same number.

        Reference: P2 proposition 3.1. Cost: big-integer additions, one for each unit and window place.
        """
        return max(walk(self, ExactCounts()).reshape(-1).tolist())

    @torch.no_grad()
    def gates(self, x: Float[Tensor, "batch *shape"]) -> Gates:
        """The gates that each example opens: one tensor for each node of ``gate_names``.

        Raises: ValueError if ``x`` does not fit the network or is not finite.
        """
        check_batch("x", x, self.input_shape)
        state = self.state
        recorded: dict[str, list[Shaped[Tensor, "batch ..."]]] = {name: [] for name in self.gate_names}
        for chunk in x.split(GATES_CHUNK):
            walk(self, Forward(chunk, state, record=lambda name, gate: recorded[name].append(gate)))
        layers = tuple(torch.cat(parts) if len(parts) > 1 else parts[0] for parts in recorded.values())
        return Gates(self.gate_names, layers)

    def weights(self) -> Iterator[n.MixNode | n.BiasNode]:
        """The nodes whose parameters are the weights of paths: mixes and biases."""
        return (node for node in self.nodes if isinstance(node, n.MixNode | n.BiasNode))

    def tied_parameter(self) -> tuple[str, str, str] | None:
        """A parameter that is a weight at two nodes, with both names; ``None`` where every one is used once."""
        seen: dict[int, str] = {}  # by identity: two names may be one tensor
        params = self.params
        for node in self.weights():
            for name in node.parameters:
                if id(params[name]) in seen:
                    return name, seen[id(params[name])], node.name
                seen[id(params[name])] = node.name
        return None

    def __str__(self) -> str:
        return graph_table(self)


def check_gates(name: str, gates: object, graph: PathGraph, n_examples: int | None = None) -> None:
    """Refuse gates that do not fit a graph, saying which node and what was expected."""
    if not isinstance(gates, Gates):
        raise TypeError(f"`{name}` must be `Gates`, as `graph.gates(x)` returns them, got {describe(gates)}.")
    if gates.names != graph.gate_names:
        raise ValueError(
            f"`{name}` are for the gate nodes {', '.join(gates.names) or '(none)'}, but the graph has "
            f"{', '.join(graph.gate_names) or '(none)'}."
        )
    for node, layer in zip(graph.gate_nodes, gates.layers, strict=True):
        if tuple(layer.shape[1:]) != node.shape:
            raise ValueError(
                f"`{name}` at {node.name!r} has the shape {tuple(layer.shape[1:])} for each example, "
                f"but the graph has {node.shape} there."
            )
        is_pool = isinstance(node, n.MaxPoolNode)
        if is_pool != (layer.dtype == torch.int64):
            expected = "int64 positions of a max pool" if is_pool else "boolean or floating-point gates"
            raise TypeError(f"`{name}` at {node.name!r} must be {expected}, got {describe(layer)}.")
    if n_examples is not None and len(gates) and gates.n_examples != n_examples:
        raise ValueError(
            f"`{name}` has {gates.n_examples} examples but its input has {n_examples}; they must be of one batch."
        )


def output(
    graph: PathGraph,
    x: Float[Tensor, "batch *shape"],
    *,
    params: Mapping[str, Tensor] | None = None,
    gates: Gates | None = None,
) -> Float[Tensor, "batch *out"]:
    """The network's output with given weights and given gates, differentiable in all of them.

    ``params`` replaces some or all of ``graph.params`` by name; ``gates`` replaces the gates that ``x`` opens
    itself (all of them). With neither, it is the model's own forward pass in evaluation mode.

    Raises: ValueError if ``x``, ``gates`` or ``params`` do not fit the graph.

    >>> import neuralpath as npath
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    >>> x = torch.randn(4, 2)
    >>> graph = npath.trace(model, x[:1])
    >>> bool(torch.allclose(npath.output(graph, x, gates=graph.gates(x)), model(x)))
    True
    """
    check_batch("x", x, graph.input_shape)
    state = graph.state
    unknown = sorted(set(params or {}) - set(state))
    if unknown:
        raise ValueError(f"`params` has names that the graph does not read: {', '.join(unknown)}.")
    if gates is not None:
        check_gates("gates", gates, graph, x.shape[0])
    return walk(graph, Forward(x, {**state, **(params or {})}, gates))
