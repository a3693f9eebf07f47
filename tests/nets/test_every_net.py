"""What holds for every network of the package."""

import warnings

import pytest
import torch

from neuralpath.nets import BY_NAME, build

CASES = {
    "fc": {"input_shape": (2, 3), "width": 4, "depth": 3},
    "vconv": {"input_shape": (2, 6, 6), "channels": (3, 4), "hidden": (5,), "stride": 2},
    "gconv": {"input_shape": (2, 6, 6), "channels": (3, 4), "hidden": ()},
    "circular-cnn": {"input_shape": (2, 6), "width": 4, "n_conv": 2, "n_dense": 2, "window": 3},
    "circular-cnn max": {"input_shape": (2, 6), "width": 4, "n_conv": 2, "window": 3, "pooling": "max"},
    "residual-fc": {"input_shape": (6,), "width": 4, "n_skips": 2, "block_depth": 2, "gamma_post": 0.5},
    "davidnet": {"input_shape": (2, 32, 32), "width": 2},
}


def make(case, **settings):
    return build(case.split()[0], n_outputs=3, **CASES[case], **settings).eval()


def inputs(case, batch=4, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch, *CASES[case]["input_shape"], generator=generator, dtype=dtype)


every_net = pytest.mark.parametrize("case", CASES)


def test_the_cases_cover_the_table():
    assert {case.split()[0] for case in CASES} == set(BY_NAME)


@every_net
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_output_has_one_row_per_example_in_the_inputs_dtype(case, dtype):
    y = make(case).to(dtype)(inputs(case, dtype=dtype))
    assert y.shape == (4, 3)
    assert y.dtype == dtype


@every_net
@pytest.mark.parametrize("init", ["glorot", "gaussian", "random-sign", "torch"])
def test_the_generator_decides_every_value(case, init):
    before = torch.random.get_rng_state()
    nets = [make(case, bias=True, init=init, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(before, torch.random.get_rng_state())
    first, again, other = (torch.cat([p.flatten() for p in net.parameters()]) for net in nets)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@every_net
def test_bias_on_or_off(case):
    settings = {"batch_norm": False} if case == "davidnet" else {}
    without = make(case, **settings)
    assert not any("bias" in name for name, _ in without.named_parameters())
    assert torch.equal(without(torch.zeros_like(inputs(case))), torch.zeros(4, 3))
    with_bias = make(case, bias=True, **settings)
    weights = [name for name, _ in with_bias.named_parameters() if name.endswith("weight")]
    biases = [name for name, _ in with_bias.named_parameters() if name.endswith("bias")]
    assert [name.removesuffix("weight") for name in weights] == [name.removesuffix("bias") for name in biases]


@every_net
def test_export_keeps_the_outputs_for_every_batch_size(case):
    net, x = make(case, bias=True), inputs(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its tree specifications
        program = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        module = program.module()
        larger = inputs(case, batch=7)
        assert torch.equal(module(x), net(x))
        assert torch.equal(module(larger), net(larger))


@every_net
def test_states_load_into_a_second_network(case):
    net, other = make(case), make(case)
    other.load_state_dict(net.state_dict())
    assert torch.equal(net(inputs(case)), other(inputs(case)))


@every_net
def test_networks_follow_the_default_device(case):
    with torch.device("meta"):
        net = make(case)
    assert all(p.device.type == "meta" for p in net.parameters())


def test_names_ignore_case_and_underscores():
    assert type(build("Residual_FC", input_shape=3, width=2, n_skips=1, block_depth=1)).__name__ == "ResidualFC"


@pytest.mark.parametrize(("name", "nearest"), [("gcnv", "gconv"), ("davidnett", "davidnet"), ("f", "fc")])
def test_unknown_name_suggests_the_nearest(name, nearest):
    with pytest.raises(ValueError, match=f"{name}.*Did you mean '{nearest}'.*Known: fc, vconv"):
        build(name)


def test_hopeless_name_lists_the_known():
    with pytest.raises(ValueError, match=r"'transformer' is unknown\. Known: fc, vconv"):
        build("transformer")
