import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuralpath as npath
import zoo
from neuralpath.graph import nodes as n

MODEL = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))

# torch itself warns when padding="same" meets an even window, in the model's own forward pass.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", zoo.MODELS)
def test_replay_of_gates_and_weights_is_the_model(name, dtype):
    model, x = zoo.build(name, dtype=dtype)
    graph = npath.trace(model, x[:1])
    replayed = npath.output(graph, x, gates=graph.gates(x))
    assert replayed.dtype == dtype
    torch.testing.assert_close(replayed, model(x), rtol=2000 * torch.finfo(dtype).eps, atol=20 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("name", zoo.MODELS)
def test_gates_of_another_example_change_the_output(name):
    """The replay test can fail: with the gates of other examples the output is another one."""
    model, x = zoo.build(name, dtype=torch.float64)
    graph = npath.trace(model, x[:1])
    swapped = npath.output(graph, x, gates=graph.gates(x.flip(0)))
    assert not torch.allclose(swapped[0], model(x)[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mlp", 7), ("resnet18", 1 + 1 + 16), ("vgg", 4 + 3 + 2), ("densenet", 4), ("mobilenet", 2), ("davidnet", 8 + 4)],
)
def test_every_gate_is_found(name, expected):
    model, x = zoo.build(name)
    assert len(npath.trace(model, x[:1]).gate_names) == expected


def test_reused_module_gives_gates_of_its_own_names():
    model, x = zoo.build("mlp")
    names = npath.trace(model, x[:1]).gate_names
    assert names[:2] == ("relu", "relu#2")
    assert len(set(names)) == len(names)


def test_gates_are_those_of_the_preactivations():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(6, 3)
    gates = npath.trace(model, x[:1]).gates(x)
    assert gates.names == ("1",)
    assert torch.equal(gates["1"], model[0](x) > 0)


def test_gates_of_many_examples_are_computed_in_chunks_and_agree():
    model, x = zoo.build("gconv")
    graph = npath.trace(model, x[:1])
    many = x.repeat(250, 1, 1, 1)
    for chunked, once in zip(graph.gates(many).layers.values(), graph.gates(x).layers.values(), strict=True):
        assert torch.equal(chunked, once.repeat(250, *[1] * (once.ndim - 1)))


def test_max_pool_gate_is_the_position_of_the_maximum():
    model = nn.Sequential(nn.MaxPool1d(2), nn.Flatten(), nn.Linear(2, 1))
    graph = npath.trace(model, torch.zeros(1, 1, 4))
    assert graph.gates(torch.tensor([[[1.0, 3.0, 7.0, 5.0]]]))["0"].tolist() == [[[1, 2]]]


KERNELS = [
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2, "ceil_mode": True},
    {"kernel_size": 3, "stride": 1, "dilation": 2},
    {"kernel_size": (2, 3), "stride": (1, 2)},
]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("pool", [nn.MaxPool2d, nn.AvgPool2d])
def test_pools_of_every_setting(pool, kernel):
    if pool is nn.AvgPool2d and "dilation" in kernel:
        kernel = {**kernel, "count_include_pad": False, "padding": 1}
        del kernel["dilation"]
    model = nn.Sequential(nn.Conv2d(2, 3, 1), pool(**kernel), nn.Flatten(), nn.LazyLinear(2)).double()
    x = torch.randn(3, 2, 7, 6, dtype=torch.float64)
    model(x)
    graph = npath.trace(model, x[:1])
    torch.testing.assert_close(npath.output(graph, x), model(x))


ODD_POOLS = [
    nn.AdaptiveAvgPool2d((3, 2)),
    nn.AdaptiveMaxPool2d((3, 4)),
    nn.AdaptiveAvgPool2d((None, 1)),
    nn.AvgPool2d(3, 2, 1, ceil_mode=True),
    nn.AvgPool2d(2, divisor_override=3),
]


@pytest.mark.parametrize("pool", ODD_POOLS)
def test_adaptive_and_odd_pools(pool):
    model = nn.Sequential(nn.Conv2d(2, 3, 1), pool, nn.Flatten(), nn.LazyLinear(2)).double()
    x = torch.randn(3, 2, 7, 6, dtype=torch.float64)
    model(x)
    graph = npath.trace(model, x[:1])
    torch.testing.assert_close(npath.output(graph, x, gates=graph.gates(x)), model(x))


def test_shortcut_of_sliced_and_zero_padded_channels():
    class OptionA(nn.Module):
        """CIFAR ResNet's parameter-free shortcut: every second position, channels padded with zeros."""

        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(2, 4, 3, stride=2, padding=1)
            self.fc = nn.Linear(4, 1)

        def forward(self, x):
            x = F.relu(self.conv(x) + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1)))
            return self.fc(x.mean([-2, -1]))

    x = torch.randn(2, 2, 6, 6)
    graph = npath.trace(OptionA(), x[:1])
    torch.testing.assert_close(npath.output(graph, x), graph.model(x))


