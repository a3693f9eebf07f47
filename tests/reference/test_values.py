"""The stored values are what the recursion says, so that their parametrization is the one that cases.py states."""

import numpy as np
import pytest
from scipy import special

from reference.cases import CASES, Activation
from reference.recursion import expectations, limit_kernels_by_recursion
from reference.values import NAMES, reference

SLOPE = 0.3
NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)  # enough for smooth functions on a half axis
FUNCTIONS = {
    "relu": lambda q: np.maximum(q, 0),
    "leaky": lambda q: np.where(q > 0, q, SLOPE * q),
    "erf": special.erf,
    "gelu": lambda q: q * special.ndtr(q),
}


@pytest.mark.parametrize("name", NAMES)
def test_stored_values_agree_with_the_recursion(name):
    case = reference(name)
    output, tangent = limit_kernels_by_recursion(case.case.layers, case.x.numpy())
    # The kernel of opposite vectors is 0 up to rounding, so errors are measured against the largest entry.
    np.testing.assert_allclose(output, case.output, rtol=0, atol=1e-12 * case.output.max())
    np.testing.assert_allclose(tangent, case.tangent, rtol=0, atol=1e-12 * case.tangent.max())


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize(("v1", "v2", "c"), [(1.0, 1.0, 0.3), (0.5, 2.0, -0.7), (3.0, 0.2, 0.6)])
def test_expectations_agree_with_integration(kind, v1, v2, c):
    function = FUNCTIONS[kind]

    def density(q1, q2, v1, v2, c):
        d = v1 * v2 - c * c
        return np.exp(-(v2 * q1 * q1 - 2 * c * q1 * q2 + v1 * q2 * q2) / (2 * d)) / (2 * np.pi * np.sqrt(d))

    def expected(c, f):
        total = 0.0
        for lo1, hi1 in ((-40, 0), (0, 40)):
            for lo2, hi2 in ((-40, 0), (0, 40)):
                a, b = ((hi - lo) / 2 * NODES + (hi + lo) / 2 for lo, hi in ((lo1, hi1), (lo2, hi2)))
                grid = f(a)[:, None] * f(b) * density(a[:, None], b, v1, v2, c)
                total += (hi1 - lo1) * (hi2 - lo2) / 4 * (WEIGHTS @ grid @ WEIGHTS)
        return total

    activation = Activation(kind, SLOPE if kind == "leaky" else 0.0)
    both, slopes = expectations(activation, *(np.array([value]) for value in (v1, v2, c)))
    assert both.item() == pytest.approx(expected(c, function), rel=1e-9)
    # Price's theorem: the derivative by the covariance is the expectation of the slopes.
    step = 1e-4
    difference = (expected(c + step, function) - expected(c - step, function)) / (2 * step)
    assert slopes.item() == pytest.approx(difference, rel=1e-6)


def test_every_case_has_a_name_of_its_own():
    assert len(set(NAMES)) == len(CASES) > 40
