"""Expectations of activations: closed forms against integration, accuracy near parallel vectors, and refusals."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

from neuralpath import gates as g
from neuralpath.kernels.limit.activations import Identity, Pair, Rectifier, check_gated, sine_and_angle
from neuralpath.kernels.limit.limit_network import as_activation, normalizer
from neuralpath.kernels.limit.mixtures import Gelu, Softplus, SoftRectifier, kolmogorov_density, logistic_scales
from neuralpath.kernels.limit.quadrature import ByQuadrature

F64 = torch.float64
GATED = (Pair.SIGNALS, Pair.SLOPES, Pair.GATES, Pair.GATE_SLOPE, Pair.SLOPE_GATE)


def split_slopes(activation, v, w, c):
    """E[chi' chi''] of a gated activation in value, feature and cross part, as `limit_tangent_parts` splits it."""
    slopes, gates, left, right = activation.moments(v, w, c, GATED[1:])
    value, feature, cross = gates, slopes - left - right + gates, left + right - 2 * gates
    return SimpleNamespace(value=value, feature=feature, cross=cross, total=value + feature + cross)


def _softplus(q):
    return np.logaddexp(0, 2 * q) / 2


def _sigmoid(q):
    return 0.5 * (1 + np.tanh(q / 2))


# Activation, then its function, slope and gate in numpy.
ACTIVATIONS = {
    "relu": (Rectifier(), lambda q: np.maximum(q, 0), lambda q: (q > 0) * 1.0, lambda q: (q > 0) * 1.0),
    "leaky": (
        Rectifier(0.3),
        lambda q: np.where(q > 0, q, 0.3 * q),
        lambda q: np.where(q > 0, 1, 0.3),
        lambda q: np.where(q > 0, 1, 0.3),
    ),
    "identity": (Identity(), lambda q: q, np.ones_like, np.ones_like),
    "soft 1": (
        SoftRectifier(beta=1.0),
        lambda q: q * _sigmoid(q),
        lambda q: _sigmoid(q) * (1 + q * (1 - _sigmoid(q))),
        _sigmoid,
    ),
    "soft 4, factor 1.1": (
        SoftRectifier(1.1, 4.0),
        lambda q: 1.1 * q * _sigmoid(4 * q),
        lambda q: 1.1 * _sigmoid(4 * q) * (1 + 4 * q * (1 - _sigmoid(4 * q))),
        lambda q: 1.1 * _sigmoid(4 * q),
    ),
    "gelu": (
        Gelu(),
        lambda q: q * scipy.stats.norm.cdf(q),
        lambda q: scipy.stats.norm.cdf(q) + q * scipy.stats.norm.pdf(q),
        scipy.stats.norm.cdf,
    ),
    "softplus": (Softplus(2.0), _softplus, lambda q: _sigmoid(2 * q), None),
}


def _by_panels(one, two, v, w, c):
    """E[one(q) two(q')] by Gauss-Legendre in polar coordinates, cut where q or q' changes its sign."""
    cosine = min(max(c / math.sqrt(v * w), -1.0), 1.0) if v * w > 0 else 0.0
    angle = math.acos(cosine)
    cuts = sorted(x % (2 * math.pi) for x in (math.pi / 2, -math.pi / 2, angle + math.pi / 2, angle - math.pi / 2))
    cuts = [cuts[-1] - 2 * math.pi, *cuts]
    nodes, weights = np.polynomial.legendre.leggauss(60)
    steps, shares = np.polynomial.legendre.leggauss(25)
    radii = np.concatenate([k + 0.5 + 0.5 * steps for k in range(9)])
    radial = np.tile(0.5 * shares, 9) * radii * np.exp(-(radii**2) / 2)
    total = 0.0
    for low, high in itertools.pairwise(cuts):
        turns = (low + high) / 2 + (high - low) / 2 * nodes
        q = math.sqrt(v) * np.cos(turns)[:, None] * radii
        other = math.sqrt(w) * np.cos(turns - angle)[:, None] * radii
        total += ((high - low) / 2 * weights) @ (one(q) * two(other)) @ radial
    return total / (2 * math.pi)


def _check(name, v, w, cosine):
    activation, signal, slope, gate = ACTIVATIONS[name]
    functions = {"signal": signal, "slope": slope, "gate": gate}
    pairs = GATED if gate is not None else GATED[:2]
    c = cosine * math.sqrt(v * w)
    found = activation.moments(*(torch.tensor([t], dtype=F64) for t in (v, w, c)), pairs)
    for pair, value in zip(pairs, found, strict=True):
        one, two = (functions[kind] for kind in pair.value)
        scale = math.sqrt(_by_panels(one, one, v, v, v) * _by_panels(two, two, w, w, w))
        # The oracle's arc cosine has an error of sqrt(eps) near 1, so half of the digits; else 1e-12 of the scale.
        near = min(1 - abs(cosine), 1.0)
        bound = 1e-12 + 4e-16 / math.sqrt(near) if near > 1e-15 else 1e-7
        assert abs(float(value) - _by_panels(one, two, v, w, c)) <= bound * scale, (pair, v, w, cosine)


@pytest.mark.parametrize("name", ACTIVATIONS)
@settings(max_examples=8)
@given(v=st.floats(0.05, 9), w=st.floats(0.05, 9), cosine=st.floats(-1, 1))
def test_closed_forms_are_the_integrals(name, v, w, cosine):
    _check(name, v, w, cosine)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("cosine", [-1.0, -0.5, 0.0, 0.999, 1.0])
def test_closed_forms_at_the_ends(name, cosine):
    _check(name, 1.3, 1.3, cosine)
    _check(name, 1e-4, 25.0, cosine)


def test_the_integrator_of_this_file_against_scipy():
    _, signal, slope, _ = ACTIVATIONS["soft 1"]
    v, w, c = 1.3, 0.7, 0.4
    density = scipy.stats.multivariate_normal([0, 0], [[v, c], [c, w]]).pdf
    by_scipy, _ = scipy.integrate.dblquad(
        lambda y, x: float(signal(np.float64(x)) * slope(np.float64(y)) * density((x, y))), -9, 9, -7, 7, epsabs=1e-7
    )
    assert abs(_by_panels(signal, slope, v, w, c) - by_scipy) < 1e-6


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_means_are_integrals(name):
    activation, signal, _, _ = ACTIVATIONS[name]
    for v in (0.0, 0.4, 5.0):
        nodes = np.linspace(-10, 10, 40001)  # a node at the kink
        mean = scipy.integrate.trapezoid(signal(math.sqrt(v) * nodes) * scipy.stats.norm.pdf(nodes), nodes)
        assert abs(float(activation.mean(torch.tensor(v, dtype=F64))) - mean) < 1e-7


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_functions_are_those_of_torch(name):
    activation, signal, _, _ = ACTIVATIONS[name]
    q = torch.linspace(-6, 6, 41, dtype=F64)
    torch.testing.assert_close(activation(q), torch.from_numpy(np.asarray(signal(q.numpy()))), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("few", "bound"), [(False, 2e-15), (True, 5e-9)])
def test_the_logistic_function_is_a_mixture_of_normal_ones(few, bound):
    q = torch.linspace(-60, 60, 24001, dtype=F64)
    mixture = logistic_scales(1.0, torch.float32 if few else F64)
    assert len(mixture.scales) == (8 if few else 28)
    mixed = sum(w * torch.special.ndtr(q / s) for s, w in zip(mixture.scales, mixture.weights, strict=True))
    assert float((mixed - torch.sigmoid(q)).abs().max()) < bound


def test_both_series_of_the_density_meet():
    k = np.array([0.9999999, 1.0000001])
    below, above = kolmogorov_density(k)
    assert abs(below - above) < 1e-6
    assert abs(scipy.integrate.quad(lambda k: float(kolmogorov_density(np.array([k]))[0]), 0.1, 5)[0] - 1) < 1e-8


@pytest.mark.parametrize("name", ["relu", "leaky", "soft 4, factor 1.1", "gelu", "softplus"])
def test_single_precision_is_near_double(name):
    activation = ACTIVATIONS[name][0]
    cosines = torch.tensor([-1.0, -0.9, -0.3, 0.0, 0.5, 0.9, 1.0], dtype=F64)
    v, w = torch.full_like(cosines, 1.7), torch.full_like(cosines, 0.6)
    pairs = (Pair.SIGNALS, Pair.SLOPES)
    exact = activation.moments(v, w, cosines * (v * w).sqrt(), pairs)
    rounded = activation.moments(*(t.float() for t in (v, w, cosines * (v * w).sqrt())), pairs)
    for one, two in zip(exact, rounded, strict=True):
        assert two.dtype == torch.float32
        torch.testing.assert_close(two.double(), one, rtol=0, atol=2e-6)


@pytest.mark.parametrize("angle", [0.0, 1e-7, 1e-5, 1e-3, 0.1, 1.0, 3.0, math.pi - 1e-5, math.pi])
def test_angles_keep_what_the_cosine_has(angle):
    """A cosine near 1 has an error of eps, so its angle one of eps / angle; below sqrt(eps) it is taken as 0."""
    c = torch.tensor(2.0 * math.cos(angle), dtype=F64)
    two = torch.tensor(2.0, dtype=F64)
    _, found = sine_and_angle(two, two, c)
    from_end = min(angle, math.pi - angle)
    bound = 4e-16 + min(2e-15 / max(from_end, 1e-16), 1.3e-7)
    assert abs(float(found) - angle) <= bound


def test_a_vector_is_parallel_to_itself_and_zero_is_orthogonal_to_all():
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(0), dtype=F64)
    squares, products = x.square().sum(1), (x * x).sum(1) * (1 + 2e-16)  # a rounding apart
    sine, angle = sine_and_angle(squares, squares, products)
    assert torch.equal(sine, torch.zeros_like(sine))
    assert torch.equal(angle, torch.zeros_like(angle))
    zero = torch.zeros(2, dtype=F64)
    _, angle = sine_and_angle(zero, torch.tensor([0.0, 3.0], dtype=F64), zero)
    assert torch.equal(angle, torch.full_like(angle, math.pi / 2))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_zero_variances_are_finite(name):
    activation, *_, gate = ACTIVATIONS[name]
    v, w = torch.tensor([0.0, 0.0], dtype=F64), torch.tensor([0.0, 2.0], dtype=F64)
    values = activation.moments(v, w, torch.zeros_like(v), GATED if gate is not None else GATED[:2])
    assert all(bool(torch.isfinite(value).all()) for value in values)


