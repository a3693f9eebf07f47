"""The path graph: a network as nodes that read the tensors of the model."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy.typing import NDArray
from torch import Tensor, nn

from neuralpath._checks import check_batch, describe
from neuralpath.graph import nodes as n
from neuralpath.graph.forward import FiniteForward, Gates, check_tensors
from neuralpath.graph.free_weights import own_names, tied_parameter
from neuralpath.graph.gate_checks import check_layer
from neuralpath.graph.reports import graph_table
from neuralpath.graph.walking import walk

Counts = NDArray[np.object_]  # Python integers, one for each unit


class ExactCounts:
    """Number of paths that end at each unit: weights, gates, masks, pooling factors and scales are all 1."""

    def input(self, node: n.InputNode) -> Counts:
        return np.ones(node.shape, dtype=object)

    def constant(self, node: n.ConstantNode) -> Counts:
        return np.ones(node.shape, dtype=object)

    def linear(self, node: n.LinearNode, counts: Counts) -> Counts:
        sums = counts.reshape(node.groups, -1, *counts.shape[1:]).sum(axis=1)
        for axis, window in enumerate(node.windows, start=1):
            sums = _sum_rows(sums, axis, window.table(sums.shape[axis]).tolist())
        return np.repeat(sums, node.weight_shape[0] // node.groups, axis=0)

    def bias(self, node: n.BiasNode, counts: Counts) -> Counts:
        return counts + 1

    def gate(self, node: n.GateNode, counts: Counts) -> Counts:
        return counts

    def activation(self, node: n.ActivationNode, counts: Counts) -> Counts:
        raise no_paths_through(node)

    def scale(self, node: n.ScaleNode, counts: Counts) -> Counts:
        return counts

    def add(self, node: n.AddNode, *branches: Counts) -> Counts:
        return np.sum([np.broadcast_to(branch, node.shape) for branch in branches], axis=0)

    def concat(self, node: n.ConcatNode, *branches: Counts) -> Counts:
        return np.concatenate(branches, axis=0)

    def select(self, node: n.SelectNode, counts: Counts) -> Counts:
        for axis, index in enumerate(node.indices):
            if index is not None:
                counts = _sum_rows(counts, axis, index[:, None].tolist())
        return counts

    def average_pool(self, node: n.AveragePoolNode, counts: Counts) -> Counts:
        for axis, matrix in enumerate(node.matrices, start=1):
            counts = _sum_rows(counts, axis, [np.flatnonzero(row).tolist() for row in matrix.numpy()])
        return counts

    def max_pool(self, node: n.MaxPoolNode, counts: Counts) -> Counts:
        for axis, table in enumerate(node.tables, start=1):
            counts = _sum_rows(counts, axis, table.tolist())
        return counts

    def reshape(self, node: n.ReshapeNode, counts: Counts) -> Counts:
        return counts.reshape(node.shape)


def no_paths_through(node: n.ActivationNode) -> ValueError:
    """The error of path quantities at an activation that is not a gate times its input."""
    return ValueError(
        f"the activation {node.operation} at {node.name!r} is not of the form q * gate(q), so no path goes "
        "through it; path quantities need ReLU, leaky ReLU, SiLU, GELU or another gate there (the tangent and "
        "limit kernels support it)."
    )


def _sum_rows(counts: Counts, axis: int, rows: list[list[int]]) -> Counts:
    """For each row of positions the sum over them along one axis; positions outside count nothing."""
    inside = [[position for position in row if position >= 0] for row in rows]
    sums = [np.take(counts, row, axis=axis).sum(axis=axis) for row in inside]
    return np.stack(sums, axis=axis, dtype=object)  # of a vector the sums are plain integers, and would become int64


GATES_CHUNK = 512  # examples whose gates are computed at once, at most
CHUNK_BYTES = 2**28  # memory for the hidden values of the examples that are computed at once


@dataclass(frozen=True, eq=False)
class PathGraph:
    """A network as a graph of inputs, linear nodes, gates, sums, scales and pools; ``trace`` makes it.

    The graph has no weights of its own: it reads the model's tensors each time, in evaluation mode, and so follows the
    model as it trains.

    Args:
        nodes: The nodes, each after the nodes that it reads.
        output_name: The name of the node that is the network's output.
        model: The module whose tensors the graph reads.

    >>> import neuralpath as npath
    >>> graph = npath.trace(npath.nets.FC(4, width=8, depth=3, n_outputs=2), torch.ones(1, 4))
    >>> graph.n_paths, graph.gate_names, graph.input_shape, graph.n_outputs
    (256, ('layers.relu1', 'layers.relu2'), (4,), 2)
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
    def aliases(self) -> dict[str, str]:
        """Other names of the tensors in ``state``, where modules share one, and the names in ``state``."""
        used = self._leaf_names
        return {name: own for name, own in own_names(self.model).items() if own in used and own != name}

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
    def dtype(self) -> torch.dtype | None:
        """The parameters' dtype, which inputs must have; ``None`` where there are none or they differ."""
        return common_dtype(self.params.values())

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
    def widest(self) -> int:
        """Number of units of the largest node."""
        return max(node.n_units for node in self.nodes)

    @cached_property
    def n_paths(self) -> int:
        """Number of paths into one output unit, exactly; where outputs differ, that of the largest.

        Weights, gates, masks, pooling factors and scales all count as 1; paths that start at a bias or at a constant
        count too. After a dense layer all outputs have the same number.

        Reference: P2 proposition 3.1. Cost: big-integer additions, one for each unit and place of a window.
        """
        return max(walk(self, ExactCounts()).reshape(-1).tolist())

    @torch.no_grad()
    def gates(self, x: Float[Tensor, "batch *shape"], *, memory: int = CHUNK_BYTES) -> Gates:
        """The gates that each example opens: one tensor for each name of ``gate_names``.

        Args:
            x: The examples.
            memory: About how many bytes of hidden values are held at once; examples are computed in chunks.

        Raises:
            ValueError: ``x`` does not fit the network; or ``x``, the model's tensors or hidden values are not finite.
            TypeError: ``x`` has another dtype than the network.
        """
        check_input("x", x, self)
        return compute_gates(self, x, self.state, memory=memory)

    def weights(self) -> Iterator[n.LinearNode | n.BiasNode]:
        """The nodes whose parameters are the weights of paths: linear nodes and biases."""
        return (node for node in self.nodes if isinstance(node, n.LinearNode | n.BiasNode))

    def tied_parameter(self) -> tuple[str, str, str] | None:
        """A parameter that is a weight at a node and used at another, with both names; ``None`` if there is none."""
        return tied_parameter(self.nodes, self.params)

    def __str__(self) -> str:
        return graph_table(self)


