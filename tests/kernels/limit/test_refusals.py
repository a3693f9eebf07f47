"""What has no limit, or none that is derived, is refused: all of it at once, by name and with the reason."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuralpath as npath
import zoo
from neuralpath.kernels.limit.limit_kernel import (
    LimitKernel,
    limit_output_kernel,
    limit_path_kernel,
    limit_tangent_kernel,
)
from neuralpath.kernels.limit.limit_parts import limit_tangent_parts
from neuralpath.kernels.tiling import BudgetTooSmall
from tiny import Net, conv1, conv2, dense

F64 = torch.float64


@pytest.fixture(autouse=True)
def _torch_only(monkeypatch):
    """Nothing is compiled for what is refused."""
    monkeypatch.setenv("NEURALPATH_NUMBA", "0")


def _graph(model, *shape):
    return npath.trace(model.double().eval(), torch.randn(1, *shape, dtype=F64)), torch.randn(2, *shape, dtype=F64)


def _same_source(m, x):
    z = m.a(x)
    return m.b(z + F.relu(z))


def _not_normal(m, x):
    z = F.relu(m.a(x))
    return m.c(F.relu(m.b(z) + z))


def _sliced(m, x):
    return m.b(F.relu(m.a(x))[:, 1:])


def _shared_bias(m, x):
    return m.b(F.relu(m.a(x) + m.shift))


def _trained_input(m, x):
    return m.b(F.relu(m.a(x + m.shift)))


class WithShift(nn.Module):
    def __init__(self, function, shape) -> None:
        super().__init__()
        self._function = function
        self.a, self.b = dense(3, 4), dense(4, 1)
        self.shift = nn.Parameter(torch.randn(shape))

    def forward(self, x):
        return self._function(self, x)


REFUSED = {
    "max pool": (
        nn.Sequential(conv1(2, 3, 3), nn.MaxPool1d(2), nn.Flatten(), dense(9, 1)),
        (2, 8),
        r"'1': max pooling",
    ),
    "batch norm": (
        nn.Sequential(dense(3, 4), nn.BatchNorm1d(4), nn.ReLU(), dense(4, 1)),
        (3,),
        r"'1.scale': batch norm",
    ),
    "same source": (Net(_same_source, a=dense(3, 4), b=dense(4, 1)), (3,), r"'add': .*same layer.*\('a'\)"),
    "not normal": (Net(_not_normal, a=dense(3, 4), b=dense(4, 4), c=dense(4, 1)), (3,), r"'relu#2': .*not normal"),
    "concatenation": (
        Net(lambda m, x: m.c(torch.cat([m.a(x), m.b(x)], 1)), a=dense(3, 2), b=dense(3, 2), c=dense(4, 1)),
        (3,),
        r"'concat': ",
    ),
    "groups": (
        nn.Sequential(conv1(2, 4, 3), nn.ReLU(), conv1(4, 4, 3, groups=2), nn.Flatten(), dense(16, 1)),
        (2, 8),
        r"'2': .*groups",
    ),
    "channels": (Net(_sliced, a=dense(3, 4), b=dense(3, 1)), (3,), r"'slice': .*channels"),
    "input added": (
        Net(lambda m, x: m.b(F.relu(x + m.a(x))), a=dense(3, 3), b=dense(3, 1)),
        (3,),
        r"'add': .*input, or a constant",
    ),
    "constant added": (
        Net(lambda m, x: m.b(F.relu(1 + m.a(x))), a=dense(3, 3), b=dense(3, 1)),
        (3,),
        r"input, or a constant",
    ),
    "scale of channels": (
        Net(lambda m, x: m.b(m.a(x) * torch.tensor([1.0, 2.0, 3.0], dtype=F64)), a=dense(3, 3), b=dense(3, 1)),
        (3,),
        r"scale.*channel",
    ),
    "slopes": (nn.Sequential(dense(3, 2), nn.PReLU(2), dense(2, 1)), (3,), r"'1': slopes.*channel"),
    "shared bias": (WithShift(_shared_bias, (1,)), (3,), r"bias.*channels"),
    "bias of the input": (WithShift(_trained_input, (3,)), (3,), r"shift of the input"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    model, shape, message = REFUSED[name]
    if name == "slopes":
        model[1].weight.data = torch.tensor([0.1, 0.2], dtype=F64)
    graph, x = _graph(model, *shape)
    for kernel in (limit_tangent_kernel, limit_output_kernel, limit_path_kernel, limit_tangent_parts):
        with pytest.raises(ValueError, match=r"(?s)infinite width.*" + message):
            kernel(graph, x)


def test_all_refusals_come_at_once():
    model, x = zoo.build("resnet18", dtype=F64)
    graph = npath.trace(model, x[:1])
    with pytest.raises(ValueError, match="infinite width") as error:
        limit_tangent_kernel(graph, x)
    text = str(error.value)
    assert text.count("batch norm") == 20
    assert text.count("max pooling") == 1
    assert "'bn1.scale'" in text
    assert "'maxpool'" in text


def test_tied_weights_are_refused():
    layer = dense(3, 3)
    graph, x = _graph(nn.Sequential(layer, nn.ReLU(), layer), 3)
    with pytest.raises(ValueError, match=r"infinite width.*tied weights"):
        limit_tangent_kernel(graph, x)


def test_a_network_without_weights_on_the_input_is_refused():
    graph, x = _graph(Net(lambda m, x: F.relu(x)), 3)
    with pytest.raises(ValueError, match=r"output.*random weights"):
        limit_output_kernel(graph, x)


@pytest.fixture(scope="module")
def net():
    return _graph(nn.Sequential(dense(3, 4, True), nn.ReLU(), dense(4, 4), nn.LeakyReLU(0.3), dense(4, 2)), 3)


def test_activations_that_go_with_different_variances_ask_for_one(net):
    graph, x = net
    with pytest.raises(ValueError, match=r"\(2 at '1', 1.835 at '3'\).*`weight_variance`"):
        limit_tangent_kernel(graph, x)
    assert limit_tangent_kernel(graph, x, weight_variance=1.9).shape == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weight_variance": 0.0}, "`weight_variance`.*got 0.0"),
        ({"weight_variance": {"2": 1.0}}, r"`weight_variance`.* missing: 4"),
        ({"weight_variance": {"0": 1.0, "2": 1.0, "4": 1.0}}, "unknown: 0"),
        ({"weight_variance": 2.0, "output_variance": -1.0}, "`output_variance`.*-1.0"),
        ({"weight_variance": 2.0, "bias_variance": -1.0}, "`bias_variance`.*-1.0"),
        ({"weight_variance": 2.0, "bias_gradient": float("nan")}, "`bias_gradient`.*nan"),
        ({"weight_variance": 2.0, "bias_variance": {"no": 0.1}}, r"`bias_variance`.*missing: 0.b"),
        ({"activation": {"no": torch.tanh}}, "`activation`.*: no; .* 1, 3"),
        ({"weight_variance": 2.0, "memory": 10}, "budget is 10 bytes"),
    ],
)
def test_arguments_that_do_not_fit(net, arguments, message):
    graph, x = net
    kind = BudgetTooSmall if "memory" in arguments else ValueError
    with pytest.raises(kind, match=message):
        limit_tangent_kernel(graph, x, **arguments)


def test_what_is_no_number_is_refused(net, without_type_checks):
    graph, x = net
    with pytest.raises(TypeError, match=r"`output_variance`.*'equal' or 'half'.*str"):
        limit_tangent_kernel(graph, x, weight_variance=2.0, output_variance="twice")
    for kernel in (limit_tangent_kernel, limit_tangent_parts):
        with pytest.raises(TypeError, match=r"`network`.*str"):
            kernel("resnet18", x)


def test_inputs_that_do_not_fit(net, without_type_checks):
    graph, x = net
    for wrong in (x[:, :2], x.float(), x[:0], x * float("nan")):
        with pytest.raises((ValueError, TypeError), match="`x2`"):
            limit_tangent_kernel(graph, x, wrong, weight_variance=2.0)


def test_parts_and_paths_need_gates():
    graph, x = _graph(nn.Sequential(dense(3, 4), nn.Softplus(), dense(4, 1)), 3)
    for kernel in (limit_tangent_parts, limit_path_kernel):
        with pytest.raises(ValueError, match=r"Softplus\(beta=1.0\) at '1'"):
            kernel(graph, x)


@pytest.mark.parametrize(
    ("layer", "activation", "message"),
    [
        (nn.Tanh(), None, "^tanh at '1' "),
        (nn.ReLU(), torch.sin, "^the activation sin at '1' "),
        (nn.ReLU(), {"1": npath.kernels.ByQuadrature(torch.sin, name="a sine")}, "^a sine at '1' "),
    ],
)
def test_activations_without_gates_are_named_with_their_node(layer, activation, message):
    graph, x = _graph(nn.Sequential(dense(3, 4), layer, dense(4, 1)), 3)
    for kernel in (limit_tangent_parts, limit_path_kernel):
        with pytest.raises(ValueError, match=message):
            kernel(graph, x, activation=activation)


def _named(q):
    return q.sum(-1, keepdim=True)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (lambda q: q.sum(), r"^the activation <lambda> .*elementwise.* float64 tensor of shape \(\)"),
        (_named, r"^the activation _named .*elementwise"),
        (lambda q: None, "NoneType"),
        (lambda q: 0.5, "a float"),
        (npath.kernels.ByQuadrature(lambda q: q.mean(), name="my mean"), "^my mean .*elementwise"),
    ],
)
def test_functions_that_are_not_elementwise(activation, message):
    graph, x = _graph(nn.Sequential(dense(3, 4), nn.ReLU(), dense(4, 1)), 3)
    for kernel in (limit_tangent_kernel, limit_output_kernel):
        with pytest.raises(ValueError, match=message):
            kernel(graph, x, activation=activation)


def test_a_function_of_the_input_that_is_not_elementwise():
    graph, x = _graph(nn.Sequential(nn.ReLU(), dense(3, 4), nn.ReLU(), dense(4, 1)), 3)
    with pytest.raises(ValueError, match=r"^the activation <lambda> .*elementwise"):
        limit_output_kernel(graph, x, activation={"0": lambda q: q[:, :2]})


@pytest.mark.parametrize("function", [lambda q: torch.tanh(q.detach()), torch.ones_like])
def test_a_function_that_hides_its_derivative(function):
    graph, x = _graph(nn.Sequential(dense(3, 4), nn.ReLU(), dense(4, 1)), 3)
    with pytest.raises(ValueError, match=r"derivative.*`detach`"):
        limit_tangent_kernel(graph, x, activation=function)


def test_a_gate_that_is_not_elementwise():
    graph, x = _graph(nn.Sequential(dense(3, 4), nn.ReLU(), dense(4, 1)), 3)
    wrong = npath.kernels.ByQuadrature(torch.nn.functional.silu, lambda q: torch.sigmoid(q).mean(-1))
    with pytest.raises(ValueError, match=r"^the activation .*elementwise"):
        limit_path_kernel(graph, x, activation=wrong)


def test_kinks_are_refused_with_the_accuracy_reached():
    graph, x = _graph(nn.Sequential(conv2(1, 2, 2), nn.ReLU6(), nn.Flatten(), dense(8, 1)), 1, 3, 3)
    with pytest.raises(ValueError, match=r"ClippedGate\(upper=6.0\) .*1.0e-09"):
        limit_output_kernel(graph, 30 * x)


def test_a_result_beyond_the_range_is_refused():
    model = nn.Sequential(dense(3, 4), nn.ReLU(), dense(4, 1))
    x = torch.full((2, 3), 1e20)
    with pytest.raises(OverflowError, match=r"limit tangent kernel .*float32"):
        limit_tangent_kernel(npath.trace(model, x[:1]), x)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "path", "output_variance": "half"}, r"`output_variance`.*'path'.*'half'"),
        ({"kind": "path", "bias_gradient": 1.0}, r"`bias_gradient`.*'path'"),
        ({"kind": "nngp", "bias_gradient": 1.0}, r"`bias_gradient`.*'nngp'"),
        ({"kind": "ntk", "linear_features": True}, r"`linear_features`.*'ntk'"),
    ],
)
def test_settings_of_another_kind_are_refused_at_construction(settings, message):
    with pytest.raises(ValueError, match=message):
        LimitKernel(dense(3, 1), **settings)


def test_unknown_kinds_are_refused(without_type_checks):
    with pytest.raises(ValueError, match=r"`kind`.*'ntk'.*'tangent'"):
        LimitKernel(dense(3, 1), kind="tangent")
