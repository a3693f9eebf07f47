"""The output of a network with given weights and gates, and which of its outputs a path quantity is about."""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._checks import check_batch, describe
from neuralpath.graph import nodes as n
from neuralpath.graph.forward import Forward, Gates
from neuralpath.graph.free_weights import bound_weight
from neuralpath.graph.path_graph import PathGraph, check_gates, check_graph, common_dtype
from neuralpath.graph.tracing import as_graph
from neuralpath.graph.walking import walk


def chosen_output(graph: PathGraph, outputs: int | None) -> int:
    """Index of the output unit that a quantity is about; ``None`` means all of them where they share their paths.

    Raises: TypeError if it is no index; ValueError if it is out of range, or if none is given and the outputs differ.
    """
    check_graph(graph)
    if outputs is not None:
        if not isinstance(outputs, int) or isinstance(outputs, bool):
            raise TypeError(f"`outputs` must be the index of an output unit, an integer, got {describe(outputs)}.")
        if not 0 <= outputs < graph.n_outputs:
            raise ValueError(f"`outputs` must be an index from 0 to {graph.n_outputs - 1}, got {outputs}.")
        return outputs
    if not outputs_share_paths(graph):
        raise ValueError(
            f"the {graph.n_outputs} outputs do not end in one dense layer, so each has paths of its own; "
            "say which one with `outputs=`."
        )
    return 0


def outputs_share_paths(graph: PathGraph) -> bool:
    """Whether the outputs differ in nothing but the last weight of each path."""
    return graph.n_outputs == 1 or _shared(graph, graph.by_name[graph.output_name])


def _shared(graph: PathGraph, node: n.Node) -> bool:
    sources = [graph.by_name[name] for name in node.inputs]
    match node:
        case n.LinearNode():
            return node.groups == 1 and not node.windows
        case n.BiasNode() | n.ReshapeNode():
            return _shared(graph, sources[0])
        case n.ScaleNode():
            return node.factor.evaluate(graph.state).numel() == 1 and _shared(graph, sources[0])
        case n.ConstantNode():
            return node.value.evaluate(graph.state).numel() == 1
        case n.AddNode():
            return all(_shared(graph, source) for source in sources)
        case n.SelectNode():
            return all(i is None or bool((i >= 0).all()) for i in node.indices) and _shared(graph, sources[0])
        case _:
            return False


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
    if (bound := bound_weight(graph.nodes, graph.state)) is not None:
        name, reason = bound
        raise ValueError(
            f"{quantity} is that of a network whose weights are free, and those of {name!r} are computed from "
            f"parameters: {reason}. Put a constant factor on the layer's output or its input, make each weight a "
            "parameter of its own (`torch.nn.utils.prune.remove`, `parametrize.remove_parametrizations`), or use the "
            "tangent kernel, which takes them as they are."
        )


def output(
    network: nn.Module | PathGraph,
    x: Float[Tensor, "batch *shape"],
    *,
    params: Mapping[str, Tensor] | None = None,
    gates: Gates | None = None,
) -> Float[Tensor, "batch *out"]:
    """The output of a network with given weights and given gates, differentiable in all of them.

    With neither weights nor gates it is the model's own forward pass in evaluation mode.

    Args:
        network: A module or its path graph.
        x: The examples.
        params: Tensors that replace some or all of ``graph.params``, by name.
        gates: Gates that replace all those that ``x`` opens.

    Raises:
        ValueError, TypeError: ``x``, ``params`` or ``gates`` do not fit the network.

    >>> import torch, neuralpath as npath
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    >>> x = torch.randn(4, 2)
    >>> graph = npath.trace(model, x[:1])
    >>> bool(torch.allclose(npath.output(graph, x, gates=graph.gates(x)), model(x)))
    True
    """
    graph = as_graph(network, x)
    replaced = _replacements(graph, params or {})
    check_batch("x", x, graph.input_shape, dtype=common_dtype({**graph.params, **replaced}.values()))
    if gates is not None:
        check_gates("gates", gates, graph, x.shape[0])
    return walk(graph, Forward(x, {**graph.state, **replaced}, gates))


def _replacements(graph: PathGraph, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of ``params`` by the names that the graph reads, checked against the model's own."""
    state, aliases = graph.state, graph.aliases
    unknown = sorted(set(params) - set(state) - set(aliases))
    if unknown:
        raise ValueError(f"`params` has names that the graph does not read: {', '.join(unknown)}.")
    replaced: dict[str, Tensor] = {}
    for name, tensor in params.items():
        own = state[aliases.get(name, name)]
        if not isinstance(tensor, Tensor) or tensor.shape != own.shape:
            error = ValueError if isinstance(tensor, Tensor) else TypeError
            raise error(f"`params[{name!r}]` must be a tensor of shape {tuple(own.shape)}, got {describe(tensor)}.")
        if replaced.setdefault(aliases.get(name, name), tensor) is not tensor:
            raise ValueError(
                f"`params` has two tensors for one parameter, {name!r} and {aliases.get(name, name)!r}: the model's "
                "modules share it, so give one tensor."
            )
    dtypes = {str(tensor.dtype) for name, tensor in {**graph.params, **replaced}.items() if tensor.is_floating_point()}
    if len(dtypes) > 1 and graph.dtype is not None:
        raise TypeError(f"`params` must leave the network in one dtype, got {', '.join(sorted(dtypes))}; replace all.")
    return replaced
