"""The value, feature and cross parts of the tangent kernel."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath._resources import memory_budget, without_autocast
from neuralpath.gates import HardGate, LeakyGate, LinearGate
from neuralpath.graph import Forward, PathGraph, nodes as n, own_names, parameters_of, trace, walk
from neuralpath.kernels.tangent.features import Features
from neuralpath.kernels.tangent.probe import Probe, probe_network
from neuralpath.kernels.tangent.recording import Network, Parameters, checked_parameters
from neuralpath.kernels.tangent.tangent_kernel import Limits, TangentKernel, TangentTiles, check_batches, make_tiles

VALUE, FEATURE = 0, 1  # the gradient with constant gates, and the rest of it
PARTS = {"value": ((VALUE, VALUE),), "feature": ((FEATURE, FEATURE),), "cross": ((VALUE, FEATURE), (FEATURE, VALUE))}
"""The features whose inner products make up each part."""


@dataclass(frozen=True, slots=True, eq=False)
class TangentParts:
    """The tangent kernel as a sum of three parts."""

    value: Float[Tensor, "batch1 batch2 *out"]
    """The weights' share: the kernel with all gates constant."""
    feature: Float[Tensor, "batch1 batch2 *out"]
    """The gates' share."""
    cross: Float[Tensor, "batch1 batch2 *out"]
    """The inner products between the gradients of both shares."""

    @property
    def total(self) -> Float[Tensor, "batch1 batch2 *out"]:
        """The tangent kernel."""
        return self.value + self.feature + self.cross


@without_autocast()
def tangent_parts(
    model: nn.Module | PathGraph,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    outputs: str | int = "mean",
    params: Parameters | None = None,
    memory: int | None = None,
    progress: bool | None = None,
) -> TangentParts:
    r"""The neural tangent kernel (NTK) split by what a gradient goes through: weights or gates.

    .. math:: \psi_x = \psi_x^V + \psi_x^F, \qquad
        K^V = \langle \psi_x^V, \psi_{x'}^V \rangle, \quad K^F = \langle \psi_x^F, \psi_{x'}^F \rangle, \quad
        K^{CROSS} = \langle \psi_x^V, \psi_{x'}^F \rangle + \langle \psi_x^F, \psi_{x'}^V \rangle

    with :math:`\psi^V` the gradient of the output with all gates constant, and :math:`\psi^F` the rest. For hard gates
    (ReLU, leaky ReLU, max pooling) :math:`\psi^F` is 0 and so are its parts, exactly. A gated network has modules
    ``feature`` and ``value`` and a method ``value_output``. Its :math:`\psi^V` is the gradient by the value network's
    parameters and its :math:`\psi^F` the gradient by the feature network's; they share none, and the cross part is 0.
    Any other model is traced as a path graph. Both parts of its gradient come from the same layers, so that small
    differences between them are not lost.

    Reference: Theory, "The tangent kernel and its parts"; P0 section 3, P1 section 3 (with erratum E12).
    Cost: two backward passes instead of one, and four sets of inner products.

    Args:
        model: The module, or the path graph of one.
        x1: A batch of examples.
        x2: A second batch, or None for the same.
        outputs: ``"mean"`` over outputs, ``"full"`` for all pairs of outputs in two more axes, or an index.
        params: Names of the parameters that the sums are over, or a function of a name; None for all that need
            gradients.
        memory: A budget in bytes; None for half of what is free.
        progress: Whether a progress bar appears; None for on a terminal, and only if it takes long.

    Raises:
        UnsupportedOperation: The model cannot be traced as a path graph.
        ValueError: As ``TangentKernel``; or an activation is not a gate; or a model with soft gates stops gradients
            (``detach``, ``no_grad``).
        TypeError, OverflowError, BudgetTooSmall: As ``TangentKernel``.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.SiLU(), nn.Linear(3, 1)).double()
    >>> x = torch.randn(4, 2, dtype=torch.float64)
    >>> parts = tangent_parts(model, x)
    >>> bool(torch.allclose(parts.total, TangentKernel(model)(x)))
    True
    """
    module = TangentKernel(model, outputs, params).module
    check_batches(x1, x2)
    names = checked_parameters(module, params)

    def whole_kernel(names: Sequence[str]) -> Tensor:
        return TangentKernel(module, outputs, names)(x1, x2, memory=memory, progress=progress)

    if {"feature", "value"} <= dict(module.named_children()).keys() and hasattr(module, "value_output"):
        return _gated_parts(module, names, whole_kernel)
    graph = trace(module, x1[:1])
    for node in graph.nodes:
        if isinstance(node, n.ActivationNode):
            raise ValueError(
                f"{node.operation} at {node.name!r} is not a gate, so the tangent kernel has no value and feature "
                "parts; use `tangent_kernel` for the whole, or an activation that multiplies its input with a gate."
            )
    if _gates_are_hard(graph):
        value = whole_kernel(names)
        return TangentParts(value, torch.zeros_like(value), torch.zeros_like(value))
    read = tuple(name for name in names if name in graph.params)
    if not read:
        raise ValueError("`model` does not read the parameters in `params` on the way to its output.")
    _refuse_stopped_gradients(module, graph, x1[:1], read)
    parts = part_tiles(graph, x1, x2, read, outputs, Limits(memory_budget(memory)))
    return TangentParts(**{part: tiles.by_outputs(progress) for part, tiles in parts.items()})


