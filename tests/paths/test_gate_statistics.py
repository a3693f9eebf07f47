"""Statistics of gates against loops over examples and units, and sub-network kernels against the whole."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from torch import nn

import neuralpath as npath
import zoo
from neuralpath import nets
from neuralpath.graph import Gates
from neuralpath.kernels.path.path_kernel import path_kernel
from neuralpath.paths.gate_statistics import (
    always_open_gates,
    base_kernels,
    dead_gates,
    gate_distance,
    open_counts,
    overlap_profile,
)
from neuralpath.paths.subnetworks import residual_adds, residual_subnetwork, subnetwork, subnetwork_kernel
from strategies import dense_networks

F64 = torch.float64
MODELS = ["fc", "scalar", "circular", "mobilenet", "vgg", "residual"]  # hard, leaky, max pool, clipped, all, skips


def _traced(name):
    model, x = zoo.build(name, dtype=F64)
    return npath.trace(model, x[:1]), x


def _base_kernel(layer1, layer2):
    """By loops over pairs; equal positions count for a max pool."""
    kernel = torch.empty(len(layer1), len(layer2), dtype=F64)
    for i, one in enumerate(layer1):
        for j, two in enumerate(layer2):
            both = one == two if one.dtype == torch.int64 else one.double() * two.double()
            kernel[i, j] = both.double().sum() / one.numel()
    return kernel


# --- base kernels and their profile


@pytest.mark.parametrize("name", MODELS)
def test_base_kernels_equal_loops(name):
    graph, x = _traced(name)
    gates = graph.gates(x)
    kernels = base_kernels(graph, x)
    assert tuple(kernels) == graph.gate_names
    for gate, kernel in kernels.items():
        torch.testing.assert_close(kernel, _base_kernel(gates[gate], gates[gate]))
        assert torch.equal(kernel, kernel.T)
    for gate, kernel in base_kernels(graph, x[:2], x[1:]).items():
        torch.testing.assert_close(kernel, _base_kernel(gates[gate][:2], gates[gate][1:]))


def test_base_kernels_by_hand():
    model = nn.Sequential(nn.Linear(1, 4, bias=False), nn.ReLU(), nn.Linear(4, 1))
    model[0].weight.data = torch.tensor([[1.0], [1.0], [1.0], [-1.0]])
    kernels = base_kernels(npath.trace(model, torch.ones(1, 1)), torch.tensor([[1.0], [-1.0], [0.0]]))
    expected = torch.tensor([[0.75, 0.0, 0.0], [0.0, 0.25, 0.0], [0.0, 0.0, 0.0]])  # a gate at 0 is closed
    assert torch.equal(kernels["1"], expected)


def test_positions_of_max_pools_are_compared_in_blocks():
    graph, x = _traced("vgg")
    whole = base_kernels(graph, x)
    for name, kernel in base_kernels(graph, x, memory=1).items():
        assert torch.equal(kernel, whole[name])
    torch.testing.assert_close(overlap_profile(graph, x, memory=1).pairs, _profile(whole)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_base_kernels_follow_the_dtype_of_the_inputs(dtype):
    model = nets.FC(3, 3000, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    x = torch.ones(2, 3, dtype=dtype)
    graph = npath.trace(model, x[:1])
    (kernel,) = base_kernels(graph, x).values()
    assert kernel.dtype == dtype
    share = graph.gates(x)[0].double().mean()
    torch.testing.assert_close(kernel.double(), share.expand(2, 2), rtol=2 * torch.finfo(dtype).eps, atol=0)


def test_a_network_without_gates_has_no_base_kernels():
    graph = npath.trace(nn.Linear(2, 1), torch.ones(1, 2))
    x = torch.ones(3, 2)
    assert base_kernels(graph, x) == {}
    assert overlap_profile(graph, x).pairs == {}
    assert dead_gates(graph, x) == {}
    assert gate_distance(graph.gates(x), graph.gates(x)) == {}


@given(dense_networks(bias=False))
@settings(max_examples=15)
def test_laws_of_base_kernels(drawn):
    model, x = drawn.build()
    graph = npath.trace(model, x[:1])
    kernels, twice, scaled = base_kernels(graph, x), base_kernels(graph, x, x), base_kernels(graph, 4 * x)
    product = x @ x.T
    for node in graph.gate_nodes:
        kernel = kernels[node.name]
        assert torch.equal(kernel, kernel.T)
        assert kernel.min() >= 0
        assert kernel.max() <= 1
        assert torch.equal(kernel, twice[node.name])
        assert torch.equal(kernel, scaled[node.name])
        assert torch.linalg.eigvalsh(kernel).min() >= -1e-12
        product = product * kernel * node.n_units
    torch.testing.assert_close(path_kernel(graph, x), product)  # P2 lemma 4.1


def _profile(kernels):
    pairs, diagonal = {}, {}
    for name, kernel in kernels.items():
        n = len(kernel)
        pairs[name] = sum(kernel[i, j] for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
        diagonal[name] = kernel.diagonal().mean()
    return pairs, diagonal


@pytest.mark.parametrize("name", MODELS)
def test_profile_is_the_means_of_the_base_kernels(name):
    graph, x = _traced(name)
    profile = overlap_profile(graph, x)
    pairs, diagonal = _profile(base_kernels(graph, x))
    assert tuple(profile.pairs) == tuple(profile.diagonal) == graph.gate_names
    torch.testing.assert_close(profile.pairs, pairs)
    torch.testing.assert_close(profile.diagonal, diagonal)
    assert all(profile.diagonal[node.name] == 1 for node in graph.gate_nodes if node.kind == "max_pool")
    between = overlap_profile(graph, x[:2], x[2:])
    means = {name: kernel.mean() for name, kernel in base_kernels(graph, x[:2], x[2:]).items()}
    torch.testing.assert_close(between.pairs, means)
    torch.testing.assert_close(between.diagonal, diagonal)


def test_a_profile_needs_a_pair():
    graph, x = _traced("fc")
    with pytest.raises(ValueError, match=r"`x1`.*one example.*`x2`"):
        overlap_profile(graph, x[:1])
    assert tuple(overlap_profile(graph, x[:1], x[1:2]).pairs) == graph.gate_names


@pytest.mark.parametrize("function", [base_kernels, overlap_profile])
@pytest.mark.usefixtures("without_type_checks")
def test_inputs_that_do_not_fit_are_refused(function):
    graph, x = _traced("circular")
    with pytest.raises(ValueError, match=r"`x1` must be .* of shape \(batch, 6\)"):
        function(graph, x[:, :3])
    with pytest.raises(ValueError, match=r"`x2` must be .* of shape \(batch, 6\)"):
        function(graph, x, x[:, :3])
    with pytest.raises(ValueError, match="`x2` has NaN or infinity in 1 of 1 examples"):
        function(graph, x, x[:1] * torch.nan)


# --- dead gates


@pytest.mark.parametrize("name", ["fc", "mobilenet", "circular"])
def test_counts_of_open_gates_equal_loops(name):
    graph, x = _traced(name)
    gates, counts = graph.gates(x), open_counts(graph, x)
    for node in graph.gate_nodes:
        if node.kind == "max_pool":
            expected = torch.zeros(node.shape[0], math.prod(node.in_space), dtype=torch.int64)
            for picked in gates[node.name].flatten(2):
                for channel, positions in enumerate(picked):
                    for position in set(positions.tolist()):
                        expected[channel, position] += 1
            expected = expected.reshape(node.shape[0], *node.in_space)
        else:
            expected = sum((gate != 0).long() for gate in gates[node.name])
        assert torch.equal(counts[node.name], expected)
        assert torch.equal(dead_gates(graph, x)[node.name], expected == 0)
        assert torch.equal(always_open_gates(graph, x)[node.name], expected == 5)


def test_counts_of_many_examples_are_added_up():
    graph, x = _traced("fc")
    once = open_counts(graph, x)
    many = open_counts(graph, x.repeat(250, *[1] * (x.ndim - 1)))  # three chunks
    assert all(torch.equal(many[name], 250 * count) for name, count in once.items())


def test_dead_gates_of_each_kind_by_hand():
    weight = torch.tensor([[1.0], [-1.0]])
    x = torch.tensor([[1.0], [2.0]])

    def dead(activation, **options):
        model = nn.Sequential(nn.Linear(1, 2, bias=False), activation)
        model[0].weight.data = weight.clone()
        return dead_gates(npath.trace(model, x[:1]), x, **options)["1"].tolist()

    assert dead(nn.ReLU()) == [False, True]
    assert dead(nn.ReLU6()) == [False, True]
    assert dead(nn.LeakyReLU(0.1)) == [False, False]
    assert dead(nn.LeakyReLU(0.1), threshold=0.5) == [False, True]
    assert dead(nn.SiLU(), threshold=0.5) == [False, True]
    assert dead(nn.ReLU(), threshold=0.5) == [False, True]
    assert dead(nn.ReLU(), threshold=1.0) == [True, True]


def test_a_unit_outside_all_windows_of_a_max_pool_is_dead():
    model = nn.Sequential(nn.MaxPool1d(2), nn.Flatten(), nn.Linear(2, 1))
    x = torch.tensor([[[1.0, 2.0, 4.0, 3.0, 9.0]], [[1.0, 2.0, 3.0, 4.0, 9.0]]])
    graph = npath.trace(model, x[:1])
    (name,) = graph.gate_names
    assert dead_gates(graph, x)[name].tolist() == [[True, False, False, False, True]]
    assert always_open_gates(graph, x)[name].tolist() == [[False, True, False, False, False]]


@pytest.mark.parametrize("threshold", [-0.1, math.inf, math.nan])
def test_the_threshold_must_be_a_finite_size(threshold):
    graph, x = _traced("fc")
    with pytest.raises(ValueError, match="`threshold` must be 0 or a positive finite number"):
        dead_gates(graph, x, threshold=threshold)


# --- distance between checkpoints


@pytest.mark.parametrize("name", MODELS)
def test_gate_distance_equals_loops(name):
    model, x = zoo.build(name, dtype=F64)
    graph = npath.trace(model, x[:1])
    before = graph.gates(x)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=generator, dtype=F64)
    after = graph.gates(x)
    distance = gate_distance(before, after)
    assert tuple(distance) == graph.gate_names
    for gate in distance:
        for example in range(5):
            one, two = before[gate][example].flatten(), after[gate][example].flatten()
            if one.dtype.is_floating_point:
                expected = sum(abs(a - b) for a, b in zip(one.tolist(), two.tolist(), strict=True))
            else:
                expected = sum(a != b for a, b in zip(one.tolist(), two.tolist(), strict=True))
            assert distance[gate][example].item() == pytest.approx(expected / len(one))
    assert any(layer.any() for layer in distance.values())
    assert not any(layer.any() for layer in gate_distance(before, before).values())
    assert all(torch.equal(layer, distance[gate]) for gate, layer in gate_distance(after, before).items())


@given(dense_networks(bias=False))
@settings(max_examples=10)
def test_gates_do_not_move_when_layers_are_rescaled_and_all_move_when_the_first_is_negated(drawn):
    model, x = drawn.build()
    graph = npath.trace(model, x[:1])
    before = graph.gates(x)
    with torch.no_grad():
        for factor, weight in zip(itertools.cycle((2.0, 0.25, 8.0)), model.parameters(), strict=False):
            weight *= factor
    assert not any(layer.any() for layer in gate_distance(before, graph.gates(x)).values())
    with torch.no_grad():
        next(model.parameters()).neg_()
    assert (gate_distance(before, graph.gates(x))[graph.gate_names[0]] == 1).all()


@pytest.mark.usefixtures("without_type_checks")
def test_gates_that_do_not_fit_are_refused():
    hard = Gates({"a": torch.ones(3, 2, dtype=torch.bool), "b": torch.ones(3, 4, dtype=torch.bool)})
    with pytest.raises(TypeError, match=r"`gates2` must be `Gates`, as .* got a float32 tensor"):
        gate_distance(hard, torch.ones(3))
    with pytest.raises(ValueError, match=r"`gates1` and `gates2` .* the gate nodes a, b and a, c"):
        gate_distance(hard, Gates({"a": hard[0], "c": hard[1]}))
    with pytest.raises(ValueError, match=r"`gates1` and `gates2` .* 3 and 2 examples"):
        gate_distance(hard, hard.batch(slice(2)))
    with pytest.raises(ValueError, match=r"`gates1` and `gates2` differ at 'b': \(4,\) and \(2,\)"):
        gate_distance(hard, Gates({"a": hard[0], "b": hard[0]}))
    with pytest.raises(TypeError, match=r"`gates1` and `gates2` differ at 'b': a bool tensor .* and a float32 tensor"):
        gate_distance(hard, Gates({"a": hard[0], "b": hard[1].float()}))


# --- sub-networks


def _residual(n_skips=3, depth=2, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    model = nets.ResidualFC(4, 5, n_skips, depth, generator=generator, **options).double()
    x = torch.randn(4, 4, generator=generator, dtype=F64)
    return npath.trace(model, x[:1]), x


def _subsets(names):
    return itertools.chain.from_iterable(itertools.combinations(names, k) for k in range(len(names) + 1))


def _sum_of_subnetworks(graph, *x, **options):
    return sum(subnetwork_kernel(graph, *x, blocks=kept, **options) for kept in _subsets(residual_adds(graph)))


@pytest.mark.parametrize("n_skips", [0, 1, 3])
@pytest.mark.parametrize("depth", [1, 2])
def test_kernels_of_all_subnetworks_sum_to_the_path_kernel(n_skips, depth):
    """P2 lemma 4.2 (C21); the scales differ, and count as 1."""
    graph, x = _residual(n_skips, depth, gamma_pre=0.5, gamma_post=[0.7, 1.3, 2.0][:n_skips])
    assert len(residual_adds(graph)) == n_skips
    torch.testing.assert_close(_sum_of_subnetworks(graph, x), path_kernel(graph, x, unit_scales=True))
    torch.testing.assert_close(
        _sum_of_subnetworks(graph, x[:1], x[1:]), path_kernel(graph, x[:1], x[1:], unit_scales=True)
    )
    torch.testing.assert_close(
        _sum_of_subnetworks(graph, x, normalize=True), path_kernel(graph, x, unit_scales=True, normalize=True)
    )


def test_the_kernel_of_a_subnetwork_is_the_product_over_its_own_gates_in_the_whole():
    graph, x = _residual(gamma_pre=0.5)
    gates = graph.gates(x)
    adds = residual_adds(graph)
    for kept in _subsets(adds):
        expected = x @ x.T
        for name in graph.gate_names:
            block = name.split(".")
            if block[0] != "skipped" or adds[int(block[1])] in kept:
                expected = expected * (gates[name].double() @ gates[name].double().T)
        torch.testing.assert_close(subnetwork_kernel(graph, x, blocks=kept), expected)
    own = path_kernel(residual_subnetwork(graph, ()), x, unit_scales=True)  # with the gates that it opens by itself
    assert not torch.allclose(own, subnetwork_kernel(graph, x, blocks=()))


def test_given_gates_replace_those_of_the_whole_network():
    graph, x = _residual()
    gates = graph.gates(x.flip(0))
    expected = path_kernel(graph, x, gates1=gates, unit_scales=True)
    torch.testing.assert_close(_sum_of_subnetworks(graph, x, gates1=gates), expected)
    both = {"gates1": gates.batch(slice(1)), "gates2": gates.batch(slice(1, 4))}
    torch.testing.assert_close(_sum_of_subnetworks(graph, x[:1], x[1:], **both), expected[:1, 1:])
    with pytest.raises(ValueError, match="give both or neither"):
        subnetwork_kernel(graph, x, x, blocks=(), gates1=gates)
    with pytest.raises(ValueError, match="`gates2` are the gates of `x2`, which is not given"):
        subnetwork_kernel(graph, x, blocks=(), gates2=gates)
    with pytest.raises(ValueError, match="`gates1` has 2 examples but its input has 4"):
        subnetwork_kernel(graph, x, blocks=(), gates1=gates.batch(slice(2)))
    with pytest.raises(ValueError, match=r"`gates2` are for the gate nodes first\.relu1"):
        subnetwork_kernel(graph, x, x, blocks=(), gates1=gates, gates2=residual_subnetwork(graph, ()).gates(x))


class ConvolutionalResidual(nn.Module):
    """An identity skip and a projection, a gate after each sum, and a max pool behind."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(1, 2, 2, bias=False)
        self.one, self.two = (nn.Conv1d(2, 2, 3, padding=1, bias=False) for _ in range(2))
        self.three, self.four = (nn.Conv1d(2, 2, 3, padding=1, bias=False) for _ in range(2))
        self.projection = nn.Conv1d(2, 2, 1, bias=False)
        self.last = nn.Linear(2, 1, bias=False)

    def forward(self, x):
        z = F.relu(self.stem(x))
        z = F.relu(self.two(F.relu(self.one(z))) + z)
        z = F.relu(self.projection(z) + self.four(F.relu(self.three(z))))
        return self.last(F.max_pool1d(z, 3, 1, 1).mean(2))


