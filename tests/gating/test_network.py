import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st
from torch import nn

import neuralpath as npath
import zoo
from neuralpath import nets
from neuralpath.gates import GeluGate, HardGate, LeakyGate, LinearGate, SoftGate
from neuralpath.gating.network import GatedNetwork
from neuralpath.gating.swapping import recorded_gates, run_with_gates

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
F64 = torch.float64


def pair(name="fc", dtype=torch.float32, **settings):
    feature, x = zoo.build(name, seed=0, dtype=dtype)
    value, _ = zoo.build(name, seed=1, dtype=dtype)
    return GatedNetwork(feature, value, **settings), x


def test_a_tiny_network_by_hand():
    """Two layers of two units, every number written out."""
    feature = nn.Sequential(nn.Linear(2, 2, False), nn.ReLU(), nn.Linear(2, 2, False), nn.ReLU(), nn.Linear(2, 1))
    value = copy.deepcopy(feature)
    with torch.no_grad():
        feature[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        feature[2].weight.copy_(torch.tensor([[1.0, -2.0], [-1.0, 1.0]]))
        value[0].weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        value[2].weight.copy_(torch.tensor([[5.0, 6.0], [7.0, 8.0]]))
        value[4].weight.copy_(torch.tensor([[1.0, 10.0]]))
        value[4].bias.fill_(0.5)
    x = torch.tensor([[1.0, -1.0], [1.0, 2.0]])
    # Layer 1: q = x, masks 10 and 11. Layer 2: q = (1, -1) and (-3, 1), masks 10 and 01.
    network = GatedNetwork(feature, value)
    assert [g.int().tolist() for g in network.gates(x).layers.values()] == [[[1, 0], [1, 1]], [[1, 0], [0, 1]]]
    # Values: x = (1, -1): W x = (-1, -1), masked (-1, 0); W2 = (-5, -7), masked (-5, 0); out -5 + 0.5.
    #         x = (1, 2): (5, 11), both open; (91, 123), masked (0, 123); out 1230 + 0.5.
    assert network(x).flatten().tolist() == [-4.5, 1230.5]
    swapped = GatedNetwork(feature, value, gate_order="reversed")
    # Example 1: the masks of both layers are equal. Example 2: 01 then 11: (0, 11); (66, 88); 66 + 880 + 0.5.
    assert swapped(x).flatten().tolist() == [-4.5, 946.5]
    for order in ((1, 0), {0: 1, 1: 0}, {"1": "3", "3": "1"}):
        assert torch.equal(GatedNetwork(feature, value, gate_order=order)(x), swapped(x))
    both = GatedNetwork(feature, value, gate_order={"3": "1"})
    # The first mask twice. Example 2: both open: 91 + 1230 + 0.5.
    assert both(x).flatten().tolist() == [-4.5, 1321.5]


@given(
    order=st.permutations(range(4)),
    gate=st.sampled_from([HardGate(), SoftGate(8.0), SoftGate(4.0, 1.1), LeakyGate(0.2)]),
    linear=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_dense_networks_are_the_papers_formula(order, gate, linear, seed):
    generator = torch.Generator().manual_seed(seed)
    feature, value = (nets.FC(3, 5, 5, 2, generator=generator).double() for _ in range(2))
    x = torch.randn(4, 3, generator=generator, dtype=F64)
    network = GatedNetwork(feature, value, gate=gate, gate_order=tuple(order), linear_feature=linear)
    h, masks = x, []
    for weight in list(feature.parameters())[:-1]:
        q = h @ weight.T
        masks.append(gate(q))
        h = q if linear else q.clamp(min=0)
    z = x
    weights = list(value.parameters())
    for weight, index in zip(weights[:-1], order, strict=True):
        z = (z @ weight.T) * masks[index]
    torch.testing.assert_close(network(x), z @ weights[-1].T, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", zoo.MODELS)
def test_forward_is_the_value_network_behind_the_features_gates(name):
    network, x = pair(name)
    gates = network.gates(x)
    expected = run_with_gates(network.value, x, recorded_gates(network.feature, x))
    assert torch.equal(network(x), expected)
    assert torch.equal(network.value_output(x, gates), expected)
    assert torch.equal(network.value_output(x, tuple(gates.layers.values())), expected)
    assert not torch.equal(network(x), network.value(x))
    rows = gates.batch(slice(1, 3))
    torch.testing.assert_close(network.value_output(x[1:3], rows), expected[1:3], rtol=1e-4, atol=1e-5)


def test_hard_gates_as_floats_give_the_same():
    network, x = pair()
    floats = [gate.float() for gate in network.gates(x).layers.values()]
    assert torch.equal(network.value_output(x, floats), network(x))


def test_all_orders_of_four_layers_differ():
    torch.manual_seed(0)
    feature, value = (nets.FC(6, 8, 5, 3) for _ in range(2))
    x = torch.randn(7, 6)
    outputs = [GatedNetwork(feature, value, gate_order=o)(x) for o in itertools.permutations(range(4))]
    assert len({tuple(y.flatten().tolist()) for y in outputs}) == 24


def test_soft_gates_of_a_feature_network_whose_activation_stays_hard():
    network, x = pair(gate=SoftGate(3.0), train_feature=True)
    q1 = network.feature.layers.linear1(x.flatten(1))
    q2 = network.feature.layers.linear2(F.relu(q1))
    first, second, _ = network.gates(x).layers.values()
    assert torch.equal(first, torch.sigmoid(3 * q1))
    assert torch.equal(second, torch.sigmoid(3 * q2))


def test_max_pools_of_the_value_network_read_the_features_positions():
    def make():
        return nn.Sequential(nn.Conv1d(1, 2, 1), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(4, 1))

    network = GatedNetwork(make(), make(), gate=SoftGate(10.0))
    x = torch.randn(3, 1, 4)
    (positions,) = network.gates(x).layers.values()
    q, z = network.feature[0](x), network.value[0](x)
    pooled = torch.empty(3, 2, 2)
    for b, c, o in itertools.product(range(3), range(2), range(2)):
        window = range(2 * o, 2 * o + 2)
        best = max(window, key=lambda i: q[b, c, i].item())
        assert positions[b, c, o] == best
        pooled[b, c, o] = z[b, c, best]
    torch.testing.assert_close(network(x), network.value[3](pooled.flatten(1)))


# Small enough that every parameter is tried, with batch norm in training mode and max pooling.
def _smooth_pair():
    return nn.Sequential(
        nn.Conv1d(2, 3, 2),
        nn.BatchNorm1d(3),
        nn.ReLU(inplace=True),
        nn.MaxPool1d(2),
        nn.Conv1d(3, 2, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4, 2),
    )


@pytest.mark.parametrize("linear", [False, True])
def test_gradients_of_a_trained_feature_network_match_finite_differences(linear):
    torch.manual_seed(3)
    if linear:
        feature, value = nets.FC(3, 4, 4, 2, bias=True), nets.FC(3, 4, 4, 2, bias=True)
        x = torch.randn(3, 3, dtype=F64)
    else:
        feature, value = _smooth_pair(), _smooth_pair()
        x = torch.randn(3, 2, 8, dtype=F64)
    network = GatedNetwork(feature, value, gate=SoftGate(4.0, 1.1), train_feature=True, linear_feature=linear)
    network = network.double().train()
    network.match(x)
    names = [name for name, _ in network.named_parameters()]
    buffers = dict(network.named_buffers())

    def output(*tensors):
        fresh = {name: buffer.clone() for name, buffer in buffers.items()}
        return torch.func.functional_call(network, {**dict(zip(names, tensors, strict=True)), **fresh}, (x,))

    parameters = tuple(p.detach().clone().requires_grad_() for p in network.parameters())
    # A step of 1e-6 in double precision: errors of 1e-12 by curvature, 1e-10 by rounding, on gradients of size 1.
    assert torch.autograd.gradcheck(output, parameters, eps=1e-6, atol=1e-7, rtol=1e-6)
    grads = torch.autograd.grad(output(*parameters).sum(), parameters, allow_unused=True)
    silent = {name for name, g in zip(names, grads, strict=True) if g is None or not bool(g.any())}
    last = "layers.linear4" if linear else "7"
    assert silent >= {f"feature.{last}.weight", f"feature.{last}.bias"}  # its output is not used
    assert "feature.layers.linear1.weight" not in silent
    assert "feature.0.weight" not in silent


def test_per_example_gradients_by_torch_func():
    network, x = pair("vconv", F64, gate=SoftGate(4.0), train_feature=True)
    network.match(x)
    params = dict(network.named_parameters())

    def first_output(parameters, example):
        return torch.func.functional_call(network, parameters, (example[None],))[0, 0]

    rows = torch.func.vmap(torch.func.grad(first_output), in_dims=(None, 0))(params, x)
    for index in (0, 4):
        network.zero_grad()
        network(x[index : index + 1])[0, 0].backward()
        for name, parameter in params.items():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(rows[name][index], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("gate", [None, HardGate(), SoftGate(5.0)])
def test_a_fixed_feature_network_stays_in_evaluation_mode_and_gets_no_gradient(gate):
    network, x = pair("vgg", gate=gate)
    before = copy.deepcopy(network.feature.state_dict())
    assert network.train() is network
    assert network.training
    assert network.value.training
    assert not any(part.training for part in network.feature.modules())
    assert network.gates_fixed
    first = network.gates(x)
    network(x).sum().backward()
    assert all(p.grad is None and not p.requires_grad for p in network.feature.parameters())
    assert all(p.grad is not None for p in network.value.parameters())
    assert all(torch.equal(before[key], value) for key, value in network.feature.state_dict().items())
    assert all(map(torch.equal, network.gates(x).layers.values(), first.layers.values()))
    assert not any(gate.requires_grad for gate in first.layers.values())
    network.feature.train()
    assert not network.gates_fixed
    network.train()
    assert network.gates_fixed
    assert not network.eval().value.training


def test_fixed_gates_are_constants_even_where_all_parameters_ask_for_gradients():
    network, x = pair(gate=SoftGate(5.0))
    network.requires_grad_(True)
    network(x).sum().backward()
    assert all(p.grad is None for p in network.feature.parameters())
    assert all(p.grad is not None for p in network.value.parameters())


def test_a_trained_feature_network_follows_the_mode():
    network, x = pair("vgg", gate=SoftGate(5.0), train_feature=True)
    network.train()
    assert network.feature.training
    assert not network.gates_fixed
    statistics = network.feature.features[1].running_mean.clone()
    network(x)
    assert not torch.equal(network.feature.features[1].running_mean, statistics)


def test_matching_leaves_statistics_and_random_numbers_alone():
    network, x = pair("vgg", gate=SoftGate(5.0), train_feature=True)
    network.train()
    state, before = torch.random.get_rng_state(), copy.deepcopy(network.state_dict())
    network.match(x)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


def test_state_dicts_copies_and_double_precision():
    network, x = pair("resnet18")
    y = network(x)
    assert {key.split(".")[0] for key in network.state_dict()} == {"feature", "value"}
    assert {key.removeprefix("value.") for key in network.state_dict() if key.startswith("value.")} == set(
        network.value.state_dict()
    )
    other = GatedNetwork(zoo.build("resnet18", seed=5)[0], zoo.build("resnet18", seed=6)[0])
    assert not torch.equal(other(x), y)
    other.load_state_dict(network.state_dict())
    assert torch.equal(other(x), y)
    twin = copy.deepcopy(network)
    assert torch.equal(twin(x), y)
    with torch.no_grad():
        twin.value.fc.bias.add_(1)
    assert torch.equal(network(x), y)
    doubled = twin.double()(x.double())
    assert doubled.dtype == F64


def test_networks_move_between_devices():
    network, x = pair("gconv", value_input="random")
    network(x)
    assert {t.device.type for t in network.to("meta").state_dict().values()} == {"meta"}
    assert network(x.to("meta")).device.type == "meta"


def test_another_image_size_is_matched_anew():
    network, x = pair("gconv")
    assert network.match(x).pairs[0].value_shape == (4, 8, 8)
    larger = torch.randn(2, 3, 12, 12)
    assert network.match(larger).pairs[0].value_shape == (4, 12, 12)
    assert network(larger).shape == (2, 4)


def test_the_table_of_gates():
    network, x = pair("fc", gate_order="reversed")
    assert str(network.match(x)).splitlines()[2].split() == ["layers.relu1", "(8,)", "layers.relu3", "(8,)"]
    assert network.gates(x).names == ("layers.relu1", "layers.relu2", "layers.relu3")
    assert "gate_order=reversed" in repr(network)


def test_a_network_that_writes_into_its_input_does_not_spoil_the_values():
    class InPlace(nn.Sequential):
        def forward(self, x):
            x -= 0.5
            return super().forward(x)

    feature, value = (InPlace(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)) for _ in range(2))
    x = torch.randn(5, 3)
    gates = recorded_gates(feature, x.clone())
    expected = run_with_gates(value, x.clone(), gates)
    assert torch.equal(GatedNetwork(feature, value)(x.clone()), expected)


class Wayward(nn.Module):
    """As many activations as the batch has values above 1."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return F.relu(F.relu(self.linear(x))) if bool((x > 1).any()) else F.relu(self.linear(x))


@pytest.mark.parametrize(
    ("arguments", "settings", "kind", "message"),
    [
        ((F.relu, nn.Linear(1, 1)), {}, TypeError, "`feature` .*got a function"),
        ((nn.Linear(1, 1), None), {}, TypeError, "`value` .*got a NoneType"),
        ((nn.Linear(1, 1), nn.Linear(1, 1)), {"gate": "hard"}, TypeError, r"`gate` .*'hard'"),
        ((nn.Linear(1, 1), nn.Linear(1, 1)), {"gate": 3.0}, TypeError, "`gate` .* got a float"),
        (
            (nn.Linear(1, 1), nn.Linear(1, 1)),
            {"gate": HardGate(), "train_feature": True},
            ValueError,
            r"`train_feature` .*HardGate\(\) .*SoftGate\(10\)",
        ),
        (
            (nn.Linear(1, 1), nn.Linear(1, 1)),
            {"gate": LinearGate(), "train_feature": True},
            ValueError,
            "`train_feature` .*LinearGate",
        ),
    ],
)
def test_bad_arguments_are_named(arguments, settings, kind, message, without_type_checks):
    with pytest.raises(kind, match=message):
        GatedNetwork(*arguments, **settings)


def test_networks_must_not_share_weights():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with pytest.raises(ValueError, match=r"`feature` and `value` .*'0.weight' and '0.weight'.*copy.deepcopy"):
        GatedNetwork(model, model)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_compiled_scripts_are_refused():
    script = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    with pytest.raises(TypeError, match=r"`feature` .*torch.jit"):
        GatedNetwork(script, nn.Linear(2, 2))


def relus(n_gates=1):
    return nn.Sequential(nn.Linear(2, 2), *(nn.ReLU() for _ in range(n_gates)))


@pytest.mark.parametrize(
    ("network", "x", "kind", "message"),
    [
        (GatedNetwork(nn.Linear(2, 2), relus()), (3, 2), ValueError, "feature network has no gates"),
        (GatedNetwork(relus(), nn.Linear(2, 2)), (3, 2), ValueError, "value network has no gates"),
        (GatedNetwork(relus(2), relus()), (3, 2), ValueError, r"feature network has 2 gates \(1, 2\) but .* 1 \(1\)"),
        (GatedNetwork(relus(), relus(), train_feature=True), (3, 2), ValueError, "`train_feature` .*hard"),
        (GatedNetwork(relus(), relus()), (0, 2), ValueError, "`x`.* no examples"),
        (
            GatedNetwork(nn.Sequential(nn.Unflatten(1, (1, 2)), nn.MaxPool1d(2)), relus(), linear_feature=True),
            (3, 2),
            ValueError,
            "`feature` .*max_pool1d.*`linear_feature`",
        ),
    ],
)
def test_networks_that_do_not_match_are_refused_at_the_first_batch(network, x, kind, message):
    with pytest.raises(kind, match=message):
        network(torch.randn(x))


def test_gates_that_come_and_go_are_refused():
    network = GatedNetwork(Wayward(), relus())
    network(torch.zeros(3, 2))
    with pytest.raises(RuntimeError, match=r"ran 2 gate operations .* 1 when"):
        network(2 * torch.ones(3, 2))


def test_own_smooth_gates_train_the_features_too():
    def make():
        return nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 1))

    network = GatedNetwork(make(), make(), train_feature=True)
    x = torch.randn(4, 2)
    assert torch.equal(network.gates(x)[0], GeluGate()(network.feature[0](x)))
    network(x).sum().backward()
    assert bool(network.feature[0].weight.grad.any())


def test_gates_are_those_of_the_path_graph():
    network, x = pair("vconv")
    expected = npath.trace(network.feature, x[:1]).gates(x)
    assert network.gates(x).names == expected.names
    assert all(map(torch.equal, network.gates(x).layers.values(), expected.layers.values()))


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gate_order", "reversed"),
        ("gate", SoftGate(2.0)),
        ("gate_transform", None),
        ("linear_feature", True),
        ("train_feature", True),
    ],
)
def test_settings_stay_as_they_were_given(name, value, seen):
    network = GatedNetwork(nets.FC(3, 4, 3), nets.FC(3, 4, 3))
    if seen:
        network(torch.ones(2, 3))
    with pytest.raises(AttributeError, match=f"`{name}` .*cannot be changed"):
        setattr(network, name, value)
    copy.deepcopy(network)(torch.ones(2, 3))


def test_a_gated_network_cannot_be_a_part_of_another():
    inner = GatedNetwork(nets.FC(3, 4, 3), nets.FC(3, 4, 3))
    with pytest.raises(TypeError, match=r"^`feature` is a GatedNetwork"):
        GatedNetwork(inner, nets.FC(3, 4, 3))
    with pytest.raises(TypeError, match=r"^`value` has a part '1' that is a GatedNetwork"):
        GatedNetwork(nets.FC(3, 4, 3), nn.Sequential(nn.Identity(), inner))
