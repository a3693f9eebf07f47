"""Gate operations are found under every name that Python has for them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuralpath import gates as g
from neuralpath.gating.spellings import SPELLINGS
from neuralpath.gating.swapping import recorded_gates, run_with_gates
from neuralpath.graph.operations.table import OPERATIONS

SLOPES = torch.tensor([0.1, 0.2, 0.3, 0.4])

# Name of the gate, a call of it, and the gate values that it has by definition.
HARD = {
    "F.relu": F.relu,
    "F.relu keyword": lambda q: F.relu(input=q),
    "F.relu in place": lambda q: F.relu(q, True),
    "F.relu_": F.relu_,
    "torch.relu": torch.relu,
    "torch.relu_": torch.relu_,
    "Tensor.relu": lambda q: q.relu(),
    "Tensor.relu_": lambda q: q.relu_(),
    "aten.relu": torch.ops.aten.relu,
    "aten.relu.default": torch.ops.aten.relu.default,
    "nn.ReLU": nn.ReLU(),
    "nn.ReLU in place": nn.ReLU(inplace=True),
    "torch.clamp": lambda q: torch.clamp(q, 0),
    "Tensor.clamp keyword": lambda q: q.clamp(min=0),
    "Tensor.clamp_": lambda q: q.clamp_(0),
    "Tensor.clamp_min": lambda q: q.clamp_min(0),
    "torch.clip": lambda q: torch.clip(q, 0),
    "clamp by a tensor": lambda q: q.clamp(min=torch.zeros(4)),
    "torch.maximum": lambda q: torch.maximum(q, torch.zeros(())),
    "torch.maximum, zero first": lambda q: torch.maximum(torch.zeros(()), q),
    "torch.max": lambda q: torch.max(q, torch.zeros(4)),
    "F.threshold": lambda q: F.threshold(q, 0, 0),
    "nn.Threshold": nn.Threshold(0, 0),
}
OTHER = {
    "nn.ReLU6": (nn.ReLU6(), g.ClippedGate()),
    "F.relu6": (F.relu6, g.ClippedGate()),
    "nn.Hardtanh": (nn.Hardtanh(0, 2), g.ClippedGate(2.0)),
    "nn.LeakyReLU": (nn.LeakyReLU(0.3), g.LeakyGate(0.3)),
    "nn.LeakyReLU in place": (nn.LeakyReLU(0.3, inplace=True), g.LeakyGate(0.3)),
    "F.leaky_relu_": (lambda q: F.leaky_relu_(q, 0.3), g.LeakyGate(0.3)),
    "nn.PReLU": (nn.PReLU(init=0.2), g.LeakyGate(0.2)),
    "F.prelu": (lambda q: F.prelu(q, SLOPES), lambda q: torch.where(q > 0, 1.0, SLOPES)),
    "nn.RReLU": (nn.RReLU(0.1, 0.3).eval(), g.LeakyGate(0.2)),
    "nn.SiLU": (nn.SiLU(), g.SoftGate(1.0)),
    "nn.GELU": (nn.GELU(), g.GeluGate()),
    "F.gelu tanh": (lambda q: F.gelu(q, approximate="tanh"), g.GeluGate("tanh")),
    "nn.Hardswish": (nn.Hardswish(), g.HardswishGate()),
    "nn.Mish": (nn.Mish(), g.MishGate()),
}
CALLS = {**{name: (call, g.HardGate()) for name, call in HARD.items()}, **OTHER}


class Called(nn.Module):
    """A copy of the input, so that in-place calls leave the test's own alone."""

    def __init__(self, call) -> None:
        super().__init__()
        self._call = call
        self.calls = call if isinstance(call, nn.Module) else None

    def forward(self, x):
        return self._call(x.clone())


def preactivations():
    return torch.linspace(-4, 8, 20).reshape(5, 4) + 0.1


