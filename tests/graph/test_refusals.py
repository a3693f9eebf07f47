"""Bad input and unreadable models: one message that names the thing and says what to do."""

import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuralpath as npath
from neuralpath.paths import base_kernels, dead_gates, path_features, residual_subnetwork

pytestmark = pytest.mark.usefixtures("without_type_checks")

LINEAR = nn.Linear(3, 2)


class Wrapped(nn.Module):
    def __init__(self, function, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


@pytest.mark.parametrize(
    ("example", "error", "message"),
    [
        (torch.randn(1, 4), ValueError, r"could not run on `example`, a float32 tensor of shape \(1, 4\)"),
        (torch.randn(1, 3).double(), ValueError, "could not run on `example`, a float64 tensor"),
        (torch.ones(1, 3, dtype=torch.int64), TypeError, r"`example` must be .* got a int64 tensor .*`.float\(\)`"),
        (torch.randn(3), ValueError, r"for one example use x\[None\]"),
        (torch.randn(0, 3), ValueError, "`example` has no examples"),
        (torch.tensor([[1.0, torch.nan, 0.0]]), ValueError, "NaN or infinity in 1 of 1 examples, the first at index 0"),
    ],
)
def test_bad_examples(example, error, message):
    with pytest.raises(error, match=message):
        npath.trace(LINEAR, example)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda m, x: (LINEAR(x), x), "must return one tensor, but it returned a tuple"),
        (lambda m, x: {"logits": LINEAR(x)}, "must return one tensor, but it returned a dict"),
        (lambda m, x: LINEAR(x).sum(), "must return one row for each example"),
        (lambda m, x: x[:, :, None, None], r"must return a shape \(batch,\) or \(batch, outputs\)"),
    ],
)
def test_bad_outputs(output, message):
    with pytest.raises((TypeError, ValueError), match=message):
        npath.trace(Wrapped(output), torch.randn(2, 3))


def test_data_dependent_control_flow(capfd):
    model = Wrapped(lambda m, x: m.layers[0](x) if x.sum() > 0 else x[:, :2], nn.Linear(3, 2))
    with pytest.raises(ValueError, match="an `if` or a loop that depends on the values of the input"):
        npath.trace(model, torch.randn(2, 3))
    assert "".join(capfd.readouterr()) == ""


def test_torch_does_not_log_its_traceback_where_a_batch_size_is_written_into_a_model():
    seen = []
    handler = logging.Handler()
    handler.emit = seen.append
    logging.getLogger("torch").addHandler(handler)
    model = Wrapped(lambda m, x: m.layers[0](x)[:, 0] + torch.zeros(2), nn.Linear(3, 2))
    try:
        with pytest.raises(ValueError, match="a batch size that is written into the model"):
            npath.trace(model, torch.randn(2, 3))
        assert seen == []
        logging.getLogger("torch").error("of the user")
        assert len(seen) == 1
    finally:
        logging.getLogger("torch").removeHandler(handler)


def test_what_else_is_wrong_with_a_model_that_cannot_be_exported():
    model = Wrapped(lambda m, x: (x if x.sum() > 0 else -x, x))
    assert "Besides, `model` must return one tensor" in npath.supported(model, torch.randn(2, 3)).error


def test_output_and_mode_are_reported_with_the_operations():
    model = nn.Sequential(nn.ConvTranspose2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(), nn.ReLU())
    state, generator = {name: t.clone() for name, t in model.state_dict().items()}, torch.get_rng_state()
    report = npath.supported(model, torch.ones(1, 1, 5, 5))
    assert [entry.operation for entry in report.unsupported] == ["conv_transpose2d", "training mode", "output"]
    assert "3 problems" in str(report)
    assert "returned a float32 tensor of shape (1, 2, 7, 7)" in str(report)
    with pytest.raises(npath.UnsupportedOperation, match=r"call `model.eval\(\)` first"):
        npath.trace(model, torch.ones(1, 1, 5, 5))
    assert all(module.training for module in model.modules())
    assert all(torch.equal(t, state[name]) for name, t in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)


def test_the_mode_is_given_back_after_an_error():
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout())
    assert "could not run" in npath.supported(model, torch.ones(1, 4)).error
    assert all(module.training for module in model.modules())