def test_subnetworks_of_a_convolutional_network_with_a_projection():
    model = ConvolutionalResidual().double()
    x = torch.randn(3, 1, 6, generator=torch.Generator().manual_seed(0), dtype=F64)
    graph = npath.trace(model, x[:1])
    first, second = residual_adds(graph)
    weights = {
        kept: {p.split(".")[0] for p in residual_subnetwork(graph, kept).params} for kept in [(), (first,), (second,)]
    }
    assert weights[()] == {"stem", "projection", "last"}
    assert weights[(first,)] == {"stem", "one", "two", "projection", "last"}
    assert weights[(second,)] == {"stem", "three", "four", "last"}
    torch.testing.assert_close(_sum_of_subnetworks(graph, x), path_kernel(graph, x, unit_scales=True))


def test_a_subnetwork_is_a_network_of_its_own():
    graph, x = _residual(2, 1, gamma_post=0.5)
    model = graph.model
    first, second = residual_adds(graph)
    part = subnetwork(graph, {first: 1, second: 0})
    z = F.relu(model.first[0](x))
    expected = model.last[0](0.5 * 0.5 * F.relu(model.skipped[0][0](z)))
    torch.testing.assert_close(npath.output(part, x), expected)
    assert part.n_paths == 4 * 5**2
    whole = subnetwork(graph, {})
    assert whole.gate_names == graph.gate_names
    torch.testing.assert_close(npath.output(whole, x), npath.output(graph, x))
    some = subnetwork(graph, {second: 0})
    torch.testing.assert_close(npath.output(some, x), model.last[0](0.25 * (z + F.relu(model.skipped[0][0](z)))))


