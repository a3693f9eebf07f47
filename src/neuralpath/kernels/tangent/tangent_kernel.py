r"""The empirical neural tangent kernel (NTK) of any module: the kernel, its plan, and the values of a tile.

::

    forward and backward passes,           features of all examples,            a tile: inner products of
    `run_size` examples at a time    ->    cached if they fit the budget,   ->  the features of its rows
                                           else computed for each tile          and of its columns
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._checks import check_finite, describe
from neuralpath._resources import format_memory, memory_budget, without_autocast
from neuralpath.graph import PathGraph
from neuralpath.kernels.kernel import Batch1, Batch2, Kernel
from neuralpath.kernels.tangent.contraction import SCRATCH_BYTES, add_inner_products, feature_bytes
from neuralpath.kernels.tangent.features import FeatureCache, FeatureSets
from neuralpath.kernels.tangent.gradients import ExplicitGradient
from neuralpath.kernels.tangent.probe import Probe, probe_network
from neuralpath.kernels.tangent.recording import Parameters, checked_parameters, module_network
from neuralpath.kernels.tiling import BudgetTooSmall, Cost, Tile, TiledKernel, make_plan

RUN_COPIES = 4
"""Copies of an example's intermediate values in a run: forward, backward, and those of batched transforms."""

_log = logging.getLogger("neuralpath")


