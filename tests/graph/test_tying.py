"""Parameters that are used twice: which of them make the output non-multilinear in the weights."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuralpath as npath


class Net(nn.Module):
    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def _traced(function, shape=(4,), **parts):
    return npath.trace(Net(function, **parts).eval(), torch.randn(2, *shape))


def test_a_scale_that_is_a_bias_too():
    graph = _traced(lambda m, x: (m.l(x * m.p) + m.p).relu(), l=nn.Linear(4, 4), p=nn.Parameter(torch.randn(4)))
    with pytest.raises(ValueError, match="the parameter 'p' is used at 'scale' and at 'bias'"):
        npath.path_values(graph)


def test_a_weight_that_is_a_scale_too():
    graph = _traced(lambda m, x: m.l(x) * m.l.weight.sum(), l=nn.Linear(4, 3))
    assert graph.tied_parameter() == ("l.weight", "l", "scale")


CONSTANTS = {
    "scales": lambda m, x: m.l(x * m.p).relu() * m.p,
    "slopes": lambda m, x: F.prelu(m.l(F.prelu(x, m.p)), m.p),
    "batch-norm": lambda m, x: m.norm(m.l(x)).relu(),
}


@pytest.mark.parametrize("case", CONSTANTS)
def test_constants_may_repeat(case):
    parts = {"l": nn.Linear(4, 4), "p": nn.Parameter(torch.rand(4)), "norm": nn.BatchNorm1d(4)}
    assert _traced(CONSTANTS[case], **parts).tied_parameter() is None


@pytest.mark.parametrize("view", [lambda w: w, lambda w: w.T, lambda w: w[1:]])
def test_two_parameters_over_one_memory(view):
    a = nn.Linear(3, 3, bias=False)
    b = nn.Linear(3, 3, bias=False)
    b.weight = nn.Parameter(view(a.weight.data))
    graph = _traced(lambda m, x: m.b(m.a(x).relu()), (3,), a=a, b=b)
    assert graph.tied_parameter() == ("b.weight", "a", "b")


def test_neighbors_in_one_memory_are_not_tied():
    memory = torch.randn(18)
    names = {"a": nn.Parameter(memory[:9].view(3, 3)), "b": nn.Parameter(memory[9:].view(3, 3))}
    graph = _traced(lambda m, x: (x @ m.a).relu() @ m.b, (3,), **names)
    assert graph.tied_parameter() is None
    graph.model.a, graph.model.b = nn.Parameter(torch.empty(0)), nn.Parameter(torch.empty(0))
    assert graph.tied_parameter() is None


def test_a_shared_module_goes_by_torchs_own_name_and_takes_the_other():
    shared = nn.Linear(3, 3)
    model = Net(lambda m, x: m.b(m.a(x).relu()), a=shared, b=shared)
    x = torch.randn(2, 3)
    graph = npath.trace(model, x)
    assert set(graph.params) == set(dict(model.named_parameters()))
    new = torch.randn(3, 3)
    before = copy.deepcopy(model.state_dict())
    npath.trace(model, x)
    assert all(torch.equal(before[k], v) and before[k].dtype == v.dtype for k, v in model.state_dict().items())
    expected = F.linear(F.linear(x, new, shared.bias).relu(), new, shared.bias)
    torch.testing.assert_close(npath.output(graph, x, params={"b.weight": new}), expected)
    torch.testing.assert_close(npath.output(graph, x, params={"a.weight": new, "b.weight": new}), expected)
    with pytest.raises(ValueError, match=r"`params` has two tensors for one parameter, 'b.weight' and 'a.weight'"):
        npath.output(graph, x, params={"a.weight": new, "b.weight": new + 1})