@given(v=st.floats(0, 9), w=st.floats(0, 9), cosine=st.floats(-1, 1), beta=st.floats(0.5, 12))
@settings(max_examples=12)
def test_parts_of_the_slopes_sum_to_them(v, w, cosine, beta):
    v, w = (torch.tensor(t, dtype=F64) for t in (v, w))
    c = cosine * (v * w).sqrt()
    gate = SoftRectifier(beta=beta)
    split = split_slopes(gate, v, w, c)
    (slopes,) = gate.moments(v, w, c, (Pair.SLOPES,))
    torch.testing.assert_close(split.total, slopes, rtol=1e-13, atol=1e-13)


def test_the_feature_part_is_the_integral_of_E2():
    """2 E[q dgamma q' dgamma'], not 2 E[dgamma dgamma'] as printed."""

    def feature(q):
        return q * 4 * _sigmoid(4 * q) * (1 - _sigmoid(4 * q))

    v, w, c = (torch.tensor([t], dtype=F64) for t in (1.2, 0.8, 0.5))
    split = split_slopes(SoftRectifier(beta=4.0), v, w, c)
    assert abs(float(split.feature) - _by_panels(feature, feature, 1.2, 0.8, 0.5)) < 1e-12
    mixed = _by_panels(feature, lambda q: _sigmoid(4 * q), 1.2, 0.8, 0.5)
    mixed += _by_panels(lambda q: _sigmoid(4 * q), feature, 1.2, 0.8, 0.5)
    assert abs(float(split.cross) - mixed) < 1e-12
    hard = split_slopes(Rectifier(0.2), v, w, c)
    assert float(hard.feature) == float(hard.cross) == 0.0


