import itertools
import logging

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import nn

import strategies
import zoo
from kernels.tangent.jacobian_oracle import assert_close, kernel_by_jacobians, mean_of
from kernels.tangent.models import MODELS, Net, build
from neuralpath.graph.tracing import trace
from neuralpath.kernels.tangent import rules
from neuralpath.kernels.tangent.contraction import add_inner_products, cheaper_by_position
from neuralpath.kernels.tangent.features import assemble, layer_gradients, one_hot
from neuralpath.kernels.tangent.recording import module_network, record_run
from neuralpath.kernels.tangent.tangent_kernel import Limits, TangentKernel, tangent_kernel

F64 = torch.float64


@pytest.mark.parametrize("name", MODELS)
def test_equals_explicit_jacobians(name):
    model, x = build(name)
    full = kernel_by_jacobians(model, x, x[1:])
    assert_close(tangent_kernel(model, x, x[1:], outputs="full"), full)
    assert_close(tangent_kernel(model, x, x[1:]), mean_of(full))
    last = full.shape[2] - 1
    assert_close(tangent_kernel(model, x, x[1:], outputs=last), full[:, :, last, last])


@pytest.mark.parametrize("name", MODELS)
def test_single_examples_equal_explicit_jacobians(name):
    """Where the axis of examples has the size 1, parameters may have its shape."""
    model, x = build(name)
    full = kernel_by_jacobians(model, x[:1], x)
    assert_close(tangent_kernel(model, x[:1], outputs="full"), full[:, :1])
    assert_close(tangent_kernel(model, x[:1], x, outputs="full"), full)


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_with_itself_equals_explicit_jacobians(name):
    model, x = build(name)
    full = kernel_by_jacobians(model, x)
    assert_close(tangent_kernel(model, x, outputs="full"), full)
    assert_close(tangent_kernel(model, x), mean_of(full))
    last = full.shape[2] - 1
    assert_close(tangent_kernel(model, x, outputs=last), full[:, :, last, last])


@pytest.mark.parametrize(
    ("run_bytes", "sizes"), [(2**20, [6, 1, 1]), (4 * 400, [6, 2, 1, 1, 3, 3]), (0, [2, 1, 1, *(1,) * 6])]
)
def test_a_small_batch_is_run_once(run_bytes, sizes):
    """A small batch runs as a whole, which is checked too. If its values take too much memory, it runs in parts."""
    seen = []

    def function(m, x):
        seen.append(len(x))
        return m.b(torch.tanh(m.a(x)))

    model = Net(function, a=nn.Linear(2, 4), b=nn.Linear(4, 1)).double()
    x = torch.randn(6, 2, dtype=F64)
    expected = mean_of(kernel_by_jacobians(model, x))
    seen.clear()
    tiles = TangentKernel(model).planned(x, None, Limits(2**30, run_bytes=run_bytes), may_run_whole=True)
    assert_close(tiles.filled(), expected)
    assert seen == sizes


@pytest.mark.parametrize("name", MODELS)
def test_the_general_path_is_taken_where_it_must_be_and_nowhere_else(name):
    model, x = build(name)
    assert set(TangentKernel(model).tiles(x).general) == set(MODELS[name][2])


@pytest.mark.parametrize("name", ["resnet18", "vgg", "mobilenet", "all-convolutional", "davidnet", "gconv", "residual"])
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # torch's own advice on speed
def test_real_architectures(name):
    model, x = zoo.build(name, dtype=F64)
    tiles = TangentKernel(model).tiles(x[:3])
    assert not tiles.general
    assert_close(tiles.filled(), mean_of(kernel_by_jacobians(model, x[:3])))


def test_embedding_of_integers():
    torch.manual_seed(0)
    model = Net(lambda m, x: m.b(torch.tanh(m.a(x)).mean(1)), a=nn.Embedding(6, 4), b=nn.Linear(4, 2)).double()
    x = torch.randint(0, 6, (4, 3))
    tiles = TangentKernel(model).tiles(x)
    assert tiles.general == ("a.weight",)
    assert_close(tiles.filled(), mean_of(kernel_by_jacobians(model, x)))


