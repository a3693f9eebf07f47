"""Laws of the limits: symmetry, blocks, subsets, widths, zeros and duplicates, precision, needed positions."""

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import nn

import neuralpath as npath
from neuralpath import nets
from neuralpath.gates import GeluGate
from neuralpath.kernels import tiling
from neuralpath.kernels.limit.activations import Pair
from neuralpath.kernels.limit.fused_chains import chain_of
from neuralpath.kernels.limit.limit_kernel import (
    LimitKernel,
    limit_output_kernel,
    limit_path_kernel,
    limit_tangent_kernel,
)
from neuralpath.kernels.limit.limit_network import limit_network
from neuralpath.kernels.limit.limit_parts import limit_tangent_parts
from neuralpath.kernels.limit.limit_reading import Need, ReadingTiles, pair_cost
from tiny import Net, conv1, conv2, dense

F64 = torch.float64
KERNELS = [limit_tangent_kernel, limit_output_kernel, limit_path_kernel]
KINDS = {limit_tangent_kernel: "ntk", limit_output_kernel: "nngp", limit_path_kernel: "path"}


def _residual(m, x):
    z = F.relu(m.a(x))
    z = F.avg_pool1d(z, 2) + F.relu(m.b(z))
    return m.c(F.gelu(m.d(z)).flatten(1))


NETS = {
    "dense": (lambda: nets.FC(4, 3, 4, bias=True), (4,)),
    "pooled": (
        lambda: nn.Sequential(
            conv2(2, 3, 3, padding=1),
            nn.ReLU(),
            conv2(3, 2, 2, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            dense(2, 2),
        ),
        (2, 5, 4),
    ),
    "flattened": (
        lambda: nn.Sequential(
            conv1(2, 3, 3, True, padding=1), nn.ReLU(), nn.Flatten(), dense(18, 2), nn.ReLU(), dense(2, 1)
        ),
        (2, 6),
    ),
    "residual": (
        lambda: Net(
            _residual, a=conv1(2, 3, 3, padding=1), b=conv1(3, 3, 2, stride=2), d=conv1(3, 3, 2), c=dense(6, 1)
        ),
        (2, 6),
    ),
    "spatial outputs": (
        lambda: nn.Sequential(conv1(2, 3, 3), nn.GELU(), nn.AvgPool1d(2), conv1(3, 2, 1), nn.Flatten()),
        (2, 7),
    ),
}


@pytest.fixture(autouse=True)
def _torch_only(monkeypatch):
    """The fused kernels have tests of their own; here the general reading is meant."""
    monkeypatch.setenv("NEURALPATH_NUMBA", "0")


@functools.cache
def _traced(name, dtype=F64, seed=0):
    constructor, shape = NETS[name]
    model = constructor().to(dtype).eval()
    x = torch.randn(7, *shape, generator=torch.Generator().manual_seed(seed), dtype=F64).to(dtype)
    return npath.trace(model, x[:1]), x


def _arguments(name):
    arguments = {"bias_variance": 0.2} if name in ("dense", "flattened") else {}
    return arguments | ({"weight_variance": 2.0} if name == "residual" else {})


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", NETS)
def test_symmetric_positive_and_the_same_in_blocks(name, kernel):
    graph, x = _traced(name)
    arguments = _arguments(name)
    whole = kernel(graph, x, **arguments)
    assert torch.equal(whole, whole.T)
    scale = float(whole.diagonal().max())
    assert float(torch.linalg.eigvalsh(whole).min()) > -1e-12 * scale
    close = {"rtol": 0, "atol": 1e-13 * scale}
    torch.testing.assert_close(kernel(graph, x, x, **arguments), whole, **close)
    torch.testing.assert_close(kernel(graph, x[2:5], x[4:], **arguments), whole[2:5, 4:], **close)
    torch.testing.assert_close(kernel(graph, x[4:], x[2:5], **arguments), whole[4:, 2:5], **close)
    carried = () if kernel is limit_output_kernel else (Pair.SLOPES,)
    general = ReadingTiles.of(limit_network(graph, carried, **arguments), x, None)
    smallest = pair_cost(general.network, general.needs, x.dtype).smallest
    small = LimitKernel(graph, kind=KINDS[kernel], **arguments).tiles(x, memory=4 * smallest)
    assert small.plan.block1 < len(x)
    assert small.plan.working_bytes <= 4 * smallest
    blocked = small.filled()
    assert torch.equal(blocked, blocked.T)
    torch.testing.assert_close(blocked, whole, **close)


@pytest.mark.parametrize("name", NETS)
def test_variances_are_computed_anew_where_they_do_not_fit(name):
    graph, x = _traced(name)
    network = limit_network(graph, (Pair.SLOPES,), **_arguments(name))
    tiles, plan = ReadingTiles.of(network, x, None).planned(10**9)
    assert plan.kept_bytes > 0
    own = pair_cost(network, tiles.own_needs, x.dtype)
    least = pair_cost(network, tiles.needs, x.dtype).smallest + 2 * own.smallest
    again, plan = ReadingTiles.of(network, x.repeat(60, *(1,) * (x.ndim - 1)), None).planned(least)
    assert plan.kept_bytes == 0
    assert again.variances is None
    tile = next(iter(plan.tiles()))
    torch.testing.assert_close(again.kernels(tile)[-1], tiles.kernels(tile)[-1], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", NETS)
def test_zeros_and_duplicates_are_finite_and_duplicates_agree(name, kernel):
    graph, x = _traced(name)
    x = torch.cat([x[:2], x[:2], torch.zeros_like(x[:1]), -x[:1]])
    values = kernel(graph, x, **_arguments(name))
    assert bool(torch.isfinite(values).all())
    torch.testing.assert_close(values[0], values[2], rtol=1e-13, atol=1e-13)
    # Not only finite: an example is at the angle 0 with its duplicate, to all digits.
    torch.testing.assert_close(values[0, 0], values[0, 2], rtol=1e-13, atol=0)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", NETS)
def test_single_precision_is_near_double(name, kernel):
    exact = kernel(*_traced(name), **_arguments(name))
    rounded = kernel(*_traced(name, torch.float32), **_arguments(name))
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded.double(), exact, rtol=0, atol=2e-5 * float(exact.diagonal().max()))


@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 100))
@settings(max_examples=12)
def test_kernels_of_homogeneous_networks_scale_with_their_inputs(scale, seed):
    graph, _ = _traced("pooled")
    x = torch.randn(3, 2, 5, 4, generator=torch.Generator().manual_seed(seed), dtype=F64)
    for kernel in KERNELS:
        torch.testing.assert_close(kernel(graph, scale * x, x), scale * kernel(graph, x), rtol=1e-12, atol=1e-12)


