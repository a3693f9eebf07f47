import copy

import pytest
import torch
from torch import nn

from neuralpath.gating.network import GatedNetwork
from neuralpath.gating.swapping import run_with_gates
from neuralpath.gating.value_inputs import RandomImage, drawn_late
from neuralpath.training import CheckpointError, load_weights

X = torch.arange(24.0).reshape(4, 6) / 24 - 0.4


def make(value_input, seed=0):
    torch.manual_seed(seed)
    nets = [nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)) for _ in range(2)]
    return GatedNetwork(*nets, value_input=value_input)


@pytest.mark.parametrize(
    ("value_input", "seen"),
    [("image", X), ("ones", torch.ones(4, 6)), (lambda x: x.flip(1), X.flip(1)), (nn.Tanh(), X.tanh())],
)
def test_what_the_value_network_sees(value_input, seen):
    network = make(value_input)
    # The gates are those of the image, whatever the value network sees.
    gates = make("image").gates(X)
    assert torch.equal(network.gates(X)[0], gates[0])
    assert torch.equal(network(X), run_with_gates(network.value, seen, gates))
    assert torch.equal(network.value_output(X, gates), network(X))


def test_random_is_one_fixed_image_of_the_seed():
    network = make("random")
    y = network(X)
    image = network.value_input.image
    expected = torch.randn(6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(image, expected)
    assert torch.equal(y, run_with_gates(network.value, expected.expand(4, 6), network.gates(X)))
    torch.testing.assert_close(network(X[:1]), y[:1])  # the other examples do not matter
    other = make(RandomImage(seed=1))
    other(X)
    assert not torch.equal(other.value_input.image, image)


def test_the_image_may_be_drawn_at_once():
    network = make(RandomImage(seed=4, shape=(6,)))
    lazily = make(RandomImage(seed=4))
    assert torch.equal(network(X), lazily(X))


def test_the_image_goes_through_a_state_dict_and_moves_with_the_module():
    network = make("random")
    assert "value_input.image" not in network.state_dict()  # no batch has shown its shape
    assert drawn_late(network) == {"value_input.image"}
    y = network(X)
    state = network.state_dict()
    assert torch.equal(state["value_input.image"], network.value_input.image)
    fresh = make(RandomImage(seed=9), seed=1)
    fresh.load_state_dict(state)
    assert torch.equal(fresh(X), y)
    used = make(RandomImage(seed=9), seed=1)
    used(X)
    used.load_state_dict(state)
    assert torch.equal(used(X), y)
    assert torch.equal(copy.deepcopy(network)(X), y)
    assert network.double()(X.double()).dtype == torch.float64
    assert network.value_input.image.dtype == torch.float64


def test_a_state_of_before_the_first_batch_fits_as_well():
    network = make("random", seed=3)
    fresh = make("random", seed=1)
    fresh.load_state_dict(network.state_dict())
    assert torch.equal(fresh(X), network(X))


@pytest.mark.parametrize("saved_after", [False, True])
@pytest.mark.parametrize("loaded_after", [False, True])
@pytest.mark.parametrize("load", [nn.Module.load_state_dict, load_weights])
def test_states_of_before_and_after_the_first_batch_fit_each_other(saved_after, loaded_after, load):
    network, other = make("random", seed=3), make("random", seed=1)
    for net, is_after in ((network, saved_after), (other, loaded_after)):
        if is_after:
            net(X)
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    assert ("value_input.image" in state) == saved_after
    load(other, state)
    assert torch.equal(other(X), network(X))
    load(network, state)  # back into the network it came from, which has seen a batch by now
    assert torch.equal(other(X), network(X))


def test_other_names_are_still_missed():
    network = make("random")
    network(X)
    state = network.state_dict()
    state.pop("value.0.bias")
    with pytest.raises(RuntimeError, match="Missing key"):
        make("random").load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"missing: value\.0\.bias\.$"):
        load_weights(make("random"), state)


def test_networks_that_write_into_their_input_do_not_reach_the_fixed_image():
    network = make("random")
    network.value.insert(0, nn.Hardtanh(-0.1, 0.1, inplace=True))
    network(X)
    assert torch.equal(network.value_input.image, torch.randn(6, generator=torch.Generator().manual_seed(0)))


def test_bad_value_inputs_are_named():
    with pytest.raises(ValueError, match=r"`value_input` .*image"):
        make("zeros")
    network = make("random")
    network(X)
    with pytest.raises(ValueError, match=r"random image .*\(6,\).*\(3,\)"):
        network.value_input(X[:, :3])
