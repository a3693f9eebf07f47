"""The empirical tangent kernel of any module."""

import logging
from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath._memory import memory_budget
from neuralpath._precision import without_autocast
from neuralpath.kernels.tangent.layout import Size
from neuralpath.kernels.tangent.network import ModuleNetwork
from neuralpath.kernels.tangent.probe import Probe, probe_network
from neuralpath.kernels.tangent.selection import Parameters, check_batches, check_model, check_outputs, selected
from neuralpath.kernels.tangent.tangent_tiles import Kinds, make_job, make_way, run_room
from neuralpath.kernels.tangent.tiles import TangentTiles, as_tiles
from neuralpath.kernels.tiling.tiled_kernel import refuse_overflow

WAY_OUT = "give the model and the inputs in float64"

_log = logging.getLogger("neuralpath")


def tangent_kernel(
    model: nn.Module,
    x1: Shaped[Tensor, "batch1 *shape"],
    x2: Shaped[Tensor, "batch2 *shape"] | None = None,
    *,
    outputs: str | int = "mean",
    params: Parameters | None = None,
    memory: int | None = None,
    progress: bool | None = None,
) -> Float[Tensor, "batch1 batch2 *out"]:
    r"""The empirical tangent kernel: inner products of the gradients of a model's outputs, without a Jacobian.

    .. math:: K_{oo'}(x, x') = \sum_\theta \frac{\partial f_o(x)}{\partial \theta}
        \frac{\partial f_{o'}(x')}{\partial \theta}

    over all parameters that need gradients. ``outputs``: ``"mean"`` is the mean over outputs of :math:`K_{oo}`,
    ``"full"`` has :math:`K_{oo'}` for all pairs of outputs in two more axes, a number is that output's
    :math:`K_{oo}`; outputs with several axes are counted flat. ``params`` restricts the sum: names of parameters, or
    a function of a name. ``memory`` is a budget in bytes (default: half of what is free); ``progress`` shows a bar, or
    not (default: on a terminal, for long work).

    Any module that torch can differentiate and that treats the examples of a batch apart. A linear layer or
    convolution with inputs :math:`a_t` and output gradients :math:`\delta_t` at positions t adds
    :math:`\sum_{t,t'} (a_t \cdot a'_{t'}) (\delta_t \cdot \delta'_{t'})`; where positions are many, its gradients are
    written out, some rows at a time. Gains and shifts (batch norm in evaluation mode, layer and group norm, added and
    multiplied parameters) have small gradients, which are written out. Layers are found by operation, so tied weights,
    repeated calls and functional ones all count, pairs of different uses included. Parameters that are read by any
    other operation (weight norm, transposed convolution, embeddings) go a general and slower way, ``torch.func``'s
    gradient of each example; the log `neuralpath` and ``tangent_kernel_tiles(...).general`` name them. Two examples are
    compared with autograd's own gradients before anything is computed. Convolutions of 3 x 3 with many channels, the
    network's own included, are computed with a quarter of the multiplications (``kernels/tangent/winograd.py``); in
    single precision the kernel's error is then some 1e-6 of its largest entry.

    Reference: Theory, "The tangent kernel and its parts". Cost: a forward pass and, for each output, a backward
    pass; then for each pair of examples and each dense layer the sum of its widths. Features of layers are kept where
    they fit the budget.
    Raises: ValueError for a model without parameters, one that mixes examples (batch norm in training mode) or depends
    on chance, outputs that are not batch-first, inputs that do not fit or are not finite, unknown names;
    OverflowError where the result passes the range of the dtype; BudgetTooSmall where one pair needs more than the
    budget.

    >>> model = nn.Linear(2, 1)
    >>> x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    >>> bool(torch.equal(tangent_kernel(model, x), x @ x.T + 1))
    True
    """
    tiles = _planned(model, x1, x2, outputs, params, memory, at_once=True)
    kernel = tiles.filled(progress)
    refuse_overflow(kernel, tiles.what, WAY_OUT)
    return by_outputs(kernel, tiles.job.n_outputs) if outputs == "full" else kernel


def tangent_kernel_tiles(
    model: nn.Module,
    x1: Shaped[Tensor, "batch1 *shape"],
    x2: Shaped[Tensor, "batch2 *shape"] | None = None,
    *,
    outputs: str | int = "mean",
    params: Parameters | None = None,
    memory: int | None = None,
) -> TangentTiles:
    """The tangent kernel as a plan and tiles that are computed when they are asked for, for kernels beyond memory.

    Arguments as for ``tangent_kernel``. With ``x2=None`` only tiles on and above the diagonal are there. With
    ``outputs="full"`` a row or column is one output of an example, the outputs of an example next to each other.

    >>> tiles = tangent_kernel_tiles(nn.Linear(3, 2), torch.randn(5, 3), outputs="full")
    >>> [tuple(values.shape) for tile, values in tiles]
    [(10, 10)]
    """
    return _planned(model, x1, x2, outputs, params, memory, at_once=False)


@without_autocast()
def _planned(
    model: nn.Module, x1: Tensor, x2: Tensor | None, outputs: str | int, params: Parameters | None,
    memory: int | None, *, at_once: bool,
) -> TangentTiles:  # fmt: skip
    """The tiles; with ``at_once``, because all will be asked for, a small batch is looked at as a whole."""
    check_model(model)
    output = check_outputs(outputs)
    check_batches(x1, x2)
    names = selected(model, params)
    budget = memory_budget(memory)
    network = ModuleNetwork(model)
    x1, x2 = x1.detach(), None if x2 is None else x2.detach()
    with torch.inference_mode(False), torch.enable_grad():
        room = run_room(budget) if at_once else 0
        probe = probe_network(network, x1, x2, names, output, outputs == "full", room=room)
    size = kernel_size(x1, x2, probe, output, outputs == "full")
    way = make_way(network, probe, size, chosen_outputs(probe, output), budget)
    kinds = Kinds(1, lambda x: (way.features(network, x),))
    job = make_job(probe, way, size, (x1, x2), kinds, budget)
    if probe.features is not None:
        job.store.give(probe.features)
    if probe.general:
        _log.info("tangent kernel: gradients the general way for %s", ", ".join(probe.general))
    return as_tiles("tangent kernel", job, way)


def kernel_size(x1: Tensor, x2: Tensor | None, probe: Probe, output: int | None, joint: bool) -> Size:
    """The sizes of the kernel that is asked for."""
    return Size(len(x1), len(x1 if x2 is None else x2), len(chosen_outputs(probe, output)), joint)


def chosen_outputs(probe: Probe, output: int | None) -> Sequence[int]:
    """The outputs that are differentiated: all, or one."""
    return range(probe.n_outputs) if output is None else [output]


def by_outputs(kernel: Float[Tensor, "rows columns"], n_outputs: int) -> Float[Tensor, "batch1 batch2 out1 out2"]:
    """Rows and columns of examples and outputs with the outputs in axes of their own."""
    return kernel.unflatten(0, (-1, n_outputs)).unflatten(2, (-1, n_outputs)).transpose(1, 2)