def _terms(model, x, outputs=None):
    run = record_run(module_network(model), x, [name for name, _ in model.named_parameters()])
    rows = torch.ones_like(run.outputs[:1]) if outputs is None else one_hot(outputs, run.outputs)
    return layer_gradients(run, rows)


@pytest.mark.parametrize("positions", [2, 64])
@pytest.mark.parametrize("joint", [False, True])
def test_both_algorithms_of_a_layer_agree(positions, joint):
    torch.manual_seed(0)
    layers = {"a": nn.Conv1d(4, 4, 3, padding=1, groups=2), "b": nn.Conv1d(4, 6, 3, padding=1), "c": nn.Linear(6, 2)}
    model = Net(lambda m, x: m.c(torch.tanh(m.b(torch.tanh(m.a(x)))).mean(2)), **layers).double()
    x = torch.randn(4, 4, positions, dtype=F64)
    full = kernel_by_jacobians(model, x)
    terms = _terms(model, x, (0, 1))
    for by_position in (frozenset({"a.weight", "b.weight", "c.weight"}), frozenset()):
        features = assemble(terms, by_position)
        assert set(features.by_position) == by_position
        kernel = torch.zeros(8, 8, dtype=F64) if joint else torch.zeros(4, 4, dtype=F64)
        add_inner_products(kernel, features, features, joint=joint)
        by_outputs = kernel.view(4, 2, 4, 2).transpose(1, 2) if joint else kernel / 2
        assert_close(by_outputs, full if joint else mean_of(full))


@pytest.mark.parametrize(("positions", "by_position"), [(4, {"0.weight", "2.weight"}), (1024, set())])
def test_the_cheaper_algorithm_is_chosen(positions, by_position):
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    terms = _terms(model, torch.randn(2, positions, 64))
    assert cheaper_by_position(terms, 100, 100, 1, joint=False) == by_position


@pytest.mark.parametrize("name", ["mlp", "tied-convolutions", "weight-norm", "grouped", "attention"])
@pytest.mark.parametrize("outputs", ["mean", "full"])
@pytest.mark.parametrize("is_cached", [True, False])
def test_blocked_equals_whole(name, outputs, is_cached):
    model, x = build(name, batch=7)
    kernel = TangentKernel(model, outputs)
    whole = kernel(x)
    assert_close(whole, kernel(x, x), 1e-12)
    run_bytes, cached_bytes = (5000, 2**28) if is_cached else (1, 0)
    limits = Limits(2**30, run_bytes, cached_bytes, scratch_bytes=600, small_tile=2, large_tile=3)

    def blocked(x2=None):
        tiles = kernel.planned(x, x2, limits, may_run_whole=True)
        assert len(list(tiles.plan.tiles())) > 1
        return tiles.by_outputs()

    itself = blocked()
    assert_close(itself, whole, 1e-12)
    symmetric = itself if outputs == "mean" else itself.transpose(2, 3)
    assert torch.equal(itself, symmetric.transpose(0, 1))
    assert_close(blocked(x[2:]), whole[:, 2:], 1e-12)


def test_features_that_do_not_fit_are_computed_for_each_tile():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(200, 300), nn.ReLU(), nn.Linear(300, 1)).double()
    x = torch.randn(40, 200, dtype=F64)
    tiles = TangentKernel(model).tiles(x, memory=400_000)
    assert not tiles.cache.is_kept
    assert sum(1 for _ in tiles.plan.tiles()) > 1
    assert_close(tiles.filled(), tangent_kernel(model, x), 1e-12)


