"""The value, feature and cross parts of the tangent kernel."""

from dataclasses import dataclass, replace
from typing import TypedDict

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath._memory import memory_budget
from neuralpath._precision import without_autocast
from neuralpath.graph import PathGraph, nodes as n, own_names, trace
from neuralpath.kernels.tangent.features import Features
from neuralpath.kernels.tangent.fixed_gates import GraphNetwork, gates_are_hard
from neuralpath.kernels.tangent.probe import Probe, probe_network
from neuralpath.kernels.tangent.selection import Parameters, check_batches, check_model, check_outputs, selected
from neuralpath.kernels.tangent.tangent_kernel import (
    WAY_OUT,
    by_outputs,
    chosen_outputs,
    kernel_size,
    tangent_kernel,
)
from neuralpath.kernels.tangent.tangent_tiles import Kinds, make_job, make_way
from neuralpath.kernels.tangent.tiles import TangentTiles
from neuralpath.kernels.tiling.tiled_kernel import refuse_overflow

VALUE, FEATURE = 0, 1  # kinds of features
PARTS = {
    "value": ((VALUE, VALUE),),
    "feature": ((FEATURE, FEATURE),),
    "cross": ((VALUE, FEATURE), (FEATURE, VALUE)),
}
"""The kinds of features whose inner products make up each part."""


@dataclass(frozen=True, slots=True, eq=False)
class TangentParts:
    """The tangent kernel as a sum: of the weights' share, of the gates' share, and of what they have in common."""

    value: Float[Tensor, "batch1 batch2 *out"]
    feature: Float[Tensor, "batch1 batch2 *out"]
    cross: Float[Tensor, "batch1 batch2 *out"]

    @property
    def total(self) -> Float[Tensor, "batch1 batch2 *out"]:
        """The tangent kernel."""
        return self.value + self.feature + self.cross


class _Options(TypedDict):
    """Arguments that are passed on to ``tangent_kernel``."""

    outputs: str | int
    memory: int | None
    progress: bool | None


@without_autocast()
def tangent_parts(
    model: nn.Module,
    x1: Float[Tensor, "batch1 *shape"],
    x2: Float[Tensor, "batch2 *shape"] | None = None,
    *,
    outputs: str | int = "mean",
    params: Parameters | None = None,
    memory: int | None = None,
    progress: bool | None = None,
) -> TangentParts:
    r"""The tangent kernel split by what a gradient goes through: weights or gates.

    .. math:: \psi_x = \psi_x^V + \psi_x^F, \qquad
        K^V = \langle \psi_x^V, \psi_{x'}^V \rangle, \quad K^F = \langle \psi_x^F, \psi_{x'}^F \rangle, \quad
        K^{CROSS} = \langle \psi_x^V, \psi_{x'}^F \rangle + \langle \psi_x^F, \psi_{x'}^V \rangle

    with :math:`\psi^V` the gradient of the output with every gate held constant, and :math:`\psi^F` the rest. For hard
    gates (ReLU, leaky ReLU, max pooling) :math:`\psi^F` is 0 and so are its parts, exactly. For a gated network, one
    with modules ``feature`` and ``value`` and a method ``value_output``, :math:`\psi^V` is the gradient by the value
    network's parameters and :math:`\psi^F` that by the feature network's; they have none in common, and the cross part
    is 0. Any other model is read as a path graph; the gradients of its two kinds are taken from the same layers, so
    that the small differences between them are not lost.

    Arguments as for ``tangent_kernel``. Reference: Theory, "The tangent kernel and its parts"; P0 section 3,
    P1 section 3 (with erratum E12).
    Cost: two backward passes in place of one, and four sets of inner products.
    Raises: as ``tangent_kernel``; UnsupportedOperation for a model that cannot be read as a path graph; ValueError for
    activations that are not gates, and for soft gates in a model that stops gradients (``detach``, ``no_grad``).

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.SiLU(), nn.Linear(3, 1)).double()
    >>> x = torch.randn(4, 2, dtype=torch.float64)
    >>> parts = tangent_parts(model, x)
    >>> bool(torch.allclose(parts.total, tangent_kernel(model, x)))
    True
    """
    check_model(model)
    check_outputs(outputs)
    check_batches(x1, x2)
    options = _Options(outputs=outputs, memory=memory, progress=progress)
    names = selected(model, params)
    if _is_gated(model):
        return _gated_parts(model, x1, x2, names, options)
    graph = trace(model, x1[:1])
    _refuse_activations(graph)
    if gates_are_hard(graph):
        value = tangent_kernel(model, x1, x2, params=names, **options)
        return TangentParts(value, torch.zeros_like(value), torch.zeros_like(value))
    read = tuple(name for name in names if name in graph.params)
    if not read:
        raise ValueError("`model` does not read the parameters in `params` on the way to its output.")
    _refuse_stopped_gradients(model, graph, x1[:1], read)
    tiles = _part_tiles(graph, x1.detach(), None if x2 is None else x2.detach(), read, outputs, memory_budget(memory))
    kernels = {}
    for part, part_tiles in tiles.items():
        kernel = part_tiles.filled(progress)
        refuse_overflow(kernel, part_tiles.what, WAY_OUT)
        kernels[part] = by_outputs(kernel, part_tiles.job.n_outputs) if outputs == "full" else kernel
    return TangentParts(**kernels)


