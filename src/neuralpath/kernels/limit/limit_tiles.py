"""Kernels of the limit reading, tile by tile."""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath.graph import check_input, nodes as n, walk
from neuralpath.kernels.limit.reading import LimitReading, Variances
from neuralpath.kernels.limit.setup import Limit
from neuralpath.kernels.limit.structure import Need, needed_pairs
from neuralpath.kernels.tiling.plan import Cost, Plan, Tile, make_plan

USEFUL_BYTES = 2**22
"""Pair values of a tile beyond which nothing is gained: they have left the caches."""

MAX_PAIRS = 2**20

SCRATCH = 8
"""Tensors of the size of a node's pair values that an activation or a window sum holds besides, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """The kernels of two batches: the limit, the inputs, and which pairs of positions are needed."""

    limit: Limit
    x1: Tensor
    x2: Tensor | None
    needs: dict[str, Need]
    own_needs: dict[str, Need]  # for each example with itself
    variances: tuple[Variances, Variances] | None = None  # of all examples, where they are kept

    def own_variances(self, x: Float[Tensor, "batch *shape"]) -> Variances:
        """Variances of the pre-activations of each example, in chunks of limited memory."""
        cost = pair_cost(self.limit, self.own_needs, x.dtype)
        chunk = max(1, USEFUL_BYTES // (cost.bytes_per_pair + cost.bytes_per_example))
        parts: list[Variances] = []
        for rows in x.split(chunk):
            reading = LimitReading(self.limit, (rows, rows), self.own_needs, None)
            walk(self.limit.graph, reading)
            parts.append(reading.found)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def with_variances(self) -> "Job":
        """The same job with the variances of all examples computed once."""
        one = self.own_variances(self.x1)
        return replace(self, variances=(one, one if self.x2 is None else self.own_variances(self.x2)))

    @torch.no_grad()
    def kernels(self, tile: Tile) -> list[Float[Tensor, "rows columns"]]:
        """Second moments of the outputs and the carried kernels of a tile."""
        one = self.x1[tile.rows]
        two = (self.x1 if self.x2 is None else self.x2)[tile.columns]
        if self.variances is None:
            variances = self.own_variances(one), self.own_variances(two)
        else:
            kept1, kept2 = self.variances
            variances = (
                {name: v[tile.rows] for name, v in kept1.items()},
                {name: v[tile.columns] for name, v in kept2.items()},
            )
        reading = LimitReading(self.limit, (one, two), self.needs, variances)
        return reading.finish(walk(self.limit.graph, reading))


def make_job(limit: Limit, x1: Tensor, x2: Tensor | None) -> Job:
    """A job with its inputs checked."""
    graph = limit.graph
    check_input("x1", x1, graph)
    if x2 is not None:
        check_input("x2", x2, graph)
        if x2.dtype != x1.dtype or x2.device != x1.device:
            raise ValueError(
                f"`x1` and `x2` must have one dtype and device, got {x1.dtype} on {x1.device} and "
                f"{x2.dtype} on {x2.device}."
            )
    needs = needed_pairs(graph, limit.places, {graph.output_name: Need.EQUAL})
    activated = {
        name: Need.EQUAL for node in graph.nodes if node.name in limit.activations for name in node.inputs
    }  # fmt: skip
    own_needs = needed_pairs(graph, limit.places, activated)
    return Job(limit, x1.detach(), None if x2 is None else x2.detach(), needs, own_needs)


def planned(job: Job, budget: int) -> tuple[Job, Plan]:
    """The plan of a job, and the job with what is kept for all tiles, where the budget allows that.

    Raises: BudgetTooSmall if not even one pair fits.
    """
    n1, n2 = len(job.x1), len(job.x1 if job.x2 is None else job.x2)
    cost = pair_cost(job.limit, job.needs, job.x1.dtype)
    kept = _variance_numbers(job.limit) * job.x1.element_size() * (n1 + (0 if job.x2 is None else n2))
    if kept <= min(budget // 4, budget - cost.smallest):
        with torch.no_grad():
            job = job.with_variances()
    else:
        kept = 0
        own = pair_cost(job.limit, job.own_needs, job.x1.dtype)
        cost = replace(cost, bytes_per_example=max(cost.bytes_per_example, own.bytes_per_pair + own.bytes_per_example))
    return job, make_plan(n1, n2, cost, budget - kept, symmetric=job.x2 is None, kept_bytes=kept)


def pair_cost(limit: Limit, needs: dict[str, Need], dtype: torch.dtype) -> Cost:
    """Memory of one pair of examples while the graph is walked, and of one example."""
    graph, size = limit.graph, dtype.itemsize
    last_use = {name: node.name for node in graph.nodes for name in node.inputs}
    alive: dict[str, int] = {}
    peak = size
    for node in graph.nodes:
        numbers = _pair_numbers(limit, node, needs)
        largest = max([numbers, *(_pair_numbers(limit, graph.by_name[name], needs) for name in node.inputs)])
        alive[node.name] = (1 + len(limit.carried)) * numbers
        peak = max(peak, (sum(alive.values()) + SCRATCH * largest) * size)
        alive = {name: held for name, held in alive.items() if last_use.get(name) not in (node.name, None)}
    example = (_variance_numbers(limit) + 4 * graph.widest) * size
    return Cost(peak, example, max(4, min(MAX_PAIRS, USEFUL_BYTES // peak)))


def _pair_numbers(limit: Limit, node: n.Node, needs: dict[str, Need]) -> int:
    place = limit.places[node.name]
    if place.fixed:
        return 0
    positions = math.prod(place.shape[1:])
    return positions ** int(needs[node.name]) if needs[node.name] else 0


def _variance_numbers(limit: Limit) -> int:
    return sum(math.prod(limit.places[name].shape[1:]) for name in limit.activations)