def test_by_hand_for_orthogonal_and_opposite_inputs():
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0]], dtype=F64)
    graph = npath.trace(nets.FC(2, 5, 2).double(), x[:1])
    pi = torch.pi
    # kappa(pi / 2) = |x||x'| / 2 pi, kappa(pi) = 0; K = <x,x'> (pi - theta) / pi + Sigma.
    sigma = torch.tensor([[1, 2 / pi, 0], [2 / pi, 4, 2 / pi], [0, 2 / pi, 1]], dtype=F64)
    torch.testing.assert_close(limit_output_kernel(graph, x), sigma, rtol=1e-14, atol=1e-15)
    tangent = sigma + torch.diag(torch.tensor([1.0, 4.0, 1.0], dtype=F64))
    torch.testing.assert_close(limit_tangent_kernel(graph, x), tangent, rtol=1e-14, atol=1e-15)


def test_the_angle_of_a_zero_vector_is_a_right_one():
    """With trained biases of variance 0 a zero input has a kernel; its gates are open with probability 1/4 jointly."""
    x = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=F64)
    graph = npath.trace(nets.FC(2, 5, 2, bias=True).double(), x[:1])
    kernel = limit_tangent_kernel(graph, x, bias_gradient=1.0)
    # (<x,x'> + 1) * 2 E[gamma gamma'] + Sigma + 1
    torch.testing.assert_close(kernel, torch.tensor([[4.0, 1.5], [1.5, 1.5]], dtype=F64), rtol=1e-14, atol=0)


def test_widths_and_weights_do_not_matter():
    x = torch.randn(3, 2, 6, dtype=F64)
    narrow, wide = (
        npath.trace(nn.Sequential(conv1(2, w, 3), nn.ReLU(), nn.Flatten(), dense(4 * w, 1)).double(), x[:1])
        for w in (2, 31)
    )
    for kernel in KERNELS:
        assert torch.equal(kernel(narrow, x), kernel(wide, x))


