"""The empirical neural tangent kernel (NTK) of any module."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath._checks import check_finite, describe
from neuralpath._resources import memory_budget, without_autocast
from neuralpath.graph import PathGraph
from neuralpath.kernels.kernel import Kernel
from neuralpath.kernels.tangent.probe import probe_network
from neuralpath.kernels.tangent.recording import ModuleNetwork
from neuralpath.kernels.tangent.tangent_tiles import Limits, TangentTiles, make_tiles

Parameters = Collection[str] | Callable[[str], bool]
"""Which parameters: a collection of their names, or a function that is true for the names to use."""

_log = logging.getLogger("neuralpath")


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
            raise TypeError(
                f"`params` must be a collection of names or a function, got the string {self.params!r}: use a list."
            )

    @property
    def module(self) -> nn.Module:
        """The model as a module."""
        return self.model.model if isinstance(self.model, PathGraph) else self.model

    def tiles(
        self,
        x1: Shaped[Tensor, "batch1 *shape"],
        x2: Shaped[Tensor, "batch2 *shape"] | None = None,
        *,
        memory: int | None = None,
    ) -> TangentTiles:
        return self.planned(x1, x2, memory_budget(memory))

    def __call__(
        self,
        x1: Shaped[Tensor, "batch1 *shape"],
        x2: Shaped[Tensor, "batch2 *shape"] | None = None,
        *,
        memory: int | None = None,
        progress: bool | None = None,
    ) -> Float[Tensor, "batch1 batch2 *out"]:
        return self.planned(x1, x2, memory_budget(memory), may_run_whole=True).by_outputs(progress)

    @without_autocast()
    def planned(
        self,
        x1: Tensor,
        x2: Tensor | None,
        budget: int,
        *,
        may_run_whole: bool = False,
        limits: Limits = Limits(),  # noqa: B008  (frozen)
    ) -> TangentTiles:
        """The tiles; if all of them will be computed, a small batch is probed as a whole."""
        check_batches(x1, x2)
        names = checked_parameters(self.module, self.params)
        network = ModuleNetwork(self.module)
        x1, x2 = x1.detach(), None if x2 is None else x2.detach()
        max_bytes = limits.whole_run_bytes(budget) if may_run_whole else 0
        with torch.inference_mode(False), torch.enable_grad():
            probe = probe_network(network, x1, x2, names, self.outputs, max_bytes=max_bytes)
        if probe.general:
            _log.info("tangent kernel: gradients on the general path for %s", ", ".join(probe.general))
        kernels = {"tangent kernel": [(0, 0)]}
        tiles = make_tiles(kernels, probe, (x1, x2), lambda p, x: (p.features_of(network, x),), budget, limits)
        return tiles["tangent kernel"]


def tangent_kernel(
    model: nn.Module | PathGraph,
    x1: Shaped[Tensor, "batch1 *shape"],
    x2: Shaped[Tensor, "batch2 *shape"] | None = None,
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
    tensors = []
    for name, x in {"x1": x1, **({} if x2 is None else {"x2": x2})}.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"`{name}` must be a tensor with the batch as its first axis, got {describe(x)}.")
        if x.ndim == 0 or len(x) == 0:
            raise ValueError(f"`{name}` must be a batch of at least one example, got {describe(x)}.")
        # A sum is cheap, and finite only if its terms are; otherwise a closer look is needed.
        if not x.is_floating_point() or not bool(torch.isfinite(x.sum())):
            check_finite(name, x)
        tensors.append(x)
    first, last = tensors[0], tensors[-1]
    if first.shape[1:] != last.shape[1:] or first.dtype != last.dtype or first.device != last.device:
        raise ValueError(
            f"`x1` and `x2` must have examples of one shape, dtype and device, got {describe(first)} on "
            f"{first.device} and {describe(last)} on {last.device}."
        )


def checked_parameters(model: nn.Module, params: Parameters | None) -> tuple[str, ...]:
    """Names of the parameters that the kernel sums over; refuses a model that is in training mode.

    Raises:
        ValueError: The model depends on the batch or is stochastic; it does not have the parameters, some of them need
            no gradient, or there are none at all.
    """
    _refuse_training_mode(model)
    own = dict(model.named_parameters())
    trained = [name for name, parameter in own.items() if parameter.requires_grad]
    if params is None:
        chosen = trained
    elif callable(params):
        chosen = [name for name in trained if params(name)]
    else:
        first_names = {id(parameter): name for name, parameter in own.items()}
        names = {name: first_names[id(p)] for name, p in model.named_parameters(remove_duplicate=False)}
        for name in params:
            if name not in names:
                near = get_close_matches(str(name), names, n=1, cutoff=0.0)
                hint = f"; the nearest is {near[0]!r}." if near else ", which has none."
                raise ValueError(f"`params` has {name!r}, which is no parameter of `model`{hint}")
        requested = {names[name] for name in params}
        if frozen := sorted(requested - set(trained)):
            raise ValueError(
                f"`params` has {_listed(frozen)}, which needs no gradient: call `requires_grad_()` on it first."
            )
        chosen = [name for name in trained if name in requested]
    if not chosen:
        reason = "has no parameters that need gradients" if params is None else "has none of the parameters in `params`"
        raise ValueError(f"`model` {reason}, so it has no tangent kernel.")
    if lazy := [name for name in chosen if isinstance(own[name], nn.parameter.UninitializedParameter)]:
        raise ValueError(f"`model` has no values yet for {_listed(lazy)}: run it once on a batch first.")
    if complex_valued := [name for name in chosen if own[name].is_complex()]:
        raise ValueError(f"`model` has complex numbers in {_listed(complex_valued)}: leave it out with `params=`.")
    return tuple(chosen)


def _refuse_training_mode(model: nn.Module) -> None:
    norms, random = [], []
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
            norms.append(name)
        is_dropout = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
        if module.training and (is_dropout or isinstance(module, nn.RReLU)):
            random.append(name)
    if norms:
        raise ValueError(
            f"`model` mixes the examples of a batch: batch norm at {_listed(norms)} uses the batch's own statistics, "
            "so no example has a gradient of its own; call `model.eval()`, with `track_running_stats` on."
        )
    if random:
        raise ValueError(f"`model` is in training mode, where {_listed(random)} is random: call `model.eval()` first.")


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
