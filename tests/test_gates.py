import math

import pytest
import torch
import torch.nn.functional as F

from neuralpath import gates as g

ACTIVATIONS = {
    "relu": (g.HardGate(), F.relu),
    "leaky": (g.LeakyGate(0.3), lambda q: F.leaky_relu(q, 0.3)),
    "relu6": (g.ClippedGate(), F.relu6),
    "silu": (g.SoftGate(1.0), F.silu),
    "gelu": (g.GeluGate(), F.gelu),
    "gelu-tanh": (g.GeluGate("tanh"), lambda q: F.gelu(q, approximate="tanh")),
    "hardswish": (g.HardswishGate(), F.hardswish),
    "mish": (g.MishGate(), F.mish),
    "linear": (g.LinearGate(), lambda q: q),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gate_times_preactivation_is_the_activation(name, dtype):
    gate, activation = ACTIVATIONS[name]
    q = torch.cat([torch.linspace(-12, 12, 97, dtype=dtype), torch.zeros(1, dtype=dtype)])
    torch.testing.assert_close(g.apply_gate(q, gate(q)), activation(q), rtol=8 * torch.finfo(dtype).eps, atol=1e-6)


def test_hard_gate_is_closed_at_zero_as_torchs_gradient_is():
    q = torch.zeros(1, requires_grad=True)
    F.relu(q).backward()
    assert not g.HardGate()(q.detach()).item()
    assert q.grad.item() == 0


@pytest.mark.parametrize(("beta", "factor"), [(8.0, 1.0), (10.0, 1.0), (4.0, 1.1)])
def test_soft_gates_derivative_is_the_papers_formula(beta, factor):
    q = torch.linspace(-3, 3, 41, dtype=torch.float64, requires_grad=True)
    (derivative,) = torch.autograd.grad(g.SoftGate(beta, factor)(q).sum(), q)
    expected = [factor * beta / ((1 + math.exp(beta * v)) * (1 + math.exp(-beta * v))) for v in q.tolist()]
    torch.testing.assert_close(derivative, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-14)


def test_clipped_gate_has_finite_gradients_everywhere():
    q = torch.tensor([-1.0, 0.0, 1e-30, 6.0, 7.0], requires_grad=True)
    g.apply_gate(q, g.ClippedGate()(q)).sum().backward()
    assert torch.isfinite(q.grad).all()


def test_closed_hard_gate_stops_an_infinite_preactivation():
    q = torch.tensor([-torch.inf, 1.0])
    assert g.apply_gate(q, g.HardGate()(q)).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("beta", "factor", "name"), [(0.0, 1.0, "beta"), (-1.0, 1.0, "beta"), (1.0, math.inf, "factor")]
)
def test_soft_gate_refuses_what_is_no_gate(beta, factor, name):
    with pytest.raises(ValueError, match=f"`{name}` of a soft gate must be a positive finite number"):
        g.SoftGate(beta, factor)
