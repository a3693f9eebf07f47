"""What moves and what does not, and what is equal or independent at the start, in every regime."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import zoo
from neuralpath import gating, nets
from neuralpath.gates import SoftGate
from neuralpath.gating.network import GatedNetwork
from neuralpath.gating.regimes import REGIMES, decouple

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
# The zoo's two models with loose parameters cannot be drawn anew.
DRAWABLE = sorted(set(zoo.MODELS) - {"mlp", "every-gate"})


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def weights_of(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def snapshot(module):
    return {key: value.clone() for key, value in module.state_dict().items()}


def changed(module, before):
    return {key for key, value in module.state_dict().items() if not torch.equal(value, before[key])}


def train(network, x, steps=3):
    target = torch.randn(network(x).shape, generator=seeded(7))
    optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(network(x), target).backward()
        optimizer.step()


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", ["fc", "vconv", "resnet18", "davidnet"])
def test_which_parameters_move(name, regime):
    model, x = zoo.build(name)
    network = decouple(model, regime, generator=seeded())
    assert network.training
    assert network.value.training
    feature, value = snapshot(network.feature), snapshot(network.value)
    train(network, x)
    # Glorot starts biases at 0, and every other weight of the value network has a gradient.
    assert changed(network.value, value) == set(value)
    moved = changed(network.feature, feature)
    if regime != "DL":
        assert moved == set()
        assert network.gates_fixed
        return
    assert not network.gates_fixed
    last = {"fc": "layers.linear4", "vconv": "dense.linear2", "resnet18": "fc", "davidnet": "linear"}[name]
    behind_the_last_gate = {key for key in feature if key.startswith(last)}
    assert moved == set(feature) - behind_the_last_gate  # running statistics of batch norm too


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("frozen", [False, True])
def test_the_given_model_is_never_touched(regime, frozen):
    model, x = zoo.build("resnet18")
    model.requires_grad_(not frozen)
    before, y = snapshot(model), model(x)
    network = decouple(model, regime, generator=seeded())
    train(network, x)
    assert changed(model, before) == set()
    assert torch.equal(model(x), y)
    assert not any(part.training for part in model.modules())
    assert all(p.requires_grad is not frozen and p.grad is None for p in model.parameters())
    assert all(p.requires_grad for p in network.value.parameters())
    assert all(p.requires_grad is (regime == "DL") for p in network.feature.parameters())


@pytest.mark.parametrize("name", zoo.MODELS)
def test_fl_has_the_models_gates(name):
    model, x = zoo.build(name)
    if name not in DRAWABLE:
        with pytest.raises(ValueError, match="cannot be initialized"):
            decouple(model, "FL")
        return
    network = decouple(model.train(), "FL", generator=seeded())
    assert not changed(network.feature, snapshot(model))
    gates = GatedNetwork(copy.deepcopy(model).eval(), copy.deepcopy(model)).gates(x)
    assert all(map(torch.equal, network.gates(x).layers.values(), gates.layers.values()))
    assert model.training
    expected = nets.initialize(copy.deepcopy(model), "glorot", seeded())
    assert changed(network.value, snapshot(expected)) == set()


@pytest.mark.parametrize("name", DRAWABLE)
@pytest.mark.parametrize("init", ["glorot", nets.Gaussian(), "torch"])
def test_frdi_is_the_relu_network_of_the_same_weights(name, init):
    model, x = zoo.build(name)
    network = decouple(model, "FR-DI", init=init, generator=seeded()).eval()
    drawn = nets.initialize(copy.deepcopy(model), init, seeded()).eval()
    assert changed(network.value, snapshot(drawn)) == set()
    assert changed(network.feature, snapshot(drawn)) == set()
    pairs = zip(network.feature.parameters(), network.value.parameters(), strict=True)
    assert all(a.data_ptr() != b.data_ptr() for a, b in pairs)
    if name == "mobilenet":  # ReLU6: q * (6 / q) rounds
        torch.testing.assert_close(network(x), drawn(x))
    else:
        assert torch.equal(network(x), drawn(x))  # bit by bit
    if name != "davidnet":  # deep enough that it shows: otherwise the test could not fail
        assert not torch.equal(decouple(model, "FR-II", init=init, generator=seeded()).eval()(x), drawn(x))


@pytest.mark.parametrize("regime", ["FR-II", "DL"])
def test_independent_draws(regime):
    model = nets.FC(20, 60, 4, 5)
    network = decouple(model, regime, init=nets.Gaussian(), generator=seeded(1))
    generator = seeded(1)
    drawn = [nets.initialize(copy.deepcopy(model), nets.Gaussian(), generator) for _ in range(2)]
    assert torch.equal(weights_of(network.feature), weights_of(drawn[0]))
    assert torch.equal(weights_of(network.value), weights_of(drawn[1]))
    feature, value = weights_of(network.feature), weights_of(network.value)
    correlation = torch.dot(feature, value) / (feature.norm() * value.norm())
    # For independent weights the correlation has a standard deviation of about 1 / sqrt(8700).
    assert abs(correlation) < 5 / len(feature) ** 0.5
    assert torch.dot(feature, feature) / feature.norm() ** 2 > 5 / len(feature) ** 0.5  # what it is for equal ones
    assert (
        abs(torch.dot(weights_of(model), feature)) < 5 * weights_of(model).norm() * feature.norm() / len(feature) ** 0.5
    )


def test_dl_has_soft_gates():
    model, x = zoo.build("fc")
    for settings, gate in (({}, SoftGate(10.0)), ({"beta": 4.0, "factor": 1.1}, SoftGate(4.0, 1.1))):
        network = decouple(model, "DL", generator=seeded(), **settings)
        assert network.gate == gate
        q = network.feature.layers.linear1(x.flatten(1))
        assert torch.equal(network.gates(x)[0], gate(q))


def test_batch_norm_and_dropout():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 6), nn.ReLU())
    nn.init.uniform_(model[1].running_mean)
    nn.init.uniform_(model[1].weight)
    x = torch.randn(8, 4)
    network = decouple(model, "FR-II", generator=seeded())
    for part in (network.feature[1], network.value[1]):
        assert torch.equal(part.running_mean, torch.zeros(6))
        assert torch.equal(part.weight, torch.ones(6))
    # The gates do not depend on chance, the values do.
    assert all(map(torch.equal, network.gates(x).layers.values(), network.gates(x).layers.values()))
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))
    learnt = decouple(model, "DL", generator=seeded())
    assert learnt.feature[3].training
    assert not all(map(torch.equal, learnt.gates(x).layers.values(), learnt.gates(x).layers.values()))


def test_other_settings_go_to_the_network():
    model, x = zoo.build("fc")
    network = decouple(model, "FL", gate_order="reversed", value_input="ones", linear_feature=True, generator=seeded())
    twin = GatedNetwork(network.feature, network.value, gate_order="reversed", value_input="ones", linear_feature=True)
    assert torch.equal(network(x), twin(x))
    assert not torch.equal(network(x), decouple(model, "FL", generator=seeded())(x))


@pytest.mark.parametrize(
    ("arguments", "settings", "kind", "message"),
    [
        ((nn.Linear(1, 1), "FR"), {}, ValueError, r"`regime` .*'FL', 'FR-II', 'FR-DI', 'DL', got 'FR'"),
        ((nn.Linear(1, 1), "FL"), {"beta": 4.0}, ValueError, r"`beta` .*'DL'"),
        ((nn.Linear(1, 1), "FL"), {"factor": 1.1}, ValueError, "`factor` .*'FL'"),
        ((nn.Linear(1, 1), "DL"), {"beta": -1.0}, ValueError, "`beta` .*positive"),
        ((F.relu, "FL"), {}, TypeError, r"`model` .*Module"),
        ((nn.Linear(1, 1), "FL"), {"init": "galrot"}, ValueError, "Did you mean 'glorot'"),
    ],
)
def test_bad_arguments_are_named(arguments, settings, kind, message, without_type_checks):
    with pytest.raises(kind, match=message):
        decouple(*arguments, **settings)


def test_a_model_without_gates_is_refused_at_the_first_batch():
    with pytest.raises(ValueError, match="feature network has no gates"):
        decouple(nn.Linear(2, 1), "FL")(torch.ones(1, 2))


@pytest.mark.parametrize("regime", REGIMES)
def test_a_network_that_is_gated_already_is_refused(regime):
    model = gating.LinearGatedFC(4, 6, 3)
    with pytest.raises(TypeError, match=r"^`model` is a LinearGatedFC"):
        decouple(model, regime)
