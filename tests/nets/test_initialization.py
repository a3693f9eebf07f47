import math

import pytest
import torch
from torch import nn

from neuralpath.nets import (
    FC,
    GCONV,
    INITIALIZATIONS,
    CircularCNN,
    DavidNet,
    Gaussian,
    GlorotUniform,
    RandomSign,
    ResidualFC,
    TorchDefault,
    initialize,
)

WIDTH = 6
WINDOW = 3


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def weights(net):
    return [part.weight for part in net.modules() if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d)]


@pytest.mark.parametrize(
    ("network", "settings"),
    [
        (FC, {"input_shape": 11, "width": WIDTH, "depth": 4}),
        (ResidualFC, {"input_shape": 11, "width": WIDTH, "n_skips": 2, "block_depth": 2}),
        (CircularCNN, {"input_shape": 11, "width": WIDTH, "n_conv": 3, "n_dense": 2, "window": WINDOW}),
        (GCONV, {"input_shape": (3, 8, 8), "channels": (WIDTH,) * 3, "hidden": (WIDTH,)}),
    ],
)
def test_width_fan_gives_c_squared_over_w_in_every_layer(network, settings):
    net = network(n_outputs=3, init=RandomSign(), generator=seeded(), **settings)
    for weight in weights(net):
        sigma = math.sqrt(2.0) / math.sqrt(WIDTH * math.prod(weight.shape[2:]))
        assert torch.equal(weight.abs(), torch.full_like(weight, sigma))
        assert weight.min() < 0 < weight.max()


def test_fan_in_divides_by_the_layers_own_inputs():
    net = FC(11, (6, 5), n_outputs=2).double()
    initialize(net, RandomSign(scale=3, fan="in"), seeded())
    assert [w.abs().unique().tolist() for w in weights(net)] == [
        [3 / math.sqrt(11)],
        [3 / math.sqrt(6)],
        [3 / math.sqrt(5)],
    ]


def test_width_fan_of_unequal_widths():
    net = initialize(FC(11, (6, 5), n_outputs=2).double(), RandomSign(scale=1), seeded())
    assert [w.abs().unique().tolist() for w in weights(net)] == [
        [1 / math.sqrt(6)],
        [1 / math.sqrt(6)],
        [1 / math.sqrt(5)],
    ]


def test_single_layer_has_no_width_and_keeps_its_fan_in():
    net = initialize(nn.Linear(9, 2, dtype=torch.float64), RandomSign(scale=1), seeded())
    assert net.weight.abs().unique().tolist() == [1 / 3]


def test_groups_count_in_the_fan():
    net = initialize(nn.Conv2d(6, 4, 3, groups=2, dtype=torch.float64), RandomSign(scale=1), seeded())
    assert net.weight.abs().unique().tolist() == [1 / math.sqrt(27)]


@pytest.mark.parametrize("fan", ["width", "in"])
def test_gaussian_has_its_variance_and_shape(fan):
    net = initialize(FC(50, 200, 3, 100).double(), Gaussian(scale=1.5, fan=fan), seeded())
    for weight in weights(net):
        expected = 1.5**2 / (weight.shape[1] if fan == "in" else 200)
        # A normal sample's mean square has relative standard deviation sqrt(2 / n), kurtosis sqrt(24 / n).
        n = weight.numel()
        ratio = weight.square().mean().item() / expected
        assert abs(ratio - 1) < 5 * math.sqrt(2 / n)
        assert abs(1.1 * ratio - 1) > 5 * math.sqrt(2 / n)
        kurtosis = weight.pow(4).mean().item() / weight.square().mean().item() ** 2
        assert abs(kurtosis - 3) < 5 * math.sqrt(24 / n)
        assert abs(weight.mean().item()) < 5 * math.sqrt(expected / n)


def test_random_signs_are_fair():
    net = initialize(FC(100, 100, 3, 100), RandomSign(), seeded())
    for weight in weights(net):
        n = weight.numel()
        assert abs((weight > 0).double().mean().item() - 0.5) < 5 * 0.5 / math.sqrt(n)


def test_glorot_uniform_fills_its_interval():
    net = initialize(FC(100, 150, 2, 50), GlorotUniform(), seeded())
    for weight in weights(net):
        bound = math.sqrt(6 / sum(weight.shape))
        assert bound * 0.99 < weight.abs().max() <= bound
        # The square of a uniform variable has mean bound²/3 and relative standard deviation 2/sqrt(5).
        ratio = weight.double().square().mean().item() / (bound**2 / 3)
        assert abs(ratio - 1) < 5 * 2 / math.sqrt(5 * weight.numel())


