"""Deep linearly gated networks: the gates come from a network without activations."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from neuralpath.gates import SoftGate
from neuralpath.gating.network import GatedNetwork
from neuralpath.gating.spellings import GateFunction
from neuralpath.gating.value_inputs import ValueInput
from neuralpath.nets import FC, GCONV, Initialization

STEEPNESS = 10.0  # of the soft gates, as in the paper


class LinearGatedFC(GatedNetwork):
    r"""Fully connected network, gated by a deep linear network.

    .. math:: q_l = \Theta^F_l q_{l-1}, \quad q_0 = x, \qquad z_l = (\Theta^V_l z_{l-1}) \odot G(q_l)

    Every gate is a hyperplane in input space, :math:`q_l = \Theta^F_l \cdots \Theta^F_1 x`. The feature network ends
    at its last gate; the value network is an `FC`.

    Reference: "Duality simplifies deep neural networks with rectified linear units", section 5.

    Args:
        input_shape, width, depth, n_outputs, bias, init: As in `neuralpath.nets.FC`, the value network.
        gate: Function from pre-activations to gates.
        train_feature: Whether the feature network is trained; then `gate` must not be hard.
        value_input: The input of the value network; see `neuralpath.GatedNetwork`.
        generator: Source of the initial weights, first of the feature network, then of the value network.

    Raises:
        ValueError: If a size is not positive, `width` and `depth` do not fit together, or there is no hidden layer.

    Example:
        >>> LinearGatedFC(4, 8, 3)(torch.ones(5, 4)).shape
        torch.Size([5, 1])
    """

    def __init__(
        self,
        input_shape: int | Sequence[int],
        width: int | Sequence[int],
        depth: int | None = None,
        n_outputs: int = 1,
        *,
        gate: GateFunction = SoftGate(STEEPNESS),  # noqa: B008 (a frozen value)
        train_feature: bool = True,
        value_input: str | ValueInput = "image",
        bias: bool = False,
        init: Initialization | str = "glorot",
        generator: torch.Generator | None = None,
    ) -> None:
        feature, value = (
            FC(input_shape, width, depth, n_outputs, bias=bias, init=init, generator=generator) for _ in range(2)
        )
        if len(feature.layers) == 1:
            raise ValueError("`depth` must be at least 2: without a hidden layer there are no gates.")
        _drop_last(feature.layers)
        settings: Any = {"gate": gate, "value_input": value_input, "train_feature": train_feature}
        super().__init__(feature, value, linear_feature=True, **settings)


class LinearGatedCNN(GatedNetwork):
    """Convolutional network with global average pooling, gated by a deep linear network.

    As `LinearGatedFC`, with `GCONV` as the value network: every feature is a chain of linear filters of the image. The
    defaults are the four convolutions of 128 filters whose gates the papers permute.

    Reference: "Duality simplifies deep neural networks with rectified linear units", section 5.

    Args:
        input_shape, n_outputs, channels, hidden, window, stride: As in `neuralpath.nets.VCONV`.
        gate, train_feature, value_input, bias, init, generator: As in `LinearGatedFC`.

    Raises:
        ValueError: If a size is not positive, `window` is even or `channels` is empty.

    Example:
        >>> LinearGatedCNN((1, 6, 6), 2, channels=(3, 4))(torch.ones(7, 1, 6, 6)).shape
        torch.Size([7, 2])
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        n_outputs: int = 10,
        *,
        channels: Sequence[int] = (128, 128, 128, 128),
        hidden: Sequence[int] = (),
        window: int = 3,
        stride: int | Sequence[int] = 1,
        gate: GateFunction = SoftGate(STEEPNESS),  # noqa: B008 (a frozen value)
        train_feature: bool = True,
        value_input: str | ValueInput = "image",
        bias: bool = False,
        init: Initialization | str = "glorot",
        generator: torch.Generator | None = None,
    ) -> None:
        layers: Any = {"channels": channels, "hidden": hidden, "window": window, "stride": stride, "bias": bias}
        feature, value = (GCONV(input_shape, n_outputs, **layers, init=init, generator=generator) for _ in range(2))
        _drop_last(feature.dense)
        settings: Any = {"gate": gate, "value_input": value_input, "train_feature": train_feature}
        super().__init__(feature, value, linear_feature=True, **settings)


def _drop_last(layers: nn.Sequential) -> None:
    """Remove the output layer without renaming the others."""
    delattr(layers, next(reversed(layers._modules)))
