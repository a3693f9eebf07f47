import pytest
import torch
from torch import nn

from neuralpath.nets import GCONV, VCONV


def integers(shape, generator):
    return torch.randint(-2, 3, shape, generator=generator).double()


def same_convolution(weight, z, stride):
    """Zero-padded convolution by loops, on nested positions of z[channel, row, column]."""
    n_out, n_in, window, _ = weight.shape
    _, height, width = z.shape
    reach = window // 2
    rows, columns = range(0, height, stride), range(0, width, stride)
    q = torch.zeros(n_out, len(rows), len(columns), dtype=z.dtype)
    for out in range(n_out):
        for a, row in enumerate(rows):
            for b, column in enumerate(columns):
                for c in range(n_in):
                    for i in range(window):
                        for j in range(window):
                            y, x = row + i - reach, column + j - reach
                            if 0 <= y < height and 0 <= x < width:
                                q[out, a, b] += weight[out, c, i, j] * z[c, y, x]
    return q


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("network", [VCONV, GCONV])
def test_forward_matches_loops(network, stride):
    generator = torch.Generator().manual_seed(1)
    net = network((2, 4, 4), 2, channels=(3, 2), hidden=(3,), stride=stride).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(integers(parameter.shape, generator))
    first, second, third, fourth = [p.detach() for p in net.parameters()]
    x = integers((3, 2, 4, 4), generator)
    for example, output in zip(x, net(x), strict=True):
        z = same_convolution(first, example, stride).clamp(min=0)
        z = same_convolution(second, z, stride).clamp(min=0)
        # 16, 4 or 1 positions: the mean of integers is exact
        z = z.flatten() if network is VCONV else z.sum((1, 2)) / z[0].numel()
        assert torch.equal(fourth @ (third @ z).clamp(min=0), output)


def test_defaults_are_the_papers_layers():
    net = VCONV((3, 32, 32))
    assert [type(part) for part in net.convolutions] == [nn.Conv2d, nn.ReLU] * 4
    assert [type(part) for part in net.dense] == [nn.Linear, nn.ReLU] * 2 + [nn.Linear]
    shapes = [tuple(p.shape) for p in net.parameters()]
    assert shapes == [
        (64, 3, 3, 3),
        (64, 64, 3, 3),
        (128, 64, 3, 3),
        (128, 128, 3, 3),
        (256, 128 * 32 * 32),
        (256, 256),
        (10, 256),
    ]
    pooled = [tuple(p.shape) for p in GCONV((3, 32, 32)).parameters()]
    assert pooled == [*shapes[:4], (256, 128), (256, 256), (10, 256)]


def test_network_of_the_gate_order_experiment():
    net = GCONV((3, 32, 32), 10, channels=(128,) * 4, hidden=())
    assert [tuple(p.shape) for p in net.parameters()] == [(128, 3, 3, 3), *[(128, 128, 3, 3)] * 3, (10, 128)]
    assert sum(isinstance(part, nn.ReLU) for part in net.modules()) == 4


@pytest.mark.parametrize("stride", [1, 2, 3, (1, 2)])
def test_flattened_size_follows_the_stride(stride):
    net = VCONV((1, 7, 5), 2, channels=(2, 3), hidden=(4,), stride=stride)
    assert net(torch.ones(3, 1, 7, 5)).shape == (3, 2)


def test_gconv_takes_images_of_other_sizes():
    assert GCONV((1, 8, 8), 2, channels=(2,), hidden=())(torch.ones(3, 1, 5, 6)).shape == (3, 2)


@pytest.mark.parametrize("network", [VCONV, GCONV])
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"channels": ()}, "channels"),
        ({"channels": (4, 0)}, "channels"),
        ({"hidden": (0,)}, "hidden"),
        ({"window": 2}, "`window` must be odd"),
        ({"window": 0}, "window"),
        ({"stride": 0}, "stride"),
        ({"stride": (1, 1)}, "`stride` must be one integer or 4 of them"),
        ({"n_outputs": 0}, "n_outputs"),
        ({"input_shape": (3, 8)}, "input_shape"),
    ],
)
def test_wrong_arguments_are_named(network, arguments, named):
    with pytest.raises(ValueError, match=named):
        network(**{"input_shape": (3, 8, 8)} | arguments)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("network", [VCONV, GCONV])
@pytest.mark.parametrize("arguments", [{"channels": 128}, {"hidden": 256}, {"input_shape": 3}])
def test_numbers_in_place_of_sequences_are_refused(network, arguments):
    with pytest.raises(TypeError, match=f"`{next(iter(arguments))}` .*got int"):
        network(**{"input_shape": (3, 8, 8)} | arguments)
