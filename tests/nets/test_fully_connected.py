import pytest
import torch
from torch import nn

from neuralpath.nets import FC


def fill_with_integers(net, generator):
    """Small integers, so that sums of products are exact in float64."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randint(-3, 4, parameter.shape, generator=generator))


@pytest.mark.parametrize("bias", [False, True])
def test_forward_is_the_recursion_of_table_1(bias):
    generator = torch.Generator().manual_seed(0)
    net = FC(3, (4, 2), n_outputs=2, bias=bias).double()
    fill_with_integers(net, generator)
    x = torch.randint(-4, 5, (5, 3), generator=generator).double()
    layers = [part for part in net.modules() if isinstance(part, nn.Linear)]
    n_open = n_closed = 0
    for example, output in zip(x.tolist(), net(x).tolist(), strict=True):
        z = example
        for index, layer in enumerate(layers):
            q = []
            for unit in range(layer.out_features):
                total = layer.bias[unit].item() if bias else 0.0
                for below in range(layer.in_features):
                    total += layer.weight[unit, below].item() * z[below]
                q.append(total)
            if index < len(layers) - 1:
                n_open += sum(value > 0 for value in q)
                n_closed += sum(value <= 0 for value in q)
                q = [value if value > 0 else 0.0 for value in q]
            z = q
        assert z == output
    assert n_open > 0
    assert n_closed > 0


def test_depth_counts_the_weight_layers_and_all_but_the_last_are_gated():
    net = FC(7, 5, 4, 3)
    kinds = [type(part) for part in net.layers]
    assert kinds == [nn.Linear, nn.ReLU] * 3 + [nn.Linear]
    assert [tuple(p.shape) for p in net.parameters()] == [(5, 7), (5, 5), (5, 5), (3, 5)]


def test_depth_one_is_a_single_linear_layer():
    assert [tuple(p.shape) for p in FC(7, 5, 1, 3).parameters()] == [(3, 7)]


def test_papers_mnist_network_has_its_number_of_parameters():
    net = FC((1, 28, 28), 128, 6, 10, bias=True)
    assert sum(p.numel() for p in net.parameters()) == 784 * 128 + 4 * 128**2 + 1280 + 5 * 128 + 10


def test_images_are_flattened():
    net = FC((2, 3, 4), 5, 3)
    x = torch.arange(48.0).reshape(2, 2, 3, 4)
    assert torch.equal(net(x), net(x.reshape(2, 24)))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"width": 5}, "depth"),
        ({"width": 5, "depth": 0}, "depth"),
        ({"width": 0, "depth": 3}, "width"),
        ({"width": (4, -1)}, "width"),
        ({"width": (4, 4), "depth": 2}, "`width` must be one integer or 1 of them.*`depth`=2"),
        ({"width": 5, "depth": 3, "n_outputs": 0}, "n_outputs"),
        ({"width": 5, "depth": 3, "init": "gausian"}, "Did you mean 'gaussian'"),
    ],
)
def test_wrong_arguments_are_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        FC(3, **arguments)


@pytest.mark.parametrize("input_shape", [0, (3, 0), True])
def test_wrong_input_shape_is_named(input_shape):
    with pytest.raises(ValueError, match="input_shape"):
        FC(input_shape, 4, 2)
