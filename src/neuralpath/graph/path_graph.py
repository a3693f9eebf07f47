"""The path graph: a network as nodes that read the tensors of the model."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath._checks import check_batch, describe, is_finite
from neuralpath.graph import nodes as n
from neuralpath.graph.counting import ExactCounts
from neuralpath.graph.free_weights import binding, is_plain
from neuralpath.graph.nodes import State, own_names, parameters_of
from neuralpath.graph.reports import graph_table
from neuralpath.graph.walking import Gates, RecordingForward, Values, check_operands, walk

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

    @cached_property
    def _leaf_names(self) -> frozenset[str]:
        return frozenset(leaf.name for node in self.nodes for op in n.operands_of(node) for leaf in op.leaves())

    @property
    def params(self) -> dict[str, Tensor]:
        """The model's own parameters that the graph reads, by their names in the model."""
        return {k: v for k, v in self.model.named_parameters(remove_duplicate=False) if k in self._leaf_names}

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The model's own buffers that the graph reads, by their names in the model."""
        return {k: v for k, v in self.model.named_buffers(remove_duplicate=False) if k in self._leaf_names}

    @property
    def state(self) -> dict[str, Tensor]:
        """Every tensor that the graph reads."""
        return {**self.buffers, **self.params}

    @property
    def aliases(self) -> dict[str, str]:
        """Other names of the tensors in ``state``, where modules share one, and the names in ``state``."""
        return {name: own for name, own in own_names(self.model).items() if own in self._leaf_names and own != name}

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

    @cached_property
    def computed_weights(self) -> tuple[n.LinearNode | n.BiasNode, ...]:
        """The nodes whose weights the model computes, other than by a view of a parameter."""
        return tuple(node for node in self.weights() if not is_plain(*n.operands_of(node)))

    def tied_parameter(self) -> tuple[str, str, str] | None:
        """A parameter that is a weight at a node and used at another, with both names; ``None`` if there is none.

        A parameter that is only used as a constant (scale, slope, gain of batch norm) may repeat. Two names are one
        parameter where their memory overlaps.
        """
        memory = _memory(self.params)
        seen: dict[int, tuple[str, bool]] = {}
        for node in self.nodes:
            names = tuple(name for operand in n.operands_of(node) for name in parameters_of(operand))
            if is_weight := isinstance(node, n.LinearNode | n.BiasNode):
                names = node.parameters  # of batch norm the bias alone: the gain belongs to the scale before it
            for name in names:
                first, was_weight = seen.setdefault(memory[name], (node.name, is_weight))
                if first != node.name and (is_weight or was_weight):
                    return name, first, node.name
        return None

    def __str__(self) -> str:
        return graph_table(self)


def _memory(params: Mapping[str, Tensor]) -> dict[str, int]:
    """A number for each parameter, the same for those that overlap in memory."""
    numbers: dict[str, int] = {}
    number, end = 0, 0
    for name, tensor in sorted(params.items(), key=lambda item: item[1].data_ptr()):
        start = tensor.data_ptr()
        if start >= end or not start:  # tensors without memory have the address 0
            number += 1
        numbers[name] = number
        if tensor.numel():
            last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            end = max(end, start + (last + 1) * tensor.element_size())
    return numbers


def refuse_repeated(graph: PathGraph, quantity: str) -> None:
    """Refuse a parameter that is a weight at one node and used at another: the output is not multilinear in it."""
    check_graph(graph)
    if (tied := graph.tied_parameter()) is not None:
        name, first, second = tied
        raise ValueError(
            f"{quantity} is not defined for tied weights: the parameter {name!r} is used at {first!r} and at "
            f"{second!r}, so a path may contain it twice; untie it, or use the tangent kernel, which handles tying."
        )


def refuse_tied(graph: PathGraph, quantity: str) -> None:
    """Refuse weights that cannot be drawn independently: shared between nodes, or bound by how they are computed."""
    refuse_repeated(graph, quantity)
    for node in graph.computed_weights:
        if (reason := binding(node, graph.state)) is not None:
            raise ValueError(
                f"{quantity} is that of a network whose weights are free, and those of {node.name!r} are computed from "
                f"parameters: {reason}. Make each weight a parameter (`prune.remove`, "
                "`parametrize.remove_parametrizations`), with constant factors outside, or use the tangent kernel."
            )


def chosen_output(graph: PathGraph, outputs: int | None) -> int:
    """Index of the output unit that a quantity is about; ``None`` means all of them where they share their paths."""
    check_graph(graph)
    if outputs is None:
        if outputs_share_paths(graph):
            return 0
        raise ValueError(
            f"the {graph.n_outputs} outputs do not end in one dense layer, so each has paths of its own; "
            "say which one with `outputs=`."
        )
    if not isinstance(outputs, int) or isinstance(outputs, bool):
        raise TypeError(f"`outputs` must be the index of an output unit, an integer, got {describe(outputs)}.")
    if not 0 <= outputs < graph.n_outputs:
        raise ValueError(f"`outputs` must be an index from 0 to {graph.n_outputs - 1}, got {outputs}.")
    return outputs


def outputs_share_paths(graph: PathGraph) -> bool:
    """Whether the outputs differ in nothing but the last weight of each path."""

    def shared(node: n.Node) -> bool:
        match node:
            case n.LinearNode():
                return node.groups == 1 and not node.windows
            case n.ConstantNode(value=operand) | n.ScaleNode(factor=operand):
                alike = operand.evaluate(graph.state).numel() == 1
            case n.SelectNode():
                alike = all(index is None or bool((index >= 0).all()) for index in node.indices)
            case _:
                alike = isinstance(node, n.BiasNode | n.ReshapeNode | n.AddNode)
        return alike and all(shared(graph.by_name[name]) for name in node.inputs)

    return graph.n_outputs == 1 or shared(graph.by_name[graph.output_name])


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


def compute_gates(graph: PathGraph, x: Values, state: State, *, memory: int = CHUNK_BYTES) -> Gates:
    """The gates that each example opens with the given tensors of the model, computed in chunks."""
    if not all(is_finite(tensor) for tensor in state.values()):
        check_operands(graph.nodes, state)
    recorded: dict[str, list[Tensor]] = {name: [] for name in graph.gate_names}
    # A node and the one before it are held at once, and as much again while the node is computed.
    for chunk in x.split(min(GATES_CHUNK, max(1, memory // (4 * graph.widest * x.element_size())))):
        walk(graph, RecordingForward(graph.nodes, chunk, state, recorded))
    return Gates({name: torch.cat(parts) if len(parts) > 1 else parts[0] for name, parts in recorded.items()})
