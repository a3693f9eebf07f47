import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuralpath.nets import DavidNet

STEPS = [(3, 64), (64, 128), (128, 128), (128, 128), (128, 256), (256, 512), (512, 512), (512, 512)]


def test_layers_are_those_of_cifar10_fast():
    net = DavidNet()
    parts = [part for part in net.modules() if not list(part.children())]
    kinds = [type(part) for part in parts]
    step = [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    pool = [nn.MaxPool2d]
    assert kinds == [*step, *step, *pool, *step, *step, *step, *pool, *step, *pool, *step, *step, *pool, nn.Linear]
    convolutions = [part for part in parts if isinstance(part, nn.Conv2d)]
    assert [(part.in_channels, part.out_channels) for part in convolutions] == STEPS
    assert all(part.kernel_size == (3, 3) and part.padding == (1, 1) for part in convolutions)
    assert all(part.stride == (1, 1) and part.bias is None for part in convolutions)
    assert [part.kernel_size for part in parts if isinstance(part, nn.MaxPool2d)] == [2, 2, 2, 4]
    assert (net.linear.in_features, net.linear.out_features, net.linear.bias) == (512, 10, None)
    assert net.output_scale == 0.125
    n_weights = sum(9 * a * b for a, b in STEPS) + sum(2 * b for _, b in STEPS) + 5120
    assert sum(p.numel() for p in net.parameters()) == n_weights


@pytest.mark.parametrize("training", [False, True])
def test_forward_is_the_recipe_written_out(training):
    generator = torch.Generator().manual_seed(0)
    net = DavidNet(width=2, generator=generator).double().train(training)
    x = torch.randn(2, 3, 32, 32, generator=generator, dtype=torch.float64)
    convolutions = [part for part in net.modules() if isinstance(part, nn.Conv2d)]

    def step(index, z):
        q = F.conv2d(z, convolutions[index].weight, padding=1)
        if training:
            mean, variance = q.mean((0, 2, 3), keepdim=True), q.var((0, 2, 3), unbiased=False, keepdim=True)
        else:
            mean, variance = torch.zeros(()), torch.ones(())
        return ((q - mean) / (variance + 1e-5).sqrt()).relu()

    z = F.max_pool2d(step(1, step(0, x)), 2)
    z = z + step(3, step(2, z))
    z = F.max_pool2d(step(4, z), 2)
    z = F.max_pool2d(step(5, z), 2)
    z = z + step(7, step(6, z))
    expected = 0.125 * (F.max_pool2d(z, 4).flatten(1) @ net.linear.weight.T)
    torch.testing.assert_close(net(x), expected)


def test_free_widths_and_larger_images():
    net = DavidNet((1, 64, 32), 3, width=(2, 3, 4, 5))
    assert net(torch.ones(2, 1, 64, 32)).shape == (2, 3)
    assert net.linear.in_features == 2 * 5


def test_without_batch_norm_and_bias_there_is_no_bias_at_all():
    net = DavidNet(width=2, batch_norm=False)
    assert not any("bias" in name for name, _ in net.named_parameters())
    assert torch.equal(net(torch.zeros(1, 3, 32, 32)), torch.zeros(1, 10))


def test_bias_is_given_to_convolutions_and_linear_layer():
    layers = [part for part in DavidNet(width=2, bias=True).modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    assert len(layers) == 9
    assert all(layer.bias is not None for layer in layers)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"input_shape": (1, 28, 28)}, "`input_shape` must be at least 32"),
        ({"width": 0}, "width"),
        ({"width": (2, 3)}, "`width` must be one integer or 4 of them"),
        ({"n_outputs": 0}, "n_outputs"),
    ],
)
def test_wrong_arguments_are_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        DavidNet(**arguments)