def test_a_budget_that_is_too_small_names_one_that_works():
    model, x = build("mlp")
    with pytest.raises(MemoryError, match="give at least memory=") as caught:
        tangent_kernel(model, x, memory=1000)
    enough = int(str(caught.value).split("memory=")[1].split(",")[0])
    assert_close(tangent_kernel(model, x, memory=enough), tangent_kernel(model, x), 1e-12)


def test_a_graph_stands_for_its_module():
    model, x = build("mlp")
    assert torch.equal(tangent_kernel(trace(model, x[:1]), x), tangent_kernel(model, x))


@settings(max_examples=15)
@given(strategies.dense_networks(), st.sampled_from(["mean", "full"]))
def test_laws_of_drawn_networks(draw, outputs):
    model, x = draw.build()
    full = kernel_by_jacobians(model, x)
    scale = full.abs().max().item()  # 0 where all units are dead
    kernel = tangent_kernel(model, x, outputs=outputs)
    assert_close(kernel, full if outputs == "full" else mean_of(full), scale=scale)
    matrix = tangent_kernel(model, x)
    assert torch.equal(matrix, matrix.T)
    assert torch.linalg.eigvalsh(matrix).min() >= -1e-12 * scale * len(x)
    assert_close(tangent_kernel(model, x[:1], x), matrix[:1], 1e-12, scale=scale)


@settings(max_examples=15)
@given(
    st.integers(1, 2),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(0, 2),
    st.integers(0, 2**31 - 1),
)
def test_drawn_convolutions(groups, channels, window, stride, dilation, padding, seed):
    torch.manual_seed(seed)
    sizes = [2, *(2 * c for c in channels)]
    layers = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Conv1d(a, b, window, stride, padding + dilation, dilation, groups), nn.SiLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(2 * sizes[-1], 2)).double()
    x = torch.randn(3, 2, 11, dtype=F64)
    assert_close(tangent_kernel(model, x, outputs="full"), kernel_by_jacobians(model, x))


@pytest.mark.parametrize("name", ["mlp", "tied-convolutions", "attention", "residual-norm"])
def test_float32_is_near_float64(name):
    model, x = build(name)
    exact = tangent_kernel(model, x)
    near = tangent_kernel(model.float(), x.float())
    assert near.dtype == torch.float32
    assert_close(near.double(), exact, 1e-5)


def test_zero_and_equal_inputs_give_finite_kernels():
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 1, bias=False))
    x = torch.tensor([[0.0, 0, 0], [1, 2, 3], [1, 2, 3]])
    kernel = tangent_kernel(model, x)
    assert bool((kernel[0] == 0).all())
    assert torch.equal(kernel[1], kernel[2])


def test_outputs_without_or_with_several_axes():
    torch.manual_seed(0)
    x = torch.randn(3, 4, dtype=F64)
    scalar = Net(lambda m, x: m.a(x).squeeze(), a=nn.Linear(4, 1)).double()
    assert_close(tangent_kernel(scalar, x), x @ x.T + 1, 1e-12)
    grid = Net(lambda m, x: m.a(x).unflatten(1, (2, 3)), a=nn.Linear(4, 6)).double()
    assert_close(tangent_kernel(grid, x, outputs=5), x @ x.T + 1, 1e-12)
    assert_close(tangent_kernel(scalar, x[:1]), x[:1] @ x[:1].T + 1, 1e-12)


def test_a_subset_of_the_parameters():
    model, x = build("mlp")
    names = ["2.weight", "4.bias"]
    expected = mean_of(kernel_by_jacobians(model, x, names=names))
    assert_close(tangent_kernel(model, x, params=names), expected)
    assert_close(tangent_kernel(model, x, params=lambda name: name in names), expected)
    rest = tangent_kernel(model, x, params=lambda name: name not in names)
    assert_close(rest + expected, tangent_kernel(model, x), 1e-12)
    model[2].weight.requires_grad_(False)
    assert_close(tangent_kernel(model, x), mean_of(kernel_by_jacobians(model, x)))