def common_dtype(tensors: Iterable[Shaped[Tensor, "..."]]) -> torch.dtype | None:
    """The dtype of tensors that are real, where all have the same."""
    dtypes = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    return dtypes.pop() if len(dtypes) == 1 else None


def check_graph(graph: object) -> None:
    """Refuse what is not a path graph, such as the model itself."""
    if not isinstance(graph, PathGraph):
        raise TypeError(f"`graph` must be a PathGraph, as `trace(model, example)` returns it, got {describe(graph)}.")


def check_input(name: str, x: object, graph: object) -> None:
    """Refuse a batch that does not fit a graph: its shape, its values, its dtype."""
    check_graph(graph)
    assert isinstance(graph, PathGraph)
    check_batch(name, x, graph.input_shape, dtype=graph.dtype)


def check_gates(name: str, gates: object, graph: PathGraph, n_examples: int | None = None) -> None:
    """Refuse gates that do not fit a graph, saying which node and what was expected."""
    if not isinstance(gates, Gates):
        raise TypeError(f"`{name}` must be `Gates`, as `graph.gates(x)` returns them, got {describe(gates)}.")
    if gates.names != graph.gate_names:
        raise ValueError(
            f"`{name}` are for the gate nodes {', '.join(gates.names) or '(none)'}, but the graph has "
            f"{', '.join(graph.gate_names) or '(none)'}."
        )
    for node, layer in zip(graph.gate_nodes, gates.layers.values(), strict=True):
        check_layer(name, node, layer)
    if n_examples is not None and len(gates) and gates.n_examples != n_examples:
        raise ValueError(
            f"`{name}` has {gates.n_examples} examples but its input has {n_examples}; they must be of one batch."
        )


def compute_gates(
    graph: PathGraph, x: Float[Tensor, "batch *shape"], state: Mapping[str, Tensor], *, memory: int = CHUNK_BYTES
) -> Gates:
    """The gates that each example opens with the given tensors of the model, computed in chunks."""
    check_tensors(graph.nodes, state)
    recorded: dict[str, list[Shaped[Tensor, "batch ..."]]] = {name: [] for name in graph.gate_names}
    # A node and the one before it are held at once, and as much again while the node is computed.
    for chunk in x.split(min(GATES_CHUNK, max(1, memory // (4 * graph.widest * x.element_size())))):
        walk(graph, FiniteForward(graph.nodes, chunk, state, lambda name, gate: recorded[name].append(gate)))
    return Gates({name: torch.cat(parts) if len(parts) > 1 else parts[0] for name, parts in recorded.items()})
