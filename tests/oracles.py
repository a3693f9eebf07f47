"""Brute force: every closed form of the library meets a loop of this module. Nothing here uses the library."""

import itertools
import math
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Path:
    """One path: where it starts, its weights as (layer, index), its gates as (layer, unit), its constant."""

    start: int
    weights: tuple[tuple[int, tuple[int, ...]], ...]
    gates: tuple[tuple[int, tuple[int, ...]], ...]
    constant: float = 1.0


def dense_paths(widths: list[int]) -> list[Path]:
    """Paths of a fully connected network with the given layer sizes (input first, one output last)."""
    assert widths[-1] == 1
    paths = []
    for units in itertools.product(*(range(width) for width in widths[:-1])):
        route = [*units, 0]
        weights = tuple((k, (route[k + 1], route[k])) for k in range(len(widths) - 1))
        gates = tuple((k, (route[k + 1],)) for k in range(len(widths) - 2))
        paths.append(Path(units[0], weights, gates))
    return paths


def circular_paths(length: int, width: int, window: int, n_conv: int, n_dense: int) -> list[Path]:
    """Paths of P2's circular CNN, without pooling factors; the pool is a gate layer of its own, after the convs.

    Weights of a convolution are indexed (output filter, input filter, place in the window).
    """
    paths = []
    for start in range(length):
        for places in itertools.product(range(window), repeat=n_conv):
            for filters in itertools.product(range(width), repeat=n_conv):
                position, channel = start, 0
                weights: list[tuple[int, tuple[int, ...]]] = []
                gates: list[tuple[int, tuple[int, ...]]] = []
                for layer, (place, out) in enumerate(zip(places, filters, strict=True)):
                    # q[i] reads z[i + place], so the signal at `position` goes to position - place.
                    position = (position - place) % length
                    weights.append((layer, (out, channel, place)))
                    gates.append((layer, (out, position)))
                    channel = out
                gates.append((n_conv, (channel, position)))
                for units in itertools.product(range(width), repeat=n_dense - 1):
                    route = [channel, *units, 0]
                    tail = [(n_conv + k, (route[k + 1], route[k])) for k in range(n_dense)]
                    tail_gates = [(n_conv + 1 + k, (route[k + 1],)) for k in range(n_dense - 1)]
                    paths.append(Path(start, tuple(weights + tail), tuple(gates + tail_gates)))
    return paths


def residual_paths(
    d_in: int, width: int, n_skips: int, depth: int, gamma_pre: list[float], gamma_post: list[float]
) -> list[Path]:
    """Paths of P2's residual network, for every subset of blocks that are not skipped; constants included."""
    paths = []
    for kept in itertools.product([False, True], repeat=n_skips):
        layers: list[int] = list(range(depth))  # numbers of the weight layers on the path
        constant = 1.0
        for block in range(n_skips):
            if kept[block]:
                layers += range((block + 1) * depth, (block + 2) * depth)
                constant *= gamma_pre[block]
            constant *= gamma_post[block]
        layers += range((n_skips + 1) * depth, (n_skips + 2) * depth)
        sizes = [d_in, *[width] * (len(layers) - 1)]
        for units in itertools.product(*(range(size) for size in sizes)):
            route = [*units, 0]
            weights = tuple((layer, (route[i + 1], route[i])) for i, layer in enumerate(layers))
            gates = tuple((layer, (route[i + 1],)) for i, layer in enumerate(layers[:-1]))
            paths.append(Path(units[0], weights, gates, constant))
    return paths


def path_value(path: Path, weights: list[Tensor]) -> float:
    return math.prod(float(weights[layer][index]) for layer, index in path.weights)


def path_activity(path: Path, gates: list[Tensor]) -> float:
    return math.prod(float(gates[layer][index]) for layer, index in path.gates)


def path_feature(path: Path, x: Tensor, gates: list[Tensor]) -> float:
    return float(x[path.start]) * path_activity(path, gates) * path.constant


def output_by_enumeration(paths: list[Path], x: Tensor, weights: list[Tensor], gates: list[Tensor]) -> float:
    return math.fsum(path_feature(p, x, gates) * path_value(p, weights) for p in paths)


def path_kernel_by_enumeration(
    paths: list[Path], x1: Tensor, gates1: list[Tensor], x2: Tensor, gates2: list[Tensor]
) -> float:
    """Inner product of the features over bundles: paths with the same weights are summed first."""
    bundles: dict[tuple, list[float]] = {}
    for path in paths:
        pair = bundles.setdefault(path.weights, [0.0, 0.0])
        pair[0] += path_feature(path, x1, gates1)
        pair[1] += path_feature(path, x2, gates2)
    return math.fsum(a * b for a, b in bundles.values())
