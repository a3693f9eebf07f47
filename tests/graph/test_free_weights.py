"""Weights that a model computes: constant factors become scales, free ones are read, bound ones are refused."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune

import neuralpath as npath
from tiny import Net, conv1, dense

F64 = torch.float64


class Weights(nn.Module):
    """Parameters and a buffer to compute weights from."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.randn(shape)))
        self.register_buffer("c", torch.tensor(0.3))
        self.register_buffer("mask", torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]))


def behind(weight, bias=lambda p: None, **shapes):
    """A network whose first layer has a computed weight."""
    return lambda: Net(
        lambda m, x: m.o(F.relu(F.linear(x, weight(m.p), bias(m.p)))), p=Weights(**shapes), o=dense(3, 1)
    )


def halves(m, x):
    z = F.linear(x, torch.cat([m.p.w, m.p.w]))
    return m.o(F.relu(z[:, :3]) + z[:, 3:])


def built(case):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = case().double().eval()
        x = torch.randn(4, 2, dtype=F64)
    return model, x, npath.trace(model, x[:1])


SCALED = {
    "number": (behind(lambda p: p.w * 0.5, w=(3, 2)), 0.5),
    "number-first": (behind(lambda p: 2 * p.w, w=(3, 2)), 2.0),
    "buffer": (behind(lambda p: p.w * p.c, lambda p: p.b, w=(3, 2), b=(3,)), 0.3),
    "divided": (behind(lambda p: 3 * p.w / 4, w=(3, 2)), 0.75),
    "divided-by-a-buffer": (behind(lambda p: p.w / p.c, w=(3, 2)), 1 / 0.3),
}
FREE = {
    "transposed": behind(lambda p: p.w.t(), w=(2, 3)),
    "slice": behind(lambda p: p.w[1:], w=(4, 2)),
    "two-parameters": behind(lambda p: torch.cat([p.w, p.v]), w=(2, 2), v=(1, 2)),
    "negative": behind(lambda p: -p.w, w=(3, 2)),
    "bias-view": behind(lambda p: p.w, lambda p: p.b.view(-1), w=(3, 2), b=(3, 1)),
    "bias-subtracted": lambda: Net(lambda m, x: m.o(F.relu(m.a(x) - m.p.b)), a=dense(2, 3), p=Weights(b=(3,)),
                                   o=dense(3, 1)),
    "batch-norm": lambda: nn.Sequential(dense(2, 3, True), nn.BatchNorm1d(3), nn.ReLU(), dense(3, 1)),
    "weight-norm": lambda: nn.Sequential(parametrizations.weight_norm(dense(2, 3)), nn.ReLU(), dense(3, 1)),
    "spectral-norm": lambda: nn.Sequential(parametrizations.spectral_norm(dense(2, 3)), nn.ReLU(), dense(3, 1)),
    "soft-max": behind(lambda p: p.w.softmax(1), w=(3, 2)),
}  # fmt: skip
BOUND = {
    "mask": (behind(lambda p: p.w * p.mask, w=(3, 2)), "'linear'.*fixed to 0"),
    "pruned": (
        lambda: nn.Sequential(prune.random_unstructured(dense(2, 3), "weight", amount=0.5), nn.ReLU(), dense(3, 1)),
        "'0'.*fixed to 0",
    ),
    "symmetric": (
        lambda: Net(lambda m, x: m.o(F.relu(x @ (m.p.w + m.p.w.T))), p=Weights(w=(2, 2)), o=dense(2, 1)),
        "size of others",
    ),
    "repeated": (lambda: Net(halves, p=Weights(w=(3, 2)), o=dense(3, 1)), "size of others"),
    "factors": (behind(lambda p: p.w * p.mask.add(1), w=(3, 2)), "sums or multiples of parameters"),
    "difference": (behind(lambda p: p.w - p.v, w=(3, 2), v=(3, 2)), "sums or multiples"),
    "bias-repeated": (behind(lambda p: p.w, lambda p: p.b.expand(3), w=(3, 2), b=(1,)), "size of others"),
    "bias-doubled": (behind(lambda p: p.w, lambda p: 2 * p.b, w=(3, 2), b=(3,)), "'bias'.*sums or multiples"),
}


@pytest.mark.parametrize("name", SCALED)
def test_a_constant_factor_is_a_scale_behind_a_free_weight(name):
    case, factor = SCALED[name]
    model, x, graph = built(case)
    assert [node.kind for node in graph.nodes][:3] == ["input", "linear", "scale"]
    features = npath.path_features(graph, x, bundled=True)
    torch.testing.assert_close(npath.path_kernel(graph, x), features @ features.T, rtol=1e-12, atol=0)
    output = npath.path_features(graph, x) @ npath.path_values(graph)
    torch.testing.assert_close(output.flatten(), model(x).flatten(), rtol=1e-12, atol=1e-14)
    if "b" not in dict(model.p.named_parameters()):
        plain = built(behind(lambda p: p.w, w=(3, 2)))[2]
        gates = npath.Gates(dict(zip(plain.gate_names, graph.gates(x).layers.values(), strict=True)))
        expected = factor**2 * npath.path_kernel(plain, x, gates1=gates)
        torch.testing.assert_close(npath.path_kernel(graph, x), expected, rtol=1e-6, atol=0)


def test_a_factor_of_a_convolution():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = conv1(1, 2, 2, True)
        model = Net(
            lambda m, x: m.o(F.relu(F.conv1d(x, m.a.weight * 0.5, m.a.bias)).flatten(1)), a=layer, o=dense(6, 1)
        ).double()
        x = torch.randn(3, 1, 4, dtype=F64)
    graph = npath.trace(model, x[:1])
    assert [node.kind for node in graph.nodes][:4] == ["input", "linear", "scale", "bias"]
    features = npath.path_features(graph, x, bundled=True)
    torch.testing.assert_close(npath.path_kernel(graph, x), features @ features.T, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", FREE)
def test_free_weights_are_read(name):
    _, x, graph = built(FREE[name])
    features = npath.path_features(graph, x, bundled=True)
    torch.testing.assert_close(npath.path_kernel(graph, x), features @ features.T, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", BOUND)
def test_bound_weights_are_refused_where_they_would_be_drawn(name):
    case, reason = BOUND[name]
    model, x, graph = built(case)
    for reading in (npath.path_kernel, npath.expected_tangent_kernel):
        with pytest.raises(ValueError, match=f"whose weights are free, and those of .*{reason}"):
            reading(graph, x)
    with pytest.raises(ValueError, match="the path sketch is that of a network whose weights are free"):
        npath.path_sketch(graph, x, 10, generator=torch.Generator())
    output = npath.path_features(graph, x) @ npath.path_values(graph)  # sums over paths need no draws
    torch.testing.assert_close(output.flatten(), model(x).flatten(), rtol=1e-12, atol=1e-14)
    assert npath.tangent_kernel(model, x).shape == (4, 4)
