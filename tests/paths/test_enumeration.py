"""Path enumeration against the output, and counts against the papers' formulas and against loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from torch import nn

import neuralpath as npath
import oracles
import zoo
from neuralpath import nets
from neuralpath.paths import counts
from strategies import dense_networks

F64 = torch.float64


def _weights(model):
    return [p.detach() for p in model.parameters()]


def _gates(graph, x):
    """Gates of one example as the oracles take them; a max pool becomes a 0/1 mask over positions."""
    tensors = []
    for node, layer in zip(graph.gate_nodes, graph.gates(x[None]).layers.values(), strict=True):
        if layer.dtype == torch.int64:
            mask = torch.zeros(node.shape[0], math.prod(node.in_space), dtype=F64)
            tensors.append(mask.scatter(1, layer[0].reshape(-1, 1), 1.0))
        else:
            tensors.append(layer[0].to(F64))
    return tensors


def _dense(seed=0):
    generator = torch.Generator().manual_seed(seed)
    model = nets.FC(3, [4, 2, 3], generator=generator).double()
    return model, torch.randn(4, 3, generator=generator, dtype=F64), oracles.dense_paths([3, 4, 2, 3, 1])


def _circular(pooling, seed=0):
    generator = torch.Generator().manual_seed(seed)
    model = nets.CircularCNN(4, 2, 2, 2, window=3, pooling=pooling, generator=generator).double()
    return model, torch.randn(4, 4, generator=generator, dtype=F64), oracles.circular_paths(4, 2, 3, 2, 2)


def _residual(seed=0):
    generator = torch.Generator().manual_seed(seed)
    pre, post = [0.5, 0.8], [0.7, 1.3]
    model = nets.ResidualFC(2, 2, 2, 2, gamma_pre=pre, gamma_post=post, generator=generator).double()
    return model, torch.randn(4, 2, generator=generator, dtype=F64), oracles.residual_paths(2, 2, 2, 2, pre, post)


CASES = {
    "dense": _dense,
    "circular-average": lambda: _circular("average"),
    "circular-max": lambda: _circular("max"),
    "residual": _residual,
}


@pytest.mark.parametrize("case", CASES)
def test_enumeration_equals_the_output_and_the_library(case):
    model, x, paths = CASES[case]()
    graph = npath.trace(model, x[:1])
    weights = _weights(model)
    assert graph.n_paths == len(paths)
    features, values = npath.path_features(graph, x), npath.path_values(graph)
    torch.testing.assert_close(features @ values, model(x)[:, 0])
    for i, example in enumerate(x):
        gates = _gates(graph, example)
        if case == "circular-average":
            gates.insert(2, torch.full((2, 4), 0.25, dtype=F64))
        assert oracles.output_by_enumeration(paths, example, weights, gates) == pytest.approx(
            model(x)[i].item(), rel=1e-12, abs=1e-14
        )
        ours = sorted((features[i] * values.detach()).tolist())
        theirs = sorted(oracles.path_feature(p, example, gates) * oracles.path_value(p, weights) for p in paths)
        assert ours == pytest.approx(theirs, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("pooling", ["average", "max"])
def test_bundles_share_weights_and_give_the_same_output(pooling):
    model, x, paths = _circular(pooling)
    graph = npath.trace(model, x[:1])
    sizes: dict = {}
    for path in paths:
        sizes[path.weights] = sizes.get(path.weights, 0) + 1
    assert set(sizes.values()) == {4}  # P2 proposition 3.2: exactly d_in paths in a bundle
    features = npath.path_features(graph, x, bundled=True)
    values = npath.path_values(graph, bundled=True)
    assert features.shape == (4, len(sizes)) == (4, graph.n_paths // 4)
    torch.testing.assert_close(features @ values, model(x)[:, 0])


@pytest.mark.parametrize("name", ["mobilenet", "fc", "scalar", "every-gate"])
def test_features_times_values_are_the_output_of_any_graph(name):
    model, x = zoo.build(name, dtype=F64)
    graph = npath.trace(model, x[:1])
    for bundled in (False, True):
        features = npath.path_features(graph, x, bundled=bundled, limit=10**6)
        values = npath.path_values(graph, bundled=bundled, limit=10**6)
        if not bundled:
            assert features.shape[1] == graph.n_paths
        torch.testing.assert_close(features @ values, model(x))


def test_concatenation_and_overlapping_max_pool():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Conv1d(1, 2, 2)
            self.b = nn.Conv1d(3, 2, 2, stride=2, groups=1)
            self.c = nn.Linear(4, 2)

        def forward(self, x):
            z = torch.relu(self.a(x))
            z = torch.cat([z, x[:, :, 1:]], 1)
            return self.c(self.b(torch.nn.functional.max_pool1d(z, 3, 1, 1)).flatten(1)[:, :4])

    model = Net().double()
    x = torch.randn(3, 1, 6, dtype=F64)
    graph = npath.trace(model, x[:1])
    features, values = npath.path_features(graph, x), npath.path_values(graph)
    assert values.shape == (graph.n_paths, 2)
    torch.testing.assert_close(features @ values, model(x))


@pytest.mark.parametrize(("d_in", "width", "depth"), [(1, 1, 1), (3, 4, 2), (784, 128, 6), (5, 256, 50)])
def test_number_of_paths_of_a_dense_network(d_in, width, depth):
    model = nets.FC(d_in, width, depth)
    assert npath.trace(model, torch.zeros(1, d_in)).n_paths == d_in * width ** (depth - 1)


def test_number_of_paths_stays_exact_where_units_are_read_by_index():
    model = nn.Sequential(nets.FC(7, 10, 20, 10), nn.ZeroPad1d((0, 3)), nn.Linear(13, 1, bias=False))
    assert npath.trace(model, torch.zeros(1, 7)).n_paths == 7 * 10**20


@pytest.mark.parametrize(
    ("d_in", "width", "window", "n_conv", "n_dense"), [(4, 3, 2, 1, 1), (7, 5, 3, 4, 3), (32, 64, 5, 6, 2)]
)
@pytest.mark.parametrize("pooling", ["average", "max"])
def test_number_of_paths_of_a_circular_cnn(d_in, width, window, n_conv, n_dense, pooling):
    model = nets.CircularCNN(d_in, width, n_conv, n_dense, window=window, pooling=pooling)
    expected = d_in * (window * width) ** n_conv * width ** (n_dense - 1)
    assert npath.trace(model, torch.zeros(1, d_in)).n_paths == expected


@pytest.mark.parametrize(("d_in", "width", "skips", "depth"), [(2, 3, 1, 1), (4, 5, 3, 2), (10, 16, 12, 3)])
def test_number_of_paths_of_a_residual_network(d_in, width, skips, depth):
    model = nets.ResidualFC(d_in, width, skips, depth, gamma_pre=0.3)
    expected = d_in * sum(math.comb(skips, i) * width ** ((i + 2) * depth - 1) for i in range(skips + 1))
    assert npath.trace(model, torch.zeros(1, d_in)).n_paths == expected


@pytest.mark.parametrize("case", CASES)
def test_active_and_shared_paths_equal_a_loop(case):
    model, x, paths = CASES[case]()
    graph = npath.trace(model, x[:1])
    gates = [_gates(graph, example) for example in x]
    if case == "circular-average":
        for layers in gates:
            layers.insert(2, torch.ones(2, 4, dtype=F64))
    activity = torch.tensor([[oracles.path_activity(p, g) for p in paths] for g in gates], dtype=F64)
    torch.testing.assert_close(npath.log_active_paths(graph, x).exp(), activity.sum(1))
    torch.testing.assert_close(npath.log_shared_paths(graph, x).exp(), activity @ activity.T)
    torch.testing.assert_close(npath.log_shared_paths(graph, x[:1], x[1:]).exp(), (activity @ activity.T)[:1, 1:])
    starts = torch.tensor([p.start for p in paths])
    overlap = npath.path_overlap(graph, x, per_input=True)
    for node in range(overlap.shape[-1]):
        mine = activity[:, starts == node]
        assert torch.equal(overlap.reshape(4, 4, -1)[:, :, node], mine @ mine.T)
    torch.testing.assert_close(npath.path_overlap(graph, x), overlap.reshape(4, 4, -1).mean(-1))


def test_overlap_of_a_dense_network_is_the_product_of_gate_overlaps():
    model, x, _ = _dense()
    graph = npath.trace(model, x[:1])
    expected = torch.ones(4, 4, dtype=F64)
    for gate in graph.gates(x).layers.values():
        expected *= gate.double() @ gate.double().T
    assert torch.equal(npath.path_overlap(graph, x), expected)


def test_active_paths_of_a_deep_network_do_not_overflow():
    model = nets.FC(784, 512, 200, init=nets.Gaussian())
    x = torch.rand(2, 784)
    graph = npath.trace(model, x[:1])
    gates = graph.gates(x)
    expected = math.log(784) + sum(g.sum(1).double().log() for g in gates.layers.values())
    assert (expected > 900).all()  # past the range of float64
    torch.testing.assert_close(npath.log_active_paths(graph, x), expected.float())
    with pytest.raises(OverflowError, match="`log_shared_paths` gives the logarithm"):
        npath.path_overlap(graph, x)


def test_no_active_path_is_minus_infinity():
    model = nets.FC(2, 3, 2)
    with torch.no_grad():
        model.get_parameter(next(iter(dict(model.named_parameters())))).fill_(-1.0)
    graph = npath.trace(model, torch.ones(1, 2))
    assert npath.log_active_paths(graph, torch.ones(1, 2)).tolist() == [-math.inf]


@given(dense_networks())
@settings(max_examples=40)
def test_output_is_the_inner_product_of_feature_and_value(drawn):
    model, x = drawn.build()
    graph = npath.trace(model, x[:1])
    torch.testing.assert_close(npath.path_features(graph, x) @ npath.path_values(graph), model(x)[:, 0])


@given(dense_networks(bias=False))
@settings(max_examples=25)
def test_scaling_the_input_scales_the_output_and_leaves_the_gates_alone(drawn):
    """P1 proposition 2.1; exact for a power of two."""
    model, x = drawn.build()
    graph = npath.trace(model, x[:1])
    for one, two in zip(graph.gates(x).layers.values(), graph.gates(4 * x).layers.values(), strict=True):
        assert torch.equal(one, two)
    assert torch.equal(npath.path_features(graph, 4 * x), 4 * npath.path_features(graph, x))
    assert torch.equal(npath.output(graph, 4 * x), 4 * npath.output(graph, x))


def test_opposite_labels_on_one_ray_cannot_be_memorized():
    """C2: without biases f(x/2) = f(x)/2, so the labels 1 at x and -1 at x/2 are out of reach of any weights."""
    for seed in range(20):
        model = nets.FC(3, 5, 4, generator=torch.Generator().manual_seed(seed)).double()
        x = torch.randn(1, 3, dtype=F64)
        assert (model(x) * model(x / 2)).item() >= 0


@pytest.mark.parametrize("q", [1, 2, 3.5])
@pytest.mark.parametrize("case", ["dense", "residual"])
def test_path_norm_equals_a_loop(case, q):
    model, x, paths = CASES[case]()
    weights = _weights(model)
    expected = sum(abs(oracles.path_value(p, weights) * p.constant) ** q for p in paths) ** (1 / q)
    graph = npath.trace(model, x[:1])
    assert npath.path_norm(graph, q).item() == pytest.approx(expected, rel=1e-12)
    assert npath.path_norm(graph, q, log=True).item() == pytest.approx(math.log(expected), rel=1e-12)


def test_path_norm_counts_every_path_of_a_max_pools_window():
    conv = nn.Conv1d(1, 1, 1, bias=False)
    model = nn.Sequential(conv, nn.ReLU(), nn.MaxPool1d(3, 1, 1), nn.Flatten(), nn.Linear(3, 1, bias=False)).double()
    graph = npath.trace(model, torch.ones(1, 1, 3, dtype=F64))
    a, w = conv.weight.abs().item(), model[-1].weight.abs()[0]
    expected = a * (2 * w[0] + 3 * w[1] + 2 * w[2])
    torch.testing.assert_close(npath.path_norm(graph), expected)
    assert graph.n_paths == 7


def test_path_norm_is_differentiable():
    model, x, _ = _dense()
    graph = npath.trace(model, x[:1])
    npath.path_norm(graph, 2).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_path_norm_past_the_range_says_so():
    graph = npath.trace(nets.FC(784, 512, 40, init=nets.Gaussian()), torch.zeros(1, 784))
    with pytest.raises(OverflowError, match="use `log=True`"):
        npath.path_norm(graph)
    assert math.isfinite(npath.path_norm(graph, log=True).item())
    with pytest.raises(ValueError, match="`q` must be a positive finite number"):
        npath.path_norm(graph, 0)


def test_listing_stops_at_the_limit_with_a_way_out():
    graph = npath.trace(nets.FC(784, 128, 6), torch.zeros(1, 784))
    with pytest.raises(ValueError, match=r"more than the limit of 100,000: raise `limit=`, or use `path_kernel`"):
        npath.path_values(graph)


def test_tied_weights_are_refused_by_name():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.last = nn.Linear(3, 3), nn.Linear(3, 1)

        def forward(self, x):
            return self.last(torch.relu(self.fc(torch.relu(self.fc(x)))))

    graph = npath.trace(Tied(), torch.randn(1, 3))
    assert graph.n_paths == 1 + 3 + 9 + 27
    for quantity in (lambda: npath.path_values(graph), lambda: npath.path_features(graph, torch.ones(1, 3))):
        with pytest.raises(ValueError, match=r"the parameter 'fc.weight' is used at 'fc' and at 'fc#2'"):
            quantity()


def test_two_modules_that_share_one_tensor_are_tied():
    model = nn.Sequential(
        nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 1)
    )
    model[2].weight = model[0].weight
    with pytest.raises(ValueError, match="is not defined for tied weights"):
        npath.path_values(npath.trace(model, torch.randn(1, 3)))


def test_outputs_with_paths_of_their_own_need_an_index():
    model = nn.Sequential(nn.Conv1d(1, 2, 2, bias=False), nn.ReLU(), nn.Flatten()).double()
    x = torch.randn(2, 1, 3, dtype=F64)
    graph = npath.trace(model, x[:1])
    with pytest.raises(ValueError, match="say which one with `outputs=`"):
        npath.path_features(graph, x)
    for k in range(4):
        torch.testing.assert_close(
            npath.path_features(graph, x, outputs=k) @ npath.path_values(graph, outputs=k), model(x)[:, k]
        )
    with pytest.raises(ValueError, match="`outputs` must be an index from 0 to 3, got 4"):
        npath.log_active_paths(graph, x, outputs=4)


def _deep(depth, *, bias, dtype=F64):
    """A deep network whose last hidden layer is dead: no path from before it is active."""
    layers = [part for _ in range(depth) for part in (nn.Linear(30, 30, bias=bias), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(30, 1, bias=bias)).to(dtype)
    with torch.no_grad():
        for part in model:
            if isinstance(part, nn.Linear):
                part.weight.normal_(generator=torch.Generator().manual_seed(0)).mul_(0.25)
        model[-3].weight.abs_().neg_()  # its inputs are not negative
        if bias:
            model[-3].bias.fill_(-1.0)
    return model


def test_paths_that_start_behind_a_dead_layer_are_counted():
    model = _deep(400, bias=True)
    x = torch.ones(2, 30, dtype=F64)
    graph = npath.trace(model, x)
    assert npath.log_active_paths(graph, x).tolist() == [0.0, 0.0]
    assert npath.log_shared_paths(graph, x).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_no_overlap_behind_a_dead_layer():
    model = _deep(400, bias=False)
    x = torch.ones(2, 30, dtype=F64)
    graph = npath.trace(model, x)
    assert not npath.path_overlap(graph, x).any()
    assert not npath.path_overlap(graph, x, per_input=True).any()
    assert npath.log_active_paths(graph, x).tolist() == [-math.inf] * 2


def test_path_norm_of_the_last_bias_alone():
    layers = [part for _ in range(60) for part in (nn.Linear(30, 30), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(30, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(0))
        model[-1].weight.zero_()
        model[-1].bias.fill_(1.0)
    graph = npath.trace(model, torch.zeros(1, 30))
    assert npath.path_norm(graph).item() == 2.0
    assert npath.path_norm(graph, 2).item() == pytest.approx(math.sqrt(2))


def _chain(*weights, dtype=torch.float32):
    model = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in weights)).to(dtype)
    with torch.no_grad():
        for layer, weight in zip(model, weights, strict=True):
            layer.weight.fill_(weight)
    return npath.trace(model, torch.zeros(1, 1, dtype=dtype))


@pytest.mark.parametrize(
    ("weights", "dtype", "q", "expected"),
    [
        ([1e-12], torch.float32, 4, 1e-12),
        ([1e-11], torch.float32, 4, 1e-11),
        ([1e12], torch.float32, 4, 1e12),
        ([1.5 * 2.0**127], torch.float32, 1, 1.5 * 2.0**127),
        ([1.5 * 2.0**127], torch.float32, 1000.5, 1.5 * 2.0**127),
        ([1e-200, 1e200], F64, 2, 1.0),
        ([1e-300, 1e300, 1e-300, 1e300], F64, 3.5, 1.0),
        ([5e-324, 1.0], F64, 2, 5e-324),
        ([0.3, -2.0], torch.float32, 0.01, 0.6),
    ],
)
def test_path_norm_over_the_whole_range_of_a_weight(weights, dtype, q, expected):
    graph = _chain(*weights, dtype=dtype)
    assert npath.path_norm(graph, q).dtype == dtype
    assert npath.path_norm(graph, q).item() == pytest.approx(expected, rel=1e-6, abs=0)
    assert npath.path_norm(graph, q, log=True).item() == pytest.approx(math.log(expected), rel=1e-6)


def test_path_norm_counts_pools_and_scales_over_their_whole_range():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(1, 1, 1, bias=False)

        def forward(self, x):
            return (self.conv(x) * 1e-30).mean(2) * 1e30

    model = Net()
    nn.init.ones_(model.conv.weight)
    graph = npath.trace(model, torch.zeros(1, 1, 100))
    assert npath.path_norm(graph, 20).item() == pytest.approx(100 ** (1 / 20) / 100, rel=1e-6)
    assert npath.path_norm(graph, 200).item() == pytest.approx(100 ** (1 / 200) / 100, rel=1e-6)


@pytest.mark.parametrize("q", [1, 2, 4])
def test_gradient_of_the_path_norm_over_the_whole_range(q):
    graph = _chain(3e-12, -2e12, dtype=torch.float32)
    npath.path_norm(graph, q).backward()
    gradients = [p.grad.item() for p in graph.params.values()]
    assert gradients == pytest.approx([2e12, -3e-12], rel=1e-6, abs=0)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("q", [1, 2, 3.5])
def test_gradient_of_a_path_norm_of_zero_is_zero(q, log):
    graph = _chain(0.0, 2.0)
    norm = npath.path_norm(graph, q, log=log)
    assert norm.item() == (-math.inf if log else 0.0)
    norm.backward()
    assert [p.grad.item() for p in graph.params.values()] == [0.0, 0.0]


def test_path_norm_of_no_power():
    graph = _chain(1.0)
    for q in (0, -1, math.inf, math.nan, 2**21):
        with pytest.raises(ValueError, match="`q` must be a positive finite number, at most 1048576"):
            npath.path_norm(graph, q)


def test_path_norm_of_no_number(without_type_checks):
    with pytest.raises(TypeError, match="`q` must be a positive number, got a str"):
        npath.path_norm(_chain(1.0), "2")


@pytest.mark.parametrize("activation", [nn.PReLU(init=-2.0), nn.LeakyReLU(-0.9)])
def test_gates_below_zero_count_with_their_size(activation):
    model = nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 2), activation, nn.Linear(2, 1)).double()
    x = torch.randn(5, 3, dtype=F64)
    graph = npath.trace(model, x)
    assert any((layer < 0).any() for layer in graph.gates(x).layers.values())
    activity = npath.path_features(graph, torch.ones_like(x), gates=graph.gates(x)).abs()
    torch.testing.assert_close(npath.log_active_paths(graph, x).exp(), activity.sum(1))
    torch.testing.assert_close(npath.log_shared_paths(graph, x).exp(), activity @ activity.T)


def test_tiny_soft_gates_do_not_vanish():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.SiLU(), nn.SiLU(), nn.Linear(1, 1, bias=False)).double()
    nn.init.constant_(model[0].weight, -600.0)
    x = torch.ones(1, 1, dtype=F64)
    graph = npath.trace(model, x)
    assert npath.log_shared_paths(graph, x).item() == pytest.approx(-2 * 600 + 2 * math.log(0.5), rel=1e-12)


def test_overlap_by_input_in_inference_mode():
    model, x, _ = _dense()
    graph = npath.trace(model, x)
    expected = npath.path_overlap(graph, x, per_input=True)
    with torch.inference_mode():
        assert torch.equal(npath.path_overlap(graph, x, per_input=True), expected)
        assert torch.equal(npath.path_overlap(graph, x.clone(), per_input=True), expected)


@pytest.mark.parametrize("case", CASES)
def test_chunks_of_pairs_agree_with_the_whole(case):
    model, x, _ = CASES[case]()
    graph = npath.trace(model, x[:1])
    for quantity in (npath.paths.log_active_paths, npath.paths.log_shared_paths, npath.paths.path_overlap):
        torch.testing.assert_close(quantity(graph, x, memory=1), quantity(graph, x), rtol=1e-14, atol=0)


def test_few_pairs_of_a_wide_network_are_walked_at_once():
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 64 * 64, 1))
    wide = npath.trace(model, torch.zeros(1, 3, 64, 64))
    gates = wide.gates(torch.zeros(1, 3, 64, 64))
    size = counts._chunk_size(wide, gates, counts.CHUNK_BYTES)
    assert size * 16 * wide.widest <= counts.CHUNK_BYTES
    assert size < 64
