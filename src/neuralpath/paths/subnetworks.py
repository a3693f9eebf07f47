"""The sub-networks of a network with skips, and their kernels."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._checks import check_batch
from neuralpath.graph import Gates, PathGraph, as_graph, check_gates, check_graph, nodes as n
from neuralpath.kernels import path_kernel


def subnetwork(graph: PathGraph, branches: Mapping[str, int]) -> PathGraph:
    """The network in which some sums are replaced by one of their branches.

    ``branches`` gives, by the name of an add node, the index of the branch that is kept; what nothing reads any more
    is dropped. It reads the same model. Its own gates, ``gates(x)``, are those of the smaller network; for the
    sub-network as it stands inside the whole one, take the gates of ``graph``, as ``subnetwork_kernel`` does.
    Reference: P2 definition 2.3 and figure 1. Cost: none to speak of.
    Raises: ValueError for a name that is no add node of the graph, or an index out of range.

    >>> import torch, neuralpath as npath
    >>> graph = npath.trace(npath.nets.ResidualFC(2, 3, n_skips=1, block_depth=1), torch.ones(1, 2))
    >>> subnetwork(graph, {"add": 0}).gate_names, subnetwork(graph, {"add": 1}).gate_names
    (('first.relu1',), ('first.relu1', 'skipped.0.relu1'))
    """
    adds = {node.name: node for node in graph.nodes if isinstance(node, n.AddNode)}
    for name, index in branches.items():
        if name not in adds:
            raise ValueError(f"`branches` names {name!r}, which is no sum of this graph; its sums are {_listed(adds)}.")
        if not 0 <= index < len(adds[name].inputs):
            raise ValueError(
                f"`branches` must give an index from 0 to {len(adds[name].inputs) - 1} for {name!r}, got {index}."
            )
    stands_for: dict[str, str] = {}
    kept: list[n.Node] = []
    for node in graph.nodes:
        inputs = tuple(stands_for.get(name, name) for name in node.inputs)
        if node.name in branches:
            stands_for[node.name] = inputs[branches[node.name]]
        else:
            kept.append(node if inputs == node.inputs else replace(node, inputs=inputs))
    output_name = stands_for.get(graph.output_name, graph.output_name)
    return replace(graph, nodes=_read(kept, output_name), output_name=output_name)


def residual_adds(graph: PathGraph) -> tuple[str, ...]:
    """Names of the sums in which a skip meets the block that it skips, in the order of the network.

    The block is the branch with more linear nodes on its way from the input, at most; the skip is the other one, with
    or without a projection. Sums with a constant are none of them.
    Reference: P2 figure 1. Raises: ValueError for a sum of more than two branches, or of two with equally many linear
    nodes, where neither is the skip.

    >>> import torch, neuralpath as npath
    >>> graph = npath.trace(npath.nets.ResidualFC(2, 3, n_skips=2, block_depth=1), torch.ones(1, 2))
    >>> graph.by_name[residual_adds(graph)[0]].inputs
    ('first.relu1', 'skipped.0.relu1')
    """
    return tuple(_block_branches(graph))


def residual_subnetwork(graph: PathGraph, kept: Collection[str]) -> PathGraph:
    """The sub-network of a residual network that goes through some blocks and skips the others.

    ``kept`` are the names of ``residual_adds`` whose blocks are kept, and whose skips are removed (the set J); at all
    others the block is removed and the skip is kept. See ``subnetwork`` for its gates.
    Reference: P2 definition 2.3. Raises: ValueError for names that are not of ``residual_adds``, or as there.

    >>> import torch, neuralpath as npath
    >>> graph = npath.trace(npath.nets.ResidualFC(2, 3, n_skips=2, block_depth=1), torch.ones(1, 2))
    >>> first, second = residual_adds(graph)
    >>> residual_subnetwork(graph, {second}).gate_names
    ('first.relu1', 'skipped.1.relu1')
    """
    blocks = _block_branches(graph)
    if isinstance(kept, str):
        raise TypeError(f"`kept` must be a collection of names, such as {{{kept!r}}}, got one name.")
    unknown = sorted(set(kept) - set(blocks))
    if unknown:
        raise ValueError(
            f"`kept` has names that are no residual sums of this graph: {', '.join(unknown)}; they are "
            f"{_listed(blocks)}."
        )
    return subnetwork(graph, {name: block if name in kept else 1 - block for name, block in blocks.items()})


def subnetwork_kernel(
    network: nn.Module | PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    kept: Collection[str],
    gates1: Gates | None = None,
    gates2: Gates | None = None,
    normalize: bool = False,
) -> Float[Tensor, "batch1 batch2"]:
    r"""The path kernel of one sub-network of a residual network, with the gates of the whole network.

    .. math:: H^J, \qquad H = \sum_J H^J

    Symbols: :math:`J` is ``kept``, names of ``residual_adds``: paths go through the blocks in J and through the skips
    over all others. All scales are 1, as in ``path_kernel`` with ``unit_scales``; ``normalize``, ``gates1`` and
    ``gates2`` (gates of the whole network) are as there. For other scales: ``path_kernel`` of ``residual_subnetwork``.
    Reference: P2 definition 2.3 and lemma 4.2.
    Assumes: for the sum over all J to be :math:`H`, no biases and no added constants (their paths start behind some of
    the choices, and would count more than once), no block inside another, and a weight in each block.
    Cost: that of ``path_kernel`` of a smaller network.
    Raises: as ``residual_subnetwork`` and ``path_kernel``.

    >>> import torch, neuralpath as npath
    >>> graph = npath.trace(npath.nets.ResidualFC(2, 3, n_skips=1, block_depth=1), torch.ones(1, 2))
    >>> x = torch.tensor([[1.0, 2.0], [2.0, -1.0]])
    >>> parts = subnetwork_kernel(graph, x, kept=()) + subnetwork_kernel(graph, x, kept={"add"})
    >>> bool(torch.allclose(parts, path_kernel(graph, x, unit_scales=True)))
    True
    """
    graph = as_graph(network, x1, "x1")
    part = residual_subnetwork(graph, kept)
    check_batch("x1", x1, graph.input_shape)
    if x2 is not None:
        check_batch("x2", x2, graph.input_shape)
        if (gates1 is None) != (gates2 is None):
            raise ValueError("`gates1` and `gates2` replace the gates of `x1` and `x2`: give both or neither.")
    elif gates2 is not None:
        raise ValueError("`gates2` are the gates of `x2`, which is not given.")
    inside1 = _inside(part, graph, x1, "gates1", gates1)
    inside2 = None if x2 is None else _inside(part, graph, x2, "gates2", gates2)
    return path_kernel(part, x1, x2, gates1=inside1, gates2=inside2, normalize=normalize, unit_scales=True)


def _inside(part: PathGraph, whole: PathGraph, x: Tensor, name: str, gates: Gates | None) -> Gates:
    """The gates that a sub-network has inside the whole one."""
    if gates is None:
        gates = whole.gates(x)
    check_gates(name, gates, whole, len(x))
    return Gates({name: gates[name] for name in part.gate_names})


def _read(nodes: list[n.Node], output_name: str) -> tuple[n.Node, ...]:
    """The nodes that the output reads, and the input, which says what an example is."""
    needed = {output_name}
    for node in reversed(nodes):
        if node.name in needed:
            needed.update(node.inputs)
    return tuple(node for node in nodes if node.name in needed or isinstance(node, n.InputNode))


def _block_branches(graph: PathGraph) -> dict[str, int]:
    """For each residual sum the index of the branch that is its block."""
    check_graph(graph)
    depths: dict[str, int] = {}  # most linear_nodes on a way from the input; no entry where there is none
    blocks: dict[str, int] = {}
    for node in graph.nodes:
        ways = [depths[name] for name in node.inputs if name in depths]
        if isinstance(node, n.InputNode) or ways:
            depths[node.name] = max(ways, default=0) + isinstance(node, n.LinearNode)
        if not isinstance(node, n.AddNode) or len(ways) < 2:
            continue
        if len(ways) > 2 or ways[0] == ways[1]:
            problem = f"has {len(ways)} branches" if len(ways) > 2 else "has as many linear nodes on either branch"
            raise ValueError(
                f"the sum {node.name!r} {problem}, so it does not say which one is the skip: "
                "choose branches by hand with `subnetwork`."
            )
        blocks[node.name] = int(ways[1] > ways[0])
    return blocks


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "(none)"