def test_a_linear_network_passes_the_inner_product_on():
    x = torch.randn(3, 4, dtype=F64)
    graph = npath.trace(nn.Sequential(dense(4, 3), dense(3, 3), dense(3, 1)).double(), x[:1])
    torch.testing.assert_close(limit_output_kernel(graph, x), x @ x.T)
    torch.testing.assert_close(limit_tangent_kernel(graph, x), 3 * x @ x.T)
    single = npath.trace(dense(4, 2).double(), x[:1])
    torch.testing.assert_close(limit_tangent_kernel(single, x, output_variance="half"), x @ x.T)


def test_a_leaky_gate_of_slope_one_and_replaced_activations():
    x = torch.randn(3, 4, dtype=F64)
    graph = npath.trace(nets.FC(4, 3, 3).double(), x[:1])
    linear = limit_tangent_kernel(graph, x, activation=npath.LeakyGate(1.0))
    torch.testing.assert_close(linear, 3 * x @ x.T)
    torch.testing.assert_close(limit_tangent_kernel(graph, x, activation=npath.LinearGate()), linear)
    soft = npath.SoftGate(8.0)
    by_name = limit_tangent_kernel(graph, x, activation=dict.fromkeys(graph.gate_names, soft))
    assert torch.equal(by_name, limit_tangent_kernel(graph, x, activation=soft))
    # A sharp soft gate is nearly a hard one.
    sharp = limit_tangent_kernel(graph, x, activation=npath.SoftGate(1e4))
    torch.testing.assert_close(sharp, limit_tangent_kernel(graph, x), rtol=0, atol=2e-3 * float(sharp.max()))