def test_softplus_has_no_parts():
    with pytest.raises(ValueError, match=r"Softplus"):
        check_gated(Softplus())


@pytest.mark.parametrize("name", ["soft 1", "gelu", "softplus"])
def test_quadrature_reaches_its_accuracy(name):
    activation, _, _, gate = ACTIVATIONS[name]
    by_rule = ByQuadrature(activation, None if gate is None else getattr(activation, "gate"), accuracy=1e-10)  # noqa: B009
    v, w, c = (torch.tensor(t, dtype=F64) for t in ([0.0, 1.0, 4.0], [2.0, 1.0, 3.0], [0.0, 1.0, -3.0]))
    pairs = GATED if gate is not None else GATED[:2]
    for one, two in zip(activation.moments(v, w, c, pairs), by_rule.moments(v, w, c, pairs), strict=True):
        torch.testing.assert_close(two, one, rtol=0, atol=1e-10 * float(one.abs().max()))
    torch.testing.assert_close(by_rule.mean(v), activation.mean(v), rtol=0, atol=1e-10)


def test_quadrature_of_the_error_function():
    v, w, c = (torch.tensor([t], dtype=F64) for t in (1.5, 0.7, -0.6))
    signals, slopes = ByQuadrature(torch.erf).moments(v, w, c, (Pair.SIGNALS, Pair.SLOPES))
    inner = (1 + 2 * v) * (1 + 2 * w)
    torch.testing.assert_close(signals, 2 / math.pi * torch.asin(2 * c / inner.sqrt()), rtol=1e-9, atol=0)
    torch.testing.assert_close(slopes, 4 / math.pi / (inner - 4 * c**2).sqrt(), rtol=1e-9, atol=0)


