"""The path kernel and the expected tangent kernel, against every sign assignment and against listed paths."""

import functools
import itertools
import math

import pytest
import torch
from hypothesis import given, settings

import neuralpath as npath
import oracles
import sign_oracle
import tiny
import zoo
from closeness import assert_kernel_close
from neuralpath import nets
from neuralpath.graph import nodes as n
from neuralpath.kernels.path.pair_tiles import pair_cost
from strategies import dense_networks

F64 = torch.float64


@pytest.fixture(params=["bits", "products"])
def arithmetic(request, monkeypatch):
    """Population counts, or the matrix products that stand in where numba is off."""
    monkeypatch.setenv("NEURALPATH_NUMBA", "1" if request.param == "bits" else "0")
    return request.param


@functools.cache
def _tiny(name):
    model, x = tiny.build(name)
    return npath.trace(model, x[:1]), x


def _variances(graph):
    linear_nodes = [node.name for node in graph.nodes if isinstance(node, n.LinearNode)]
    return {name: 0.5 + 0.3 * i for i, name in enumerate(linear_nodes)}


@functools.cache
def _kernel_by_signs(name):
    graph, x = _tiny(name)
    return sign_oracle.path_kernel_by_signs(graph, x)


@functools.cache
def _tangent_by_signs(name):
    graph, x = _tiny(name)
    return sign_oracle.expected_tangent_kernel_by_signs(graph, x, variances=_variances(graph), bias_variance=0.4)


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize("name", tiny.NETS)
def test_kernel_is_the_mean_over_all_signs(name):
    graph, x = _tiny(name)
    oracle = _kernel_by_signs(name)
    kernel = npath.path_kernel(graph, x)
    assert_kernel_close(kernel, oracle, terms=2**14)
    assert torch.equal(kernel, kernel.T)
    assert_kernel_close(npath.path_kernel(graph, x[:1], x[1:]), oracle[:1, 1:], terms=2**14, scale=oracle.max().item())


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize("name", tiny.NETS)
def test_expected_tangent_kernel_is_the_mean_over_all_signs(name):
    graph, x = _tiny(name)
    kernel = npath.expected_tangent_kernel(graph, x, weight_variance=_variances(graph), bias_variance=0.4)
    assert_kernel_close(kernel, _tangent_by_signs(name), terms=2**16)


@pytest.mark.parametrize("name", tiny.NETS)
def test_float32_agrees_to_its_own_precision(name):
    constructor, _ = tiny.NETS[name]
    graph, x = _tiny(name)
    model = constructor().eval()
    model.load_state_dict(graph.model.state_dict())
    single = npath.trace(model.float(), x[:1].float())
    kernel = npath.path_kernel(single, x.float())
    assert kernel.dtype == torch.float32
    assert_kernel_close(kernel, _kernel_by_signs(name), terms=64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_of_an_image_network(dtype):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8, 2)
    ).to(dtype)
    x = torch.randn(4, 1, 3, 3).to(dtype)
    graph = npath.trace(model, x[:1])
    kernel, gates = npath.path_kernel(graph, x), graph.gates(x)
    assert kernel.dtype == dtype
    exact = npath.path_kernel(npath.trace(model.double(), x[:1].double()), x.double(), gates1=gates)
    assert_kernel_close(kernel, exact, terms=8)


def test_a_constant_added_to_a_single_number_is_a_path():
    class Shifted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(2, 3, bias=False), torch.nn.ReLU(), torch.nn.Linear(3, 1))

        def forward(self, x):
            return self.net(x).squeeze(-1) + 2.0

    model, x = Shifted().double(), torch.randn(3, 2, dtype=F64)
    kernel = npath.path_kernel(model, x)
    assert_kernel_close(kernel, sign_oracle.path_kernel_by_signs(npath.trace(model, x[:1]), x), terms=2**14)
    assert_kernel_close(kernel, npath.path_kernel(model.net, x) + 4.0, terms=64)


@pytest.mark.parametrize("name", ["dense", "circular-max", "residual-blocks"])
def test_a_wrong_rule_would_show(name):
    """With one gate flipped the kernel is another one, so agreement above is not an accident."""
    graph, x = _tiny(name)
    gates = graph.gates(x)
    flipped = npath.Gates(gates.layers | {gates.names[0]: ~gates[0]})
    kernel = npath.path_kernel(graph, x, gates1=flipped)
    assert (kernel - _kernel_by_signs(name)).abs().max() > 1e-3