def _gated_parts(
    model: nn.Module, names: Sequence[str], whole_kernel: Callable[[Sequence[str]], Tensor]
) -> TangentParts:
    """The parts of a gated network, whose value and feature weights are separate."""
    for name, own in own_names(model).items():
        if own in names and name.split(".")[0] != own.split(".")[0]:
            raise ValueError(f"`model` shares the parameter {own!r} with {name!r}, so it would belong to both parts.")
    others = [name for name in names if name.split(".")[0] not in ("value", "feature")]
    if others:
        raise ValueError(f"`model` has {others[0]!r} neither in `value` nor in `feature`: leave it out with `params=`.")
    by_part = {part: [name for name in names if name.startswith(f"{part}.")] for part in ("value", "feature")}
    kernels = {part: whole_kernel(chosen) for part, chosen in by_part.items() if chosen}
    zero = torch.zeros_like(next(iter(kernels.values())))
    return TangentParts(kernels.get("value", zero), kernels.get("feature", zero), zero)


def _refuse_stopped_gradients(model: nn.Module, graph: PathGraph, x: Tensor, names: tuple[str, ...]) -> None:
    """Refuse a model with ``detach`` or ``no_grad``: a graph does not have them, so its gradient is another one."""
    with torch.inference_mode(False), torch.enable_grad():
        x = x.detach().clone()
        gradients = []
        for output in (model(x), _graph_network(graph).run(x)):
            flat = output.flatten()
            combination = flat @ torch.linspace(1.0, 2.0, len(flat)).to(flat)
            parameters = [graph.params[name] for name in names]
            gradients.append(torch.autograd.grad(combination, parameters, allow_unused=True, materialize_grads=True))
    for name, own, read in zip(names, *gradients, strict=True):
        if float((own - read).abs().max()) > torch.finfo(own.dtype).eps ** 0.5 * float(read.abs().max()):
            raise ValueError(
                f"`model` stops gradients on the way to {name!r} (`detach` or `no_grad`), but the parts of soft gates "
                "need them; freeze weights with `requires_grad_(False)` instead, or use `tangent_kernel` for the whole."
            )


class _ConstantGates(Forward):
    """The forward pass in which no gradient flows through the gates."""

    def _gate_values(self, node: n.Node, compute: Callable[[], Tensor]) -> Shaped[Tensor, "batch ..."]:
        return super()._gate_values(node, compute).detach()


def _graph_network(graph: PathGraph, reading: type[Forward] = Forward) -> Network:
    """The function of a path graph, with gates that depend on the parameters or are constant."""

    def run(x: Tensor, tensors: Mapping[str, Tensor] | None = None) -> Float[Tensor, "batch ..."]:
        # A copy, since torch saves no tensor of inference mode for a backward pass.
        return walk(graph, reading(x.clone(), {**graph.state, **(tensors or {})}))

    return Network(lambda: graph.params, lambda: graph.buffers, run)


def _gates_are_hard(graph: PathGraph) -> bool:
    """Whether every gate is constant almost everywhere, so that no gradient flows through it."""
    for node in graph.gate_nodes:
        if isinstance(node, n.MaxPoolNode):
            continue
        has_trained_slope = node.slope is not None and bool(parameters_of(node.slope))
        if has_trained_slope or not isinstance(node.gate, HardGate | LeakyGate | LinearGate):
            return False
    return True


def part_tiles(
    graph: PathGraph, x1: Tensor, x2: Tensor | None, names: Sequence[str], outputs: str | int, limits: Limits
) -> dict[str, TangentTiles]:
    """The three parts as tiles, of features that are computed once for all of them if they fit the budget."""
    live, constant = _graph_network(graph), _graph_network(graph, _ConstantGates)
    x1, x2 = x1.detach(), None if x2 is None else x2.detach()
    with torch.inference_mode(False), torch.enable_grad():
        live_probe, constant_probe = (probe_network(network, x1, x2, names, outputs) for network in (live, constant))
    # A parameter goes the general path in both networks if it does so in one of them.
    probe = live_probe.with_general(constant_probe.general, live)
    probe = replace(probe, run_bytes=live_probe.run_bytes + constant_probe.run_bytes)

    def both_parts(probe: Probe, x: Tensor) -> tuple[Features, ...]:
        value = probe.features_of(constant, x)
        return value, probe.features_of(live, x) - value

    kernels = {f"{part} part of the tangent kernel": pairs for part, pairs in PARTS.items()}
    return dict(zip(PARTS, make_tiles(kernels, probe, (x1, x2), both_parts, limits), strict=True))
