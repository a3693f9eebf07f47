import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import nn

import zoo
from kernels.tangent.jacobian_oracle import assert_close, jacobian, kernel_by_jacobians, mean_of
from kernels.tangent.models import Net, build
from neuralpath import nets
from neuralpath.gating.regimes import decouple
from neuralpath.graph.tracing import trace
from neuralpath.kernels.tangent.parts import part_tiles, tangent_parts
from neuralpath.kernels.tangent.tangent_kernel import Limits, tangent_kernel

F64 = torch.float64


class Gated(nn.Module):
    """An activation q * gate(q) whose gate can be held constant."""

    def __init__(self, gate) -> None:
        super().__init__()
        self.gate, self.constant = gate, False

    def forward(self, q):
        gate = self.gate(q)
        return q * (gate.detach() if self.constant else gate)


def _with_gates_written_out(model):
    """The same model with SiLU and GELU as products, of which either factor can be held constant."""
    twin = nn.Sequential(*model)
    for i, layer in enumerate(model):
        if isinstance(layer, nn.SiLU):
            twin[i] = Gated(torch.sigmoid)
        elif isinstance(layer, nn.GELU):
            twin[i] = Gated(lambda q: 0.5 * (1 + torch.erf(q / 2**0.5)))
    return twin


def _parts_by_jacobians(model, x1, x2):
    twin = _with_gates_written_out(model)
    whole1, whole2 = jacobian(twin, x1), jacobian(twin, x2)
    for module in twin.modules():
        if isinstance(module, Gated):
            module.constant = True
    value1, value2 = jacobian(twin, x1), jacobian(twin, x2)

    def gram(one, two):
        return torch.einsum("iop,jqp->ijoq", one, two)

    rest1, rest2 = whole1 - value1, whole2 - value2
    return gram(value1, value2), gram(rest1, rest2), gram(value1, rest2) + gram(rest1, value2)


def _soft(*sizes, bias=True):
    layers = [nn.Linear(sizes[0], sizes[1], bias=bias)]
    for a, b in itertools.pairwise(sizes[1:]):
        layers += [nn.SiLU(), nn.Linear(a, b, bias=bias)]
    return nn.Sequential(*layers).double()


SOFT = {
    "dense": (lambda: _soft(4, 5, 6, 2), (4,)),
    "no-bias": (lambda: _soft(4, 5, 6, 1, bias=False), (4,)),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.SiLU(), nn.Conv2d(4, 4, 3, groups=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 3, 1), nn.GELU(), nn.Flatten(), nn.Linear(12, 2),
        ), (2, 6, 6)),
    "norm": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.SiLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(3, 2)
        ), (2, 6)),
}  # fmt: skip


def _build(name, batch=4):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        constructor, shape = SOFT[name]
        return constructor().double().eval(), torch.randn(batch, *shape, dtype=F64)


@pytest.mark.parametrize("name", SOFT)
def test_parts_of_soft_gates_equal_jacobians(name):
    model, x = _build(name)
    value, feature, cross = _parts_by_jacobians(model, x, x[1:])
    parts = tangent_parts(model, x, x[1:], outputs="full")
    assert_close(parts.value, value)
    assert_close(parts.feature, feature)
    assert_close(parts.cross, cross)
    assert_close(parts.total, kernel_by_jacobians(model, x, x[1:]))


@pytest.mark.parametrize("name", SOFT)
def test_parts_sum_to_the_whole_and_are_symmetric(name):
    model, x = _build(name)
    parts = tangent_parts(model, x)
    assert_close(parts.total, tangent_kernel(model, x), 1e-12)
    for part in (parts.value, parts.feature, parts.cross):
        assert torch.equal(part, part.T)
    for part in (parts.value, parts.feature):
        assert torch.linalg.eigvalsh(part).min() >= -1e-12 * part.diagonal().sum()


