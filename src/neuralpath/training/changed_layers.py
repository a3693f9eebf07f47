"""Gated networks in which the gates of one layer alone are changed, to see what that layer adds."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath.gating import GatedNetwork, GateTransform, sample_gates
from neuralpath.training.seeds import derive_seed

Change = Literal["random", "permuted", "open"]
CHANGES: tuple[Change, ...] = ("random", "permuted", "open")


def changed_networks(
    network: GatedNetwork, random: nn.Module, x: Float[Tensor, "batch *shape"], seed: int
) -> Iterator[tuple[str, Change, GatedNetwork]]:
    """For every layer of gates and every change the network in which that layer alone is changed; none for max pools.

    All have the weights of ``network``, whose order and transforms of gates are kept: a layer is one of the value
    network, and takes what stands at the same place of the feature network ``random``, or is changed when it arrives.

    Args:
        network: Gates and weights, and what else the networks have in common.
        random: Where the gates of the change "random" come from, built as the feature network is.
        x: Two examples or more.
        seed: Of the permutations.

    """
    matching = network.match(x)
    pairs, n_feature_gates = matching.pairs, matching.n_feature_gates
    spaces = sample_gates(network.value, network.value_input(x)).in_spaces
    for index, (pair, space) in enumerate(zip(pairs, spaces, strict=True)):
        if space is not None:
            continue  # a max pool
        for change in CHANGES:
            parts = copy.deepcopy(network)
            feature = parts.feature
            order: dict[int | str, int | str] = {i: other.source for i, other in enumerate(pairs)}
            transforms: dict[int | str, GateTransform] = {
                i: other.transform for i, other in enumerate(pairs) if other.transform is not None
            }
            if change == "random":
                feature = _SideBySide(feature, copy.deepcopy(random))
                order[index] = n_feature_gates + pair.source
            elif change == "permuted":
                transforms[index] = _Permuted(pair.transform, derive_seed(seed, "permutation", index))
            else:
                transforms[index] = _Opened(pair.transform)
            yield pair.value_name, change, GatedNetwork(
                feature, parts.value, gate=parts.gate, gate_order=order, gate_transform=transforms,
                value_input=parts.value_input, linear_feature=parts.linear_feature,
            )  # fmt: skip


class _SideBySide(nn.Module):
    """Two networks that run one after the other, so that a value network can take gates of either."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first = first
        self.second = second

    def forward(self, x: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        self.first(x.clone())
        y: Tensor = self.second(x)
        return y


@dataclass(frozen=True)
class _Permuted:
    """The same permutation of a layer's channels for every example, behind the layer's own transform."""

    first: GateTransform | None
    seed: int

    def __call__(self, gate: Shaped[Tensor, "batch ..."], shape: tuple[int, ...]) -> Shaped[Tensor, "batch ..."]:
        gate = gate if self.first is None else self.first(gate, shape)
        order = torch.randperm(gate.shape[1], generator=torch.Generator().manual_seed(self.seed))
        return gate[:, order.to(gate.device)]


@dataclass(frozen=True)
class _Opened:
    """All gates of a layer open, behind the layer's own transform, which may change their number."""

    first: GateTransform | None

    def __call__(self, gate: Shaped[Tensor, "batch ..."], shape: tuple[int, ...]) -> Shaped[Tensor, "batch ..."]:
        return torch.ones_like(gate if self.first is None else self.first(gate, shape))
