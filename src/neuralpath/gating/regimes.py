"""The papers' regimes of deep gated networks, from any model."""

import copy
from typing import Any, Literal

import torch
from torch import nn

from neuralpath.gates import SoftGate
from neuralpath.gating.matching import GateOrder, GateTransforms
from neuralpath.gating.network import GatedNetwork, check_not_gated
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
    FL      the model's own (hard)        copy of ``model``      no           new weights
    FR-II   the model's own kind (hard)   new weights            no           new, independent weights
    FR-DI   the model's own kind (hard)   new weights            no           copy of the feature network
    DL      soft, ``sigmoid(beta q)``     new weights            yes          new, independent weights
    ======  ============================  =====================  ===========  =======================

    ``model`` itself is never changed, and its weights matter only for FL. Before training, FR-DI computes exactly the
    output of the ReLU network with the same weights, in evaluation mode; batch norm in training mode uses the batch's
    statistics in the value network, while the gates are those of evaluation mode. Dropout is off in a feature network
    that is not trained. The new network is in training mode, and all its value weights are trained.

    Reference: Theory, "Gates of one network, weights of another"; P1 section 5 (FLNPF, DNPFL), P3 section 4.1.

    Args:
        model: Any model that ``initialize`` supports, with ReLUs or other gates and no activations without gates (see
            `GatedNetwork`).
        regime: ``"FL"``, ``"FR-II"``, ``"FR-DI"`` or ``"DL"``.
        init: Initialization of new weights, see `neuralpath.nets.initialize`; batch norm is reset.
        generator: Source of the weights, first of the feature network, then of the value network. It does not draw the
            image of ``value_input="random"``, which is always the same: give `RandomImage(seed)` for another.
        beta: Steepness of the soft gates of DL, by default 10.
        factor: Factor of the soft gates of DL.
        gate_order: The feature network's gate for each gate of the value network; see `GatedNetwork`.
        gate_transform: Changes masks between the networks; see `GatedNetwork`.
        value_input: The input of the value network; see `GatedNetwork`.
        linear_feature: Whether the feature network is linear; see `GatedNetwork`.

    Raises:
        ValueError: The regime is unknown, a part of the model cannot be initialized, or ``beta`` or ``factor`` is given
            for a regime with hard gates.
        TypeError: The model is not a module, or is a `GatedNetwork` already.

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
        raise ValueError(f"`beta` and `factor` are for the soft gates of 'DL'; the gates of {regime!r} are hard.")
    feature = copy.deepcopy(model)
    if regime != "FL":
        initialize(feature, init, generator)
    value = copy.deepcopy(feature)
    if regime != "FR-DI":
        initialize(value, init, generator)
    gate = SoftGate(DEFAULT_BETA if beta is None else beta, factor) if regime == "DL" else None
    masks: Any = {"gate": gate, "gate_order": gate_order, "gate_transform": gate_transform}
    settings: Any = {"value_input": value_input, "linear_feature": linear_feature, "train_feature": regime == "DL"}
    return GatedNetwork(feature.requires_grad_(True), value.requires_grad_(True), **masks, **settings).train()