def test_a_shared_parameter_has_all_of_its_names():
    layer = nn.Linear(3, 3)
    model = nn.Sequential(layer, nn.Tanh(), layer).double()
    x = torch.randn(4, 3, dtype=F64)
    assert torch.equal(tangent_kernel(model, x, params=["2.weight"]), tangent_kernel(model, x, params=["0.weight"]))


def test_parameters_that_the_output_does_not_depend_on_add_nothing():
    torch.manual_seed(0)
    model = Net(lambda m, x: m.a(x) + 0 * m.b(x).detach(), a=nn.Linear(3, 2), b=nn.Linear(3, 2), c=nn.Linear(2, 2))
    x = torch.randn(4, 3)
    assert torch.equal(tangent_kernel(model, x, params=["b.weight", "c.weight"]), torch.zeros(4, 4))
    assert torch.equal(tangent_kernel(model, x), tangent_kernel(model, x, params=["a.weight", "a.bias"]))


def test_neither_the_model_nor_its_input_is_changed():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return self.layer(x.clamp_(min=0)) + 0 * self.calls

    model, x = Counting(), torch.randn(4, 3)
    before = x.clone()
    tangent_kernel(model, x)
    assert torch.equal(x, before)
    assert model.calls == 0
    assert all(p.grad is None for p in model.parameters())


def test_works_without_gradient_mode():
    model, x = build("mlp")
    expected = tangent_kernel(model, x)
    with torch.no_grad():
        assert torch.equal(tangent_kernel(model, x), expected)
    with torch.inference_mode():
        assert torch.equal(tangent_kernel(model, x), expected)


def test_the_log_names_parameters_on_the_general_path(caplog):
    model, x = build("transposed")
    with caplog.at_level(logging.INFO, logger="neuralpath"):
        tangent_kernel(model, x)
    assert "a.weight, a.bias" in caplog.text


def test_a_rule_that_is_wrong_is_found_and_not_used(monkeypatch, caplog):
    def wrong(input, weight, bias=None):
        return rules.ReadArguments(2 * input, ((weight, rules.MatrixForm(transposed=False)),))

    monkeypatch.setitem(rules.RULES, F.linear, wrong)
    model, x = build("mlp")
    tiles = TangentKernel(model).tiles(x)
    assert set(tiles.general) == {"0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"}
    assert "'0.weight'" in caplog.text
    expected = mean_of(kernel_by_jacobians(model, x))
    assert_close(tiles.filled(), expected)
    assert_close(tangent_kernel(model, x), expected)


def test_an_axis_of_the_size_of_the_batch_does_not_pass_for_it():
    model = Net(lambda m, x: (m.a.weight @ x.T).T, a=nn.Linear(4, 3, bias=False)).double()
    x = torch.randn(3, 4, dtype=F64)  # the weight, read first, has as many rows as there are examples
    assert_close(tangent_kernel(model, x), mean_of(kernel_by_jacobians(model, x)))


@pytest.mark.slow
def test_a_compiled_model():
    model, x = build("mlp")
    compiled = torch.compile(model, backend="eager")
    assert_close(tangent_kernel(compiled, x), tangent_kernel(model, x), 1e-12)


def test_a_kernel_follows_training_and_parameters_that_are_replaced():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    model.register_buffer("unused", torch.ones(()))
    x, kernel = torch.randn(5, 3, dtype=torch.float64), TangentKernel(model)
    before, planned = kernel(x), kernel.tiles(x)

    def check_that_it_has_changed(before):
        after = kernel(x)
        assert not torch.allclose(after, before)
        assert_close(after, mean_of(kernel_by_jacobians(model, x)), 1e-12)
        return after

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    before = check_that_it_has_changed(before)
    model[0].weight = nn.Parameter(torch.randn(4, 3, dtype=torch.float64))
    model[2].bias = nn.Parameter(torch.randn(2, dtype=torch.float64))
    after = check_that_it_has_changed(before)
    assert_close(planned.filled(), after, 1e-12)  # tiles that were planned before compute with the weights of now