@pytest.mark.parametrize("name", CALLS)
def test_every_spelling_is_recorded_once_with_its_own_gate(name):
    call, gate = CALLS[name]
    q = preactivations()
    gates = recorded_gates(Called(call), q)
    assert len(gates) == 1
    torch.testing.assert_close(gates[0], gate(q))
    assert gates[0].dtype == gate(q).dtype


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("soft", [False, True])
def test_every_spelling_takes_another_gate(name, soft):
    q = preactivations()
    mask = torch.arange(20).reshape(5, 4) % 3 == 0
    gate = mask * 0.5 if soft else mask
    swapped = run_with_gates(Called(CALLS[name][0]), q, [gate])
    assert torch.equal(swapped, q * gate)


@pytest.mark.parametrize("in_place", [lambda q: q.relu_(), lambda q: F.leaky_relu(q, 0.1, True), F.relu_])
@pytest.mark.parametrize("soft", [False, True])
def test_in_place_activations_write_into_their_input(in_place, soft):
    class Ignores(nn.Module):
        def forward(self, x):
            q = 2 * x
            in_place(q)  # the result is dropped: only the side effect counts
            return q

    x, gate = preactivations().requires_grad_(), torch.arange(20).reshape(5, 4) % 2
    gate = (gate * 0.5).requires_grad_() if soft else gate.bool()
    y = run_with_gates(Ignores(), x, [gate])
    assert torch.equal(y, 2 * x * gate)
    y.sum().backward()
    assert torch.equal(x.grad, 2 * gate.detach().float())
    if soft:
        assert torch.equal(gate.grad, 2 * x.detach())


@pytest.mark.parametrize("gate", [g.SoftGate(3.0), g.GeluGate("tanh"), g.ClippedGate(2.0), lambda q: q])
def test_gates_of_in_place_activations_keep_their_gradients(gate):
    q = preactivations().requires_grad_()
    (recorded,) = recorded_gates(Called(torch.relu_), q, gate).layers.values()
    torch.testing.assert_close(recorded, gate(q))
    (gradient,) = torch.autograd.grad(recorded.sum(), q)
    (expected,) = torch.autograd.grad(gate(q).sum(), q)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize(
    "call", [torch.tanh, F.softplus, lambda q: q.clamp(-1, 1), lambda q: q.clamp(min=0.5), F.elu, lambda q: q.max()]
)
def test_what_is_no_gate_runs_as_it_is(call):
    q = preactivations()
    assert len(recorded_gates(Called(call), q)) == 0
    assert torch.equal(run_with_gates(Called(call), q, []), call(q))


POOLS = {
    "nn.MaxPool2d": nn.MaxPool2d(2),
    "overlapping, padded": nn.MaxPool2d(3, 2, 1),
    "dilated": lambda z: F.max_pool2d(z, 2, 1, 0, 2),
    "ceil": lambda z: torch.max_pool2d(z, 2, 2, ceil_mode=True),
    "aten": lambda z: torch.ops.aten.max_pool2d.default(z, [2, 2]),
    "with indices": lambda z: F.max_pool2d(z, 2, return_indices=True)[0],
    "nn.AdaptiveMaxPool2d": nn.AdaptiveMaxPool2d((3, None)),
    "adaptive with indices": lambda z: F.adaptive_max_pool2d(z, 2, return_indices=True)[0],
    "max_pool1d": lambda z: F.max_pool1d(z.flatten(2), 3),
    "adaptive_max_pool1d": lambda z: F.adaptive_max_pool1d(z.flatten(2), 3),
    "max_pool3d": lambda z: F.max_pool3d(z[:, :, None], (1, 2, 2)),
    "adaptive_max_pool3d": lambda z: F.adaptive_max_pool3d(z[:, :, None], (1, 2, 2)),
    "amax": lambda z: z.amax((2, 3)),
    "amax of rows": lambda z: torch.amax(z, -1, keepdim=True),
    "max along an axis": lambda z: z.max(2)[0],
    "max along an axis by name": lambda z: torch.max(z, dim=-1, keepdim=True).values,
}


def image():
    # Distinct entries, in no order: torch splits the gradient of equal ones.
    return torch.randperm(2 * 3 * 5 * 7, generator=torch.Generator().manual_seed(0)).reshape(2, 3, 5, 7).float()


