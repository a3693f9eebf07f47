import pytest
import torch
from torch import nn

import neuralpath as npath
import tiny
import zoo

F64 = torch.float64


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", ["dense-bias", "residual-blocks", "overlapping-max", "groups", "soft-gates",
                                  "outputs-behind-a-gate", "batch-norm-on-a-stream"])  # fmt: skip
def test_sketch_is_unbiased_for_any_graph(name):
    model, x = tiny.build(name)
    graph = npath.trace(model, x[:1])
    exact = npath.path_kernel(graph, x)
    sketched = npath.sketched_kernel(npath.path_sketch(graph, x, 4000, generator=_generator()))
    assert ((sketched.kernel - exact).abs() <= 5 * sketched.standard_error + 1e-12).all()
    wrong = exact * 1.25
    assert ((sketched.kernel - wrong).abs() > 5 * sketched.standard_error).any()  # a wrong value would be seen


def test_error_falls_as_the_root_of_the_number_of_features_and_is_what_is_reported():
    model, x = zoo.build("gconv", dtype=F64)
    graph = npath.trace(model, x[:1])
    exact = npath.path_kernel(graph, x, normalize=True)
    errors = {}
    for count in (64, 1024):
        runs = []
        for seed in range(20):
            features = npath.path_sketch(graph, x, count, generator=_generator(seed), normalize=True)
            runs.append((features @ features.T - exact).square().mean())
        errors[count] = torch.stack(runs).mean().sqrt().item()
        reported = npath.sketched_kernel(features).standard_error.square().mean().sqrt().item()
        assert reported == pytest.approx(errors[count], rel=0.5)
    assert errors[64] / errors[1024] == pytest.approx(4.0, rel=0.35)


def test_features_do_not_depend_on_chunks_or_on_other_examples():
    model, x = zoo.build("vgg", dtype=F64)
    graph = npath.trace(model, x[:1])
    whole = npath.path_sketch(graph, x, 7, generator=_generator(3))
    parts = [npath.path_sketch(graph, x[rows], 7, generator=_generator(3)) for rows in (slice(0, 2), slice(2, 5))]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-10, atol=0)
    in_chunks = npath.path_sketch(graph, x, 7, generator=_generator(3), memory=2**16)
    torch.testing.assert_close(in_chunks, whole, rtol=1e-10, atol=0)


def test_a_network_without_weights_can_be_sketched():
    model, x = nn.Sequential(nn.ReLU(), nn.Flatten()), torch.randn(3, 4, dtype=F64)
    graph = npath.trace(model, x[:1])
    features = npath.path_sketch(graph, x, 4000, generator=_generator())
    sketched = npath.sketched_kernel(features)
    exact = npath.path_kernel(graph, x)
    assert ((sketched.kernel - exact).abs() <= 5 * sketched.standard_error + 1e-12).all()


def test_given_gates_replace_the_networks_own():
    model, x = tiny.build("dense")
    graph = npath.trace(model, x[:1])
    gates = graph.gates(x)
    ones = torch.ones_like(x)
    sketched = npath.sketched_kernel(npath.path_sketch(graph, ones, 4000, generator=_generator(), gates=gates))
    exact = npath.path_kernel(graph, ones, gates1=gates)
    assert ((sketched.kernel - exact).abs() <= 5 * sketched.standard_error + 1e-12).all()


def test_refusals():
    model, x = tiny.build("dense")
    graph = npath.trace(model, x[:1])
    with pytest.raises(ValueError, match="`n_features` must be at least 1"):
        npath.path_sketch(graph, x, 0, generator=_generator())
    with pytest.raises(ValueError, match="same number of features, two or more"):
        npath.sketched_kernel(torch.ones(3, 1))
    softplus = npath.trace(nn.Sequential(nn.Linear(2, 3), nn.Softplus(), nn.Linear(3, 1)).double(), x[:1])
    with pytest.raises(ValueError, match="the activation softplus"):
        npath.path_sketch(softplus, x, 2, generator=_generator())


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_features": 10.5}, "`n_features` must be a number of features, an integer, got a float"),
        ({"n_features": "10"}, "`n_features` must be a number of features, an integer, got a str"),
        ({"n_features": True}, "`n_features` must be .* got a bool"),
        (
            {"generator": 0},
            r"`generator` must be a torch.Generator, such as `torch.Generator\(\).manual_seed\(0\)`, got a int",
        ),
        ({"generator": None}, "`generator` must be a torch.Generator, .* got a NoneType"),
    ],
)
def test_arguments_of_another_kind(arguments, message):
    model, x = tiny.build("dense")
    graph = npath.trace(model, x[:1])
    with pytest.raises(TypeError, match=message):
        npath.path_sketch(graph, x, **{"n_features": 2, "generator": _generator(), **arguments})
