"""Gated networks with the gates of a single layer replaced, to measure how much that layer contributes."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from neuralpath.gating import GatedNetwork, GateTransform, sample_gates
from neuralpath.training.batches import derive_seed

Change = Literal["random", "permuted", "open"]
CHANGES: tuple[Change, ...] = ("random", "permuted", "open")


def networks_with_changed_layer(
    network: GatedNetwork, random: nn.Module, x: Float[Tensor, "batch *shape"], seed: int
) -> Iterator[tuple[str, Change, GatedNetwork]]:
    """For each layer of gates and each change, the network with that layer changed; max pools are left out.

    A layer is one of the value network. All networks have the weights, the order and the transforms of gates of
    ``network``. A changed layer takes its gates from the layer at the same position of ``random``, or its own gates are
    changed after the layer's transform.

    Args:
        network: Gates, weights and settings that all networks share.
        random: A network like the feature network, which the gates of the change "random" come from.
        x: At least two examples.
        seed: Seed of the permutations.

    Yields:
        The name of the layer, the change, and the changed network.
    """
    matching = network.match(x)
    pairs, n_feature_gates = matching.pairs, matching.n_feature_gates
    spaces = sample_gates(network.value, network.value_input(x)).in_spaces
    for index, (pair, space) in enumerate(zip(pairs, spaces, strict=True)):
        if space is not None:
            continue  # a max pool
        for change in CHANGES:
            copied = copy.deepcopy(network)
            feature = copied.feature
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
            changed = GatedNetwork(
                feature,
                copied.value,
                gate=copied.gate,
                gate_order=order,
                gate_transform=transforms,
                value_input=copied.value_input,
                linear_feature=copied.linear_feature,
            )
            yield pair.value_name, change, changed


class _SideBySide(nn.Module):
    """Two networks that run one after the other, so that a value network can take gates from both."""

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
    """One permutation of a layer's channels for all examples, after the layer's own transform."""

    first: GateTransform | None
    seed: int

    def __call__(self, gate: Shaped[Tensor, "batch ..."], shape: tuple[int, ...]) -> Shaped[Tensor, "batch ..."]:
        gate = gate if self.first is None else self.first(gate, shape)
        order = torch.randperm(gate.shape[1], generator=torch.Generator().manual_seed(self.seed))
        return gate[:, order.to(gate.device)]


@dataclass(frozen=True)
class _Opened:
    """All gates of a layer open, after the layer's own transform, which may change their number."""

    first: GateTransform | None

    def __call__(self, gate: Shaped[Tensor, "batch ..."], shape: tuple[int, ...]) -> Shaped[Tensor, "batch ..."]:
        return torch.ones_like(gate if self.first is None else self.first(gate, shape))