@pytest.mark.parametrize("name", POOLS)
def test_every_max_pool_is_recorded_and_replaced(name):
    z = image()
    z.requires_grad_()
    pool = Called(POOLS[name])
    own = pool(z)
    (positions,) = recorded_gates(pool, z).layers.values()
    assert torch.equal(z.flatten(2).gather(2, positions.flatten(2)).flatten(), own.flatten())
    again = run_with_gates(pool, z, [positions])
    assert torch.equal(again, own)
    weights = torch.randn(own.shape, generator=torch.Generator().manual_seed(1))
    assert torch.equal(
        torch.autograd.grad((again * weights).sum(), z)[0], torch.autograd.grad((own * weights).sum(), z)[0]
    )
    elsewhere = torch.zeros_like(positions)
    first = z[:, :, 0, 0].reshape(2, 3, *(1,) * (own.ndim - 2)).expand_as(own)
    assert torch.equal(run_with_gates(pool, z, [elsewhere]), first)


@pytest.mark.parametrize(
    "spelling",
    [
        lambda q: torch.maximum(torch.zeros(()), q),
        lambda q: torch.maximum(torch.zeros(4), q),
        lambda q: torch.maximum(torch.zeros(1, 1), q),
        lambda q: torch.maximum(q, torch.zeros(())),
    ],
)
def test_a_signal_that_is_0_everywhere_is_still_the_signal(spelling):
    for x in (torch.zeros(5, 4), torch.zeros(1, 4)):
        (gates,) = recorded_gates(Called(spelling), x).layers.values()
        assert gates.shape == x.shape


def test_indices_of_a_maximum_follow_the_given_positions():
    positions = torch.full((2, 3, 1, 7), 18)  # row 2, column 4 of 5 x 7
    indices = run_with_gates(Called(lambda z: z.max(2, keepdim=True)[1]), image(), [positions])
    assert torch.equal(indices, torch.full((2, 3, 1, 7), 2))


@pytest.mark.parametrize(
    ("call", "x", "message"),
    [
        (lambda q: torch.maximum(q, q + 1), (5, 4), "maximum of two tensors"),
        (lambda q: q.clamp(torch.zeros(4), torch.ones(4)), (5, 4), "clamp of two tensors"),
        (lambda q: torch.clamp(q, 0, out=torch.empty_like(q)), (5, 4), r"clamp\(…, out=…\)"),
        (nn.RReLU(), (5, 4), "rrelu in training mode"),
        (lambda q: q.amax(1), (5, 4), r"amax over the axes \(1,\)"),
        (lambda q: q.max(1)[0], (5, 4, 3), r"max over the axes \(1,\)"),
        (lambda q: F.max_pool2d(q, 2), (3, 5, 4), "max_pool2d of values of shape"),
        (lambda q: q.amax((2, 3, 4, 5)), (2,) * 6, r"amax .* 4 axes of space"),
    ],
)
def test_what_cannot_be_swapped_is_refused_by_name(call, x, message):
    with pytest.raises(ValueError, match=message):
        recorded_gates(Called(call), torch.randn(x))


def test_the_spellings_are_derived_from_the_tables_that_trace_uses():
    tables = [*g.GATE_OPERATIONS, *g.GATING_MAXIMUM, *g.PARAMETRIC_GATES, *g.MAXIMUM_POOLS]
    for operation in tables:
        assert operation in SPELLINGS, operation
    # The one pool that only runs: torch.export writes it as two operations.
    assert set(tables) - set(OPERATIONS) == {torch.ops.aten.max_pool3d_with_indices.default}


def test_trace_reads_clip_as_it_reads_clamp():
    import neuralpath as npath

    model = nn.Sequential(nn.Linear(3, 4), Called(lambda q: q.clip(min=0)), nn.Linear(4, 1))
    graph = npath.trace(model, torch.randn(1, 3))
    assert [type(node.gate) for node in graph.gate_nodes] == [g.HardGate]
