"""Tangent kernels tile by tile: what is held for all tiles, what is made for each, and how one tile is computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._memory import format_memory
from neuralpath.kernels.tangent.contraction import WORK_BYTES, add_inner_products
from neuralpath.kernels.tangent.features import Features, features_of, in_sequence
from neuralpath.kernels.tangent.general import written_gradients
from neuralpath.kernels.tangent.gradients import Written
from neuralpath.kernels.tangent.layout import Size, feature_bytes, pair_cost, paired_parameters
from neuralpath.kernels.tangent.network import Network
from neuralpath.kernels.tangent.probe import Probe
from neuralpath.kernels.tiling.plan import BudgetTooSmall, Cost, Plan, Tile, make_plan

RUN_BYTES = 2**29
"""Values that are held while the network runs on a part of a batch, at most."""

KEPT_GENERAL_BYTES = 2**28
"""Gradients written out by the general way that may be kept for all examples; beyond, they are made for each tile."""

SMALL_TILE, LARGE_TILE = 256, 4096
"""Sides of tiles: small ones save half of a symmetric kernel, large ones make gradients less often."""

RUN_COPIES = 4
"""Copies of an example's values while the network runs: forward, backward, and what batched transforms hold."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """From a batch to its features, of one or several kinds."""

    count: int
    make: Callable[[Tensor], tuple[Features, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """How the gradients of a network's parameters are found, for a kernel of some size."""

    known: tuple[str, ...]
    general: tuple[str, ...]
    general_entries: int  # of the parameters that go the general way
    paired: frozenset[str]
    outputs: tuple[int, ...]
    at_once: int  # examples that the network runs on at once

    def features(self, network: Network, x: Tensor) -> Features:
        """Features of a batch."""
        found = features_of(network, x, self.known, self.paired, self.outputs)
        if self.general:
            found = found.with_written(written_gradients(network, x, self.general, self.outputs, self.at_once))
        return found


@dataclass(eq=False)
class Store:
    """Features of the examples of two batches, kept for all of them where memory allows."""

    x1: Tensor
    x2: Tensor | None
    kinds: Kinds
    at_once: int
    keep: bool
    _kept: dict[bool, tuple[Features, ...]] = field(default_factory=dict)
    _last: tuple[slice, tuple[Features, ...]] | None = None

    def rows(self, rows: slice) -> tuple[Features, ...]:
        """Features of some rows of the kernel, of each kind."""
        if self.keep:
            return self._whole(second=False, rows=rows)
        if self._last is None or self._last[0] != rows:  # tiles come row by row
            self._last = rows, self.made(self.x1[rows])
        return self._last[1]

    def columns(self, columns: slice) -> tuple[Features, ...]:
        """Features of some columns of the kernel, of each kind."""
        if self.keep:
            return self._whole(second=self.x2 is not None, rows=columns)
        return self.made((self.x1 if self.x2 is None else self.x2)[columns])

    def _whole(self, *, second: bool, rows: slice) -> tuple[Features, ...]:
        x = self.x2 if second and self.x2 is not None else self.x1
        if second not in self._kept:
            self._kept[second] = self.made(x)
        return tuple(features[rows] for features in self._kept[second])

    def give(self, features: Features) -> None:
        """Features of the whole first batch, of the only kind, that are known already."""
        if self.keep:
            self._kept[False] = (features,)

    def made(self, x: Tensor) -> tuple[Features, ...]:
        """Features of any batch, of each kind."""
        with torch.inference_mode(False), torch.enable_grad():
            parts = [self.kinds.make(part) for part in x.split(self.at_once)]
        return tuple(in_sequence(same) for same in zip(*parts, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A kernel to be computed: the kinds of features that are multiplied, and the memory that is planned for."""

    store: Store
    plan: Plan  # in examples
    n_outputs: int
    joint: bool
    dtype: torch.dtype
    work: int  # bytes for what is written out on the way
    multiplications: float  # of the whole kernel, roughly
    pairs: tuple[tuple[int, int], ...] = ((0, 0),)  # kinds whose inner products are summed

    def tile(self, tile: Tile) -> Float[Tensor, "rows columns"]:
        """A part of the kernel: the mean over outputs or, jointly, a row for each example and output."""
        ways = self.n_outputs if self.joint else 1
        rows, columns = _examples(tile.rows, ways), _examples(tile.columns, ways)
        one = self.store.rows(rows)
        same = self.store.x2 is None and rows == columns
        kernel = self.products(one, one if same else self.store.columns(columns), rows, columns)
        if not self.joint:
            return kernel
        return kernel[_within(tile.rows, rows, ways), _within(tile.columns, columns, ways)]

    def products(
        self, one: tuple[Features, ...], two: tuple[Features, ...], rows: slice, columns: slice
    ) -> Float[Tensor, "rows columns"]:
        """Inner products of some examples with others."""
        ways = self.n_outputs if self.joint else 1
        n1, n2 = rows.stop - rows.start, columns.stop - columns.start
        with torch.inference_mode(False), torch.no_grad():
            kernel = torch.zeros(n1 * ways, n2 * ways, dtype=self.dtype, device=self.store.x1.device)
            for first, second in self.pairs:
                add_inner_products(kernel, one[first], two[second], joint=self.joint, work=self.work)
            return kernel if self.joint or self.n_outputs == 1 else kernel.div_(self.n_outputs)

    @property
    def rows_plan(self) -> Plan:
        """The plan in rows of the kernel: with all outputs, one for each example and output."""
        if not self.joint:
            return self.plan
        p, ways = self.plan, self.n_outputs
        return Plan(p.n1 * ways, p.n2 * ways, p.block1 * ways, p.block2 * ways, p.symmetric, p.tile_bytes, p.kept_bytes)


def _examples(rows: slice, ways: int) -> slice:
    """The examples that some rows belong to."""
    return slice(rows.start // ways, -(-rows.stop // ways))


def _within(rows: slice, examples: slice, ways: int) -> slice:
    return slice(rows.start - examples.start * ways, rows.stop - examples.start * ways)


def run_room(budget: int) -> int:
    """Bytes that all values on the way through a network may take, for all examples that it runs on at once."""
    return min(RUN_BYTES, budget // 4) // RUN_COPIES


def make_way(network: Network, probe: Probe, size: Size, outputs: Sequence[int], budget: int) -> Way:
    """How the gradients are found: in which form each parameter's, and for how many examples at once."""
    paired = paired_parameters(probe.terms, size)
    example = RUN_COPIES * probe.run_bytes + feature_bytes(probe.terms, paired, size.n_outputs)
    at_once = max(1, min(RUN_BYTES, budget // 4) // max(example, 1))
    entries = sum(network.parameters[name].numel() for name in probe.general)
    return Way(probe.known, probe.general, entries, paired, tuple(outputs), at_once)


def make_job(
    probe: Probe,
    way: Way,
    size: Size,
    batches: tuple[Tensor, Tensor | None],
    kinds: Kinds,
    budget: int,
) -> Job:
    """Plan a kernel: features are kept for all examples where they take less than half of the budget.

    Raises: BudgetTooSmall if one pair does not fit.
    """
    x1, x2 = batches
    itemsize = probe.dtype.itemsize
    general_bytes = way.general_entries * size.n_outputs * itemsize
    example = kinds.count * (feature_bytes(probe.terms, way.paired, size.n_outputs) + general_bytes)
    n_examples = size.n1 + (0 if x2 is None else size.n2)
    work = min(WORK_BYTES, budget // 8)
    held = work + way.at_once * RUN_COPIES * probe.run_bytes
    keep = example * n_examples <= (budget - held) // 2 and general_bytes * n_examples <= KEPT_GENERAL_BYTES
    kept = held + (example * n_examples if keep else 0)
    side = SMALL_TILE if keep and not _written_by_rows(probe, way) else LARGE_TILE
    pair_bytes = 3 * itemsize * (size.n_outputs**2 if size.joint else 1)
    cost = Cost(pair_bytes, 0 if keep else 2 * example, side**2)
    if budget - kept < cost.smallest:
        least = max(8 * (RUN_COPIES * probe.run_bytes + cost.smallest) // 7, 8 * cost.smallest // 5) + 8
        raise BudgetTooSmall(
            f"one pair of examples with all of its gradients needs {format_memory(least)}, but the memory budget is "
            f"{format_memory(budget)}: give at least memory={least}, or fewer parameters with `params=`."
        )
    plan = make_plan(size.n1, size.n2, cost, budget, symmetric=x2 is None, kept_bytes=kept)
    per_pair = pair_cost(probe.terms, way.paired, size) + size.output_pairs * way.general_entries
    store = Store(x1, x2, kinds, way.at_once, keep)
    return Job(store, plan, size.n_outputs, size.joint, probe.dtype, work, plan.n_pairs * per_pair)


def _written_by_rows(probe: Probe, way: Way) -> bool:
    return any(
        name not in way.paired and not all(isinstance(part, Written) for part in parts)
        for name, parts in probe.terms.items()
    )
