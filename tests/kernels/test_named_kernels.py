"""Kernels by name are those of the functions, and mistakes are named."""

import pytest
import torch

import neuralpath as npath
from neuralpath import nets
from neuralpath.kernels.named_kernels import KERNEL_NAMES, named_tiles

X, Y = (torch.randn(n, 4, generator=torch.Generator().manual_seed(n)) for n in (6, 3))


@pytest.fixture(scope="module")
def model():
    return nets.FC(4, width=8, depth=3)


@pytest.mark.parametrize("name", KERNEL_NAMES)
@pytest.mark.parametrize("second", [None, Y])
def test_each_name_is_its_function(name, second, model):
    graph = npath.trace(model, X[:1])
    if name == "linear":
        expected = X @ (X if second is None else second).T
    elif name == "tangent":
        expected = npath.tangent_kernel(model, X, second)
    else:
        expected = getattr(npath, f"{name.replace('-', '_')}_kernel")(graph, X, second)
    torch.testing.assert_close(named_tiles(name, model, X, second).filled(), expected)
    if name != "tangent":
        torch.testing.assert_close(named_tiles(name, graph, X, second).filled(), expected)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("name", "given", "options", "message"),
    [
        ("limit-tangen", "model", {}, "no kernel is called 'limit-tangen'; .* Did you mean 'limit-tangent'?"),
        ("tangent", "model", {"normalize": True}, "normalizing is for the kernel 'path'"),
        ("tangent", "graph", {}, "the kernel 'tangent' differentiates a model: give an nn.Module, got a PathGraph"),
        ("path", "none", {}, "the kernel 'path' is that of an nn.Module or a PathGraph, got a NoneType"),
        ("linear", "none", {"x2": Y.double()}, "`x1` and `x2` must have one dtype and device"),
        ("linear", "none", {"x2": Y[:, :2]}, "`x2` must be a floating-point tensor of shape"),
    ],
)
def test_mistakes_are_named(name, given, options, message, model):
    source = {"model": model, "graph": npath.trace(model, X[:1]), "none": None}[given]
    with pytest.raises((TypeError, ValueError), match=message):
        named_tiles(name, source, X, options.pop("x2", None), **options)
