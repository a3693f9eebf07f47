"""The hyperplanes in input space that the gates of a linear feature network define."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from neuralpath.gating.network import GatedNetwork
from neuralpath.gating.swapping import recorded_gates

PROBES = 256  # inputs that are run at once
DRAWN_GATES = 24  # gates of a layer in a picture


@dataclass(frozen=True, slots=True, eq=False)
class Hyperplanes:
    """The gates of one layer: gate u is open for x if ``normals[u] . x + offsets[u] > 0``."""

    gate: str
    normals: Float[Tensor, "unit *shape"]
    offsets: Float[Tensor, " unit"]


def gate_hyperplanes(network: nn.Module, example: Float[Tensor, "batch *shape"]) -> tuple[Hyperplanes, ...]:
    r"""The hyperplane of every gate of a network whose gates are linear in the input, layer by layer.

    .. math:: q_l(x) = A_l x + b_l, \qquad G_l = 1[q_l > 0]

    Each row of :math:`A_l` has the shape of an example. A convolution has the same filters at all positions, so only
    the gates in the middle of the image are returned.

    Args:
        network: A `GatedNetwork` with ``linear_feature=True``, such as `gating.LinearGatedFC`.
        example: Any examples; they determine the input shape and serve to check that the gates are linear.

    Raises:
        ValueError: If the network's gates are not linear in the input.

    Cost: one forward pass of the feature network for each number of an example.

    >>> from neuralpath import gating
    >>> planes = gate_hyperplanes(gating.LinearGatedFC(4, 8, 3), torch.randn(2, 4))
    >>> [tuple(layer.normals.shape) for layer in planes]
    [(8, 4), (8, 4)]
    """
    if not isinstance(network, GatedNetwork) or not network.linear_feature:
        expected = "a GatedNetwork with linear_feature=True, such as gating.LinearGatedFC"
        raise ValueError(f"only linear gates are hyperplanes: give {expected}; got a {type(network).__name__}.")
    shape = tuple(example.shape[1:])
    size = math.prod(shape)
    names, offsets = _preactivations(network, torch.zeros_like(example[:1]))
    rows: list[list[Tensor]] = [[] for _ in names]
    for start in range(0, size, PROBES):
        units = torch.zeros(min(PROBES, size - start), size, dtype=example.dtype, device=example.device)
        units[:, start:].fill_diagonal_(1.0)
        _, layers = _preactivations(network, units.reshape(-1, *shape))
        for columns, q, offset in zip(rows, layers, offsets, strict=True):
            columns.append(q - offset)
    planes = tuple(
        Hyperplanes(name, torch.cat(columns).T.reshape(-1, *shape), offset[0])
        for name, columns, offset in zip(names, rows, offsets, strict=True)
    )
    for plane, q in zip(planes, _preactivations(network, example)[1], strict=True):
        linear = example.flatten(1) @ plane.normals.flatten(1).T + plane.offsets
        scale = float(linear.abs().max()) + float(q.abs().max())
        if not bool(((q - linear).abs() <= 1e-3 * scale).all()):
            causes = "the feature network has a nonlinear operation, or runs in training mode"
            raise ValueError(f"the gates {plane.gate!r} are not linear in the input: {causes}.")
    return planes


@torch.no_grad()
def _preactivations(network: GatedNetwork, x: Tensor) -> tuple[tuple[str, ...], list[Float[Tensor, "batch unit"]]]:
    # Copies, since later operations may write into the output of an activation.
    gates = recorded_gates(network.feature, x, torch.clone, linear=True)
    middles: list[Any] = [(..., *(size // 2 for size in layer.shape[2:])) for layer in gates.layers.values()]
    return gates.names, [layer[middle] for layer, middle in zip(gates.layers.values(), middles, strict=True)]


def draw_hyperplanes(network: nn.Module, example: Float[Tensor, "batch channel height width"], path: Path) -> None:
    """Draw the normals of the first gates of every layer, one row for each layer (needs the extra `report`).

    Args:
        network: A `GatedNetwork` with ``linear_feature=True``.
        example: Any images; see `gate_hyperplanes`.
        path: Picture file to write, such as ``hyperplanes.png``.

    Raises:
        ValueError: As ``gate_hyperplanes``, or the examples are not images of 1 or 3 channels.
        ImportError: matplotlib is not installed.
    """
    if example.ndim != 4 or example.shape[1] not in (1, 3):
        raise ValueError(f"hyperplanes are drawn for images of 1 or 3 channels, got shape {tuple(example.shape[1:])}.")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    planes = gate_hyperplanes(network, example)
    columns = min(DRAWN_GATES, max(len(plane.normals) for plane in planes))
    figure = Figure(figsize=(0.6 * columns + 0.8, 0.7 * len(planes) + 0.4), layout="constrained")
    FigureCanvasAgg(figure)  # no window, no global state
    axes = figure.subplots(len(planes), columns, squeeze=False)
    for row, plane in zip(axes, planes, strict=True):
        for axis in row:
            axis.set(xticks=[], yticks=[], frame_on=False)
        row[0].set_ylabel(plane.gate, fontsize=6)
        for axis, normal in zip(row, plane.normals.float().cpu(), strict=False):
            half = normal.abs().max().clamp(min=1e-30)
            if len(normal) == 1:
                axis.imshow(normal[0].numpy(), cmap="RdBu_r", vmin=-float(half), vmax=float(half))
            else:
                axis.imshow((normal / (2 * half) + 0.5).permute(1, 2, 0).numpy())
    figure.suptitle("Hyperplanes of the gates: red opens, blue closes", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
