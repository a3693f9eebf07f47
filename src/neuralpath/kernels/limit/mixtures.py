"""Soft-ReLU, GELU and softplus in closed form: the logistic function is a mixture of normal distribution functions.

sigmoid(q) = E[Phi(q / 2K)] for K of the Kolmogorov distribution, so that a soft gate is open where q exceeds an
independent normal variable of random scale, and every expectation is one over the orthant of two normal variables.
GELU is the case of one fixed scale.

Reference: Theory, "Kernels of infinite width".
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from neuralpath.kernels.limit.activations import Numbers, Pair, sine_square

NODES = 28  # nodes of the trapezoid rule in the logarithm of K: the error of the logistic function is 1e-14
NEGLIGIBLE = 1e-18  # pairs of scales of a smaller weight are left out; together they are below rounding
GROUP = 2**14  # numbers computed at once: for few pairs of examples several pairs of scales are grouped
_LOG_RANGE = (-1.8, 1.5)  # K outside has a probability below 1e-16
_SERIES = 30  # terms of the series of the density, far more than that range needs

# Fitted by least squares over scales and weights, with weights adjusted until the error was uniform: 2.8e-9 (tested).
_FEW_K = (
    0.3620554147, 0.4648516332, 0.5919986611, 0.7561423663, 0.9699507704, 1.2465778422, 1.6033995905, 2.0843344527,
)  # fmt: skip
_FEW_WEIGHTS = (
    0.0026724502, 0.0451589662, 0.1835957290, 0.3138509821, 0.2831731374, 0.1394031127, 0.0305158900, 0.0016297324,
)  # fmt: skip


class Scales(NamedTuple):
    """A distribution of finitely many scales: gamma(q) is the mean of Phi(q / scale)."""

    scales: tuple[float, ...]
    weights: tuple[float, ...]


def kolmogorov_density(k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Density of the Kolmogorov distribution, by the series that converges fast on either side of 1."""
    terms = np.arange(1, _SERIES + 1)[:, None]
    above = 8 * k * np.sum((-1.0) ** (terms - 1) * terms**2 * np.exp(-2 * terms**2 * k**2), axis=0)
    powers = (2 * terms - 1) ** 2 * math.pi**2 / (8 * k**2)
    below = math.sqrt(2 * math.pi) / k**2 * np.sum((2 * powers - 1) * np.exp(-powers), axis=0)
    return np.where(k < 1, below, above)


@cache
def logistic_scales(beta: float, dtype: torch.dtype) -> Scales:
    """Scales whose mixture is ``sigmoid(beta q)``: 28 in float64, to 1e-14; 8 in other dtypes, to 3e-9."""
    if dtype != torch.float64:
        k, weights = np.array(_FEW_K), np.array(_FEW_WEIGHTS)
    else:
        k = np.exp(np.linspace(*_LOG_RANGE, NODES))
        weights = k * kolmogorov_density(k)
    return Scales(tuple(2 * k / beta), tuple(weights / weights.sum()))


@cache
def _pairs_of(mixture: Scales) -> Float[Tensor, "3 pair"]:
    """Squares of both scales, and the weight, of all pairs of scales that are not negligible."""
    scales, weights = torch.tensor(mixture, dtype=torch.float64)
    joint = torch.outer(weights, weights)
    first, second = (joint >= NEGLIGIBLE).nonzero(as_tuple=True)
    return torch.stack([scales[first].square(), scales[second].square(), joint[first, second]])


