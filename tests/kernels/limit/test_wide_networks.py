"""The limits against wide random networks: both forms of E1, soft gates, convolutions, skips, biases and the split."""

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuralpath as npath
from kernels.limit.wide import Draws, drawn, layer_sizes, outputs_of_draws, tangents_of_draws
from neuralpath import nets
from neuralpath.kernels.limit.limit_kernel import limit_output_kernel, limit_path_kernel, limit_tangent_kernel
from neuralpath.kernels.limit.limit_parts import limit_tangent_parts
from tiny import Net, conv1, conv2, dense

F64 = torch.float64
WIDE = 128
DRAWS = 200


class SoftReLU(nn.Module):
    """q * sigmoid(beta q), the gate held constant or not."""

    def __init__(self, beta: float, *, constant: bool = False) -> None:
        super().__init__()
        self.beta, self.constant = beta, constant

    def forward(self, q):
        gate = torch.sigmoid(self.beta * q)
        return q * (gate.detach() if self.constant else gate)


def _inputs(*shape, seed=1):
    return torch.randn(3, *shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def _dense_net(width=WIDE, *, depth=3, outputs=1, activation=nn.ReLU, bias=False):
    layers = [dense(5, width, bias)]
    for _ in range(depth - 2):
        layers += [activation(), dense(width, width, bias)]
    return nn.Sequential(*layers, activation(), dense(width, outputs, bias)).double()


def _pre_activation(m, x):
    z = m.a(x)
    z = z + m.b(F.relu(z))
    return m.d(F.relu(z + 0.5 * m.c(F.relu(z))))


def _after_activation(m, x):
    z = F.relu(m.a(x))
    return m.c((F.avg_pool2d(z, 2) + F.relu(m.b(z))).mean((2, 3)))


NETS = {
    "dense": (lambda w, o: _dense_net(w, outputs=o), (5,), {}),
    "dense, biases": (lambda w, o: _dense_net(w, outputs=o, bias=True), (5,), {"bias": 0.3}),
    "leaky": (
        lambda w, o: _dense_net(w, outputs=o, activation=lambda: nn.LeakyReLU(0.4)),
        (5,),
        {"weight": 2 / 1.16, "output": 2 / 1.16},
    ),
    "SiLU": (lambda w, o: _dense_net(w, outputs=o, activation=nn.SiLU), (5,), {}),
    "softplus": (lambda w, o: _dense_net(w, outputs=o, activation=lambda: nn.Softplus(2.0)), (5,), {"weight": 0.8}),
    "GELU": (lambda w, o: _dense_net(w, outputs=o, activation=nn.GELU), (5,), {}),
    "tanh": (lambda w, o: _dense_net(w, outputs=o, activation=nn.Tanh), (5,), {"bias": 0.1}),
    "residual after the gates": (lambda w, o: nets.ResidualFC(5, w, 2, 1, o, gamma_pre=0.8, gamma_post=0.7), (5,), {}),
    "residual before the gates": (
        lambda w, o: Net(_pre_activation, a=dense(5, w), b=dense(w, w), c=dense(w, w), d=dense(w, o)),
        (5,),
        {},
    ),
    "convolutions, pooled": (
        lambda w, o: nn.Sequential(
            conv2(2, w, 3, padding=1),
            nn.ReLU(),
            conv2(w, w, 3, padding=1, padding_mode="circular"),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            dense(w, o),
        ),
        (2, 3, 4),
        {},
    ),
    "convolutions, flattened": (
        lambda w, o: nn.Sequential(
            conv2(2, w, 3, True, padding=1),
            nn.ReLU(),
            conv2(w, w, 2, True, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            dense(4 * w, o, True),
        ),
        (2, 4, 4),
        {"bias": 0.2},
    ),
    "convolution, pooled before the gate": (
        lambda w, o: nn.Sequential(
            conv1(2, w, 3, dilation=2),
            nn.AvgPool1d(3, 2),
            nn.ReLU(),
            conv1(w, w, 2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            dense(w, o),
        ),
        (2, 11),
        {},
    ),
    "residual, pooled": (
        lambda w, o: Net(_after_activation, a=conv2(2, w, 3, padding=1), b=conv2(w, w, 2, stride=2), c=dense(w, o)),
        (2, 4, 4),
        {},
    ),
}


def _limit_arguments(sizes):
    return {
        "weight_variance": sizes.get("weight", 2.0),
        "output_variance": sizes.get("output", sizes.get("weight", 2.0)),
        "bias_variance": sizes.get("bias", 0.0),
    }


def _model(name, n_outputs=1, *, wider=1):
    constructor, shape, sizes = NETS[name]
    width = WIDE if len(shape) == 1 else WIDE // 2
    model, x = constructor(wider * width, n_outputs).double(), _inputs(*shape)
    graph = npath.trace(model, x[:1])
    full = {"output": sizes.get("weight", 2.0), **sizes}
    return model, x, graph, layer_sizes(graph, **full), _limit_arguments(sizes)


# The others, and the stored values, show the same.
_SLOW = (
    "dense",
    "leaky",
    "softplus",
    "GELU",
    "tanh",
    "residual before the gates",
    "convolution, pooled before the gate",
)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in _SLOW else n for n in NETS])
def test_tangent_kernels_of_wide_networks_are_near_the_limit(name):
    model, x, graph, sizes, arguments = _model(name)
    (kernels,) = tangents_of_draws(model, x, DRAWS, sizes)
    kernels.assert_near(limit_tangent_kernel(graph, x, **arguments))


@pytest.mark.parametrize("name", ["softplus", "tanh", "residual after the gates", "convolutions, pooled"])
def test_outputs_of_wide_networks_are_near_the_limit(name):
    model, x, graph, sizes, arguments = _model(name, n_outputs=100)
    outputs_of_draws(model, x, 2 * DRAWS, sizes).assert_near(limit_output_kernel(graph, x, **arguments))


@pytest.mark.parametrize(("last", "named"), [(2.0, "equal"), (1.0, "half")])
def test_weights_as_torch_has_them_reach_both_limits_of_the_papers(last, named):
    """E1: variance 2 / width everywhere, first layer included, and another in the output layer; plain gradients."""
    model, x = _dense_net(), _inputs(5)
    names = [name for name, _ in model.named_parameters()]
    sizes = {name: ((last if name == names[-1] else 2.0) / WIDE, 1.0) for name in names}
    (kernels,) = tangents_of_draws(model, x, DRAWS, sizes)
    graph = npath.trace(model, x[:1])
    limit = limit_tangent_kernel(graph, x, output_variance=named)
    assert torch.equal(limit, limit_tangent_kernel(graph, x, output_variance=last))
    kernels.assert_near(limit)
    equal, covariance = limit_tangent_kernel(graph, x), limit_output_kernel(graph, x)
    torch.testing.assert_close(limit, equal if last == 2.0 else (equal + covariance) / 2, rtol=1e-14, atol=0)


def test_trained_biases_count_with_their_own_gradient():
    model, x = _dense_net(bias=True), _inputs(5)
    graph = npath.trace(model, x[:1])
    (kernels,) = tangents_of_draws(model, x, DRAWS, layer_sizes(graph, bias=0.0, bias_gradient=1.0))
    kernels.assert_near(limit_tangent_kernel(graph, x, bias_gradient=1.0))


@functools.cache
def _soft_draws(beta):
    x = _inputs(5)
    soft = _dense_net(activation=lambda: SoftReLU(beta))
    held = _dense_net(activation=lambda: SoftReLU(beta, constant=True))
    graph = npath.trace(_dense_net(), x[:1])
    return graph, x, tangents_of_draws(soft, x, DRAWS, layer_sizes(graph), others=(held,))


@pytest.mark.parametrize("beta", [1.0, 4.0])
def test_soft_gates_reach_the_limit_and_its_parts(beta):
    graph, x, (whole, right, left, value) = _soft_draws(beta)
    gate = npath.SoftGate(beta)
    whole.assert_near(limit_tangent_kernel(graph, x, activation=gate))
    parts = limit_tangent_parts(graph, x, activation=gate)
    value.assert_near(parts.value)
    Draws(right.values + left.values - 2 * value.values).assert_near(parts.cross)
    feature = Draws(whole.values - right.values - left.values + value.values)
    assert feature.deviation(parts.feature) < 5
    assert feature.deviation(0.5 * parts.feature) > 5  # a small part, known less well


@pytest.fixture
def torch_only(monkeypatch):
    """Nothing is compiled: these are many small kernels of many graphs."""
    monkeypatch.setenv("NEURALPATH_NUMBA", "0")


def _path_kernels(model, x, n_draws, sizes):
    graph = npath.trace(model, x[:1])
    params = drawn(model, sizes, n_draws, torch.Generator().manual_seed(3))
    kernels = []
    for draw in range(n_draws):
        model.load_state_dict({name: values[draw] for name, values in params.items()})
        kernels.append(npath.path_kernel(graph, x, normalize=True))
    return Draws(torch.stack(kernels))


@pytest.mark.usefixtures("torch_only")
@pytest.mark.parametrize("name", ["dense, biases", "SiLU", "residual after the gates", "convolutions, pooled"])
def test_path_kernels_of_wide_networks_are_near_the_limit(name):
    model, x, graph, sizes, arguments = _model(name, wider=4)
    del arguments["output_variance"]
    _path_kernels(model, x, 20, sizes).assert_near(limit_path_kernel(graph, x, **arguments))


@pytest.mark.usefixtures("torch_only")
def test_linear_features_keep_the_angle_of_the_inputs():
    model, x = _dense_net(4 * WIDE, depth=4), _inputs(5)
    graph = npath.trace(model, x[:1])
    cosine = (x @ x.T / x.norm(dim=1) / x.norm(dim=1)[:, None]).clamp(-1, 1)
    expected = x @ x.T / 5 * ((math.pi - torch.arccos(cosine)) / (2 * math.pi)) ** 3
    limit = limit_path_kernel(graph, x, linear_features=True)
    torch.testing.assert_close(limit, expected, rtol=1e-7, atol=1e-9)  # arc cosine near 1 has half the digits
    # Gates of a random linear network, put into the ReLU network.
    linear = nn.Sequential(*(layer for layer in model if isinstance(layer, nn.Linear))).double()
    generator = torch.Generator().manual_seed(5)
    kernels = []
    for _ in range(30):
        values, layers = x, []
        for layer in list(linear)[:-1]:
            values = values @ torch.randn(layer.in_features, layer.out_features, generator=generator, dtype=F64)
            layers.append(values > 0)
        gates = npath.Gates(dict(zip(graph.gate_names, layers, strict=True)))
        kernels.append(npath.path_kernel(graph, x, gates1=gates, normalize=True))
    Draws(torch.stack(kernels)).assert_near(limit)


def test_gates_of_independent_weights_give_the_products_of_the_papers():
    """d * Sigma^(1) * prod of Sigma-hat: the value tangent kernel with weights that are independent of the gates."""
    depth, x = 4, _inputs(5)
    graph = npath.trace(_dense_net(depth=depth), x[:1])
    product, covariance = x @ x.T, x @ x.T
    for _ in range(depth - 1):
        lengths = covariance.diagonal().sqrt()
        cosine = (covariance / lengths / lengths[:, None]).clamp(-1, 1)
        angle = torch.arccos(cosine)
        product = product * (math.pi - angle) / math.pi
        covariance = torch.outer(lengths, lengths) * (torch.sin(angle) + (math.pi - angle) * cosine) / math.pi
    limit = limit_path_kernel(graph, x)
    torch.testing.assert_close(depth * 2 ** (depth - 1) * 5 * limit, depth * product, rtol=1e-6, atol=1e-9)
