"""A network with its own gates is itself; with others it is what the path graph says."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import nn
from torch.utils.checkpoint import checkpoint

import neuralpath as npath
import zoo
from neuralpath import nets
from neuralpath.gates import SoftGate
from neuralpath.gating.modes import Recording, Replacing
from neuralpath.gating.swapping import recorded_gates, run_under, run_with_gates, sample_gates
from strategies import dense_networks

# Torch's own remark about the zoo's convolution with an even window and "same" padding.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
every_model = pytest.mark.parametrize("name", zoo.MODELS)
SMOOTH = {"every-gate", "mobilenet"}  # models with gates that depend on the pre-activation's size


def gradients(model, y, weights):
    model.zero_grad()
    (y * weights).sum().backward()
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def output_weights(y):
    return torch.randn(y.shape, generator=torch.Generator().manual_seed(3), dtype=y.dtype)


def assert_same_gradients(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        if gradient is None:
            assert found[name] is None, name
            continue
        error = (found[name] - gradient).abs().max()
        assert error <= tolerance * gradient.abs().max() + torch.finfo(gradient.dtype).tiny, name


@every_model
@pytest.mark.parametrize("training", [False, True])
def test_own_gates_reproduce_the_network_and_its_gradients(name, training):
    model, x = zoo.build(name, dtype=torch.float64)
    model.train(training)
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.eval()  # chance would differ between the runs
    again = copy.deepcopy(model)
    gates = recorded_gates(copy.deepcopy(model), x)
    y = model(x)
    weights = output_weights(y)
    expected = gradients(model, y, weights)
    swapped = run_with_gates(again, x, [gate.detach() for gate in gates.layers.values()])
    if name in SMOOTH:  # q * (upper / q) and the like round
        torch.testing.assert_close(swapped, y, rtol=1e-12, atol=1e-14)
    else:
        assert torch.equal(swapped, y)
        # The sums are the same; their order in a convolution's gradient need not be.
        assert_same_gradients(gradients(again, swapped, weights), expected, 1e-12)
    for (key, buffer), other in zip(model.named_buffers(), again.buffers(), strict=True):
        torch.testing.assert_close(other, buffer, rtol=1e-12, atol=1e-14, msg=key)  # running statistics too


@every_model
def test_gates_and_outputs_are_those_of_the_path_graph(name):
    """Other gates: the graph's own forward pass with given gates is the oracle, for outputs and value gradients."""
    model, x = zoo.build(name, dtype=torch.float64)
    other = x.flip(0) * 1.3 - 0.1
    graph = npath.trace(model, x[:1])
    expected = graph.gates(other)
    found = recorded_gates(model, other)
    for layer, own in zip(expected.layers.values(), found.layers.values(), strict=True):
        assert layer.dtype == own.dtype
        torch.testing.assert_close(own, layer, rtol=1e-9, atol=1e-12)
    if name != "every-gate":  # it has an average pool by function, which the graph counts among its pools
        assert found.names == expected.names
    y = npath.output(graph, x, gates=expected)
    swapped = run_with_gates(model, x, expected)
    torch.testing.assert_close(swapped, y, rtol=1e-10, atol=1e-12)
    weights = output_weights(y)
    by_graph = gradients(model, y, weights)
    assert_same_gradients(gradients(model, swapped, weights), by_graph, 1e-9)


@given(dense_networks())
def test_own_gates_reproduce_dense_networks(draw):
    model, x = draw.build()
    gates = recorded_gates(model, x)
    y = model(x)
    assert torch.equal(run_with_gates(model, x, gates), y)
    weights = output_weights(y)
    expected = gradients(model, y, weights)
    assert_same_gradients(gradients(model, run_with_gates(model, x, gates), weights), expected, 1e-12)


def test_gradients_flow_through_soft_gates_into_the_network_that_made_them():
    feature, x = zoo.build("fc", dtype=torch.float64)
    value, _ = zoo.build("fc", seed=1, dtype=torch.float64)
    gates = recorded_gates(feature, x, SoftGate(4.0))
    run_with_gates(value, x, gates).sum().backward()
    reached = [name for name, p in feature.named_parameters() if p.grad is not None and bool(p.grad.any())]
    assert reached == [name for name, _ in feature.named_parameters() if not name.startswith("layers.linear4")]


