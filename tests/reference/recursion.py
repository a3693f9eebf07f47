"""Infinite-width kernels by the plain recursion over all pairs of examples and positions, in numpy.

An oracle for small inputs: it keeps every pair of positions of every pair of examples, in (batch, batch, y, x, y', x'),
and does one step of the recursion at a time. Vectors are images of one position.
"""

import math

import numpy as np

from reference.cases import Activation, AveragePool, Conv, Dense, Flatten, GlobalAverage, Layer, Skip

Moments = tuple[np.ndarray, np.ndarray]


def limit_kernels_by_recursion(layers: tuple[Layer, ...], x: np.ndarray) -> Moments:
    """Output kernel and tangent kernel of a network for vectors (batch, unit) or images (batch, channel, y, x)."""
    images = x.reshape(*x.shape[:2], 1, 1) if x.ndim == 2 else x
    start = np.einsum("acyx,bcvu->abyxvu", images, images)
    covariance, tangent = _apply(layers, (start, np.zeros_like(start)))
    return covariance[..., 0, 0, 0, 0], tangent[..., 0, 0, 0, 0]


def _apply(layers: tuple[Layer, ...], moments: Moments) -> Moments:
    for layer in layers:
        match layer:
            case Conv():
                moments = _weigh(layer.gain, layer.bias, *(_window_mean(layer, m) for m in moments))
            case Dense():
                moments = _weigh(layer.gain, layer.bias, *moments)
            case Activation():
                covariance, tangent = moments
                variance = np.einsum("aayxyx->ayx", covariance)
                both, slopes = expectations(
                    layer, variance[:, None, :, :, None, None], variance[None, :, None, None], covariance
                )
                moments = both, tangent * slopes
            case AveragePool():
                moments = tuple(_pool(m, layer.window, layer.stride) for m in moments)
            case GlobalAverage():
                moments = tuple(m.mean((2, 3, 4, 5), keepdims=True) for m in moments)
            case Flatten():
                moments = tuple(np.einsum("abyxyx->ab", m)[..., None, None, None, None] / m[0, 0, ..., 0, 0].size
                                for m in moments)  # fmt: skip
            case Skip():
                moments = tuple(a + b for a, b in zip(moments, _apply(layer.layers, moments), strict=True))
    return moments


def _weigh(gain: float, bias: float, covariance: np.ndarray, tangent: np.ndarray) -> Moments:
    """Weights pass both moments on, and their own gradient adds the covariance."""
    covariance, tangent = gain * covariance + bias, gain * tangent
    return covariance, tangent + covariance


def _window_mean(layer: Conv, values: np.ndarray) -> np.ndarray:
    """The mean over a window that moves both positions alike; what is outside of either image counts as 0."""
    mode = "wrap" if layer.circular else "constant"
    padded = np.pad(values, [(0, 0)] * 2 + [(layer.before, layer.after)] * 4, mode=mode)
    height, width = ((size - layer.window) // layer.stride + 1 for size in padded.shape[2:4])
    total = np.zeros((*values.shape[:2], height, width, height, width))
    for dy in range(layer.window):
        for dx in range(layer.window):
            y = slice(dy, dy + layer.stride * height, layer.stride)
            x = slice(dx, dx + layer.stride * width, layer.stride)
            total += padded[:, :, y, x, y, x][:, :, :height, :width, :height, :width]
    return total / layer.window**2


def _pool(values: np.ndarray, window: int, stride: int) -> np.ndarray:
    """The mean over a window for each axis of either image."""
    for axis in (2, 3, 4, 5):
        n_outputs = (values.shape[axis] - window) // stride + 1
        parts = [values.take(range(o * stride, o * stride + window), axis).mean(axis) for o in range(n_outputs)]
        values = np.stack(parts, axis)
    return values


def expectations(activation: Activation, v1: np.ndarray, v2: np.ndarray, c: np.ndarray) -> Moments:
    """E[f(q) f(q')] and E[f'(q) f'(q')] for normal q, q' of variances v1, v2 and covariance c."""
    product = v1 * v2
    match activation.kind:
        case "relu" | "leaky":
            a = activation.slope
            norm = np.sqrt(product)
            cosine = np.clip(np.divide(c, norm, out=np.zeros_like(c), where=norm > 0), -1, 1)
            angle = np.arccos(cosine)

            def kappa(angle: np.ndarray) -> np.ndarray:
                return norm * (np.sin(angle) + (math.pi - angle) * np.cos(angle)) / (2 * math.pi)

            both = (1 + a**2) * kappa(angle) - 2 * a * kappa(math.pi - angle)
            return both, ((1 + a**2) * (math.pi - angle) + 2 * a * angle) / (2 * math.pi)
        case "erf":
            scaled = (1 + 2 * v1) * (1 + 2 * v2)
            slopes = 4 / (math.pi * np.sqrt(scaled - 4 * c**2))
            return 2 / math.pi * np.arcsin(2 * c / np.sqrt(scaled)), slopes
        case "gelu":
            # x Phi(x) is x times a gate that is open where x exceeds an independent standard normal variable.
            w1, w2 = 1 + v1, 1 + v2
            d = w1 * w2 - c**2
            open_ = 1 / 4 + np.arcsin(c / np.sqrt(w1 * w2)) / (2 * math.pi)
            shares = 1 / w1 + 1 / w2
            both = c * open_ + (product - c**2 + c**2 * shares) / (2 * math.pi * np.sqrt(d))
            return both, open_ + c / (2 * math.pi * np.sqrt(d)) * (shares + 1 / d)
    raise ValueError(f"no such activation: {activation}")