@pytest.mark.parametrize("function", [torch.abs, F.elu, lambda q: torch.exp(3 * q), lambda q: q / q])
def test_functions_that_the_rule_cannot_integrate_are_refused(function):
    v = torch.tensor([4.0], dtype=F64)
    with pytest.raises(ValueError, match=r"1.0e-09"):
        ByQuadrature(function).moments(v, v, v / 2, (Pair.SIGNALS, Pair.SLOPES))


def test_gates_have_their_closed_forms():
    assert as_activation(g.HardGate()) == Rectifier()
    assert as_activation(g.LeakyGate(0.2)) == Rectifier(0.2)
    assert as_activation(g.SoftGate(8.0, 1.1)) == SoftRectifier(1.1, 8.0)
    assert as_activation(g.GeluGate()) == Gelu()
    assert as_activation(g.LinearGate()) == Identity()
    assert isinstance(as_activation(g.MishGate()), ByQuadrature)
    assert as_activation(Softplus(3.0)) == Softplus(3.0)
    assert as_activation(torch.tanh).name == "the activation tanh"


def test_what_is_no_activation_is_refused(without_type_checks):
    with pytest.raises(TypeError, match=r"`activation`.*str"):
        as_activation("relu")


def test_normalizers():
    activations = [Rectifier(), Rectifier(0.5), Identity(), Gelu(), ByQuadrature(torch.tanh, normalizer=1.2)]
    assert [normalizer(activation) for activation in activations] == [2.0, 1.6, 1.0, 2.0, 1.2]