class Custom(nn.Sequential):
    """A subclass may do anything, so it is called as it is."""

    def forward(self, x):
        return 2 * super().forward(x)


def _hooked(layer, kind):
    getattr(layer, kind)(lambda module, args, *output: None)
    return layer


def _with_forward(layer):
    layer.forward = lambda x: 3 * F.linear(x, layer.weight, layer.bias)
    return layer


DIRECT = {
    "plain": lambda: nn.Linear(4, 4),
    "in place": lambda: nn.ReLU(inplace=True),
    "nested": lambda: nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Sequential()),
    "subclass": lambda: Custom(nn.Linear(4, 4), nn.ReLU()),
    "forward hook": lambda: _hooked(nn.Linear(4, 4), "register_forward_hook"),
    "pre hook": lambda: _hooked(nn.ReLU(), "register_forward_pre_hook"),
    "backward hook": lambda: _hooked(nn.Linear(4, 4), "register_full_backward_hook"),
    "own forward": lambda: _with_forward(nn.Linear(4, 4)),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).eval(),
    "network": lambda: nets.FC(4, 5, 3, 4),
    "other layers": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(2, 4)),
}


@pytest.mark.parametrize("name", DIRECT)
def test_running_directly_equals_calling_the_module(name):
    model = nn.Sequential(nn.Linear(4, 4), DIRECT[name](), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(3, 4)
    directly, as_module = Recording(), Recording()
    y = run_under(directly, model, x)
    with as_module:
        assert torch.equal(model(x), y)
    assert len(directly.layers) == len(as_module.layers)
    assert all(map(torch.equal, directly.layers, as_module.layers))
    gates = [g if g.dtype == torch.int64 else ~g for g in directly.layers]
    swapped = run_under(Replacing(gates), model, x)
    with Replacing(gates):
        assert torch.equal(model(x), swapped)
    assert not torch.equal(swapped, y)


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_run_and_may_change_values(kind):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.randn(3, 4)
    plain = run_with_gates(model, x, [torch.ones(3, 4)])
    change = (lambda m, a, y: 2 * y) if kind == "register_forward_hook" else (lambda m, a: (2 * a[0],))
    getattr(model[1], kind)(change)
    assert torch.equal(run_with_gates(model, x, [torch.ones(3, 4)]), 2 * plain)


def test_hooks_for_all_modules_run_too():
    model, seen = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), []
    hook = nn.modules.module.register_module_forward_hook(lambda m, a, y: seen.append(type(m)))
    try:
        run_with_gates(model, torch.randn(3, 4), [torch.ones(3, 4)])
    finally:
        hook.remove()
    assert seen == [nn.Linear, nn.ReLU, nn.Sequential]


def test_sampling_changes_neither_the_model_nor_the_random_generator():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(), nn.Linear(6, 2)).train()
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(1, 4)  # one example, where batch norm in training mode needs two
    state = torch.random.get_rng_state()
    recording = sample_gates(model, x)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert recording.names == ["2"]
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_a_closed_hard_gate_stops_infinity_in_the_value_network():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU())
    model[0].weight.data.fill_(torch.inf)
    assert run_with_gates(model, torch.ones(1, 1), [torch.zeros(1, 1, dtype=torch.bool)]).item() == 0


def diverged():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    model[0].weight.data[0, 0] = torch.nan
    return model


@pytest.mark.parametrize(
    "use",
    [
        lambda: recorded_gates(diverged(), torch.ones(5, 4)),
        lambda: npath.decouple(diverged(), "FL")(torch.ones(5, 4)),
        lambda: recorded_gates(nn.MaxPool1d(2), torch.full((5, 2, 4), torch.nan)),
    ],
)
def test_nan_is_no_closed_gate(use):
    with pytest.raises(ValueError, match="NaN"):
        use()


def test_nan_in_a_later_batch_is_refused_by_hard_gates_and_propagated_by_soft_ones():
    plain = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    x = torch.ones(5, 4)
    broken = x.clone()
    broken[0, 0] = torch.nan
    hard = npath.decouple(plain, "FL")
    hard(x)
    with pytest.raises(ValueError, match="relu has NaN"):
        hard(broken)
    soft = npath.decouple(plain, "DL")
    soft(x)
    y = soft(broken)
    assert y[0].isnan().all()
    assert y[1:].isfinite().all()


