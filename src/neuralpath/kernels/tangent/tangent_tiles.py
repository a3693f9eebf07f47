r"""A tangent kernel tile by tile: the plan, the features of the examples, and the values of a tile.

::

    forward and backward passes,           features of all examples,            a tile: inner products of
    `run_size` examples at a time    ->    cached if they fit the budget,   ->  the features of its rows
                                           else computed for each tile          and of its columns
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath._resources import format_memory
from neuralpath.kernels.tangent.contraction import SCRATCH_BYTES, add_inner_products, feature_bytes
from neuralpath.kernels.tangent.features import Features
from neuralpath.kernels.tangent.gradients import ExplicitGradient
from neuralpath.kernels.tangent.probe import Probe
from neuralpath.kernels.tiling import BudgetTooSmall, Cost, Tile, TiledKernel, make_plan

RUN_COPIES = 4
"""Copies of an example's intermediate values in a run: forward, backward, and those of batched transforms."""

OVERFLOW_HINT = "give the model and the inputs in float64"

FeatureSets = tuple[Features, ...]
"""Features of one batch for one or several functions: a network, or the two parts of its gradient."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much memory a tangent kernel uses at most, within the budget, and how large its tiles are."""

    run_bytes: int = 2**29
    """Intermediate values while the network runs on a part of a batch."""
    cached_general_bytes: int = 2**28
    """Gradients of the general path that may be cached; beyond, they are computed for each tile."""
    scratch_bytes: int = SCRATCH_BYTES
    """Intermediate products of inner products."""
    small_tile: int = 256
    """Side of a tile where features are cached: small tiles save half of a symmetric kernel."""
    large_tile: int = 4096
    """Side of a tile where gradients are computed or written out for each tile: large tiles do this less often."""

    def whole_run_bytes(self, budget: int) -> int:
        """Bytes of intermediate values up to which a batch may run as a whole."""
        return min(self.run_bytes, budget // 4) // RUN_COPIES


@dataclass(eq=False)
class FeatureCache:
    """Features of the examples of two batches; cached for all of them if ``is_kept``, else computed when asked for."""

    x1: Tensor
    x2: Tensor | None
    compute: Callable[[Tensor], FeatureSets]
    run_size: int
    is_kept: bool
    first: FeatureSets | None = None  # of `x1`
    second: FeatureSets | None = None  # of `x2`
    _last_rows: tuple[slice, FeatureSets] | None = field(default=None, init=False)

    def rows(self, rows: slice) -> FeatureSets:
        """Features of some examples of the first batch."""
        if self.is_kept:
            self.first = self.first or self._computed(self.x1)
            return tuple(features[rows] for features in self.first)
        if self._last_rows is None or self._last_rows[0] != rows:  # tiles come row by row
            self._last_rows = rows, self._computed(self.x1[rows])
        return self._last_rows[1]

    def columns(self, columns: slice) -> FeatureSets:
        """Features of some examples of the second batch, or of the only one."""
        if self.is_kept and self.x2 is None:
            return self.rows(columns)
        x2 = self.x1 if self.x2 is None else self.x2
        if self.is_kept:
            self.second = self.second or self._computed(x2)
            return tuple(features[columns] for features in self.second)
        return self._computed(x2[columns])

    def _computed(self, x: Tensor) -> FeatureSets:
        with torch.inference_mode(False), torch.enable_grad():
            first, *rest = [self.compute(part) for part in x.split(self.run_size)]
        return tuple(features.joined([part[i] for part in rest]) for i, features in enumerate(first))


@dataclass(frozen=True, slots=True, eq=False)
class TangentTiles(TiledKernel):
    """A tangent kernel that is computed tile by tile; iterate to get each tile and its values."""

    probe: Probe
    cache: FeatureCache

    @property
    def general(self) -> tuple[str, ...]:
        """Parameters on the general, slower path, because operations without a rule read them."""
        return self.probe.general

    def by_outputs(self, progress: bool | None = None) -> Float[Tensor, "batch1 batch2 *out"]:
        """The whole kernel in memory; if it has all pairs of outputs, they are two axes of their own."""
        kernel, n_outputs = self.filled(progress), len(self.probe.outputs)
        if not self.probe.joint:
            return kernel
        return kernel.unflatten(0, (-1, n_outputs)).unflatten(2, (-1, n_outputs)).transpose(1, 2)


def make_tiles(
    parts: Mapping[str, Sequence[tuple[int, int]]],
    probe: Probe,
    batches: tuple[Tensor, Tensor | None],
    compute: Callable[[Probe, Tensor], FeatureSets],
    budget: int,
    limits: Limits,
) -> dict[str, TangentTiles]:
    """Plan one or several kernels of the same features; these are cached if they take less than half of the budget.

    ``parts`` has, for each kernel by its name, the pairs of feature sets whose inner products it sums. ``compute`` maps
    the probe and a batch to the feature sets of the batch.

    Raises:
        BudgetTooSmall: One pair of examples does not fit.
    """
    x1, x2 = batches
    n1, n2, n_outputs = len(x1), len(x1 if x2 is None else x2), len(probe.outputs)
    n_sets = 1 + max(index for pairs in parts.values() for pair in pairs for index in pair)
    itemsize = probe.dtype.itemsize
    # Bytes of an example: while the network runs, and of its features.
    run_bytes = RUN_COPIES * probe.run_bytes
    layer_bytes = feature_bytes(probe.terms, probe.by_position, n_outputs)
    general_bytes = probe.general_entries * n_outputs * itemsize
    example = n_sets * (layer_bytes + general_bytes)
    n_examples = n1 + (0 if x2 is None else n2)
    run_size = max(1, min(limits.run_bytes, budget // 4) // max(run_bytes + layer_bytes, 1))
    scratch = min(limits.scratch_bytes, budget // 8)
    held = scratch + run_size * run_bytes
    is_kept = example * n_examples <= (budget - held) // 2
    is_kept = is_kept and general_bytes * n_examples <= limits.cached_general_bytes
    held += example * n_examples if is_kept else 0
    writes_rows = any(
        name not in probe.by_position and not all(isinstance(use, ExplicitGradient) for use in uses)
        for name, uses in probe.terms.items()
    )
    side = limits.small_tile if is_kept and not writes_rows else limits.large_tile
    per_example = n_outputs if probe.joint else 1  # rows of the kernel
    cost = Cost(3 * itemsize * per_example**2, 0 if is_kept else 2 * example, side**2)
    if budget - held < cost.smallest:
        least = max(8 * (run_bytes + cost.smallest) // 7, 8 * cost.smallest // 5) + 8
        raise BudgetTooSmall(
            f"one pair of examples with all of its gradients needs {format_memory(least)}, but the memory budget is "
            f"{format_memory(budget)}: give at least memory={least}, or fewer parameters with `params=`."
        )
    plan = make_plan(n1, n2, cost, budget, symmetric=x2 is None, kept_bytes=held)
    sizes = {size: per_example * getattr(plan, size) for size in ("n1", "n2", "block1", "block2")}
    plan = replace(plan, **sizes)  # from examples to rows and columns of the kernel
    first = (probe.features,) if is_kept and probe.features is not None else None
    probe = replace(probe, terms={}, features=None)  # the tiles need no more of them, and they take memory
    cache = FeatureCache(x1, x2, partial(compute, probe), run_size, is_kept, first)
    tiles = {}
    for what, pairs in parts.items():
        compute_tile = partial(_tile_values, cache, probe, pairs, scratch)
        tiles[what] = TangentTiles(
            what, plan, compute_tile, probe.dtype, x1.device, probe, cache, overflow_hint=OVERFLOW_HINT
        )
    return tiles


def _tile_values(
    cache: FeatureCache, probe: Probe, pairs: Sequence[tuple[int, int]], scratch: int, tile: Tile
) -> Float[Tensor, "rows columns"]:
    """A part of the kernel: the mean over outputs or, for all pairs of outputs, a row for each example and output."""
    n_outputs = len(probe.outputs)
    per_example = n_outputs if probe.joint else 1
    # The examples that the rows and columns belong to; a tile may begin and end inside an example.
    rows, columns = (slice(s.start // per_example, -(-s.stop // per_example)) for s in (tile.rows, tile.columns))
    left = cache.rows(rows)
    right = left if cache.x2 is None and rows == columns else cache.columns(columns)
    shape = (rows.stop - rows.start) * per_example, (columns.stop - columns.start) * per_example
    with torch.inference_mode(False), torch.no_grad():
        kernel = torch.zeros(shape, dtype=probe.dtype, device=cache.x1.device)
        for i, j in pairs:
            add_inner_products(kernel, left[i], right[j], joint=probe.joint, scratch=scratch)
        if not probe.joint:
            return kernel if n_outputs == 1 else kernel.div_(n_outputs)
        skipped1, skipped2 = tile.rows.start - rows.start * n_outputs, tile.columns.start - columns.start * n_outputs
        return kernel[skipped1:, skipped2:][: tile.shape[0], : tile.shape[1]]
