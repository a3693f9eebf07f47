"""The networks with stored infinite-width kernels, as plain data that needs no library to read.

The parametrization. A dense layer or convolution has weights of variance ``gain`` / fan-in, where the fan-in is inputs
times window for all layers but the first; there it is the window alone, so that the covariance of the first
pre-activations is ``gain`` times the inner product of the inputs, summed over the window and divided by its size
(flattened images: divided by the number of positions). A bias has variance ``bias``. All are trained in the
"NTK parametrization": a layer computes sqrt(gain / fan-in) W h + sqrt(bias) b with W, b standard normal, and the
gradient is with respect to W and b.

With gain 1 in the first layer and 2 after a ReLU (2 / (1 + a^2) after a leaky ReLU of slope a), as all cases with these
activations have, ``output`` is Sigma^(d) and ``tangent`` is K~^(d) of the recursion

    Sigma^(1) = <x, x'>, K~^(1) = Sigma^(1),
    Sigma^(l+1) = 2 E[f(q) f(q')], K~^(l+1) = K~^(l) * 2 E[f'(q) f'(q')] + Sigma^(l+1),

with factor 1. So ``tangent`` is the limit for weights of variance 2 / width everywhere, and (tangent + output) / 2 the
one for an output layer of variance 1 / width. ``Case.neural_tangents_gains`` has the W_std^2 that neural-tangents was
given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Dense:
    """A dense layer on vectors."""

    gain: float
    bias: float = 0.0


@dataclass(frozen=True)
class Conv:
    """A convolution with a square window; ``before`` and ``after`` are the rows and columns padded on each side."""

    gain: float
    window: int = 3
    stride: int = 1
    before: int = 1
    after: int = 1
    circular: bool = False
    bias: float = 0.0


@dataclass(frozen=True)
class Activation:
    """relu, leaky (with its slope), erf (the error function itself) or gelu (x Phi(x), exact)."""

    kind: str = "relu"
    slope: float = 0.0


@dataclass(frozen=True)
class AveragePool:
    """Average over square windows that do not overlap or, with a smaller stride, do; no padding."""

    window: int
    stride: int


@dataclass(frozen=True)
class GlobalAverage:
    """Average over all positions."""


@dataclass(frozen=True)
class Flatten:
    """Positions and channels become units; the dense layer after it has fan-in positions times channels."""


@dataclass(frozen=True)
class Skip:
    """The identity plus some layers, the last of which has weights."""

    layers: tuple[Layer, ...]


Layer = Dense | Conv | Activation | AveragePool | GlobalAverage | Flatten | Skip


@dataclass(frozen=True)
class Case:
    """A network, and the name of its inputs in the file of values."""

    name: str
    inputs: str
    layers: tuple[Layer, ...]

    def neural_tangents_gains(self, channels: int) -> Iterator[tuple[Layer, float]]:
        """Each layer with weights and its W_std^2: the gain, times the input's channels in the first layer.

        neural-tangents divides by the fan-in in every layer, also by the input's channels in the first.
        """
        for index, layer in enumerate(_weighted(self.layers)):
            yield layer, layer.gain * (channels if index == 0 else 1)


def _weighted(layers: tuple[Layer, ...]) -> Iterator[Dense | Conv]:
    for layer in layers:
        if isinstance(layer, Skip):
            yield from _weighted(layer.layers)
        elif isinstance(layer, Dense | Conv):
            yield layer


RELU = Activation()
SLOPE = 0.3
LEAKY, LEAKY_GAIN = Activation("leaky", SLOPE), 2 / (1 + SLOPE**2)


def _dense(depth: int, activation: Activation = RELU, gain: float = 2.0, bias: float = 0.0) -> tuple[Layer, ...]:
    """As many dense layers as the depth says, with activations between them."""
    return (Dense(1.0, bias), *(layer for _ in range(depth - 1) for layer in (activation, Dense(gain, bias))))


def _images(n_convolutions: int, end: Layer, **geometry: object) -> tuple[Layer, ...]:
    """Convolutions, each with a ReLU, then pooling or flattening and the output."""
    body = [
        layer
        for index in range(n_convolutions)
        for layer in (Conv(2.0 if index else 1.0, **geometry), RELU)  # type: ignore[arg-type]
    ]
    return (*body, end, Dense(2.0))


CASES = (
    *(Case(f"dense_relu_{depth}", "vectors", _dense(depth)) for depth in range(2, 9)),
    *(Case(f"dense_leaky_{depth}", "vectors", _dense(depth, LEAKY, LEAKY_GAIN)) for depth in (2, 5, 8)),
    *(Case(f"dense_relu_bias_{depth}", "vectors", _dense(depth, bias=0.3)) for depth in (2, 5, 8)),
    Case("dense_leaky_bias_4", "vectors", _dense(4, LEAKY, LEAKY_GAIN, 0.2)),
    *(Case(f"dense_erf_{depth}", "vectors", _dense(depth, Activation("erf"), 2.0, 0.1)) for depth in (2, 4)),
    *(Case(f"dense_gelu_{depth}", "vectors", _dense(depth, Activation("gelu"), 2.0, 0.1)) for depth in (2, 4)),
    *(
        Case(f"images{size}_{padding}_{name}", f"images{size}", _images(3, end, circular=padding == "circular"))
        for size in (8, 12)
        for padding in ("zero", "circular")
        for name, end in (("flatten", Flatten()), ("pooled", GlobalAverage()))
    ),
    Case("images8_valid_pooled", "images8", _images(2, GlobalAverage(), before=0, after=0)),
    Case("images8_wide_pooled", "images8", _images(2, GlobalAverage(), window=5, before=2, after=2)),
    Case(
        "images8_even_window_flatten", "images8",
        (Conv(1.0, 2, 1, 0, 1), RELU, Conv(2.0, 4, 1, 1, 2), RELU, Flatten(), Dense(2.0)),
    ),
    *(
        Case(
            f"images{size}_stride_{padding}_{name}", f"images{size}",
            (
                Conv(1.0, circular=circular), RELU, Conv(2.0, 4, 2, 1, 1, circular), RELU,
                Conv(2.0, circular=circular), RELU, end, Dense(2.0),
            ),
        )
        for size in (8, 12)
        for padding, circular in (("zero", False), ("circular", True))
        for name, end in (("flatten", Flatten()), ("pooled", GlobalAverage()))
    ),
    Case(
        "images8_stride_odd_pooled", "images8",
        (Conv(1.0, 3, 2, 0, 1), RELU, Conv(2.0), RELU, GlobalAverage(), Dense(2.0)),
    ),
    *(
        Case(
            f"images{size}_average_pool_{padding}_{name}", f"images{size}",
            (
                Conv(1.0, circular=circular), RELU, Conv(2.0, circular=circular), RELU, AveragePool(2, 2),
                Conv(2.0, circular=circular), RELU, end, Dense(2.0),
            ),
        )
        for size in (8, 12)
        for padding, circular in (("zero", False), ("circular", True))
        for name, end in (("flatten", Flatten()), ("pooled", GlobalAverage()))
    ),
    Case(
        "images8_overlapping_pool", "images8",
        (Conv(1.0), RELU, AveragePool(3, 2), Conv(2.0), RELU, AveragePool(2, 1), Conv(2.0), RELU,
         Flatten(), Dense(2.0)),
    ),
    Case(
        "images8_dense_head", "images8",
        (Conv(1.0), RELU, Conv(2.0), RELU, GlobalAverage(), Dense(2.0), RELU, Dense(2.0), RELU, Dense(2.0)),
    ),
    Case(
        "images8_flatten_dense_head", "images8",
        (Conv(1.0), RELU, Conv(2.0), RELU, Flatten(), Dense(2.0), RELU, Dense(2.0)),
    ),
    Case(
        "images8_leaky_bias_pooled", "images8",
        (
            Conv(1.0, bias=0.2), LEAKY, Conv(LEAKY_GAIN, bias=0.1), LEAKY, AveragePool(2, 2),
            Conv(LEAKY_GAIN, bias=0.3), LEAKY, GlobalAverage(), Dense(LEAKY_GAIN, 0.1), LEAKY, Dense(LEAKY_GAIN, 0.2),
        ),
    ),
    *(
        Case(
            f"images8_residual_{name}", "images8",
            (
                Conv(1.0), Skip((RELU, Conv(2.0), RELU, Conv(2.0))), Skip((RELU, Conv(2.0))), RELU, end, Dense(2.0),
            ),
        )
        for name, end in (("flatten", Flatten()), ("pooled", GlobalAverage()))
    ),
    Case(
        "images8_residual_circular_pooled", "images8",
        (
            Conv(1.0, circular=True), RELU, Conv(2.0, circular=True), Skip((RELU, Conv(2.0, circular=True))), RELU,
            GlobalAverage(), Dense(2.0),
        ),
    ),
    Case("dense_residual", "vectors", (Dense(1.0), *[Skip((RELU, Dense(2.0)))] * 2, RELU, Dense(2.0))),
    Case(
        "images8_gelu_pooled", "images8",
        (Conv(1.0), Activation("gelu"), Conv(2.0), Activation("gelu"), GlobalAverage(), Dense(2.0)),
    ),
    Case(
        "images8_erf_flatten", "images8",
        (Conv(1.0), Activation("erf"), Conv(2.0), Activation("erf"), Flatten(), Dense(2.0)),
    ),
)  # fmt: skip