def _layers(graph, x):
    tensors = []
    for node, layer in zip(graph.gate_nodes, graph.gates(x[None]).layers.values(), strict=True):
        if layer.dtype == torch.int64:
            mask = torch.zeros(node.shape[0], math.prod(node.in_space), dtype=F64)
            layer = mask.scatter(1, layer[0].reshape(-1, 1), 1.0)[None]
        tensors.append(layer[0].double())
    return tensors


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize("case", ["dense", "circular-average", "circular-max", "residual"])
def test_kernel_equals_listed_paths(case):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 4, generator=generator, dtype=F64)
    if case == "dense":
        model, paths = nets.FC(4, [5, 3, 4], generator=generator), oracles.dense_paths([4, 5, 3, 4, 1])
    elif case == "residual":
        pre, post = [0.5, 0.8], [0.7, 1.3]
        model = nets.ResidualFC(4, 2, 2, 2, gamma_pre=pre, gamma_post=post, generator=generator)
        paths = oracles.residual_paths(4, 2, 2, 2, pre, post)
    else:
        pooling = case.split("-")[1]
        model = nets.CircularCNN(4, 3, 2, 2, window=3, pooling=pooling, generator=generator)
        paths = oracles.circular_paths(4, 3, 3, 2, 2)
    graph = npath.trace(model.double(), x[:1])
    gates = [_layers(graph, example) for example in x]
    if case == "circular-average":
        for layers in gates:
            layers.insert(2, torch.full((3, 4), 0.25, dtype=F64))
    oracle = torch.tensor(
        [
            [oracles.path_kernel_by_enumeration(paths, x[i], gates[i], x[j], gates[j]) for j in range(4)]
            for i in range(4)
        ],
        dtype=F64,
    )
    assert oracle.abs().max() > 0.1
    assert_kernel_close(npath.path_kernel(graph, x), oracle, terms=len(paths))


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize("name", ["mobilenet", "every-gate", "scalar", "fc"])
def test_kernel_is_the_inner_product_of_bundled_features(name):
    model, x = zoo.build(name, dtype=F64)
    graph = npath.trace(model, x[:1])
    features = npath.path_features(graph, x, bundled=True, limit=10**6).detach()
    assert_kernel_close(npath.path_kernel(graph, x), features @ features.T, terms=features.shape[1])


