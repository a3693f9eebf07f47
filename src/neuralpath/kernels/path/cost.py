"""What the pair reading needs for one pair of inputs, from the graph alone."""

from math import prod

import torch

from neuralpath.graph import PathGraph, nodes as n
from neuralpath.kernels.tiling.plan import Cost

USEFUL_BYTES = 2**28
"""Pair values of a tile beyond which nothing is gained: they have long left the caches."""

MAX_PAIRS = 2**22


def pair_cost(graph: PathGraph, dtype: torch.dtype, orders: int) -> Cost:
    """Memory of one pair, and of one example, while the graph is walked."""
    size = dtype.itemsize * orders
    sources: dict[str, frozenset[str]] = {}
    values: dict[str, int] = {}
    last_use = {name: node.name for node in graph.nodes for name in node.inputs}
    alive: set[str] = set()
    peak = size
    for node in graph.nodes:
        reached = frozenset().union(*(sources[name] for name in node.inputs)) if node.inputs else frozenset()
        if isinstance(node, n.LinearNode):
            values[node.name] = node.groups * node.n_positions**2 * size
            scratch = prod(node.in_space) ** 2 * size if node.windows else 0
            scratch += 2 * values[node.name] * (orders - 1)  # the derivative is put together from copies
            held = frozenset().union(*(sources[name] for name in alive)) if alive else frozenset()
            peak = max(peak, sum(values[s] for s in held | reached) + values[node.name] + scratch)
            reached = frozenset([node.name])
        sources[node.name] = reached
        alive.add(node.name)
        alive -= {name for name in alive if last_use.get(name) == node.name}
    peak += 3 * peak // 4  # what a step holds for a moment, and freed blocks that the allocator keeps
    gates = sum(node.n_units * (8 if isinstance(node, n.MaxPoolNode) else 1) for node in graph.gate_nodes)
    widest = 4 * max(node.n_units for node in graph.nodes) * dtype.itemsize
    return Cost(peak, gates + widest, max(4, min(MAX_PAIRS, USEFUL_BYTES // peak)), gates)
