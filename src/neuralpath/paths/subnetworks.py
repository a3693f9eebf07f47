"""The sub-networks of a network with skips, and their kernels."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from neuralpath._checks import check_batch
from neuralpath.graph import Gates, PathGraph, as_graph, check_graph, nodes as n
from neuralpath.kernels import path_kernel
from neuralpath.paths.inputs import Batch1, Batch2, Network, checked_gates


def subnetwork(graph: PathGraph, branches: Mapping[str, int]) -> PathGraph:
    """The network in which some sums are replaced by one of their branches.

    The sub-network reads the same model. Its own gates, ``gates(x)``, are those of the smaller network; for the
    sub-network inside the whole network use the gates of ``graph``, as ``subnetwork_kernel`` does.

    Args:
        graph: The path graph, as ``trace`` returns it.
        branches: By the name of a sum, the index of the branch to keep. Nodes that nothing reads any more are dropped.

    Raises:
        ValueError: A name is not a sum of the graph, or an index is out of range.

    Reference: P2 definition 2.3 and figure 1. Cost: negligible.

    >>> import torch, neuralpath as npath
    >>> graph = npath.trace(npath.nets.ResidualFC(2, 3, n_skips=1, block_depth=1), torch.ones(1, 2))
    >>> subnetwork(graph, {"add": 0}).gate_names, subnetwork(graph, {"add": 1}).gate_names
    (('first.relu1',), ('first.relu1', 'skipped.0.relu1'))
    """
    check_graph(graph)
    adds = {node.name: node for node in graph.nodes if isinstance(node, n.AddNode)}
    for name, index in branches.items():
        if name not in adds:
            raise ValueError(f"`branches` names {name!r}, which is no sum of this graph; its sums are {_listed(adds)}.")
        last = len(adds[name].inputs) - 1
        if not 0 <= index <= last:
            raise ValueError(f"`branches` must give an index from 0 to {last} for {name!r}, got {index}.")
    replacement: dict[str, str] = {}  # of a sum, the branch that is kept
    nodes: list[n.Node] = []
    for node in graph.nodes:
        inputs = tuple(replacement.get(name, name) for name in node.inputs)
        if node.name in branches:
            replacement[node.name] = inputs[branches[node.name]]
        else:
            nodes.append(node if inputs == node.inputs else replace(node, inputs=inputs))
    output_name = replacement.get(graph.output_name, graph.output_name)
    return replace(graph, nodes=n.needed_nodes(nodes, output_name), output_name=output_name)


def residual_adds(graph: PathGraph) -> tuple[str, ...]:
    """Names of the sums in which a skip meets the block that it skips, in the order of the network.

    The block is the branch with more linear nodes between the input and the sum; the skip is the other branch, with or
    without a projection. Sums with a constant are not residual sums.

    Args:
        graph: The path graph, as ``trace`` returns it.

    Raises:
        ValueError: A sum has more than two branches, or two with equally many linear nodes, so that neither is the
            skip.

    Reference: P2 figure 1.

    >>> import torch, neuralpath as npath
    >>> graph = npath.trace(npath.nets.ResidualFC(2, 3, n_skips=2, block_depth=1), torch.ones(1, 2))
    >>> graph.by_name[residual_adds(graph)[0]].inputs
    ('first.relu1', 'skipped.0.relu1')
    """
    return tuple(_block_branches(graph))


def residual_subnetwork(graph: PathGraph, blocks: Collection[str]) -> PathGraph:
    """The sub-network of a residual network that goes through some blocks and skips the others.

    Args:
        graph: The path graph, as ``trace`` returns it.
        blocks: Names of ``residual_adds`` whose blocks are kept and whose skips are removed (the set J). At all others
            the block is removed and the skip is kept.

    Raises:
        ValueError: A name is not one of ``residual_adds``; or as there.
        TypeError: ``blocks`` is one name.

    Reference: P2 definition 2.3. See ``subnetwork`` for its gates.

    >>> import torch, neuralpath as npath
    >>> graph = npath.trace(npath.nets.ResidualFC(2, 3, n_skips=2, block_depth=1), torch.ones(1, 2))
    >>> first, second = residual_adds(graph)
    >>> residual_subnetwork(graph, {second}).gate_names
    ('first.relu1', 'skipped.1.relu1')
    """
    branches = _block_branches(graph)
    if isinstance(blocks, str):
        raise TypeError(f"`blocks` must be a collection of names, such as {{{blocks!r}}}, got one name.")
    unknown = sorted(set(blocks) - set(branches))
    if unknown:
        raise ValueError(
            f"`blocks` has names that are no residual sums of this graph: {', '.join(unknown)}; they are "
            f"{_listed(branches)}."
        )
    return subnetwork(graph, {name: branch if name in blocks else 1 - branch for name, branch in branches.items()})


def subnetwork_kernel(
    network: Network,
    x1: Batch1,
    x2: Batch2 | None = None,
    *,
    blocks: Collection[str],
    gates1: Gates | None = None,
    gates2: Gates | None = None,
    normalize: bool = False,
) -> Float[Tensor, "batch1 batch2"]:
    r"""The path kernel of one sub-network of a residual network, with the gates of the whole network.

    .. math:: H^J, \qquad H = \sum_J H^J

    Symbols: :math:`J` is ``blocks``: paths go through the blocks in J and through the skips over all others. All scales
    are 1, as in ``path_kernel`` with ``unit_scales``. For other scales use ``path_kernel`` of ``residual_subnetwork``.

    Args:
        network: A module or its path graph.
        x1: The examples of the rows.
        x2: The examples of the columns; ``None`` means ``x1``.
        blocks: Names of ``residual_adds`` whose blocks are kept.
        gates1: The gates of the whole network to use instead of those that ``x1`` opens.
        gates2: The same for ``x2``.
        normalize: Divide every linear node by its fan-in.

    Raises:
        ValueError, TypeError: As ``residual_subnetwork`` and ``path_kernel``.

    Reference: P2 definition 2.3 and lemma 4.2.
    Assumes: for the sum over all J to be :math:`H`, no biases and no added constants (their paths start after some of
    the choices, and would count more than once), no block inside another, and a weight in each block.
    Cost: that of ``path_kernel`` of a smaller network.

    >>> import torch, neuralpath as npath
    >>> graph = npath.trace(npath.nets.ResidualFC(2, 3, n_skips=1, block_depth=1), torch.ones(1, 2))
    >>> x = torch.tensor([[1.0, 2.0], [2.0, -1.0]])
    >>> parts = subnetwork_kernel(graph, x, blocks=()) + subnetwork_kernel(graph, x, blocks={"add"})
    >>> bool(torch.allclose(parts, path_kernel(graph, x, unit_scales=True)))
    True
    """
    graph = as_graph(network, x1, "x1")
    part = residual_subnetwork(graph, blocks)
    check_batch("x1", x1, graph.input_shape)
    if x2 is not None:
        check_batch("x2", x2, graph.input_shape)
        if (gates1 is None) != (gates2 is None):
            raise ValueError("`gates1` and `gates2` replace the gates of `x1` and `x2`: give both or neither.")
    elif gates2 is not None:
        raise ValueError("`gates2` are the gates of `x2`, which is not given.")
    inside1 = _restricted(part, graph, x1, "gates1", gates1)
    inside2 = None if x2 is None else _restricted(part, graph, x2, "gates2", gates2)
    return path_kernel(part, x1, x2, gates1=inside1, gates2=inside2, normalize=normalize, unit_scales=True)


def _restricted(part: PathGraph, whole: PathGraph, x: Tensor, name: str, gates: Gates | None) -> Gates:
    """The gates of the whole network at the gate layers of a sub-network."""
    gates = checked_gates(whole, x, gates, name)
    return Gates({name: gates[name] for name in part.gate_names})


def _block_branches(graph: PathGraph) -> dict[str, int]:
    """For each residual sum the index of the branch that is its block."""
    check_graph(graph)
    depths: dict[str, int] = {}  # most linear nodes between the input and a node; no entry where no path leads there
    blocks: dict[str, int] = {}
    for node in graph.nodes:
        branches = [depths[name] for name in node.inputs if name in depths]
        if isinstance(node, n.InputNode) or branches:
            depths[node.name] = max(branches, default=0) + isinstance(node, n.LinearNode)
        if not isinstance(node, n.AddNode) or len(branches) < 2:
            continue
        if len(branches) > 2 or branches[0] == branches[1]:
            problem = f"{len(branches)} branches" if len(branches) > 2 else "as many linear nodes on either branch"
            raise ValueError(f"the sum {node.name!r} has {problem}, so neither is the skip: use `subnetwork`.")
        blocks[node.name] = int(branches[1] > branches[0])
    return blocks


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "(none)"