def test_several_outputs_are_reported_with_the_operations():
    model = Wrapped(lambda m, x: (x.new_ones(2), {"logits": m.layers[0](x)}), nn.LayerNorm(3))
    report = npath.supported(model, torch.randn(2, 3))
    assert [entry.operation for entry in report.unsupported] == ["layer_norm", "output"]
    assert "it returned a tuple" in str(report)


ATTENTION = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval()


def test_what_no_rewriting_mends_comes_first():
    report = npath.supported(ATTENTION, torch.randn(1, 5, 8))
    lines = str(report).splitlines()
    operations = [line.split()[0] for line in lines[3:-1]]
    assert operations[:3] == ["scaled_dot_product_attention", "layer_norm", "layer_norm"]
    assert operations[-1] == "output"
    assert len(operations) == len(report.unsupported) > 10
    assert lines[-1].startswith("attention has no paths")
    assert "shape (3," not in str(report), "the batch that is exported is none of the user's sizes"


def test_the_tangent_kernel_of_attention_works_as_the_report_says():
    model = nn.Sequential(ATTENTION, nn.Flatten(), nn.Linear(40, 1))
    assert npath.tangent_kernel(model, torch.randn(3, 5, 8)).shape == (3, 3)


@pytest.mark.parametrize(
    ("function", "final"),
    [
        (lambda m, x: torch.softmax(m.layers[0](x), 1), False),
        (lambda m, x: torch.softmax(m.layers[0](x), 1).flatten(1), False),
        (lambda m, x: m.layers[0](torch.softmax(x, 1)), True),
    ],
)
def test_a_soft_max_at_the_end_can_be_cut_off(function, final):
    (found,) = npath.supported(Wrapped(function, nn.Linear(3, 3)), torch.randn(1, 3)).unsupported
    assert found.final == final
    assert ("return the logits" in found.reason) == (not final)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(3), nn.Dropout()])
def test_training_mode_is_refused_with_the_fix(layer):
    model = nn.Sequential(layer, nn.Linear(3, 2))
    with pytest.raises(ValueError, match=r"`model` is in training mode, where '0' .* call `model.eval\(\)` first"):
        npath.trace(model, torch.randn(2, 3))
    npath.trace(model.eval(), torch.randn(2, 3))


def test_training_mode_without_such_layers_is_fine():
    assert (
        npath.trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)).train(), torch.randn(1, 3)).n_paths == 9
    )


def test_functional_dropout_that_is_on():
    model = Wrapped(lambda m, x: m.layers[0](F.dropout(x, 0.5, training=True)), nn.Linear(3, 2))
    with pytest.raises(npath.UnsupportedOperation, match=r"call `model.eval\(\)` first"):
        npath.trace(model, torch.randn(2, 3))


def test_a_lazy_module_is_left_as_it_is():
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    with pytest.raises(ValueError, match=r"no values yet for '0.weight': run it once on a batch first"):
        npath.trace(model, torch.randn(1, 4))
    assert isinstance(model[0], nn.LazyLinear)
    model(torch.randn(1, 4))
    assert npath.trace(model, torch.randn(1, 4)).n_paths


def test_products_with_a_matrix_in_front_say_what_to_write():
    class Mixed(nn.Module):
        def __init__(self, product):
            super().__init__()
            self.conv, self.weight, self.product = nn.Conv1d(2, 2, 1), nn.Parameter(torch.randn(2, 2)), product

        def forward(self, x):
            return self.product(self.weight, self.conv(x)).flatten(1)

    for product in (torch.matmul, lambda w, z: torch.bmm(w.expand(len(z), 2, 2), z)):
        report = npath.supported(Mixed(product), torch.randn(1, 2, 4))
        assert "a matrix in front of the values: it mixes channels, so write it as a 1x1 convolution" in str(report)
        assert "however written" not in str(report)
    report = npath.supported(Mixed(lambda w, z: torch.bmm(z, w.expand(len(z), 2, 2))), torch.randn(1, 2, 2))
    assert "a matrix for each position; write a 1x1 convolution" in str(report)
    report = npath.supported(Mixed(lambda w, z: torch.bmm(z, z)), torch.randn(1, 2, 2))
    assert "multiplies two values that both depend on the input" in str(report)


