import pytest
import torch
from torch import nn

from neuralpath.nets import CircularCNN

LENGTH = 8  # a power of two: the mean of integers is exact


def integer_network(generator, **settings):
    net = CircularCNN(LENGTH, **settings).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=generator))
    return net


def output_by_index(net, example, pooling):
    """Definitions 2.1 and 2.2 with the paper's indices, which start at 1."""

    def circular_sum(i, r):
        return i + r if i + r <= LENGTH else i + r - LENGTH

    positions = range(1, LENGTH + 1)
    z = {(i, 1): example[i - 1].item() for i in positions}
    n_in = 1
    convolutions = [part for part in net.modules() if isinstance(part, nn.Conv1d)]
    for conv in convolutions:
        n_out, _, window = conv.weight.shape
        q = {}
        for i in positions:
            for out in range(1, n_out + 1):
                q[i, out] = 0.0 if conv.bias is None else conv.bias[out - 1].item()
                for cv in range(1, window + 1):
                    for c in range(1, n_in + 1):
                        theta = conv.weight[out - 1, c - 1, cv - 1].item()
                        q[i, out] += theta * z[circular_sum(i, cv - 1), c]
        z = {key: value if value > 0 else 0.0 for key, value in q.items()}
        n_in = n_out
    columns = [[z[i, out] for i in positions] for out in range(1, n_in + 1)]
    pooled = [sum(c) / LENGTH if pooling == "average" else max(c) for c in columns]
    dense = [part for part in net.modules() if isinstance(part, nn.Linear)]
    for index, layer in enumerate(dense):
        rows = layer.weight.tolist()
        offsets = [0.0] * len(rows) if layer.bias is None else layer.bias.tolist()
        pooled = [
            b + sum(w * p for w, p in zip(row, pooled, strict=True)) for row, b in zip(rows, offsets, strict=True)
        ]
        if index < len(dense) - 1:
            pooled = [max(value, 0.0) for value in pooled]
    return pooled


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("pooling", ["average", "max"])
@pytest.mark.parametrize(("window", "n_dense"), [(1, 1), (2, 1), (3, 2), (8, 3)])
def test_forward_follows_the_papers_indices(window, n_dense, pooling, bias):
    generator = torch.Generator().manual_seed(window)
    net = integer_network(
        generator, width=(3, 2), n_dense=n_dense, n_outputs=2, window=window, pooling=pooling, bias=bias
    )
    x = torch.randint(-3, 4, (4, LENGTH), generator=generator).double()
    outputs = net(x)
    assert outputs.abs().max() > 0
    for example, output in zip(x, outputs, strict=True):
        assert output_by_index(net, example, pooling) == output.tolist()


@pytest.mark.parametrize("pooling", ["average", "max"])
def test_convolutions_turn_with_the_input_and_the_output_does_not(pooling):
    generator = torch.Generator().manual_seed(3)
    net = integer_network(generator, width=3, n_conv=3, window=4, pooling=pooling)
    x = torch.randint(-3, 4, (4, 1, LENGTH), generator=generator).double()
    hidden = net.convolutions(x)
    assert not torch.equal(hidden, hidden.roll(1, -1))
    for r in range(LENGTH):
        rotated = x.roll(-r, -1)  # rot(x, r)(i) = x(i + r)
        assert torch.equal(net.convolutions(rotated), hidden.roll(-r, -1))
        assert torch.equal(net(rotated), net(x))


def test_a_single_channel_may_come_without_its_axis():
    net = CircularCNN(5, 3, 2, window=2)
    x = torch.arange(10.0).reshape(2, 5)
    assert torch.equal(net(x), net(x.unsqueeze(1)))


def test_layers_and_free_widths():
    net = CircularCNN((2, 9), (4, 5), n_dense=3, n_outputs=6, window=3, dense_width=(7, 8))
    assert [tuple(p.shape) for p in net.parameters()] == [(4, 2, 3), (5, 4, 3), (7, 5), (8, 7), (6, 8)]
    assert sum(isinstance(part, nn.ReLU) for part in net.modules()) == 4
    equal = CircularCNN((9,), 4, 2, 3, window=3)
    assert [tuple(p.shape) for p in equal.parameters()] == [(4, 1, 3), (4, 4, 3), (4, 4), (4, 4), (1, 4)]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"window": 7}, "`window` must not be longer"),
        ({"window": 0}, "window"),
        ({"n_conv": 0}, "n_conv"),
        ({"n_conv": None}, "n_conv"),
        ({"width": (), "n_conv": None}, "width"),
        ({"width": (3, 3, 3)}, "`width` must be one integer or 2 of them.*`n_conv`=2"),
        ({"n_dense": 0}, "n_dense"),
        ({"n_dense": 2, "dense_width": (3, 3)}, "dense_width"),
        ({"n_outputs": 0}, "n_outputs"),
        ({"input_shape": (1, 2, 6)}, "input_shape"),
    ],
)
def test_wrong_arguments_are_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        CircularCNN(**{"input_shape": 6, "width": 3, "n_conv": 2, "window": 2} | arguments)


@pytest.mark.usefixtures("without_type_checks")
def test_unknown_pooling_is_refused():
    with pytest.raises(ValueError, match="`pooling` "):
        CircularCNN(6, 3, 2, window=2, pooling="median")
