"""The replay check: whatever the graph gets wrong must show, and nothing else must."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuralpath as npath
from neuralpath.cli import main
from neuralpath.graph import replay
from neuralpath.graph.operations.table import OPERATIONS


class Net(nn.Module):
    """Layers and a function of them, to write a model in one line."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.function(self, x)


BATCH_SIZE_BAKED_IN = {
    "division": lambda m, x: m.a(x).relu() / x.shape[0],
    "branch": lambda m, x: (2 if x.shape[0] > 2 else 1) * m.a(x),
    "slice": lambda m, x: m.a(x[0:3]),
}


@pytest.mark.parametrize("case", BATCH_SIZE_BAKED_IN)
def test_a_size_of_the_batch_that_is_baked_in_shows(case):
    model = Net(BATCH_SIZE_BAKED_IN[case], a=nn.Linear(4, 3))
    with pytest.raises(npath.ReplayMismatch, match="the other examples or their number"):
        npath.trace(model, torch.randn(3, 4))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_model_without_outputs_is_refused(tmp_path, capsys):
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 0))
    message = "`model` has no outputs: for one example it returns a tensor of shape (0,)."
    with pytest.raises(ValueError, match=re.escape(message)):
        npath.trace(model, torch.randn(3, 4))
    assert npath.supported(model, torch.randn(3, 4)).error == message
    file = tmp_path / "no_outputs.py"
    file.write_text("from torch import nn\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 0))\n")
    assert main(["kernel", f"{file}:make", "--data", "digits", "--count", "5", "--out", str(tmp_path / "K.npy")]) == 1
    assert capsys.readouterr().err == f"neuralpath: {message}\n"


def test_a_slice_that_only_happens_to_hold_the_batch_is_refused():
    model = Net(lambda m, x: m.a(x[:10]), a=nn.Linear(4, 3))
    with pytest.raises(npath.UnsupportedOperation, match="a slice along the batch"):
        npath.trace(model, torch.randn(3, 4))


def test_slices_of_the_whole_batch_are_none():
    model = Net(lambda m, x: m.a(x[:])[: x.shape[0]], a=nn.Linear(4, 3))
    x = torch.randn(5, 4)
    torch.testing.assert_close(npath.output(npath.trace(model, x[:2]), x), model(x))


def _dead(model):
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    return model


def _zero_head(model):
    with torch.no_grad():
        model[2].weight.zero_()
        model[2].bias.zero_()
    return model


@pytest.mark.parametrize("silenced", [_dead, _zero_head])
def test_a_wrong_rule_shows_even_where_the_output_is_constant(silenced, monkeypatch):
    model = silenced(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    npath.trace(model, torch.randn(2, 4))
    relu = torch.ops.aten.relu.default
    right = OPERATIONS[relu]
    monkeypatch.setitem(OPERATIONS, relu, lambda build, x: build.scaled(right(build, x), 1.01))
    with pytest.raises(npath.ReplayMismatch):
        npath.trace(model, torch.randn(2, 4))


def test_an_error_of_one_in_ten_thousand_shows_in_float32(monkeypatch):
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    relu = torch.ops.aten.relu.default
    right = OPERATIONS[relu]
    monkeypatch.setitem(OPERATIONS, relu, lambda build, x: build.scaled(right(build, x), 1.0001))
    with pytest.raises(npath.ReplayMismatch, match="drawn at random"):
        npath.trace(model, torch.randn(2, 4))


def test_terms_that_cancel_are_no_mismatch():
    model = Net(lambda m, x: (m.a(x) + 1e5) - 1e5, a=nn.Linear(4, 3))
    npath.trace(model, torch.randn(2, 4))


class Counting(nn.Module):
    """Counts its calls in a buffer, and works on its input in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.a = nn.Linear(4, 3)

    def forward(self, x):
        self.calls += 1
        return self.a(x.sub_(0.5).relu_())


def test_a_model_that_changes_its_input_and_buffers_is_read_and_both_are_left_alone():
    model, x = Counting(), torch.randn(2, 4)
    before = x.clone()
    graph = npath.trace(model, x)
    assert torch.equal(x, before)
    assert model.calls == 0
    torch.testing.assert_close(npath.output(graph, x), model(x.clone()))


def test_an_in_place_gate_on_the_input():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3))
    x = torch.randn(2, 4)
    graph = npath.trace(model, x)
    assert graph.gate_names == ("0",)
    torch.testing.assert_close(npath.output(graph, x), model(x.clone()))


SQUEEZED = {
    "units": (lambda m, x: m.a(x).relu().squeeze(), {"a": nn.Linear(4, 3)}, (4,)),
    "image": (lambda m, x: F.adaptive_avg_pool2d(m.a(x), 1).squeeze(), {"a": nn.Conv2d(2, 3, 1)}, (2, 4, 4)),
    "one-number": (lambda m, x: m.a(x).squeeze(), {"a": nn.Linear(4, 1)}, (4,)),
    "fails-for-one": (lambda m, x: torch.cat([m.a(x).squeeze()] * 2, 1), {"a": nn.Linear(4, 3)}, (4,)),
}


@pytest.mark.parametrize("n_examples", [1, 2])
@pytest.mark.parametrize("case", SQUEEZED)
def test_a_model_that_squeezes_is_read_from_one_example_too(case, n_examples):
    function, layers, shape = SQUEEZED[case]
    model = Net(function, **layers)
    x = torch.randn(4, *shape)
    graph = npath.trace(model, x[:n_examples])
    torch.testing.assert_close(npath.output(graph, x), model(x))


def test_a_model_that_insists_on_its_dtype_or_batch_size():
    x = torch.randn(2, 4)
    for function in (lambda m, x: m.a(x.float()), lambda m, x: m.a(x) if len(x) > 1 else None):
        npath.trace(Net(function, a=nn.Linear(4, 3)), x)


def test_every_kind_of_tensor_is_drawn_anew_at_its_own_size():
    generator = torch.Generator().manual_seed(0)
    for tensor in (torch.zeros(3), torch.ones(()), torch.empty(0)):
        drawn = replay._redrawn(tensor, generator)
        assert drawn.shape == tensor.shape
        assert not (drawn == tensor).any()
    assert replay._redrawn(torch.full((1000,), 7.0), generator).std() == pytest.approx(7.0, rel=0.1)