def test_every_unreadable_operation_is_named_at_once_with_its_place():
    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(4)

        def forward(self, x):
            x = self.norm(x)
            return torch.softmax(x * x, dim=1)

    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), Head())
    with pytest.raises(npath.UnsupportedOperation) as caught:
        npath.trace(model, torch.randn(1, 3))
    found = {entry.operation: entry for entry in caught.value.report.unsupported}
    assert set(found) == {"layer_norm", "mul", "softmax"}
    assert found["layer_norm"].module == "2.norm"
    assert found["mul"].module == "2"
    assert found["mul"].line.startswith("test_refusals.py:")
    assert "both depend on the input" in found["mul"].reason
    assert "return the logits" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "layers", "message"),
    [
        (lambda m, x: m.layers[1](m.layers[0](x).view(-1, 2, 3)).flatten(1), (nn.Linear(3, 6), nn.Conv1d(2, 1, 3)),
         "mixes channels with positions"),
        (lambda m, x: m.layers[0](x).mean(1), (nn.Linear(3, 2),), "a mean over the channels"),
        (lambda m, x: m.layers[0](x) - m.layers[0](x).mean(0), (nn.Linear(3, 2),), "a mean over the batch"),
        (lambda m, x: m.layers[0](x) / x.amax(), (nn.Linear(3, 3),), "over the batch"),
        (lambda m, x: m.layers[0](x) @ torch.ones(2, 2), (nn.Linear(3, 2),), "a fixed tensor as its weight"),
        (lambda m, x: torch.maximum(m.layers[0](x), torch.ones(())), (nn.Linear(3, 2),), "a constant other than 0"),
        (lambda m, x: torch.maximum(m.layers[0](x), x[:, :2]), (nn.Linear(3, 2),), "a maximum of two values"),
        (lambda m, x: m.layers[0](x[:, :, None]).flatten(1), (nn.Linear(1, 2),), "on values of shape (3, 1)"),
        (lambda m, x: m.layers[0](x).cumsum(1), (nn.Linear(3, 2),), "this operation is not supported"),
    ],
)  # fmt: skip
def test_operations_without_a_meaning_on_a_path(function, layers, message):
    report = npath.supported(Wrapped(function, *layers), torch.randn(1, 3))
    assert not report
    assert message in str(report), str(report)


def test_report_of_a_readable_model_prints_well():
    report = npath.supported(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Softplus()), torch.randn(1, 3))
    assert report.ok
    assert report.gate_names == ("1",)
    assert str(report).splitlines() == [
        "Sequential is supported: 5 nodes, 1 gate layers.",
        "note: softplus at '2' is not a gate: path quantities do not support it",
    ]


@pytest.mark.parametrize("example", [torch.randn(1, 7), torch.ones(2, 3, dtype=torch.int32)])
def test_supported_never_raises(example):
    report = npath.supported(LINEAR, example)
    assert not report
    assert "`example`" in report.error


def test_replay_mismatch_is_an_error():
    """The output depends on how many examples there are, which no path knows of."""
    model = Wrapped(lambda m, x: m.layers[0](x) * x.shape[0], nn.Linear(3, 2))
    with pytest.raises(npath.ReplayMismatch, match="does not compute what the model computes"):
        npath.trace(model, torch.randn(1, 3))


def test_inputs_and_gates_that_do_not_fit_the_graph():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    graph = npath.trace(model, torch.randn(1, 3))
    x = torch.randn(2, 3)
    other = npath.trace(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1)), torch.randn(1, 3))
    with pytest.raises(ValueError, match=r"`x` must be .*\(batch, 3\), got a float32 tensor of shape \(2, 4\)"):
        graph.gates(torch.randn(2, 4))
    with pytest.raises(ValueError, match=r"a single example needs a batch axis"):
        graph.gates(torch.randn(3))
    with pytest.raises(ValueError, match=r"`gates` at '1' has the shape \(5,\) for each example"):
        npath.output(graph, x, gates=other.gates(x))
    with pytest.raises(ValueError, match="`gates` has 2 examples but its input has 1"):
        npath.output(graph, x[:1], gates=graph.gates(x))
    with pytest.raises(ValueError, match="`params` has names that the graph does not read: nonsense"):
        npath.output(graph, x, params={"nonsense": x})
    with pytest.raises(KeyError, match="the gates are 1"):
        graph.gates(x)["2"]


def _pooled():
    model = nn.Sequential(nn.Conv1d(1, 2, 1), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(4, 1))
    x = torch.randn(2, 1, 4)
    return npath.trace(model, x), x


