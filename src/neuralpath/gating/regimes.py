"""The regimes of deep gated networks, made of any model."""

import copy
from typing import Literal

import torch
from torch import nn

from neuralpath.gates import SoftGate
from neuralpath.gating.matching import GateTransforms
from neuralpath.gating.network import GatedNetwork, check_not_gated
from neuralpath.gating.orders import GateOrder
from neuralpath.gating.swapping import check_module
from neuralpath.gating.value_inputs import ValueInput
from neuralpath.nets import Initialization, initialize

Regime = Literal["FL", "FR-II", "FR-DI", "DL"]
REGIMES: tuple[Regime, ...] = ("FL", "FR-II", "FR-DI", "DL")
DEFAULT_BETA = 10.0  # P2 and P3; P1 has 8


def decouple(
    model: nn.Module,
    regime: Regime,
    *,
    init: Initialization | str = "glorot",
    generator: torch.Generator | None = None,
    beta: float | None = None,
    factor: float = 1.0,
    gate_order: GateOrder | None = None,
    gate_transform: GateTransforms | None = None,
    value_input: str | ValueInput = "image",
    linear_feature: bool = False,
) -> GatedNetwork:
    r"""Separate the gates of a model from its weights, in one of the papers' regimes.

    ======  ============================  =====================  ===========  =======================
    regime  gates                         feature network        is trained   value network
    ======  ============================  =====================  ===========  =======================
    FL      the model's own (hard)        copy of ``model``      no           drawn anew
    FR-II   the model's own kind (hard)   drawn anew             no           drawn anew, independent
    FR-DI   the model's own kind (hard)   drawn anew             no           copy of the feature's
    DL      soft, ``sigmoid(beta q)``     drawn anew             yes          drawn anew, independent
    ======  ============================  =====================  ===========  =======================

    ``model`` itself is never changed, and its weights matter for FL alone. At the start FR-DI computes exactly what
    the ReLU network of the same weights computes, in evaluation mode; batch norm in training mode uses the batch's
    statistics in the value network, while the gates stay those of evaluation mode. Dropout is off in a feature network
    that is not trained. The new network is in training mode, and all its value weights are trained.

    Reference: Theory, "Gates of one network, weights of another"; P1 section 5 (FLNPF, DNPFL), P3 section 4.1.

    Args:
        model: any model that ``initialize`` can draw anew; it needs ReLUs or other gates, and no activations that are
            none (see `GatedNetwork`).
        regime: ``"FL"``, ``"FR-II"``, ``"FR-DI"`` or ``"DL"``.
        init: how new weights are drawn, see `neuralpath.nets.initialize`; batch norm is reset.
        generator: source of the weights, first of the feature network, then of the value network; the image of
            ``value_input="random"`` is always the same one: give `RandomImage(seed)` for another.
        beta: steepness of the soft gates of DL, 10 if not given.
        factor: factor of the soft gates of DL.
        gate_order: see `GatedNetwork`, as for what follows.
        gate_transform: changes the masks on their way.
        value_input: what the value network sees.
        linear_feature: whether the feature network is linear.

    Raises:
        ValueError: the regime is unknown, the model cannot be drawn anew (naming the part), or ``beta`` or ``factor``
            is given for a regime of hard gates.
        TypeError: the model is no module, or is a `GatedNetwork` already.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> network = decouple(model, "FL")
        >>> bool((network.feature[0].weight == model[0].weight).all())
        True

    """
    check_module("model", model)
    check_not_gated("model", model)
    if regime not in REGIMES:
        raise ValueError(f"`regime` must be one of {', '.join(map(repr, REGIMES))}, got {regime!r}.")
    if regime != "DL" and (beta is not None or factor != 1.0):
        raise ValueError(f"`beta` and `factor` are of the soft gates of 'DL'; the gates of {regime!r} are hard.")
    feature = copy.deepcopy(model)
    if regime != "FL":
        initialize(feature, init, generator)
    value = copy.deepcopy(feature)
    if regime != "FR-DI":
        initialize(value, init, generator)
    network = GatedNetwork(
        feature.requires_grad_(True),
        value.requires_grad_(True),
        gate=SoftGate(DEFAULT_BETA if beta is None else beta, factor) if regime == "DL" else None,
        gate_order=gate_order,
        gate_transform=gate_transform,
        value_input=value_input,
        linear_feature=linear_feature,
        train_feature=regime == "DL",
    )
    return network.train()
