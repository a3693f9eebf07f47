import copy

import pytest
import torch
from torch import nn

from neuralpath import gating, nets
from neuralpath.gates import HardGate, SoftGate
from neuralpath.gating.hyperplanes import gate_hyperplanes
from neuralpath.gating.network import GatedNetwork


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_gates_are_hyperplanes_in_input_space():
    network = gating.LinearGatedFC((2, 3), (5, 4, 4), n_outputs=3, gate=HardGate(), train_feature=False, bias=True)
    for parameter in network.parameters():
        parameter.data.normal_(generator=seeded(2))
    x = torch.randn(50, 2, 3, generator=seeded())
    matrix, offset = torch.eye(6), torch.zeros(6)
    for layer, mask in zip(("linear1", "linear2", "linear3"), network.gates(x).layers.values(), strict=True):
        part = network.feature.layers.get_submodule(layer)
        matrix, offset = part.weight @ matrix, part.weight @ offset + part.bias
        assert torch.equal(mask, x.flatten(1) @ matrix.T + offset > 0)


class AddsInPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, x):
        z = torch.relu(self.a(x))
        z += 3 * self.b(z)
        return torch.relu(self.b(z))


def test_hyperplanes_of_a_network_that_adds_in_place():
    torch.manual_seed(0)
    network = GatedNetwork(AddsInPlace(), AddsInPlace(), linear_feature=True)
    x = torch.randn(5, 3)
    for plane, gates in zip(gate_hyperplanes(network, x), network.gates(x).layers.values(), strict=True):
        assert torch.equal(x @ plane.normals.T + plane.offsets > 0, gates)
    torch.testing.assert_close(gate_hyperplanes(network, x)[0].normals, network.feature.a.weight.data)


def test_values_are_the_papers_formula():
    network = gating.LinearGatedFC(4, 5, 4, 2, generator=seeded()).double()
    x = torch.randn(3, 4, generator=seeded(1), dtype=torch.float64)
    q = z = x
    *features, last = list(network.value.parameters())
    for feature, value in zip(network.feature.parameters(), features, strict=True):
        q = q @ feature.T
        z = (z @ value.T) * torch.sigmoid(10 * q)
    torch.testing.assert_close(network(x), z @ last.T, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "make",
    [
        lambda **settings: gating.LinearGatedFC((1, 4, 4), 5, 3, 2, **settings),
        lambda **settings: gating.LinearGatedCNN((1, 4, 4), 2, channels=(3, 3), **settings),
        lambda **settings: gating.LinearGatedCNN((1, 4, 4), 2, channels=(3, 3), hidden=(5, 4), **settings),
    ],
)
def test_ready_models(make):
    network, x = make(generator=seeded()), torch.randn(3, 1, 4, 4)
    assert network(x).shape == (3, 2)
    network(x).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in network.parameters())  # none is idle
    again = make(generator=seeded())
    assert torch.equal(again(x), network(x))
    other = make(generator=seeded(1))
    other.load_state_dict(network.state_dict())
    assert torch.equal(other(x), network(x))
    assert torch.equal(copy.deepcopy(network)(x), network(x))
    fixed = make(gate=HardGate(), train_feature=False, value_input="ones", init="random-sign")
    assert fixed.gates_fixed
    assert {name.split(".")[0] for name, p in fixed.named_parameters() if p.requires_grad} == {"value"}


def test_a_linear_filter_and_its_gates_are_equivariant():
    """Strictly linear features: scaling the image leaves hard gates alone, its negative flips them."""
    network = gating.LinearGatedCNN((1, 5, 5), 2, channels=(4, 4), gate=HardGate(), train_feature=False)
    x = torch.randn(3, 1, 5, 5)
    masks, scaled, flipped = (tuple(network.gates(y).layers.values()) for y in (x, 3 * x, -x))
    assert all(map(torch.equal, masks, scaled))
    assert all(torch.equal(mask, ~flip) for mask, flip in zip(masks, flipped, strict=True))


def test_defaults_and_names():
    network = gating.LinearGatedCNN((3, 8, 8))
    assert network.gate == SoftGate(10.0)
    assert [p.shape[0] for p in network.feature.parameters()] == [128] * 4
    assert network.linear_feature
    assert network.train_feature
    assert isinstance(network.value, nets.GCONV)
    assert list(gating.LinearGatedFC(3, 2, 3).state_dict()) == [
        "feature.layers.linear1.weight",
        "feature.layers.linear2.weight",
        "value.layers.linear1.weight",
        "value.layers.linear2.weight",
        "value.layers.linear3.weight",
    ]


def test_bad_sizes_are_named():
    with pytest.raises(ValueError, match=r"`depth` .*at least 2"):
        gating.LinearGatedFC(3, 4, 1)
    with pytest.raises(ValueError, match="`channels` is empty"):
        gating.LinearGatedCNN((1, 4, 4), channels=())
    with pytest.raises(AttributeError, match="Missing"):
        _ = nets.Missing


def test_a_linear_feature_network_of_ones_own():
    model = nn.Sequential(nn.Linear(2, 3), nn.LeakyReLU(), nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 1))
    from neuralpath.gating.swapping import recorded_gates

    x = torch.randn(4, 2)
    _, second = recorded_gates(model, x, HardGate(), linear=True).layers.values()
    assert torch.equal(second, model[2](model[0](x)) > 0)