def test_gates_are_found_inside_function_transforms():
    model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.randn(5, 4)
    network = npath.decouple(model, "FL")
    expected = network(x)
    assert torch.allclose(torch.func.vmap(lambda row: network(row[None])[0])(x), expected)


def small():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Unflatten(1, (1, 3)), nn.MaxPool1d(2), nn.Flatten())


X = torch.ones(5, 4)
GATE, POSITIONS = torch.ones(5, 3), torch.zeros(5, 1, 1, dtype=torch.int64)


@pytest.mark.parametrize(
    ("gates", "kind", "message"),
    [
        ([GATE], ValueError, "1 gates were given"),
        ([GATE, POSITIONS, GATE], ValueError, "3 gates were given.* 2 gate operations"),
        ([GATE[:, :2], POSITIONS], ValueError, r"gate 0 .*\(5, 2\).* \(5, 3\)"),
        ([GATE[:4], POSITIONS[:4]], ValueError, r"gate 0 .*\(4, 3\)"),
        ([GATE, POSITIONS.expand(5, 1, 2)], ValueError, r"gate 1 .*\(5, 1, 2\).* \(5, 1, 1\)"),
        ([GATE.long(), POSITIONS], TypeError, "gate 0 .*int64 tensor"),
        ([GATE, POSITIONS.float()], TypeError, "gate 1 .*int64 .*got a float32"),
        (npath.Gates({"a": GATE[:, :2], "b": POSITIONS}), ValueError, r"gate 0 \('a'\) has the shape"),
    ],
)
def test_gates_that_do_not_fit_are_named(gates, kind, message):
    with pytest.raises(kind, match=message):
        run_with_gates(small(), X, gates)


def test_gates_of_another_precision_are_converted():
    y = run_with_gates(small(), X, [GATE.double(), POSITIONS])
    assert y.dtype == torch.float32


def test_only_modules_whose_operations_can_be_seen(without_type_checks):
    with pytest.raises(TypeError, match=r"`module` .*got a function"):
        recorded_gates(F.relu, X)


@pytest.mark.parametrize(("x", "kind"), [(X.numpy(), TypeError), ([1.0], TypeError), (torch.ones(()), ValueError)])
def test_only_batches_of_tensors(without_type_checks, x, kind):
    network = npath.GatedNetwork(small(), small())
    for use in (lambda: recorded_gates(small(), x), lambda: run_with_gates(small(), x, []), lambda: network(x)):
        with pytest.raises(kind, match="`x` must be a tensor"):
            use()


def test_a_gate_function_must_keep_the_shape():
    with pytest.raises(ValueError, match=r"`gate` .*\(5, 3\)"):
        recorded_gates(small(), X, lambda q: q[:, :1])


class Checkpointed(nn.Module):
    def __init__(self, reentrant) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self._reentrant = reentrant

    def forward(self, x):
        return checkpoint(self.block, self.first(x), use_reentrant=self._reentrant)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # torch's own, without gradients
@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_is_refused_where_gradients_would_be_wrong(reentrant):
    model, gate = Checkpointed(reentrant), torch.rand(5, 4)
    with pytest.raises(RuntimeError, match="checkpointing"):
        run_with_gates(model, X, [gate])
    with pytest.raises(RuntimeError, match="checkpointing"):
        recorded_gates(model, X, SoftGate(2.0))
    with torch.no_grad():
        expected = model.block[0](model.first(X)) * gate
        assert torch.equal(run_with_gates(model, X, [gate]), expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_around_the_whole_is_fine(reentrant):
    class Called(nn.Sequential):  # not run directly
        pass

    model, gate = Called(nn.Linear(4, 4), nn.ReLU()), torch.rand(5, 4)
    x = X.clone().requires_grad_()
    run_with_gates(model, x, [gate]).sum().backward()
    expected = model[0].weight.grad.clone()
    model.zero_grad()
    checkpoint(lambda batch: run_with_gates(model, batch, [gate]), x, use_reentrant=reentrant).sum().backward()
    assert torch.equal(model[0].weight.grad, expected)