def _is_gated(model: nn.Module) -> bool:
    """Whether a model has the structure of a gated network, whose value network gets a feature network's gates."""
    children = dict(model.named_children())
    return {"feature", "value"} <= set(children) and callable(getattr(model, "value_output", None))


def _gated_parts(
    model: nn.Module, x1: Tensor, x2: Tensor | None, names: tuple[str, ...], options: _Options
) -> TangentParts:
    """The parts of a gated network, whose value and feature weights are separate."""
    for name, own in own_names(model).items():
        if own in names and name.split(".")[0] != own.split(".")[0]:
            raise ValueError(
                f"`model` shares the parameter {own!r} with {name!r}, so it belongs to both parts; give the value and "
                "the feature network weights of their own."
            )
    others = [name for name in names if name.split(".")[0] not in ("value", "feature")]
    if others:
        raise ValueError(
            f"`model` has the parameter {others[0]!r}, which belongs neither to `value` nor to `feature`; leave it out "
            "with `params=`, or freeze it."
        )
    kernels = {}
    for part in ("value", "feature"):
        chosen = [name for name in names if name.startswith(f"{part}.")]
        if chosen:
            kernels[part] = tangent_kernel(model, x1, x2, params=chosen, **options)
    zero = torch.zeros_like(next(iter(kernels.values())))
    return TangentParts(kernels.get("value", zero), kernels.get("feature", zero), zero)


def _refuse_activations(graph: PathGraph) -> None:
    for node in graph.nodes:
        if isinstance(node, n.ActivationNode):
            raise ValueError(
                f"{node.operation} at {node.name!r} is not a gate, so the tangent kernel has no value and feature "
                "parts; use `tangent_kernel` for the whole, or an activation that multiplies its input with a gate."
            )


def _refuse_stopped_gradients(model: nn.Module, graph: PathGraph, x: Tensor, names: tuple[str, ...]) -> None:
    """Refuse a model whose gradient is not that of what it computes: a graph knows of no ``detach`` and ``no_grad``."""
    with torch.inference_mode(False), torch.enable_grad():
        x = x.detach().clone()
        gradients = []
        for output in (model(x), GraphNetwork(graph, constant_gates=False).run(x)):
            flat = output.flatten()
            mixed = flat @ torch.linspace(1.0, 2.0, len(flat)).to(flat)
            gradients.append(torch.autograd.grad(
                mixed, [graph.params[name] for name in names], allow_unused=True, materialize_grads=True
            ))  # fmt: skip
    for name, own, read in zip(names, *gradients, strict=True):
        if float((own - read).abs().max()) > torch.finfo(own.dtype).eps ** 0.5 * float(read.abs().max()):
            raise ValueError(
                f"`model` stops gradients on the way to {name!r} (`detach` or `torch.no_grad` in its `forward`), and "
                "for soft gates the parts are those of all that it computes; freeze such weights with "
                "`requires_grad_(False)` in place of it, or use `tangent_kernel` for the whole."
            )


def _part_tiles(
    graph: PathGraph, x1: Tensor, x2: Tensor | None, names: tuple[str, ...], outputs: str | int, budget: int
) -> dict[str, TangentTiles]:
    """The three parts as tiles, of features that are made once for all of them where they fit the budget."""
    live, fixed = GraphNetwork(graph, constant_gates=False), GraphNetwork(graph, constant_gates=True)
    output, joint = check_outputs(outputs), outputs == "full"
    with torch.inference_mode(False), torch.enable_grad():
        probe = _common(
            probe_network(live, x1, x2, names, output, joint), probe_network(fixed, x1, x2, names, output, joint)
        )
    size = kernel_size(x1, x2, probe, output, joint)
    way = make_way(live, probe, size, chosen_outputs(probe, output), budget)

    def both(x: Tensor) -> tuple[Features, ...]:
        value = way.features(fixed, x)
        return value, way.features(live, x) - value

    job = make_job(probe, way, size, (x1, x2), Kinds(2, both), budget)
    jobs = {part: replace(job, pairs=pairs) for part, pairs in PARTS.items()}
    return {
        part: TangentTiles(
            f"{part} part of the tangent kernel", j.rows_plan, j.tile, j.dtype, x1.device, j, way.general
        )
        for part, j in jobs.items()
    }


def _common(one: Probe, two: Probe) -> Probe:
    """What holds for both networks: a parameter goes the general way if it does for one of them."""
    general = tuple(name for name in one.known + one.general if name in one.general or name in two.general)
    return replace(
        one,
        known=tuple(name for name in one.known if name not in general),
        general=general,
        terms={name: parts for name, parts in one.terms.items() if name not in general},
        run_bytes=one.run_bytes + two.run_bytes,
    )
