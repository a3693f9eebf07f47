"""The training examples that a network treats as most similar to others."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from neuralpath._loops import overlaps
from neuralpath._resources import memory_budget
from neuralpath.graph import PathGraph, checked_graph, chosen_output
from neuralpath.kernels import Cost, PathKernel, Plan, Tile, dense_chain, make_plan, refuse_overflow
from neuralpath.paths.counts import log_active_paths, log_shared_paths
from neuralpath.paths.inputs import Batch, Batch1, Batch2, Network

By = Literal["kernel", "gates", "paths", "input"]

SELF_BLOCK = 4  # examples whose counts with themselves are computed together
TILE_PAIRS = 2**20  # pairs that are compared at once, at most


@dataclass(frozen=True, slots=True, eq=False)
class Neighbors:
    """The nearest examples of each query, the nearest first.

    Args:
        by: The measure.
        indices: The indices of the nearest training examples.
        values: Their measures: the cosine of the path features, the normalized number of shared active paths, the
            logarithm of that number (minus infinity where no path is shared), or the Euclidean distance.
    """

    by: str
    indices: Int64[Tensor, "query k"]
    values: Float[Tensor, "query k"]


@torch.no_grad()
def nearest(
    network: Network,
    x_query: Float[Tensor, "_query *shape"],
    x_train: Float[Tensor, "_train *shape"],
    k: int,
    *,
    by: str = "kernel",
    outputs: int | None = None,
    normalize: bool = False,
    memory: int | None = None,
    tile_pairs: int = TILE_PAIRS,
) -> Neighbors:
    r"""The training examples that a network treats as most similar to each query.

    .. math:: \frac{H(x, x')}{\sqrt{H(x, x) H(x', x')}}, \qquad \frac{s(x, x')}{\sqrt{s(x, x) s(x', x')}}, \qquad
        \log s(x, x'), \qquad \|x - x'\|, \qquad s(x, x') = \sum_p A(x, p) A(x', p)

    are the measures ``"kernel"``, the cosine of the path features; ``"gates"``, the number of paths that are active for
    both, normalized; ``"paths"``, the logarithm of that number; and ``"input"``, the distance of the inputs, which does
    not depend on the network. Path features are inputs times activities, so ``"kernel"`` compares pixels as well as
    gates: for a fully connected network without biases it is the cosine of the inputs times ``"gates"``. ``"paths"``
    favors examples that open many gates. The first two are 0 for an example without an active path. Of equally near
    examples the one with the smaller index comes first.

    Args:
        network: A module or its path graph.
        x_query: The queries.
        x_train: The examples to search.
        k: The number of nearest examples of each query.
        by: The measure: ``"kernel"``, ``"gates"``, ``"paths"`` or ``"input"``.
        outputs: The index of the output unit whose paths count, by ``"gates"`` or ``"paths"``; ``None`` where all
            outputs share their paths.
        normalize: Divide every linear node of the path kernel by its fan-in, for networks whose kernel exceeds the
            range of its dtype. Numbers of paths are logarithms and do not need it.
        memory: A budget in bytes; ``None`` takes a part of the free memory.
        tile_pairs: The largest number of pairs that are compared at once.

    Raises:
        ValueError: The inputs do not fit, ``k`` is not from 1 to the number of training examples, or the measure is
            unknown.
        OverflowError: As ``path_kernel``.

    Cost: for ``"kernel"`` the path kernel of all pairs, tile by tile, and of each example with itself; for ``"gates"``
    and ``"paths"`` a population count of each pair's gates for a bias-free fully connected network, otherwise a pass
    over the units for each pair. Only the k nearest so far are stored.

    >>> import neuralpath as npath
    >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [-1.0, 0.5]])
    >>> nearest(npath.nets.FC(2, width=8, depth=2), x[:1], x, 2, by="input").indices
    tensor([[0, 1]])
    """
    graph = checked_graph(network, x_query=x_query, x_train=x_train)
    if not isinstance(k, Integral) or isinstance(k, bool) or not 1 <= k <= len(x_train):
        raise ValueError(f"`k` must be from 1 to the {len(x_train):,} examples of `x_train`, got {k}.")
    budget = memory_budget(memory)
    if outputs is not None and by not in ("gates", "paths"):
        raise ValueError(f"`outputs` says whose paths are counted, by 'gates' or by 'paths'; it has no use by {by!r}.")
    if by == "kernel":
        tiles = _cosines(graph, x_query, x_train, normalize, budget)
    elif by in ("gates", "paths"):
        gates = sum(node.n_units for node in graph.gate_nodes)
        plan = make_plan(len(x_query), len(x_train), Cost(32, 2 * gates, tile_pairs), budget, symmetric=False)
        tiles = _shared(graph, x_query, x_train, by == "gates", chosen_output(graph, outputs), plan)
    elif by == "input":
        plan = make_plan(len(x_query), len(x_train), Cost(32, 0, tile_pairs), budget, symmetric=False)
        tiles = _distances(x_query, x_train, plan)
    else:
        near = get_close_matches(str(by), get_args(By), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"`by` must be one of {', '.join(get_args(By))}, got {by!r}.{hint}")
    indices, values = _largest(tiles, len(x_query), int(k))
    return Neighbors(by, indices, (-values if by == "input" else values).to(x_query.dtype))


Scores = Iterator[tuple[Tile, Float[Tensor, "_rows _columns"]]]


def _largest(tiles: Scores, n_queries: int, k: int) -> tuple[Int64[Tensor, "query k"], Float[Tensor, "query k"]]:
    """The k largest scores of each row; tiles of a row come from left to right."""
    values, indices = torch.empty(n_queries, k, dtype=torch.float64), torch.empty(n_queries, k, dtype=torch.int64)
    seen: dict[int, int] = {}  # by the first row of a tile, the columns that have been compared
    for tile, scores in tiles:
        rows, n_before = tile.rows, min(seen.get(tile.rows.start, 0), k)
        columns = torch.arange(tile.columns.start, tile.columns.stop).expand(len(scores), -1)
        all_values = torch.cat([values[rows, :n_before], scores.cpu().double()], 1)
        all_indices = torch.cat([indices[rows, :n_before], columns], 1)
        # A stable sort keeps equal scores in their order, the smaller index first.
        order = torch.sort(all_values, dim=1, descending=True, stable=True).indices[:, :k]
        size = order.shape[1]
        values[rows, :size], indices[rows, :size] = all_values.gather(1, order), all_indices.gather(1, order)
        seen[rows.start] = tile.columns.stop
    return indices, values


def _cosines(graph: PathGraph, x_query: Tensor, x_train: Tensor, normalize: bool, budget: int) -> Scores:
    kernel = PathKernel(graph, normalize=normalize)
    lengths1, lengths2 = (kernel.diagonal(x, memory=budget).clamp(min=0).sqrt() for x in (x_query, x_train))
    for tile, values in kernel.tiles(x_query, x_train, memory=budget):
        refuse_overflow(values, "path kernel", "use `normalize=True`, or give the inputs in float64")
        # One after the other: a product of lengths may exceed the range of the dtype.
        scores = values / lengths1[tile.rows, None] / lengths2[None, tile.columns]
        yield tile, torch.nan_to_num(scores, nan=0.0, posinf=0.0, neginf=0.0)


def _shared(graph: PathGraph, x_query: Tensor, x_train: Tensor, normalized: bool, output: int, plan: Plan) -> Scores:
    """Logarithms of the numbers of shared paths, or these numbers over the geometric mean of those with themselves."""
    layers = graph.gates(x_query[:1]).layers.values()
    is_chain = dense_chain(graph) is not None and all(layer.dtype == torch.bool for layer in layers)
    is_hard = not any(layer.dtype.is_floating_point for layer in layers)
    for tile in plan.tiles():
        x1, x2 = x_query[tile.rows], x_train[tile.columns]
        logs = _chain_counts(graph, x1, x2) if is_chain else log_shared_paths(graph, x1, x2, outputs=output).double()
        if normalized:
            own1, own2 = (_own_counts(graph, x, output, is_chain, is_hard) for x in (x1, x2))
            # Without an active path both logarithms are minus infinity, and their difference is no number.
            logs = torch.nan_to_num((logs - 0.5 * (own1[:, None] + own2[None])).exp(), nan=0.0)
        yield tile, logs


def _own_counts(graph: PathGraph, x: Batch, output: int, is_chain: bool, is_hard: bool) -> Float[Tensor, " batch"]:
    """Logarithm of the number of paths that each example shares with itself: for soft gates, the sum of squares."""
    if is_chain:
        total = torch.full((len(x),), math.log(x[0].numel()), dtype=torch.float64, device=x.device)
        for layer in graph.gates(x).layers.values():
            total += layer.flatten(1).sum(1).double().log_()
        return total
    if is_hard:
        return log_active_paths(graph, x, outputs=output).double()
    parts = [log_shared_paths(graph, part, outputs=output).diagonal() for part in x.split(SELF_BLOCK)]
    return torch.cat(parts).double()


def _chain_counts(graph: PathGraph, x1: Batch1, x2: Batch2) -> Float[Tensor, "batch1 batch2"]:
    """Shared paths of a fully connected network: inputs times the product of the layers' overlaps."""
    total = torch.full((len(x1), len(x2)), math.log(x1[0].numel()), dtype=torch.float64, device=x1.device)
    for layer1, layer2 in zip(graph.gates(x1).layers.values(), graph.gates(x2).layers.values(), strict=True):
        total += overlaps(layer1, layer2, torch.float64).log_()
    return total


def _distances(x_query: Tensor, x_train: Tensor, plan: Plan) -> Scores:
    """Minus the distance, so that the nearest is the largest."""
    wide = torch.promote_types(x_query.dtype, torch.float32)  # torch has no distances in half precision
    x1, x2 = x_query.flatten(1).to(wide), x_train.flatten(1).to(wide)
    for tile in plan.tiles():
        # By differences: inner products are faster, but lose the digits that matter between near examples.
        yield tile, -torch.cdist(x1[tile.rows], x2[tile.columns], compute_mode="donot_use_mm_for_euclid_dist")