def _dense_gates(width, depth, batch=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    model = nets.FC(7, width, depth, generator=generator).double()
    x = torch.randn(batch, 7, generator=generator, dtype=F64)
    return npath.trace(model, x[:1]), x


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize("width", [1, 63, 64, 65, [3, 130, 64, 17]])
def test_dense_kernel_is_gram_times_overlaps(width):
    graph, x = _dense_gates(width, 5 if isinstance(width, int) else None)
    expected = x @ x.T
    normalized = (x @ x.T) / 7
    for layer in graph.gates(x).layers.values():
        expected = expected * (layer.double() @ layer.double().T)
        normalized = normalized * (layer.double() @ layer.double().T) / layer.shape[1]
    assert_kernel_close(npath.path_kernel(graph, x), expected, terms=40)
    assert_kernel_close(npath.path_kernel(graph, x, normalize=True), normalized, terms=40)


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize(("variance", "depth"), [(0.5, 2), (2 / 16, 5)])
def test_theorem_for_dense_networks(variance, depth):
    """P1 theorem 5.1: d * sigma^(2(d-1)) * H."""
    graph, x = _dense_gates(16, depth)
    expected = depth * variance ** (depth - 1) * npath.path_kernel(graph, x)
    assert_kernel_close(npath.expected_tangent_kernel(graph, x, weight_variance=variance), expected, terms=100)


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize("pooling", ["average", "max"])
@pytest.mark.parametrize(("n_conv", "n_dense"), [(1, 1), (3, 2)])
def test_theorem_for_convolution_with_pooling(pooling, n_conv, n_dense):
    """P2 theorem 5.1 (ii), the pooling factor counted once, inside H (erratum E3)."""
    generator = torch.Generator().manual_seed(0)
    model = nets.CircularCNN(6, 5, n_conv, n_dense, window=2, pooling=pooling, generator=generator).double()
    x = torch.randn(4, 6, generator=generator, dtype=F64)
    graph = npath.trace(model, x[:1])
    cv, fc = 0.3, 0.7
    linear_nodes = [node for node in graph.nodes if isinstance(node, n.LinearNode)]
    variance = {node.name: cv if node.windows else fc for node in linear_nodes}
    beta = n_conv * cv ** (n_conv - 1) * fc**n_dense + n_dense * cv**n_conv * fc ** (n_dense - 1)
    expected = beta * npath.path_kernel(graph, x)
    assert_kernel_close(npath.expected_tangent_kernel(graph, x, weight_variance=variance), expected, terms=1000)


def _block_products(graph, x, n_blocks, depth):
    layers = [layer.double() for layer in graph.gates(x).layers.values()]
    overlaps = [layer @ layer.T for layer in layers] + [torch.ones(len(x), len(x), dtype=F64)]
    return [math.prod(overlaps[b * depth : (b + 1) * depth]) for b in range(n_blocks)]


@pytest.mark.usefixtures("arithmetic")
def test_residual_kernel_is_the_sum_over_all_subsets_and_its_theorem():
    """P2 lemma 4.2 and theorem 5.1 (iii), with constants as the manual has them."""
    skips, depth, variance = 3, 2, 0.4
    pre, post = [0.5, 0.8, 1.2], [0.7, 1.3, 0.9]
    generator = torch.Generator().manual_seed(0)
    model = nets.ResidualFC(4, 6, skips, depth, gamma_pre=pre, gamma_post=post, generator=generator).double()
    x = torch.randn(5, 4, generator=generator, dtype=F64)
    graph = npath.trace(model, x[:1])
    blocks = _block_products(graph, x, skips + 2, depth)
    ends = (x @ x.T) * blocks[0] * blocks[-1]
    plain = torch.zeros_like(ends)
    scaled, tangent = plain.clone(), plain.clone()
    for subset in itertools.chain.from_iterable(itertools.combinations(range(skips), k) for k in range(skips + 1)):
        kernel = ends * math.prod((blocks[j + 1] for j in subset), start=torch.ones_like(ends))
        gamma = math.prod(pre[j] for j in subset) * math.prod(post)
        layers = (len(subset) + 2) * depth
        plain += kernel
        scaled += gamma**2 * kernel
        tangent += layers * variance ** (layers - 1) * gamma**2 * kernel
    assert_kernel_close(npath.path_kernel(graph, x, unit_scales=True), plain, terms=1000)
    assert_kernel_close(npath.path_kernel(graph, x), scaled, terms=1000)
    assert_kernel_close(npath.expected_tangent_kernel(graph, x, weight_variance=variance), tangent, terms=1000)
    factorized = ends * math.prod(1 + block for block in blocks[1:-1])
    assert_kernel_close(factorized, plain, terms=1000)


def test_expected_tangent_kernel_is_the_mean_over_random_draws():
    generator = torch.Generator().manual_seed(0)
    model = nets.GCONV((1, 4, 4), 1, channels=(3, 4), hidden=(5,), bias=True, generator=generator).double()
    x = torch.randn(3, 1, 4, 4, generator=generator, dtype=F64)
    graph = npath.trace(model, x[:1])
    gates = graph.gates(x)
    expected = npath.expected_tangent_kernel(graph, x)
    draws = []
    for _ in range(600):
        params = {}
        for node in graph.weights():
            (name,) = node.parameters
            like = graph.params[name]
            if isinstance(node, n.LinearNode):
                size = (2 / node.fan_in) ** 0.5
                params[name] = (torch.randn(like.shape, generator=generator, dtype=F64) * size).requires_grad_()
            else:
                params[name] = torch.zeros_like(like).requires_grad_()
        y = npath.output(graph, x, params=params, gates=gates)[:, 0]
        rows = [
            torch.cat([g.flatten() for g in torch.autograd.grad(v, list(params.values()), retain_graph=True)])
            for v in y
        ]
        jacobian = torch.stack(rows)
        draws.append(jacobian @ jacobian.T)
    sample = torch.stack(draws)
    error = sample.std(0) / len(draws) ** 0.5
    assert ((sample.mean(0) - expected).abs() <= 5 * error).all()
    assert ((sample.mean(0) - 1.25 * expected).abs() > 5 * error).any()  # a wrong value would be seen


def _permuted(graph, gates, order):
    return npath.Gates(dict(zip(gates.names, [gates[i] for i in order], strict=True)))


def test_order_of_gate_layers_matters_for_convolution_only():
    """C23, exact part, and erratum E20."""
    graph, x = _dense_gates(8, 5)
    gates = graph.gates(x)
    kernels = [npath.path_kernel(graph, x, gates1=_permuted(graph, gates, o)) for o in itertools.permutations(range(4))]
    for kernel in kernels:
        assert_kernel_close(kernel, kernels[0], terms=20)
    generator = torch.Generator().manual_seed(0)
    model = nets.CircularCNN(6, 4, 3, 1, window=2, pooling="average", generator=generator).double()
    x = torch.randn(4, 6, generator=generator, dtype=F64)
    graph = npath.trace(model, x[:1])
    gates = graph.gates(x)
    kernels = [npath.path_kernel(graph, x, gates1=_permuted(graph, gates, o)) for o in itertools.permutations(range(3))]
    values = {round(kernel[0, 1].item(), 9) for kernel in kernels}
    assert len(values) == 6


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize("pooling", ["average", "max"])
def test_circular_convolution_with_pooling_is_rotation_invariant(pooling):
    """P2 lemma 4.3: invariance, and the printed form with the pooling factor counted once."""
    generator = torch.Generator().manual_seed(0)
    model = nets.CircularCNN(5, 4, 2, 2, window=3, pooling=pooling, generator=generator).double()
    x = torch.randn(3, 5, generator=generator, dtype=F64)
    graph = npath.trace(model, x[:1])
    kernel = npath.path_kernel(graph, x)
    for shift in range(1, 5):
        assert_kernel_close(npath.path_kernel(graph, x, x.roll(shift, 1)), kernel, terms=1000)
    printed = torch.zeros(3, 3, dtype=F64)
    for shift in range(5):
        rotated = x.roll(-shift, 1)
        overlap = npath.path_overlap(graph, x, rotated, per_input=True).reshape(3, 3, 5)
        printed += torch.einsum("ai,bi,abi->ab", x, rotated, overlap)
    if pooling == "average":
        printed /= 25  # two factors 1/d_in, which the overlap of gates leaves out
        assert_kernel_close(kernel, printed, terms=1000)
    else:
        assert (kernel - printed).abs().max() < 1e-12 * kernel.abs().max() * 1000


@given(dense_networks())
@settings(max_examples=20)
def test_laws_of_a_kernel(drawn):
    model, x = drawn.build()
    graph = npath.trace(model, x[:1])
    kernel = npath.path_kernel(graph, x)
    assert torch.equal(kernel, kernel.T)
    assert torch.equal(kernel, npath.path_kernel(graph, x, x.clone()))
    eigenvalues = torch.linalg.eigvalsh(kernel)
    assert eigenvalues[0] >= -1e-12 * eigenvalues[-1].clamp(min=1e-300)
    if not drawn.bias:
        assert torch.equal(npath.path_kernel(graph, 2 * x), 4 * kernel)
    with torch.no_grad():
        first = next(model.parameters())
        order = torch.randperm(first.shape[0], generator=torch.Generator().manual_seed(0))
        layers = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
        layers[0].weight.copy_(layers[0].weight[order])
        if layers[0].bias is not None:
            layers[0].bias.copy_(layers[0].bias[order])
        layers[1].weight.copy_(layers[1].weight[:, order])
    assert_kernel_close(npath.path_kernel(graph, x), kernel, terms=100)


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize("name", ["fc", "gconv", "densenet", pytest.param("resnet18", marks=pytest.mark.slow)])
def test_tiles_equal_the_whole(name):
    model, x = zoo.build(name, dtype=F64)
    graph = npath.trace(model, x[:1])
    whole = npath.path_kernel(graph, x, normalize=True)
    cost = pair_cost(graph, F64, 1)
    for pairs in (1, 6):
        memory = pairs * cost.bytes_per_pair + 8 * cost.bytes_per_example
        tiled = npath.path_kernel(graph, x, normalize=True, memory=memory)
        torch.testing.assert_close(tiled, whole, rtol=1e-13, atol=0)
    torch.testing.assert_close(npath.path_kernel(graph, x[:2], x, normalize=True), whole[:2], rtol=1e-13, atol=0)


def test_many_dense_examples_in_several_tiles():
    graph, x = _dense_gates([70, 64, 130], None, batch=700)
    whole = npath.path_kernel(graph, x)
    small = npath.path_kernel(graph, x, memory=150_000)
    assert_kernel_close(small, whole, terms=20)
    assert torch.equal(small, small.T)


def test_resnet18_in_float32_needs_normalize_and_then_agrees_with_float64():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = zoo._randomize_norms(zoo.ResNet18())
        x = torch.randn(2, 3, 32, 32)
    graph = npath.trace(model, x[:1])
    with pytest.raises(OverflowError, match=r"float32.*`normalize=True`"):
        npath.path_kernel(graph, x)
    single = npath.path_kernel(graph, x, normalize=True)
    gates = graph.gates(x)
    double = npath.trace(model.double(), x[:1].double())
    exact = npath.path_kernel(double, x.double(), normalize=True, gates1=gates)
    assert_kernel_close(single, exact, terms=500)
    assert npath.path_kernel(double, x.double(), gates1=gates).max() > 1e40


def test_deep_dense_network_keeps_its_range():
    graph, x = _dense_gates(256, 300, batch=3)
    with pytest.raises(OverflowError, match="use `normalize=True`"):
        npath.path_kernel(graph, x)
    log = (x @ x.T).abs().log() - math.log(7)
    for layer in graph.gates(x).layers.values():
        log += (layer.double() @ layer.double().T).log() - math.log(256)
    kernel = npath.path_kernel(graph, x, normalize=True)
    torch.testing.assert_close(kernel.abs().log(), log, rtol=1e-10, atol=1e-10)


def test_gates_alone_with_any_input():
    """P2 and P3: the value network may see all ones while the gates are those of the images."""
    model, x = zoo.build("gconv", dtype=F64)
    graph = npath.trace(model, x[:1])
    gates = graph.gates(x)
    ones = torch.ones_like(x)
    kernel = npath.path_kernel(graph, ones, gates1=gates)
    crossed = npath.path_kernel(
        graph, ones[:2], ones[2:], gates1=gates.batch(slice(0, 2)), gates2=gates.batch(slice(2, 5))
    )
    torch.testing.assert_close(crossed, kernel[:2, 2:])
    assert not torch.allclose(kernel, npath.path_kernel(graph, x))


def test_unit_scales_is_refused_where_it_has_no_meaning():
    model = tiny.Net(
        lambda m, x: m.b((lambda z: z + 0.5 * torch.relu(z))(m.a(x))), a=tiny.dense(2, 3), b=tiny.dense(3, 1)
    )
    graph = npath.trace(model, torch.randn(1, 2))
    with pytest.raises(ValueError, match="`unit_scales` has no meaning at 'add': branches of 'a'"):
        npath.path_kernel(graph, torch.randn(2, 2), unit_scales=True)


def test_unit_scales_of_branches_that_are_flattened_together():
    model = tiny.Net(lambda m, x: m.a(torch.cat([x, -2 * x], 1).flatten(1)), a=tiny.dense(8, 1))
    x = torch.randn(3, 1, 4)
    graph = npath.trace(model, x[:1])
    gram = x[:, 0] @ x[:, 0].T
    torch.testing.assert_close(npath.path_kernel(graph, x), 5 * gram)
    torch.testing.assert_close(npath.path_kernel(graph, x, unit_scales=True), 2 * gram)
    added = tiny.Net(
        lambda m, x: m.a(torch.cat([x, -2 * x], 1).flatten(1) + torch.cat([x, x], 1).flatten(1)), a=tiny.dense(8, 1)
    )
    with pytest.raises(ValueError, match="`unit_scales` has no meaning at 'add': branches of 'signal'"):
        npath.path_kernel(npath.trace(added, x[:1]), x, unit_scales=True)


def test_one_example_and_zero_inputs():
    graph, x = _dense_gates(8, 3)
    assert npath.path_kernel(graph, x[:1]).shape == (1, 1)
    zero = npath.path_kernel(graph, torch.zeros(2, 7, dtype=F64))
    assert torch.equal(zero, torch.zeros(2, 2, dtype=F64))


def test_rules_for_the_variance():
    graph, x = _dense_gates(16, 3)
    he = npath.expected_tangent_kernel(graph, x)
    by_name = {node.name: 2 / node.fan_in for node in graph.nodes if isinstance(node, n.LinearNode)}
    assert_kernel_close(npath.expected_tangent_kernel(graph, x, weight_variance=by_name), he, terms=10)


@pytest.mark.usefixtures("without_type_checks")
def test_bad_input_is_refused_with_a_reason():
    graph, x = _dense_gates(8, 3)
    other, _ = _dense_gates(9, 3)
    broken = x.clone()
    broken[4, 2] = torch.inf
    kernel, tangent = npath.path_kernel, npath.expected_tangent_kernel
    gates, wrong = graph.gates(x), other.gates(x)
    by_name = {node.name: "2" for node in graph.nodes if isinstance(node, n.LinearNode)}
    cases = [
        (ValueError, "`x1` .* 1 of 6 .* 4", lambda: kernel(graph, broken)),
        (ValueError, "`x2` .*NaN", lambda: kernel(graph, x, broken)),
        (TypeError, "`x1` .*floating-point", lambda: kernel(graph, x.long())),
        (ValueError, "`x1` ", lambda: kernel(graph, x[:0])),
        (ValueError, "`gates1` .*shape", lambda: kernel(graph, x, gates1=wrong)),
        (ValueError, "`gates1` .*6.*2", lambda: kernel(graph, x[:2], gates1=gates)),
        (ValueError, "`gates1` and `gates2`", lambda: kernel(graph, x, x, gates1=gates)),
        (ValueError, "`gates2` .*`x2`", lambda: kernel(graph, x, gates2=gates)),
        (ValueError, "`weight_variance` .*unknown: no", lambda: tangent(graph, x, weight_variance={"no": 1.0})),
        (ValueError, "`weight_variance` .*0.0", lambda: tangent(graph, x, weight_variance=0.0)),
        (ValueError, "`bias_variance` .*-1.0", lambda: tangent(graph, x, bias_variance=-1.0)),
        (ValueError, "`memory` .*0", lambda: kernel(graph, x, memory=0)),
        (TypeError, "`weight_variance` .*a str", lambda: tangent(graph, x, weight_variance="he")),
        (TypeError, "`weight_variance` .*NoneType", lambda: tangent(graph, x, weight_variance=None)),
        (TypeError, "`weight_variance` .*a bool", lambda: tangent(graph, x, weight_variance=True)),
        (ValueError, "`weight_variance` .*nan", lambda: tangent(graph, x, weight_variance=float("nan"))),
        (TypeError, r"`weight_variance\['layers.linear1'\]`", lambda: tangent(graph, x, weight_variance=by_name)),
        (TypeError, "`bias_variance` .*a str", lambda: tangent(graph, x, bias_variance="a")),
        (TypeError, "`bias_variance` .*NoneType", lambda: tangent(graph, x, bias_variance=None)),
        (TypeError, "`scale` .*a str", lambda: npath.FanVariance("he")),
        (ValueError, "`scale` .*inf", lambda: npath.FanVariance(float("inf"))),
        (TypeError, "`memory` .*8GiB", lambda: kernel(graph, x, memory="1GiB")),
    ]
    for error, message, call in cases:
        with pytest.raises(error, match=message):
            call()


def test_budget_too_small_names_the_smallest_and_the_sketch():
    model, x = zoo.build("gconv", dtype=F64)
    graph = npath.trace(model, x[:1])
    with pytest.raises(
        MemoryError, match=r"one pair of examples needs .* give at least memory=(\d+), or use `path_sketch`"
    ) as caught:
        npath.path_kernel(graph, x, memory=1000)
    smallest = int(str(caught.value).split("memory=")[1].split(",")[0])
    torch.testing.assert_close(
        npath.path_kernel(graph, x, memory=smallest), npath.path_kernel(graph, x), rtol=1e-13, atol=0
    )


def test_tied_weights_are_refused():
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)
    )
    model[2].weight = model[0].weight
    graph = npath.trace(model, torch.randn(1, 3))
    for kernel in (npath.path_kernel, npath.expected_tangent_kernel):
        with pytest.raises(ValueError, match="is not defined for tied weights"):
            kernel(graph, torch.randn(2, 3))