@dataclass(frozen=True, slots=True)
class Limits:
    """The memory budget, how much of it a tangent kernel uses at most, and how large its tiles are."""

    budget: int
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

    @property
    def run(self) -> int:
        """Bytes of intermediate values of a run within the budget."""
        return min(self.run_bytes, self.budget // 4)


@dataclass(frozen=True, slots=True, eq=False)
class TangentTiles(TiledKernel):
    """A tangent kernel that is computed tile by tile; iterate to get each tile and its values."""

    probe: Probe
    cache: FeatureCache

    @property
    def general(self) -> tuple[str, ...]:
        """Parameters on the general, slower path, because operations without a rule read them."""
        return tuple(self.probe.general)

    def by_outputs(self, progress: bool | None = None) -> Float[Tensor, "batch1 batch2 *out"]:
        """The whole kernel in memory; if it has all pairs of outputs, they are two axes of their own."""
        kernel, n_outputs = self.filled(progress), len(self.probe.outputs)
        if not self.probe.joint:
            return kernel
        return kernel.unflatten(0, (-1, n_outputs)).unflatten(2, (-1, n_outputs)).transpose(1, 2)


@dataclass(frozen=True, eq=False)
class TangentKernel(Kernel):
    r"""The empirical neural tangent kernel (NTK) of a model: inner products of the gradients of its outputs.

    .. math:: K_{oo'}(x, x') = \sum_\theta \frac{\partial f_o(x)}{\partial \theta}
        \frac{\partial f_{o'}(x')}{\partial \theta}

    over all parameters that need gradients. No Jacobian is computed. Any module works that torch can differentiate and
    that treats the examples of a batch independently.

    A linear layer or convolution with inputs :math:`a_t` and output gradients :math:`\delta_t` at positions t adds
    :math:`\sum_{t,t'} (a_t \cdot a'_{t'}) (\delta_t \cdot \delta'_{t'})`. Where positions are many, its gradients are
    written out, some rows at a time. Gains and shifts (batch norm in evaluation mode, layer and group norm, added and
    multiplied parameters) have small gradients, which are written out. Layers are found by operation, so tied weights,
    repeated calls and functional calls all count, pairs of different uses included. Parameters that any other operation
    reads (weight norm, transposed convolution, embeddings) go a general, slower path, ``torch.func``'s gradient of each
    example; the log `neuralpath` and ``tiles(...).general`` name them. Two examples are compared with autograd's own
    gradients before anything is computed. 3 x 3 convolutions with many channels, the network's own included, run with a
    quarter of the multiplications (``kernels/tangent/winograd.py``); in single precision the kernel's error is then
    about 1e-6 of its largest entry.

    Reference: Theory, "The tangent kernel and its parts". Cost: a forward pass and, for each output, a backward
    pass; then for each pair of examples and each dense layer the sum of its widths. Features of layers are cached if
    they fit the memory budget.

    Args:
        model: The module, or the path graph of one.
        outputs: ``"mean"`` for the mean over outputs of :math:`K_{oo}`; ``"full"`` for :math:`K_{oo'}` of all pairs of
            outputs, in two more axes; an index for :math:`K_{oo}` of that output. Outputs with several axes are
            counted flat. In tiles of ``"full"`` a row or column is one output of an example, and the outputs of an
            example are next to each other.
        params: The parameters that the sum is over: their names, or a function that is true for the names to use. None
            for all parameters that need gradients.

    Raises:
        TypeError: ``model`` is no module, or ``outputs`` or ``params`` has the wrong type.
        ValueError: ``outputs`` is no output. When the kernel is called: the model has no such parameters, mixes
            examples (batch norm in training mode), is stochastic or has outputs that are not batch-first; the inputs do
            not fit or are not finite.
        OverflowError: When called: the result exceeds the range of the dtype.
        BudgetTooSmall: When called: one pair of examples needs more than the memory budget.

    >>> kernel = TangentKernel(nn.Linear(2, 1))
    >>> x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    >>> bool(torch.equal(kernel(x), x @ x.T + 1))
    True
    >>> tiles = TangentKernel(nn.Linear(3, 2), outputs="full").tiles(torch.randn(5, 3))
    >>> [tuple(values.shape) for tile, values in tiles]
    [(10, 10)]
    """

    model: nn.Module | PathGraph
    outputs: str | int = "mean"
    params: Parameters | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module | PathGraph):
            raise TypeError(f"`model` must be a torch.nn.Module or a PathGraph, got {describe(self.model)}.")
        expected = "`outputs` must be 'mean', 'full' or the index of an output"
        if isinstance(self.outputs, bool) or not isinstance(self.outputs, str | int):
            raise TypeError(f"{expected}, got {describe(self.outputs)}.")
        if isinstance(self.outputs, str) and self.outputs not in ("mean", "full"):
            raise ValueError(f"{expected}, got {self.outputs!r}.")
        if isinstance(self.params, str):
            raise TypeError(f"`params` must be a collection of names or a function, got the string {self.params!r}.")

    @property
    def module(self) -> nn.Module:
        """The model as a module."""
        return self.model.model if isinstance(self.model, PathGraph) else self.model

    def tiles(self, x1: Batch1, x2: Batch2 | None = None, *, memory: int | None = None) -> TangentTiles:
        return self.planned(x1, x2, Limits(memory_budget(memory)))

    def __call__(
        self, x1: Batch1, x2: Batch2 | None = None, *, memory: int | None = None, progress: bool | None = None
    ) -> Float[Tensor, "batch1 batch2 *out"]:
        return self.planned(x1, x2, Limits(memory_budget(memory)), may_run_whole=True).by_outputs(progress)

    @without_autocast()
    def planned(self, x1: Tensor, x2: Tensor | None, limits: Limits, *, may_run_whole: bool = False) -> TangentTiles:
        """The tiles; if all of them will be computed, a small batch is probed as a whole."""
        check_batches(x1, x2)
        names = checked_parameters(self.module, self.params)
        network = module_network(self.module)
        x1, x2 = x1.detach(), None if x2 is None else x2.detach()
        max_bytes = limits.run // RUN_COPIES if may_run_whole else 0
        with torch.inference_mode(False), torch.enable_grad():
            probe = probe_network(network, x1, x2, names, self.outputs, max_bytes=max_bytes)
        if probe.general:
            _log.info("tangent kernel: gradients on the general path for %s", ", ".join(probe.general))
        kernels = {"tangent kernel": [(0, 0)]}
        (tiles,) = make_tiles(kernels, probe, (x1, x2), lambda p, x: (p.features_of(network, x),), limits)
        return tiles


def tangent_kernel(
    model: nn.Module | PathGraph,
    x1: Batch1,
    x2: Batch2 | None = None,
    *,
    outputs: str | int = "mean",
    params: Parameters | None = None,
    memory: int | None = None,
    progress: bool | None = None,
) -> Float[Tensor, "batch1 batch2 *out"]:
    """The empirical neural tangent kernel (NTK) of a model; a call of ``TangentKernel``, which has the formula.

    Args:
        model: The module, or the path graph of one.
        x1: A batch of examples.
        x2: A second batch, or None for the same.
        outputs: ``"mean"`` over outputs, ``"full"`` for all pairs of outputs in two more axes, or an index.
        params: Names of the parameters that the sum is over, or a function of a name; None for all that need gradients.
        memory: A budget in bytes; None for half of what is free.
        progress: Whether a progress bar appears; None for on a terminal, and only if it takes long.

    Raises:
        TypeError, ValueError, OverflowError, BudgetTooSmall: As ``TangentKernel``.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    >>> bool(torch.equal(tangent_kernel(nn.Linear(2, 1), x), x @ x.T + 1))
    True
    """
    return TangentKernel(model, outputs, params)(x1, x2, memory=memory, progress=progress)