@pytest.mark.parametrize("init", [GlorotUniform(), Gaussian(), RandomSign()])
def test_biases_are_zero(init):
    net = FC(5, 4, 3, bias=True, init=init)
    assert all(not p.any() for name, p in net.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(7, 5),
        lambda: nn.Conv1d(4, 6, 3, groups=2),
        lambda: nn.Conv2d(3, 4, (3, 2)),
        lambda: nn.ConvTranspose2d(3, 4, 2),
        lambda: nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2)),
    ],
)
def test_torch_default_is_torchs_own_draw(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        expected = make()
    actual = initialize(make(), TorchDefault(), seeded(7))
    for own, other in zip(actual.parameters(), expected.parameters(), strict=True):
        assert torch.equal(own, other)


def test_without_generator_the_global_one_is_used():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        net = FC(5, 4, 3)
    other = FC(5, 4, 3, generator=seeded(3))
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_names_stand_for_the_default_settings():
    assert {name: kind() for name, kind in INITIALIZATIONS.items()} == {
        "glorot": GlorotUniform(),
        "gaussian": Gaussian(),
        "random-sign": RandomSign(),
        "torch": TorchDefault(),
    }
    by_name = FC(5, 4, 3, init="Random_Sign", generator=seeded())
    by_value = FC(5, 4, 3, init=RandomSign(), generator=seeded())
    assert torch.equal(by_name.layers.linear1.weight, by_value.layers.linear1.weight)


def test_batch_norm_is_reset():
    net = DavidNet(width=2)
    net(torch.randn(4, 3, 32, 32, generator=seeded()))
    bare = nn.BatchNorm1d(3, affine=False)
    bare(torch.randn(4, 3, generator=seeded()))
    with torch.no_grad():
        net.prep.norm.weight.fill_(3)
        net.prep.norm.bias.fill_(3)
    initialize(nn.ModuleList([net, bare]), "gaussian", seeded())
    norm = net.prep.norm
    assert norm.weight.tolist() == [1, 1]
    assert norm.bias.tolist() == [0, 0]
    for part in (norm, bare):
        assert not part.running_mean.any()
        assert (part.running_var == 1).all()
        assert part.num_batches_tracked == 0


def test_other_parts_are_reset_from_the_generator_and_leave_the_global_one_alone():
    net = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    with torch.no_grad():
        net[1].weight.fill_(7)
    before = torch.random.get_rng_state()
    first = initialize(net, "gaussian", seeded())[0].weight.clone()
    second = initialize(net, "gaussian", seeded())[0].weight.clone()
    third = initialize(net, "gaussian", seeded(1))[0].weight
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
    assert net[1].weight.tolist() == [1] * 4


class Stuck(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))
        self.inner = nn.Linear(2, 2)


def test_parts_that_cannot_be_reset_are_all_named_and_nothing_changes():
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    net = nn.Sequential(nn.Linear(2, 2), Stuck(), normed)
    before = [p.clone() for p in net.parameters()]
    with pytest.raises(ValueError, match=r"1 \(Stuck\) with temperature.*2 \(ParametrizedLinear\)"):
        initialize(net, "gaussian", seeded())
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    with pytest.raises(ValueError, match=r"the module itself \(Stuck\)"):
        initialize(Stuck(), "gaussian")


def test_lazy_layers_are_refused():
    with pytest.raises(ValueError, match=r"0 \(LazyLinear\) has no shapes yet"):
        initialize(nn.Sequential(nn.LazyLinear(3)), "gaussian")


def test_gradients_are_still_recorded_afterwards():
    net = FC(5, 4, 3, generator=seeded())
    assert all(p.requires_grad and p.is_leaf for p in net.parameters())
    net(torch.ones(2, 5)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize("kind", [Gaussian, RandomSign])
@pytest.mark.parametrize("scale", [0, -1.0, float("inf"), float("nan")])
def test_wrong_scale_is_named(kind, scale):
    with pytest.raises(ValueError, match="`scale` "):
        kind(scale=scale)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("kind", [Gaussian, RandomSign])
def test_wrong_fan_is_named(kind):
    with pytest.raises(ValueError, match="`fan` "):
        kind(fan="out")


@pytest.mark.usefixtures("without_type_checks")
def test_init_of_another_type_is_refused():
    with pytest.raises(TypeError, match=r"`init` .*got int"):
        initialize(nn.Linear(2, 2), 3)
