"""NaN and infinity in a network: refused by name, since its gates would look like any other."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import neuralpath as npath
from tiny import Net


def _model():
    return nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))


READINGS = {
    "gates": lambda graph, x: graph.gates(x),
    "path_kernel": lambda graph, x: npath.path_kernel(graph, x),
    "expected_tangent_kernel": lambda graph, x: npath.expected_tangent_kernel(graph, x),
    "path_features": lambda graph, x: npath.path_features(graph, x),
    "log_active_paths": lambda graph, x: npath.log_active_paths(graph, x),
    "path_sketch": lambda graph, x: npath.path_sketch(graph, x, 2, generator=torch.Generator()),
}


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_weights_that_are_not_finite_have_no_gates(reading, value):
    model, x = _model(), torch.randn(4, 3)
    graph = npath.trace(model, x)
    READINGS[reading](graph, x)
    with torch.no_grad():
        model[0].weight[1, 2] = value
    with pytest.raises(
        ValueError, match=r"`model` has NaN or infinity in '0\.weight', in 1 of 6 entries; the node '0' r"
    ):
        READINGS[reading](graph, x)


def test_given_gates_need_no_weights():
    """The path kernel reads the structure and the gates alone."""
    model, x = _model(), torch.randn(4, 3)
    graph = npath.trace(model, x)
    gates = graph.gates(x)
    expected = npath.path_kernel(graph, x)
    nn.init.constant_(model[0].weight, torch.nan)
    assert torch.equal(npath.path_kernel(graph, x, gates1=gates), expected)


@pytest.mark.parametrize(("name", "value"), [("0.weight", torch.nan), ("2.bias", torch.inf), ("2.weight", -torch.inf)])
def test_trace_names_the_tensor(name, value):
    model = _model()
    nn.init.constant_(model.get_parameter(name), value)
    message = rf"`model` has NaN or infinity in '{name}', in \d of \d entries; the node '\d[.b\w]*' reads it"
    with pytest.raises(ValueError, match=message) as caught:
        npath.trace(model, torch.randn(1, 3))
    assert type(caught.value) is ValueError
    report = npath.supported(model, torch.randn(1, 3))
    assert not report
    assert f"NaN or infinity in '{name}'" in report.error


def test_buffers_are_looked_at():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.ReLU(), nn.Linear(2, 1)).eval()
    graph = npath.trace(model, torch.randn(1, 3))
    model[1].running_mean[0] = torch.nan
    with pytest.raises(ValueError, match=r"in '1\.running_mean', in 1 of 2 entries"):
        graph.gates(torch.randn(2, 3))


def test_tensors_that_are_not_read_do_not_matter():
    model = _model()
    model.register_parameter("spare", nn.Parameter(torch.full((2,), torch.nan)))
    assert npath.trace(model, torch.randn(1, 3)).gates(torch.randn(2, 3)).n_examples == 2


class Bounded(nn.Module):
    """Its weight has a bound, which is none as long as it is infinite."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("bound", torch.tensor(torch.inf))

    def forward(self, x):
        return torch.relu(nn.functional.linear(x, torch.minimum(self.linear.weight, self.bound), self.linear.bias))


def test_infinity_that_a_function_makes_finite_is_fine():
    model, x = Bounded(), torch.randn(5, 3)
    graph = npath.trace(model, x)
    assert torch.equal(graph.gates(x)[0], model(x) > 0)
    model.bound.fill_(-torch.inf)
    with pytest.raises(ValueError, match=r"in 'bound', in 1 of 1 entries; the node"):
        graph.gates(x)


def test_a_function_of_finite_tensors_that_is_nan():
    model = nn.Sequential(weight_norm(nn.Linear(3, 2)), nn.ReLU(), nn.Linear(2, 1))
    graph = npath.trace(model, torch.randn(1, 3))
    for name, parameter in model[0].named_parameters():
        if name.endswith("original1"):
            nn.init.zeros_(parameter)  # a direction of length 0
    message = r"NaN or infinity in weight_norm\(.*\).*'0\.para.*original1', '0\.para.*original0', in 6 of 6 entries"
    with pytest.raises(ValueError, match=message):
        graph.gates(torch.randn(2, 3))
    with pytest.raises(ValueError, match=message):
        npath.trace(model, torch.randn(1, 3))


@pytest.mark.parametrize("kind", ["gate", "max pool"])
def test_values_beyond_the_range_give_no_gates(kind):
    layer = nn.ReLU() if kind == "gate" else nn.MaxPool1d(2)
    model = nn.Sequential(nn.Conv1d(1, 1, 2, bias=False), nn.Conv1d(1, 1, 2, bias=False), layer, nn.Flatten())
    model[0].weight.data, model[1].weight.data = torch.tensor([[[1e30, -1e30]]]), torch.tensor([[[1.0, 1.0]]])
    graph = npath.trace(model, torch.zeros(1, 1, 6))
    x = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]).reshape(1, 1, 6)
    assert graph.gates(x / 1e30).n_examples == 1
    message = r"the gates of '2' .*NaN.* float32"
    with pytest.raises(ValueError, match=message):
        graph.gates(torch.cat([x / 1e30, x * 1e10]))


def test_infinite_values_have_gates():
    """Infinity is larger than 0: the gate is known, and torch's ReLU goes on with it too."""
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU())
    model[0].weight.data = torch.tensor([[1e30], [-1e30]])
    graph = npath.trace(model, torch.ones(1, 1))
    assert graph.gates(torch.tensor([[1e20]]))[0].tolist() == [[True, False]]


def test_a_model_without_tensors():
    graph = npath.trace(Net(lambda m, x: torch.relu(x)), torch.randn(1, 3))
    assert graph.gates(torch.ones(1, 3))[0].all()