def test_graph_reads_the_models_own_tensors_and_follows_it():
    model, x = zoo.build("vgg")
    graph = npath.trace(model, x[:1])
    for name, parameter in graph.params.items():
        assert parameter is dict(model.named_parameters())[name]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(0.1)
    torch.testing.assert_close(npath.output(graph, x), model(x))
    model.double()
    assert npath.output(graph, x.double()).dtype == torch.float64


def test_output_is_differentiable_in_given_weights_and_equals_autograd():
    model, x = zoo.build("gconv", dtype=torch.float64)
    graph = npath.trace(model, x[:1])
    params = {k: v.detach().clone().requires_grad_() for k, v in graph.params.items()}
    ours = torch.autograd.grad(npath.output(graph, x, params=params, gates=graph.gates(x)).sum(), params.values())
    theirs = torch.autograd.grad(model(x).sum(), model.parameters())
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_parametrized_and_transposed_weights_are_read_through():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
            self.weight = nn.Parameter(torch.randn(4, 4))
            self.log_gain = nn.Parameter(torch.randn(1))

        def forward(self, x):
            return F.relu(self.normed(x)) @ (self.weight.t() * 0.5) * self.log_gain.exp()

    x = torch.randn(4, 3)
    graph = npath.trace(Net(), x[:1])
    torch.testing.assert_close(npath.output(graph, x), graph.model(x))
    assert "normed.parametrizations.weight.original1" in graph.params


def test_activation_without_a_gate_is_kept_and_refused_by_path_readings():
    graph = npath.trace(nn.Sequential(nn.Linear(2, 3), nn.Softplus(), nn.Linear(3, 1)), torch.randn(1, 2))
    assert any(isinstance(node, n.ActivationNode) for node in graph.nodes)
    assert graph.gate_names == ()
    for reading in (lambda: graph.n_paths, lambda: npath.log_active_paths(graph, torch.ones(1, 2)),
                    lambda: npath.path_norm(graph)):  # fmt: skip
        with pytest.raises(ValueError, match="the activation softplus at '1' is not supported"):
            reading()


def test_view_of_an_untouched_input_may_make_channels():
    model = nn.Sequential(nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))
    x = torch.randn(3, 16)
    graph = npath.trace(model, x[:1])
    torch.testing.assert_close(npath.output(graph, x), model(x))


def test_batch_size_stays_free():
    model, x = zoo.build("vgg")
    graph = npath.trace(model, x[:1])
    for size in (1, 2, 3, 5):
        torch.testing.assert_close(npath.output(graph, x[:size]), model(x[:size]))


def test_resnet18_of_full_size_in_float32():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = zoo._randomize_norms(zoo.ResNet18())
        x = torch.randn(2, 3, 64, 64)
    graph = npath.trace(model, x[:1])
    assert graph.n_paths > 10**40
    torch.testing.assert_close(npath.output(graph, x, gates=graph.gates(x)), model(x), rtol=1e-4, atol=1e-4)


def test_trace_leaves_the_model_alone():
    model, x = zoo.build("resnet18")
    before = copy.deepcopy(model.state_dict())
    npath.trace(model, x[:1])
    assert not model.training
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    "quantity",
    [
        npath.output,
        npath.log_active_paths,
        npath.log_shared_paths,
        npath.path_overlap,
        npath.path_features,
        lambda network, x: npath.log_sensitive_paths(network, x, 0.1),
        lambda network, x: npath.path_sketch(network, x, 4, generator=torch.Generator().manual_seed(0)),
        lambda network, x: npath.base_kernels(network, x)["1"],
        lambda network, x: npath.dead_gates(network, x)["1"],
        lambda network, x: npath.overlap_profile(network, x).pairs["1"],
        lambda network, x: npath.sensitive_gates(network, x, 0.1)["1"],
        lambda network, x: npath.nearest(network, x, x, 2, by="gates").values,
        lambda network, x: npath.gate_switches(network, x, [MODEL.state_dict()] * 2).flips["1"],
        lambda network, x: npath.paths.eigenvalue_bound(network, x).path,
    ],
)
def test_a_module_stands_for_its_graph(quantity):
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(quantity(MODEL, x), quantity(npath.trace(MODEL, x[:1]), x))


def test_print_shows_the_network_as_a_table():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 2))
    text = str(npath.trace(model, torch.randn(1, 1, 4, 4)))
    assert text.splitlines()[0].split() == ["node", "kind", "shape", "weights", "gates", "reads"]
    for words in ("0.weight 4x1x3x3", "4x2x2", "16 hard", "4 arg max of 2x2", "4.weight 2x4", "50 parameters"):
        assert words in text, words


def test_a_batch_norm_is_shown_by_the_name_of_its_module():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval()
    shown = str(npath.trace(model, torch.randn(1, 3)))
    assert "times batch_norm_scale(1)" in shown
    assert "batch_norm_shift(1) 2" in shown
    assert "running_var" not in shown