def test_layers_of_a_graph_have_rules():
    model, x = _build("convolution")
    names = tuple(name for name, _ in model.named_parameters())
    tiles = part_tiles(trace(model, x[:1]), x, None, names, "mean", Limits(10**8))
    assert tiles["value"].general == ()
    model, x = _build("norm")
    names = tuple(name for name, _ in model.named_parameters())
    tiles = part_tiles(trace(model, x[:1]), x, None, names, "mean", Limits(10**8))
    assert tiles["value"].general == ("1.weight", "1.bias")


def test_parts_in_tiles_equal_the_whole():
    model, x = _build("convolution", batch=7)
    whole = tangent_parts(model, x)
    names = tuple(name for name, _ in model.named_parameters())
    limits = Limits(10**8, small_tile=3, large_tile=3)
    for part, tiles in part_tiles(trace(model, x[:1]), x, None, names, "mean", limits).items():
        assert len(list(tiles.plan.tiles())) > 1
        assert_close(tiles.filled(), getattr(whole, part), 1e-12)


@pytest.mark.parametrize("name", ["gconv", "vgg", "mobilenet-relu", "scalar"])
def test_hard_gates_have_no_feature_part(name):
    if name == "mobilenet-relu":
        model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3, 2)).double()
        x = torch.randn(3, 2, 4, 4, dtype=F64)
    else:
        model, x = zoo.build(name, dtype=F64)
    parts = tangent_parts(model, x)
    assert torch.equal(parts.feature, torch.zeros_like(parts.feature))
    assert torch.equal(parts.cross, torch.zeros_like(parts.cross))
    assert torch.equal(parts.value, tangent_kernel(model, x))


def test_a_trained_slope_belongs_to_the_feature_part():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.PReLU(4), nn.Linear(4, 2)).double()
    x = torch.randn(5, 3, dtype=F64)
    parts = tangent_parts(model, x)
    assert_close(parts.feature, tangent_kernel(model, x, params=["1.weight"]))
    assert_close(parts.value, tangent_kernel(model, x, params=lambda name: not name.startswith("1.")))
    assert_close(parts.cross, torch.zeros_like(parts.cross), 1e-12, scale=1.0)


def test_a_subset_of_the_parameters():
    model, x = _build("dense")
    names = ["0.weight", "2.bias"]
    parts = tangent_parts(model, x, params=names)
    assert_close(parts.total, tangent_kernel(model, x, params=names), 1e-12)


@settings(max_examples=4)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.booleans(), st.integers(0, 2**31 - 1))
def test_parts_of_drawn_networks(hidden, bias, seed):
    torch.manual_seed(seed)
    model = _soft(3, *hidden, 2, bias=bias)
    x = torch.randn(3, 3, dtype=F64)
    value, feature, cross = map(mean_of, _parts_by_jacobians(model, x, x))
    parts = tangent_parts(model, x)
    scale = float(value.abs().max())
    assert_close(parts.value, value, scale=scale)
    assert_close(parts.feature, feature, scale=scale)
    assert_close(parts.cross, cross, scale=scale)


class Pair(nn.Module):
    """A gated network in small: the value network gets the feature network's gates."""

    def __init__(self, gate) -> None:
        super().__init__()
        self.feature = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 4)])
        self.value = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)])
        self.gate = gate

    def gates(self, x):
        found = []
        for layer in self.feature:
            q = layer(x)
            found.append(self.gate(q))
            x = F.relu(q)
        return found

    def value_output(self, x, gates):
        for layer, gate in zip(self.value[:-1], gates, strict=True):
            x = layer(x) * gate
        return self.value[-1](x)

    def forward(self, x):
        return self.value_output(x, self.gates(x))


def _pair(gate):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Pair(gate).double(), torch.randn(4, 3, dtype=F64)


def test_a_gated_network_has_no_cross_part():
    model, x = _pair(lambda q: torch.sigmoid(4 * q))
    parts = tangent_parts(model, x)
    assert torch.equal(parts.cross, torch.zeros_like(parts.cross))
    names = [name for name, _ in model.named_parameters() if name.startswith("value.")]
    assert_close(parts.value, mean_of(kernel_by_jacobians(model, x, names=names)))
    assert parts.feature.abs().max() > 0
    assert_close(parts.total, mean_of(kernel_by_jacobians(model, x)))


