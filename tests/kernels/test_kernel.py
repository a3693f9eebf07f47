"""The interface of kernels: one object for matrices, tiles, diagonals and stores."""

import pickle

import pytest
import torch
from sklearn.base import clone
from torch import nn

import neuralpath as npath
import tiny
from neuralpath import nets

X, Y = (torch.randn(n, 4, generator=torch.Generator().manual_seed(n)) for n in (6, 3))
FC = nets.FC(4, width=8, depth=3)
KERNELS = {
    "path": npath.PathKernel(FC),
    "normalized path": npath.PathKernel(FC, normalize=True),
    "expected tangent": npath.ExpectedTangentKernel(FC, weight_variance=0.3, bias_variance=0.1),
    "linear": npath.LinearKernel(),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


@every_kernel
def test_tiles_diagonal_and_stores_are_those_of_the_matrix(kernel, tmp_path):
    matrix, cross = kernel(X), kernel(X, Y)
    assert torch.equal(matrix, matrix.T)
    torch.testing.assert_close(kernel(torch.cat([X, Y]))[:6, 6:], cross)
    torch.testing.assert_close(kernel.diagonal(X), matrix.diagonal())
    for second, whole in ((None, matrix), (Y, cross)):
        tiles = kernel.tiles(X, second, memory=10**6)
        for _ in range(2):  # tiles can be iterated again
            assert all(torch.equal(values, whole[tile.rows, tile.columns]) for tile, values in tiles)
        folder = tmp_path / f"{second is None}.zarr"
        stored = kernel.store(folder, X, second)
        assert torch.equal(stored.filled(), whole)
        assert kernel.verify(folder, X, second).good


@every_kernel
def test_kernels_are_immutable_and_can_be_sent_to_other_processes(kernel):
    assert clone(kernel) is kernel
    assert torch.equal(pickle.loads(pickle.dumps(kernel))(X, Y), kernel(X, Y))
    for name in kernel.__dataclass_fields__:
        with pytest.raises(AttributeError):
            setattr(kernel, name, None)


def test_functions_are_calls_of_the_objects():
    graph = npath.trace(FC, X[:1])
    gates1, gates2 = graph.gates(-X), graph.gates(-Y)
    kernel = npath.PathKernel(graph, normalize=True, unit_scales=True)
    options = {"gates1": gates1, "gates2": gates2}
    expected = npath.path_kernel(FC, X, Y, normalize=True, unit_scales=True, **options)
    assert torch.equal(kernel(X, Y, **options), expected)
    assert not torch.equal(kernel(X, Y), expected)
    tangent = npath.ExpectedTangentKernel(graph, weight_variance=0.3, bias_variance=0.1)
    expected = npath.expected_tangent_kernel(FC, X, Y, weight_variance=0.3, bias_variance=0.1, **options)
    assert torch.equal(tangent(X, Y, **options), expected)


class Counting(nn.Sequential):
    """Counts its calls."""

    calls = 0

    def forward(self, x):
        type(self).calls += 1
        return super().forward(x)


def test_a_module_is_traced_once_for_each_shape_of_examples():
    network = Counting(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    kernel = npath.PathKernel(network)
    small, large = torch.rand(3, 1, 4, 4), torch.rand(3, 1, 5, 5)
    first = kernel.graph(small)
    calls = Counting.calls
    assert kernel.graph(small[1:]) is first
    assert Counting.calls == calls
    assert kernel.graph(large) is not first
    assert torch.equal(kernel(large), npath.path_kernel(npath.trace(network, large[:1]), large))


def test_a_kernel_follows_the_weights_of_its_network():
    network = nets.FC(4, width=8, depth=2)
    kernel = npath.PathKernel(network)
    before = kernel(X)
    with torch.no_grad():
        for weight in network.parameters():
            weight.neg_()
    assert not torch.equal(kernel(X), before)
    assert torch.equal(kernel(X), npath.path_kernel(npath.trace(network, X[:1]), X))


@pytest.mark.parametrize("name", ["conv", "bias"])
def test_the_diagonal_of_any_network(name):
    matching = next(key for key in tiny.NETS if name in key)
    model, x = tiny.build(matching)
    kernel = npath.PathKernel(model)
    torch.testing.assert_close(kernel.diagonal(x), kernel(x).diagonal())


def test_settings_name_everything_that_a_kernel_depends_on():
    settings = npath.ExpectedTangentKernel(FC).settings()
    assert settings["kernel"] == "ExpectedTangentKernel"
    assert settings["weight_variance"] == "FanVariance(scale=2.0)"
    assert settings["bias_variance"] == "0.0"
    assert set(settings["weights"]) == {name for name, _ in FC.named_parameters()}
    assert npath.PathKernel(FC).settings() == npath.PathKernel(npath.trace(FC, X[:1])).settings()
    assert npath.PathKernel(nets.FC(4, width=8, depth=3)).settings() != npath.PathKernel(FC).settings()


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: npath.PathKernel("fc"), "`network` .*got a str"),
        (lambda: npath.PathKernel(FC)(X[:0]), "`x1`.*at least one"),
        (lambda: npath.PathKernel(FC)(X.numpy()), "`x1`.*got a ndarray"),
        (lambda: npath.PathKernel(FC)(X, Y.double()), "`x2`.*float64"),
        (lambda: npath.LinearKernel()(X, Y.double()), "`x1` and `x2`.*float32.*float64"),
        (lambda: npath.LinearKernel()(X, Y[:, :2]), r"`x2`.*\(3, 2\)"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