@pytest.mark.parametrize("position", [-1, 4])
def test_positions_that_the_max_pool_does_not_have(position):
    graph, x = _pooled()
    gates = graph.gates(x)
    layers = tuple(torch.full_like(g, position) if g.dtype == torch.int64 else g for g in gates.layers.values())
    with pytest.raises(ValueError, match=rf"`gates` at '2' must be positions from 0 to 3, .* got {position} to"):
        npath.output(graph, x, gates=npath.Gates(dict(zip(gates.names, layers, strict=True))))


@pytest.mark.parametrize(
    "reading",
    [
        lambda g, x: g.gates(x),
        lambda g, x: npath.output(g, x),
        lambda g, x: npath.path_features(g, x),
        lambda g, x: npath.log_active_paths(g, x),
    ],
)
def test_inputs_of_another_dtype_are_named(reading):
    graph, x = _pooled()
    with pytest.raises(TypeError, match=r"`x` must have the dtype of the network's parameters, torch.float32, got a "
                       r"float64 tensor .*; convert it with `x.to\(torch.float32\)`"):  # fmt: skip
        reading(graph, x.double())


def test_inputs_of_pairs_of_another_dtype_are_named():
    graph, x = _pooled()
    for reading in (npath.log_shared_paths, npath.path_overlap):
        with pytest.raises(TypeError, match="`x1` must have the dtype"):
            reading(graph, x.double())
        with pytest.raises(TypeError, match="`x2` must have the dtype"):
            reading(graph, x, x.double())


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        (
            {"0.bias": torch.zeros(1)},
            ValueError,
            r"`params\['0.bias'\]` must be a tensor of shape \(4,\), got a float32",
        ),
        ({"0.bias": 3}, TypeError, r"`params\['0.bias'\]` must be a tensor of shape \(4,\), got a int"),
        ({"0.weight": torch.zeros(3, 4)}, ValueError, r"`params\['0.weight'\]` must be a tensor of shape \(4, 3\)"),
        ({"0.bias": torch.zeros(4).double()}, TypeError, "`params` must leave the network in one dtype"),
    ],
)
def test_params_that_do_not_fit(params, error, message):
    graph = npath.trace(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), torch.randn(1, 3))
    with pytest.raises(error, match=message):
        npath.output(graph, torch.randn(2, 3), params=params)


def test_params_may_bring_another_dtype_as_a_whole():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    x = torch.randn(2, 3)
    graph = npath.trace(model, x)
    params = {name: p.detach().double() for name, p in graph.params.items()}
    assert npath.output(graph, x.double(), params=params).dtype == torch.float64
    with pytest.raises(TypeError, match=r"`x` must have the dtype of the network's parameters, torch\.float64"):
        npath.output(graph, x, params=params)


@pytest.mark.parametrize(
    "reading", [lambda g: npath.path_values(g), lambda g: npath.path_norm(g), lambda g: residual_subnetwork(g, ())]
)
def test_a_module_where_there_are_no_examples_to_trace_it_on(reading):
    with pytest.raises(TypeError, match=r"`graph`.*PathGraph.*Linear"):
        reading(LINEAR)


@pytest.mark.parametrize("reading", [npath.output, npath.log_active_paths, base_kernels, path_features, dead_gates])
def test_neither_a_module_nor_a_graph(reading):
    with pytest.raises(TypeError, match=r"`network`.*got a str"):
        reading("resnet18", torch.randn(2, 3))


def test_a_batch_that_a_module_cannot_be_traced_on_is_named_as_the_caller_named_it():
    with pytest.raises(TypeError, match=r"`x1`.*got a list"):
        npath.log_shared_paths(LINEAR, [[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match=r"`x`.*\(3,\)"):
        npath.log_active_paths(LINEAR, torch.randn(3))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_wrappers_that_hide_their_operations_are_named():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    hidden = nn.Sequential(nn.Linear(3, 3), nn.DataParallel(model))
    with pytest.raises(TypeError, match=r"`model` was compiled by torch\.jit"):
        npath.trace(torch.jit.script(model), torch.randn(1, 3))
    with pytest.raises(TypeError, match="the part '1' of `model` is a DataParallel"):
        npath.trace(hidden, torch.randn(1, 3))


@pytest.mark.parametrize("output", ["a", 1.0, True])
def test_an_output_that_is_no_index(output):
    graph = npath.trace(LINEAR, torch.randn(1, 3))
    with pytest.raises(TypeError, match="`outputs` must be the index of an output unit, an integer, got a"):
        npath.log_active_paths(graph, torch.randn(1, 3), outputs=output)