def test_closed_forms_and_quadrature_agree_on_a_network():
    x = torch.randn(3, 2, 6, dtype=F64)
    model = nn.Sequential(conv1(2, 3, 3), nn.SiLU(), nn.Flatten(), dense(12, 3), nn.SiLU(), dense(3, 1)).double()
    graph = npath.trace(model, x[:1])
    torch.testing.assert_close(
        limit_tangent_kernel(graph, x, activation=F.silu), limit_tangent_kernel(graph, x), rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("name", ["pooled", "flattened"])
def test_parts_sum_to_the_whole_and_their_transposes_change_roles(name):
    graph, x = _traced(name)
    soft = npath.SoftGate(3.0) if name == "flattened" else GeluGate()
    parts = limit_tangent_parts(graph, x, activation=soft, bias_variance=0.1)
    whole = limit_tangent_kernel(graph, x, activation=soft, bias_variance=0.1)
    torch.testing.assert_close(parts.total, whole, rtol=1e-13, atol=1e-13)
    for part in (parts.value, parts.feature, parts.cross):
        assert torch.equal(part, part.T)
    for part in (parts.value, parts.feature):  # Gram matrices of their own features
        assert float(torch.linalg.eigvalsh(part).min()) > -1e-12 * float(part.diagonal().max())
    block = limit_tangent_parts(graph, x[:3], x[2:], activation=soft, bias_variance=0.1)
    blocked = limit_tangent_parts(graph, x, activation=soft, bias_variance=0.1, memory=300_000)
    for attribute in ("value", "feature", "cross"):
        torch.testing.assert_close(getattr(block, attribute), getattr(parts, attribute)[:3, 2:], rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(getattr(blocked, attribute), getattr(parts, attribute), rtol=1e-12, atol=1e-13)


def test_parts_of_long_inputs_in_single_precision():
    """Images of 3,072 values of variance 1: what a soft gate's feature part is made of is all but rounding there."""
    model = nets.FC(4, 3, 4)
    x = 28 * torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    single = limit_tangent_parts(npath.trace(model, x[:1]), x, activation=npath.SoftGate(10.0))
    double = limit_tangent_parts(
        npath.trace(model.double(), x[:1].double()), x.double(), activation=npath.SoftGate(10.0)
    )
    for part, bound in (("value", 1e-5), ("feature", 2e-3), ("cross", 1e-3)):
        rounded, exact = getattr(single, part).double(), getattr(double, part)
        torch.testing.assert_close(rounded.diagonal(), exact.diagonal(), rtol=bound, atol=0)


def test_parts_in_small_tiles_and_beyond_memory(monkeypatch):
    graph, x = _traced("dense")
    soft = npath.SoftGate(3.0)
    parts = limit_tangent_parts(graph, x, activation=soft)
    tiled = limit_tangent_parts(graph, x, activation=soft, memory=4_000)
    for name in ("value", "feature", "cross"):
        torch.testing.assert_close(getattr(tiled, name), getattr(parts, name), rtol=1e-12, atol=1e-13)
    result_bytes = 3 * len(x) ** 2 * x.element_size()
    monkeypatch.setattr(tiling, "available_memory", lambda: result_bytes - 1)
    with pytest.raises(MemoryError, match="limit tangent kernel"):
        limit_tangent_parts(graph, x, activation=soft)


def test_parts_beyond_the_range_are_refused():
    graph, x = _traced("dense")
    with pytest.raises(OverflowError, match=r"limit tangent kernel.*float64"):
        limit_tangent_parts(graph, 1e200 * x, activation=npath.SoftGate(3.0))


def test_hard_gates_have_no_feature_part():
    graph, x = _traced("dense")
    parts = limit_tangent_parts(graph, x, bias_variance=0.2)
    assert float(parts.feature.abs().max()) == float(parts.cross.abs().max()) == 0.0
    torch.testing.assert_close(parts.value, limit_tangent_kernel(graph, x, bias_variance=0.2), rtol=1e-14, atol=0)


def test_flattened_networks_need_equal_positions_only():
    for name, most in (("flattened", Need.EQUAL), ("pooled", Need.ALL)):
        graph, x = _traced(name)
        network = limit_network(graph, ())
        tiles = ReadingTiles.of(network, x, None)
        assert max(tiles.needs.values()) is most
        shapes = [values.shape for values in network.distributions.values() if not values.fixed]
        positions = max(math.prod(shape[1:]) for shape in shapes)
        largest = positions if most is Need.EQUAL else positions**2
        assert largest * 8 <= pair_cost(network, tiles.needs, F64).bytes_per_pair <= 16 * largest * 8
        assert max(tiles.own_needs.values()) is Need.EQUAL  # no activation reads what has been pooled


def test_other_networks_are_no_chains():
    """What the fused kernels would read wrongly is left to the general reading."""
    x = torch.randn(1, 2, 6, 6, dtype=F64)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), dense(3, 1)]
    others = {
        "dilation": [conv2(2, 3, 2, dilation=2), nn.ReLU(), *head],
        "another activation": [conv2(2, 3, 2), nn.SiLU(), *head],
        "a sum instead of a mean": [conv2(2, 3, 2), nn.ReLU(), nn.LPPool2d(1, 5), nn.Flatten(), dense(3, 1)],
        "padded pool": [conv2(2, 3, 2), nn.ReLU(), nn.AvgPool2d(2, 2, 1), conv2(3, 3, 2), nn.ReLU(), *head],
        "reflected": [conv2(2, 3, 3, padding=1, padding_mode="reflect"), nn.ReLU(), *head],
        "activation at the end": [conv2(2, 3, 2), nn.ReLU(), *head, nn.ReLU()],
        "activation behind a pool": [conv2(2, 3, 2), nn.AvgPool2d(2), nn.ReLU(), *head],
    }
    for name, layers in others.items():
        try:
            graph = npath.trace(nn.Sequential(*layers).double(), x)
        except npath.UnsupportedOperation:
            assert name == "a sum instead of a mean"
            continue
        assert chain_of(limit_network(graph, (Pair.SLOPES,))) is None, name
    trained = nn.Sequential(conv2(2, 3, 2, True), nn.ReLU(), *head).double()
    assert chain_of(limit_network(npath.trace(trained, x), (Pair.SLOPES,), bias_gradient=1.0)) is None


def test_modules_and_graphs_have_the_same_kernels():
    x = torch.randn(4, 3, dtype=F64, generator=torch.Generator().manual_seed(0))
    model = nets.FC(3, 4, 3).double()
    graph = npath.trace(model, x[:1])
    for kernel in KERNELS:
        assert torch.equal(kernel(model, x), kernel(graph, x))
    parts = limit_tangent_parts(model, x, activation=npath.SoftGate(2.0))
    assert torch.equal(parts.total, limit_tangent_parts(graph, x, activation=npath.SoftGate(2.0)).total)


@pytest.mark.parametrize("kind", ["ntk", "nngp", "path"])
def test_the_object_has_diagonals_and_tiles(kind):
    graph, x = _traced("flattened")
    kernel = LimitKernel(graph, kind=kind, bias_variance=0.2)
    matrix = kernel(x)
    torch.testing.assert_close(kernel.diagonal(x), matrix.diagonal(), rtol=1e-13, atol=0)
    for tile, values in kernel.tiles(x):
        assert torch.equal(values, matrix[tile.rows, tile.columns])
