"""The output of a network with given weights and gates."""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._checks import check_batch, describe
from neuralpath.graph.gate_checks import check_gates
from neuralpath.graph.path_graph import PathGraph, common_dtype
from neuralpath.graph.tracing import as_graph
from neuralpath.graph.walking import Forward, Gates, walk


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
    if unknown := sorted(set(params) - set(state) - set(aliases)):
        raise ValueError(f"`params` has names that the graph does not read: {', '.join(unknown)}.")
    replaced: dict[str, Tensor] = {}
    for name, tensor in params.items():
        own = aliases.get(name, name)
        shape = tuple(state[own].shape)
        if not isinstance(tensor, Tensor) or tensor.shape != shape:
            error = ValueError if isinstance(tensor, Tensor) else TypeError
            raise error(f"`params[{name!r}]` must be a tensor of shape {shape}, got {describe(tensor)}.")
        if replaced.setdefault(own, tensor) is not tensor:
            raise ValueError(f"`params` has two tensors for one parameter, {name!r} and {own!r}: give one tensor.")
    dtypes = {str(tensor.dtype) for tensor in {**graph.params, **replaced}.values() if tensor.is_floating_point()}
    if len(dtypes) > 1 and graph.dtype is not None:
        raise TypeError(f"`params` must leave the network in one dtype, got {', '.join(sorted(dtypes))}; replace all.")
    return replaced
