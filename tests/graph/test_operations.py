"""Spellings that `trace` reads, and what it says of those that it does not."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuralpath as npath
from neuralpath import gates as g
from neuralpath.graph import nodes as n
from neuralpath.graph.nodes import OUTSIDE

F64 = torch.float64


class Net(nn.Module):
    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def _traced(model, shape, dtype=F64):
    """The graph of a model, checked on a batch of another size."""
    model = model.to(dtype).eval()
    x = torch.randn(4, *shape, dtype=dtype)
    graph = npath.trace(model, x[:1])
    torch.testing.assert_close(npath.output(graph, x), model(x))
    return graph


MAXIMA = {
    "zeros_like": lambda z: torch.maximum(z, torch.zeros_like(z)),
    "max-zeros_like": lambda z: torch.max(z, torch.zeros_like(z)),
    "new_zeros-number": lambda z: torch.max(z, z.new_zeros(())),
    "new_zeros-batch": lambda z: torch.maximum(z.new_zeros(z.shape), z),
    "full_like": lambda z: torch.maximum(torch.full_like(z, 0.0), z),
    "new_full": lambda z: torch.max(z.new_full((3,), 0.0), z),
    "times-zero": lambda z: torch.max(torch.ones_like(z) * 0, z),
    "tensor": lambda z: torch.clamp(z, min=torch.zeros(3, dtype=z.dtype)),
}


@pytest.mark.parametrize("case", MAXIMA)
def test_every_spelling_of_a_maximum_with_zero_is_a_relu(case):
    graph = _traced(Net(lambda m, x: MAXIMA[case](m.l(x)), l=nn.Linear(4, 3)), (4,))
    assert [type(node.gate) for node in graph.gate_nodes] == [g.HardGate]


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_constants_made_from_a_signal_are_not_rounded(dtype):
    def function(m, x):
        z = m.l(x) + torch.ones_like(x) * 0.1 + x.new_full((4,), 0.1)
        return z * torch.full_like(z, 0.3) + x.new_ones(x.shape)

    graph = _traced(Net(function, l=nn.Linear(4, 4)), (4,), dtype)
    x = torch.randn(3, 4, dtype=F64)
    graph.model.double()
    torch.testing.assert_close(npath.output(graph, x), graph.model(x), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("divisor", [3, [3, 7, 9]])
def test_division_by_integers_is_exact(divisor):
    model = Net(lambda m, x: torch.add(m.l(x) / torch.tensor(divisor), torch.tensor(3), alpha=0.1), l=nn.Linear(4, 3))
    graph = _traced(model, (4,))
    x = torch.randn(3, 4, dtype=F64)
    torch.testing.assert_close(npath.output(graph, x), graph.model(x), rtol=1e-15, atol=1e-15)


def test_names_of_reused_modules_never_look_like_other_modules():
    model = Net(
        lambda m, x: m.relu_2(m.l(m.relu(m.l(m.relu(m.l(m.relu(m.l(x)))))))),
        l=nn.Linear(4, 4), relu=nn.ReLU(), relu_2=nn.ReLU(),
    )  # fmt: skip
    assert _traced(model, (4,)).gate_names == ("relu", "relu#2", "relu#3", "relu_2")


READ = {
    "vector": (lambda m, x: m.l(x).relu() @ m.w, (4,)),
    "mv": (lambda m, x: torch.mv(m.l(x).relu(), m.w), (4,)),
    "linear-of-a-vector": (lambda m, x: F.linear(m.l(x).relu(), m.w), (4,)),
    "item": (lambda m, x: m.l(x) * (2 * m.number.item() + 1), (4,)),
    "to": (lambda m, x: m.l(x.to(m.l.weight.dtype)), (4,)),
    "to-copy": (lambda m, x: m.l(x.to(torch.float64, copy=True)), (4,)),
    "type_as": (lambda m, x: m.l(x.type_as(m.l.weight)), (4,)),
    "double": (lambda m, x: m.l(x.double()), (4,)),
    "upsampled": (lambda m, x: F.interpolate(m.c(x), scale_factor=2).mean((2, 3)), (2, 3, 4)),
    "upsampled-odd": (lambda m, x: F.interpolate(m.c(x), size=(7, 5)).flatten(1), (2, 3, 4)),
    "upsampled-exact": (lambda m, x: F.interpolate(m.c(x), size=(7, 5), mode="nearest-exact").flatten(1), (2, 3, 4)),
    "upsampled-fraction": (lambda m, x: F.interpolate(m.c(x), scale_factor=1.7).flatten(1), (2, 3, 4)),
    "repeated": (lambda m, x: m.c(x).repeat(1, 2, 1, 3).flatten(1), (2, 3, 4)),
    "tiled": (lambda m, x: m.c(x).tile(2, 1).flatten(1), (2, 3, 4)),
    "interleaved": (lambda m, x: m.c(x).repeat_interleave(2, dim=1).flatten(1), (2, 3, 4)),
    "rolled": (lambda m, x: m.c(x).roll((1, -2), (2, 3)).flatten(1), (2, 3, 4)),
    "mean-of-one-channel": (lambda m, x: m.one(x).mean(1).flatten(1), (2, 1, 4)),
    "largest-of-one-channel": (lambda m, x: m.l(x)[:, :1].amax(1), (4,)),
    "largest-over-four-axes": (lambda m, x: m.l(x.amax((2, 3, 4, 5))), (4, 2, 1, 3, 2)),
    "masked": (lambda m, x: m.l(x) * torch.tensor([1.0, 0.0, 1.0]), (4,)),
    "flattened-nothing": (lambda m, x: m.l(x.flatten(0, 0)), (4,)),
}


@pytest.mark.parametrize("case", READ)
def test_operations_that_are_read(case):
    function, shape = READ[case]
    parts = {
        "l": nn.Linear(4, 3), "c": nn.Conv2d(2, 3, 1), "one": nn.Conv2d(2, 1, 1),
        "w": nn.Parameter(torch.randn(3)), "number": nn.Parameter(torch.randn(1)),
    }  # fmt: skip
    _traced(Net(function, **parts), shape)


def test_a_product_with_a_vector_is_a_dense_layer_with_one_output():
    graph = _traced(Net(lambda m, x: m.l(x).relu() @ m.w, l=nn.Linear(4, 3), w=nn.Parameter(torch.randn(3))), (4,))
    assert graph.output_shape == ()
    x = torch.randn(3, 4, dtype=F64)
    torch.testing.assert_close(npath.path_features(graph, x) @ npath.path_values(graph), graph.model(x))


REFUSED = {
    "division by 0": (lambda m, x: m.l(x) / 0.0, "divides by 0"),
    "cast": (lambda m, x: m.l(x.double().float()), "casts from torch.float32 to torch.float64: a path graph has one"),
    "integers": (lambda m, x: m.l(x.int().float()), "casts from torch.float32 to torch.int32"),
    "weight of three axes": (lambda m, x: (m.l(x) @ m.w)[0], "a weight of 3 axes"),
    "largest channel": (lambda m, x: m.l(x).amax(1), "a maximum over the channels, which picks one of them"),
    "circular": (lambda m, x: nn.CircularPad1d((2, -1))(m.l(x)[:, None]).flatten(1), "circular padding by a negative"),
    "reflect": (lambda m, x: nn.ReflectionPad1d((2, -1))(m.l(x)[:, None]).flatten(1), "reflect padding by a negative"),
    "roll": (lambda m, x: m.l(x).roll(1), "rolls all axes as one"),
    "repeat": (lambda m, x: m.l(x).repeat(2, 1)[: x.shape[0]], "repeats along the batch"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_operations_that_are_refused_say_why(case):
    function, message = REFUSED[case]
    model = Net(function, l=nn.Linear(4, 4), w=nn.Parameter(torch.randn(1, 4, 3)))
    report = npath.supported(model, torch.randn(3, 4))
    assert message in str(report)


def test_a_rule_that_fails_is_reported_with_its_place(monkeypatch):
    def broken(build, x):
        raise AttributeError("no such thing")

    from neuralpath.graph.operations.table import OPERATIONS

    monkeypatch.setitem(OPERATIONS, torch.ops.aten.relu.default, broken)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    with pytest.raises(npath.UnsupportedOperation) as caught:
        npath.trace(model, torch.randn(1, 4))
    (entry,) = caught.value.report.unsupported
    assert (entry.operation, entry.module) == ("relu", "1")
    assert "AttributeError: no such thing" in entry.reason


COUNTS = {
    "ones-around": (lambda m, x: m.six(F.pad(x, (1, 1), value=1.0)), 6),
    "zeros-behind": (lambda m, x: m.six(F.pad(x, (0, 2))), 4),
    "zeros-stacked": (lambda m, x: m.six(torch.cat([x, x.new_zeros(x.shape[0], 2)], 1)), 4),
    "zeros-between": (lambda m, x: m.six(torch.cat([x[:, :2], x.new_zeros(x.shape[0], 1), x[:, 1:]], 1)), 5),
    "ones-stacked": (lambda m, x: m.six(torch.cat([x, x.new_ones(x.shape[0], 2)], 1)), 6),
    "zeros-added": (lambda m, x: m.four(x + torch.zeros_like(x)), 4),
    "cropped": (lambda m, x: m.four(F.pad(x, (1, -1), value=2.0)), 4),
}


@pytest.mark.parametrize("case", COUNTS)
def test_zeros_start_no_paths(case):
    function, expected = COUNTS[case]
    model = Net(function, six=nn.Linear(6, 1, bias=False), four=nn.Linear(4, 1, bias=False))
    graph = _traced(model, (4,))
    assert graph.n_paths == expected
    x = torch.randn(3, 4, dtype=F64)
    assert npath.path_features(graph, x).shape[1] == expected
    torch.testing.assert_close(npath.path_features(graph, x) @ npath.path_values(graph), graph.model(x)[:, 0])
    torch.testing.assert_close(npath.log_active_paths(graph, x).exp(), torch.full((3,), float(expected), dtype=F64))


def test_padding_with_a_constant_in_two_axes_puts_it_outside_once():
    model = Net(lambda m, x: m.l(F.pad(x, (1, 0, 2, 1), value=0.5).flatten(1)), l=nn.Linear(15, 1, bias=False))
    graph = _traced(model, (1, 2, 2))
    assert graph.n_paths == 15
    outside = [node for node in graph.nodes if node.name.startswith("outside")]
    assert all(isinstance(node, n.SelectNode) and (node.indices[-1] is None) != (node.indices[-2] is None)
               for node in outside)  # fmt: skip
    assert sum(int((i == OUTSIDE).sum()) for node in outside for i in node.indices if i is not None) == 2 + 2


KEPT = {
    "softsign": nn.Softsign(),
    "hardshrink": nn.Hardshrink(),
    "softshrink": nn.Softshrink(),
    "threshold": nn.Threshold(0.1, 20.0),
    "softplus": nn.Softplus(),
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
    "elu": nn.ELU(),
    "celu": nn.CELU(),
    "selu": nn.SELU(),
    "log_sigmoid": nn.LogSigmoid(),
    "hardsigmoid": nn.Hardsigmoid(),
    "hardtanh": nn.Hardtanh(),
    "clamp": Net(lambda m, x: x.clamp(-0.3, 0.4)),
    "abs": Net(lambda m, x: x.abs()),
    "erf": Net(lambda m, x: torch.erf(x)),
    "sin": Net(lambda m, x: x.sin()),
    "cos": Net(lambda m, x: x.cos()),
    "exp": Net(lambda m, x: x.exp()),
    "square": Net(lambda m, x: x.square()),
}


@pytest.mark.parametrize("operation", KEPT)
def test_activations_that_are_no_gates_are_kept(operation):
    graph = _traced(nn.Sequential(nn.Linear(4, 3), KEPT[operation], nn.Linear(3, 2)), (4,))
    assert [node.operation for node in graph.nodes if isinstance(node, n.ActivationNode)] == [operation]


def test_every_activation_of_the_table_is_tried():
    assert {operation._opname for operation in g.UNGATED_ACTIVATIONS} == set(KEPT) - {"softsign"}


def test_softsign_is_told_from_other_quotients():
    for function in (lambda m, x: x / (2 + x.abs()), lambda m, x: x / (1 + m.l(x).abs()), lambda m, x: x / x.abs()):
        assert "divides by a value that depends" in str(
            npath.supported(Net(function, l=nn.Linear(4, 4)), torch.ones(1, 4))
        )


def test_rrelu_in_evaluation_is_a_leaky_gate_with_the_mean_slope():
    graph = _traced(nn.Sequential(nn.Linear(4, 3), nn.RReLU(0.1, 0.3), nn.Linear(3, 2)), (4,))
    assert graph.gate_nodes[0].gate == g.LeakyGate(0.2)
