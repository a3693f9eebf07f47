import pytest
import torch
from torch import nn

from neuralpath.nets import FC, ResidualFC

PRE = (0.5, 2.0, 4.0)  # powers of two keep the comparison exact
POST = (2.0, 0.25, 0.5)


def integer_network(generator, **settings):
    net = ResidualFC(3, **settings).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=generator))
    return net


def apply_layer(layer, z, gated):
    offsets = [0.0] * layer.out_features if layer.bias is None else layer.bias.tolist()
    q = [
        b + sum(w * value for w, value in zip(row, z, strict=True))
        for row, b in zip(layer.weight.tolist(), offsets, strict=True)
    ]
    return [max(value, 0.0) for value in q] if gated else q


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("block_depth", [1, 2, 3])
def test_forward_is_the_recursion_over_blocks(block_depth, bias):
    generator = torch.Generator().manual_seed(5)
    net = integer_network(
        generator, width=4, n_skips=3, block_depth=block_depth, gamma_pre=PRE, gamma_post=POST, bias=bias
    )
    layers = [part for part in net.modules() if isinstance(part, nn.Linear)]
    assert len(layers) == 5 * block_depth
    blocks = [layers[start : start + block_depth] for start in range(0, len(layers), block_depth)]
    x = torch.randint(-3, 4, (4, 3), generator=generator).double()
    outputs = net(x)
    assert outputs.abs().max() > 0
    for example, output in zip(x.tolist(), outputs.tolist(), strict=True):
        z = example
        for layer in blocks[0]:
            z = apply_layer(layer, z, gated=True)
        for block, pre, post in zip(blocks[1:-1], PRE, POST, strict=True):
            inside = [pre * value for value in z]
            for layer in block:
                inside = apply_layer(layer, inside, gated=True)
            z = [post * (a + b) for a, b in zip(z, inside, strict=True)]
        for layer in blocks[-1]:
            z = apply_layer(layer, z, gated=layer is not blocks[-1][-1])
        assert z == output


def test_zeroed_blocks_leave_the_fully_connected_network_of_the_skips():
    generator = torch.Generator().manual_seed(6)
    net = integer_network(generator, width=4, n_skips=2, block_depth=2, gamma_post=(2.0, 4.0))
    with torch.no_grad():
        for block in net.skipped:
            for parameter in block.parameters():
                parameter.zero_()
    plain = FC(3, 4, 4).double()
    with torch.no_grad():
        for own, other in zip(plain.parameters(), [*net.first.parameters(), *net.last.parameters()], strict=True):
            own.copy_(other)
    x = torch.randint(-3, 4, (4, 3), generator=generator).double()
    assert torch.equal(net(x), 8 * plain(x))


def test_without_skips_it_is_a_fully_connected_network_of_two_blocks():
    net = ResidualFC(3, 4, 0, 2)
    assert [tuple(p.shape) for p in net.parameters()] == [(4, 3), (4, 4), (4, 4), (1, 4)]


def test_widths_inside_a_block_are_free():
    net = ResidualFC((3, 2), (5, 4), 1, n_outputs=2)
    assert [tuple(p.shape) for p in net.parameters()] == [(5, 6), (4, 5), (5, 4), (4, 5), (5, 4), (2, 5)]
    assert net(torch.ones(3, 3, 2)).shape == (3, 2)


def test_one_factor_serves_every_skip_and_is_not_a_parameter():
    net = ResidualFC(3, 4, 3, 1, gamma_pre=2, gamma_post=0.5)
    assert net.gamma_pre == (2.0,) * 3
    assert net.gamma_post == (0.5,) * 3
    assert not any("gamma" in name for name, _ in net.named_parameters())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"n_skips": -1}, "`n_skips` must be an integer of at least 0"),
        ({"block_depth": 0}, "block_depth"),
        ({"block_depth": None}, "block_depth"),
        ({"width": 0}, "width"),
        ({"width": (), "block_depth": None}, "width"),
        ({"gamma_pre": (1.0,)}, "`gamma_pre` must be one number or 2 of them"),
        ({"gamma_post": (1.0, 1.0, 1.0)}, "`gamma_post` must be one number or 2 of them"),
        ({"gamma_post": float("nan")}, "gamma_post"),
        ({"n_outputs": 0}, "n_outputs"),
    ],
)
def test_wrong_arguments_are_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        ResidualFC(**{"input_shape": 3, "width": 4, "n_skips": 2, "block_depth": 1} | arguments)