def check_batches(x1: object, x2: object | None) -> None:
    """Refuse arguments that are no batches of finite examples, or not alike."""
    batches: dict[str, Any] = {"x1": x1} if x2 is None else {"x1": x1, "x2": x2}
    for name, x in batches.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"`{name}` must be a tensor with the batch as its first axis, got {describe(x)}.")
        if x.ndim == 0 or len(x) == 0:
            raise ValueError(f"`{name}` must be a batch of at least one example, got {describe(x)}.")
        # A sum is cheap, and finite only if its terms are; otherwise a closer look is needed.
        if not x.is_floating_point() or not bool(torch.isfinite(x.sum())):
            check_finite(name, x)
    first, last = batches["x1"], batches.get("x2", x1)
    if (first.shape[1:], first.dtype, first.device) != (last.shape[1:], last.dtype, last.device):
        both = " and ".join(f"{describe(x)} on {x.device}" for x in (first, last))
        raise ValueError(f"`x1` and `x2` must have examples of one shape, dtype and device, got {both}.")


def make_tiles(
    parts: Mapping[str, Sequence[tuple[int, int]]],
    probe: Probe,
    batches: tuple[Tensor, Tensor | None],
    compute: Callable[[Probe, Tensor], FeatureSets],
    limits: Limits,
) -> list[TangentTiles]:
    """Plan kernels of the same features, which are cached if they take less than half of the budget.

    ``parts`` has, for each kernel by its name, the pairs of feature sets whose inner products it sums. ``compute`` maps
    the probe and a batch to the feature sets of the batch.
    """
    (x1, x2), budget = batches, limits.budget
    n1, n2, n_outputs = len(x1), len(x1 if x2 is None else x2), len(probe.outputs)
    n_examples = n1 + (0 if x2 is None else n2)
    n_sets = 1 + max(index for pairs in parts.values() for pair in pairs for index in pair)
    itemsize = probe.dtype.itemsize
    # Bytes of an example: while the network runs, and of its features.
    run_bytes = RUN_COPIES * probe.run_bytes
    layer_bytes = feature_bytes(probe.terms, probe.by_position, n_outputs)
    general_bytes = sum(probe.general.values()) * n_outputs * itemsize
    example = n_sets * (layer_bytes + general_bytes)
    run_size = max(1, limits.run // max(run_bytes + layer_bytes, 1))
    scratch = min(limits.scratch_bytes, budget // 8)
    held = scratch + run_size * run_bytes
    fits = example * n_examples <= (budget - held) // 2
    is_kept = fits and general_bytes * n_examples <= limits.cached_general_bytes
    held += example * n_examples if is_kept else 0
    by_row = [use for name, uses in probe.terms.items() if name not in probe.by_position for use in uses]
    writes_rows = not all(isinstance(use, ExplicitGradient) for use in by_row)
    side = limits.small_tile if is_kept and not writes_rows else limits.large_tile
    per_example = n_outputs if probe.joint else 1  # rows of the kernel
    cost = Cost(3 * itemsize * per_example**2, 0 if is_kept else 2 * example, side**2)
    if budget - held < cost.smallest:
        least = max(8 * (run_bytes + cost.smallest) // 7, 8 * cost.smallest // 5) + 8
        raise BudgetTooSmall(
            f"a pair of examples and its gradients take {format_memory(least)}, the budget is {format_memory(budget)}: "
            f"give at least memory={least}, or fewer parameters with `params=`."
        )
    plan = make_plan(n1, n2, cost, budget, symmetric=x2 is None, kept_bytes=held)
    sizes = {size: per_example * getattr(plan, size) for size in ("n1", "n2", "block1", "block2")}
    plan = replace(plan, **sizes)  # from examples to rows and columns of the kernel
    first = (probe.features,) if is_kept and probe.features is not None else None
    probe = replace(probe, terms={}, features=None)  # the tiles need no more of them, and they take memory
    cache = FeatureCache(x1, x2, partial(compute, probe), run_size, is_kept, first)
    settings, hint = (probe.dtype, x1.device, probe, cache), "give the model and the inputs in float64"
    computes = {name: partial(_tile_values, cache, probe, pairs, scratch) for name, pairs in parts.items()}
    return [TangentTiles(name, plan, tile, *settings, overflow_hint=hint) for name, tile in computes.items()]


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