@pytest.mark.parametrize(("regime", "moves"), [("DL", True), ("FR-II", False), ("FR-DI", False)])
def test_regimes_of_gated_networks(regime, moves):
    generator = torch.Generator().manual_seed(0)
    model = nets.GCONV((2, 6, 6), 2, channels=(3, 4), hidden=(5,), generator=generator)
    network = decouple(model, regime, generator=generator).double().eval()
    x = torch.randn(3, 2, 6, 6, generator=generator, dtype=F64)
    parts = tangent_parts(network, x)
    assert (parts.feature.abs().max() > 0) == moves
    assert torch.equal(parts.cross, torch.zeros_like(parts.cross))
    network.beyond_functional_transforms = True
    assert_close(parts.total, mean_of(kernel_by_jacobians(network, x)))


def test_fixed_gates_have_no_feature_part():
    hard, x = _pair(lambda q: (q > 0).double())
    assert torch.equal(tangent_parts(hard, x).feature, torch.zeros(4, 4, dtype=F64))
    soft, x = _pair(torch.sigmoid)
    soft.feature.requires_grad_(False)
    parts = tangent_parts(soft, x)
    assert torch.equal(parts.feature, torch.zeros(4, 4, dtype=F64))
    assert_close(parts.value, mean_of(kernel_by_jacobians(soft, x)))


def test_weights_that_both_networks_share_are_refused():
    model, x = _pair(torch.sigmoid)
    model.value[0] = model.feature[0]
    with pytest.raises(ValueError, match=r"`model`.*'feature.0.weight'.*'value.0.weight'"):
        tangent_parts(model, x)


def test_parameters_of_neither_network_are_refused():
    model, x = _pair(torch.sigmoid)
    model.extra = nn.Parameter(torch.zeros(2))
    with pytest.raises(ValueError, match=r"`model`.*'extra'"):
        tangent_parts(model, x)
    assert tangent_parts(model, x, params=lambda name: name != "extra").value.shape == (4, 4)


def test_activations_that_are_no_gates_are_refused():
    model = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 1))
    with pytest.raises(ValueError, match="softplus at '1'"):
        tangent_parts(model, torch.randn(3, 3))


def _detached(m, x):
    return m.c(F.silu(m.b(F.silu(m.a(x)).detach())))


def _without_gradients(m, x):
    with torch.no_grad():
        z = F.silu(m.a(x))
    return m.c(F.silu(m.b(z)))


@pytest.mark.parametrize("function", [_detached, _without_gradients])
def test_soft_gates_behind_stopped_gradients_are_refused(function):
    model = Net(function, a=nn.Linear(3, 8), b=nn.Linear(8, 4), c=nn.Linear(4, 1)).double()
    x = torch.randn(3, 3, dtype=F64, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"`model`.*'a.weight'.*requires_grad_\(False\)"):
        tangent_parts(model, x)
    model.a.requires_grad_(False)  # as the message says: then the parts are those of what is trained
    torch.testing.assert_close(tangent_parts(model, x).total, tangent_kernel(model, x))
    with torch.inference_mode():
        torch.testing.assert_close(tangent_parts(model, x).total, tangent_kernel(model, x))


def test_parts_of_inputs_that_were_made_in_inference_mode():
    model = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 2)).double()
    with torch.inference_mode():
        x = torch.randn(4, 3, dtype=F64)
    torch.testing.assert_close(tangent_parts(model, x).total, tangent_kernel(model, x))


def test_parameters_that_are_not_read_are_refused():
    model = Net(lambda m, x: m.a(F.silu(m.b(x))), a=nn.Linear(3, 2), b=nn.Linear(3, 3), c=nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"`model`.*`params`"):
        tangent_parts(model, torch.randn(3, 3), params=["c.weight"])


def test_parts_of_a_model_in_float32():
    model, x = build("in-place")
    exact = tangent_parts(model, x)
    near = tangent_parts(model.float(), x.float())
    for part in ("value", "feature", "cross"):
        scale = float(exact.value.abs().max())
        assert_close(getattr(near, part).double(), getattr(exact, part), 1e-5, scale)