def _terms(mixture: Scales, v: Numbers, w: Numbers, c: Numbers) -> Iterator[tuple[Numbers, ...]]:
    """Groups of pairs of scales along the last axis: weights, A^2/V and A'^2/V', root of D, and probability o.

    V = v + A^2, V' = w + A'^2, D = VV' - c^2 without cancellation, o = 1/4 + asin(c / sqrt(VV')) / 2 pi.
    """
    free = sine_square(v, w, c)[..., None]
    v, w, c = v[..., None], w[..., None], c[..., None]
    groups = (part.split(max(1, GROUP // c.numel())) for part in _pairs_of(mixture).to(c))
    for a, b, weight in zip(*groups, strict=True):
        root = (free + (v * b + w * a + a * b)).sqrt_()
        yield weight, a / (v + a), b / (w + b), root, 0.25 + torch.atan2(c, root) / (2 * math.pi)


@dataclass(frozen=True)
class MixtureGate(ABC):
    """The common base of soft-ReLU and GELU: chi(q) = factor * q * gamma(q), gamma a mixture of normal CDFs.

    With A, A' the two scales, summed over both with their weights: E[gamma gamma'] = o;
    E[gamma q' gamma_q'] = c A'^2 / (2 pi V' sqrt D); E[q gamma_q q' gamma_q'] = c A^2 A'^2 / (2 pi D^(3/2));
    E[chi chi'] = c o + [v w - c^2 + c^2 (A^2/V + A'^2/V')] / (2 pi sqrt D).
    """

    factor: float = 1.0

    gated = True

    @abstractmethod
    def scales(self, dtype: torch.dtype) -> Scales:
        """The mixture for numbers of a dtype."""

    @abstractmethod
    def gate(self, q: Numbers) -> Numbers:
        """The gate, without the factor."""

    def __call__(self, q: Numbers) -> Numbers:
        return self.factor * q * self.gate(q)

    def mean(self, v: Numbers) -> Numbers:
        total = torch.zeros_like(v)
        for scale, weight in zip(*self.scales(v.dtype), strict=True):
            total += weight * v / (2 * math.pi * (v + scale**2)).sqrt()
        return self.factor * total

    def moments(self, v: Numbers, w: Numbers, c: Numbers, pairs: Sequence[Pair]) -> list[Numbers]:
        gates, left, right, feature, signals = (torch.zeros_like(c) for _ in range(5))
        needs_slopes = any("slope" in pair.value for pair in pairs)
        free, square = sine_square(v, w, c)[..., None], (c * c)[..., None]
        for weight, share1, share2, root, both_open in _terms(self.scales(c.dtype), v, w, c):
            gates += (weight * both_open).sum(-1)
            over = (weight / (2 * math.pi)) / root
            if Pair.SIGNALS in pairs:
                signals += (over * (free + square * (share1 + share2))).sum(-1)
            if needs_slopes:
                left += c * (over * share2).sum(-1)
                right += c * (over * share1).sum(-1)
                # A^2 A'^2 / D = (A^2/V)(A'^2/V') VV'/D, and VV' = D + c^2.
                feature += c * (over * share1 * share2 * (1 + square / root**2)).sum(-1)
        values = {
            Pair.GATES: gates,
            Pair.GATE_SLOPE: gates + left,
            Pair.SLOPE_GATE: gates + right,
            Pair.SLOPES: gates + left + right + feature,
            Pair.SIGNALS: c * gates + signals,
        }
        return [self.factor**2 * values[pair] for pair in pairs]


@dataclass(frozen=True)
class SoftRectifier(MixtureGate):
    """Soft-ReLU ``q * sigmoid(beta q)``; SiLU for beta 1."""

    beta: float = 1.0

    def scales(self, dtype: torch.dtype) -> Scales:
        return logistic_scales(self.beta, dtype)

    def gate(self, q: Numbers) -> Numbers:
        return torch.sigmoid(self.beta * q)


@dataclass(frozen=True)
class Gelu(MixtureGate):
    """GELU with the normal distribution function itself: one scale, 1, so the closed form is exact."""

    def scales(self, dtype: torch.dtype) -> Scales:
        return Scales((1.0,), (1.0,))

    def gate(self, q: Numbers) -> Numbers:
        return 0.5 * (1 + torch.erf(q / math.sqrt(2)))


@dataclass(frozen=True)
class Softplus:
    """``log(1 + exp(beta q)) / beta``: a ReLU of q plus normal noise of the mixture's scales, averaged over it.

    So its expectations are those of ReLU with variances V, V' and covariance c. It has no gate. (torch's softplus is
    linear above its threshold; the difference, 2e-9 at most with its default, is ignored.)
    """

    beta: float = 1.0

    gated = False

    def __call__(self, q: Numbers) -> Numbers:
        return torch.logaddexp(self.beta * q, torch.zeros_like(q)) / self.beta

    def mean(self, v: Numbers) -> Numbers:
        total = torch.zeros_like(v)
        for scale, weight in zip(*logistic_scales(self.beta, v.dtype), strict=True):
            total += weight * ((v + scale**2) / (2 * math.pi)).sqrt()
        return total

    def moments(self, v: Numbers, w: Numbers, c: Numbers, pairs: Sequence[Pair]) -> list[Numbers]:
        slopes, signals = torch.zeros_like(c), torch.zeros_like(c)
        for weight, _, _, root, both_open in _terms(logistic_scales(self.beta, c.dtype), v, w, c):
            slopes += (weight * both_open).sum(-1)
            if Pair.SIGNALS in pairs:
                signals += (weight / (2 * math.pi) * root).sum(-1)
        values = {Pair.SLOPES: slopes, Pair.SIGNALS: c * slopes + signals}
        return [values[pair] for pair in pairs]