class SumAtTheEnd(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return x + self.two(F.relu(self.one(x))) + 1.0


def test_a_sum_that_is_the_output_and_sums_with_constants():
    model = SumAtTheEnd().double()
    x = torch.randn(3, 2, dtype=F64)
    graph = npath.trace(model, x[:1])
    assert residual_adds(graph) == ("add",)
    torch.testing.assert_close(npath.output(residual_subnetwork(graph, ()), x), x + 1)
    torch.testing.assert_close(npath.output(residual_subnetwork(graph, {"add"}), x), model(x) - x)
    constant = next(node.name for node in graph.nodes if node.kind == "add" and node.name != "add")
    torch.testing.assert_close(npath.output(subnetwork(graph, {constant: 0}), x), model(x) - 1)
    alone = subnetwork(graph, {constant: 1})  # nothing but the constant is left
    torch.testing.assert_close(npath.output(alone, x), torch.ones(3, 2, dtype=F64))


def test_choices_that_do_not_fit_are_refused():
    graph, x = _residual(2, 1)
    with pytest.raises(ValueError, match=r"`branches` names 'first\.relu1', which is no sum of this graph; its"):
        subnetwork(graph, {"first.relu1": 0})
    with pytest.raises(ValueError, match="must give an index from 0 to 1 for 'add', got 2"):
        subnetwork(graph, {"add": 2})
    with pytest.raises(ValueError, match="no residual sums of this graph: sum; they are add, add"):
        subnetwork_kernel(graph, x, blocks={"add", "sum"})
    with pytest.raises(TypeError, match=r"`blocks` must be a collection of names, such as \{'add'\}, got one name"):
        residual_subnetwork(graph, "add")


def test_sums_without_a_skip_are_refused():
    class Parallel(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 1)

        def forward(self, x):
            z = self.one(x)
            return self.two(F.relu(z) + z)

    graph = npath.trace(Parallel(), torch.ones(1, 2))
    with pytest.raises(ValueError, match="the sum 'add' has as many linear nodes on either branch"):
        residual_adds(graph)
    assert len(subnetwork(graph, {"add": 1}).gate_names) == 0
    three = tuple(replace(node, inputs=("input", *node.inputs)) if node.name == "add" else node for node in graph.nodes)
    with pytest.raises(ValueError, match="the sum 'add' has 3 branches"):
        residual_adds(replace(graph, nodes=three))
