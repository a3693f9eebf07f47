"""Nearest training examples, against sorting whole matrices."""

import numpy as np
import pytest
import torch
from torch import nn

import neuralpath as npath
from neuralpath import nets
from neuralpath.paths.neighbors import nearest

MODELS = {
    "dense": (lambda: nets.FC(5, width=12, depth=3), (5,)),
    "biases": (lambda: nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 9), nn.ReLU(), nn.Linear(9, 2)), (5,)),
    "images": (lambda: nets.GCONV((1, 5, 5), 2, channels=(4, 4)), (1, 5, 5)),
    "leaky": (lambda: nn.Sequential(nn.Linear(5, 8, bias=False), nn.LeakyReLU(0.1), nn.Linear(8, 1, bias=False)), (5,)),
}


def build(name):
    make, shape = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(4)
        return make().double(), shape


@pytest.fixture(params=MODELS)
def case(request):
    model, shape = build(request.param)
    draw = torch.Generator().manual_seed(0)
    train = torch.randn(23, *shape, generator=draw, dtype=torch.float64)
    query = torch.cat([train[[5]], torch.randn(3, *shape, generator=draw, dtype=torch.float64)])
    return npath.trace(model, train[:1]), query, train


def whole(graph, query, train, by):
    if by == "input":
        return -(query[:, None] - train[None]).flatten(2).norm(dim=2)
    shared = npath.log_shared_paths(graph, query, train)
    if by == "paths":
        return shared
    if by == "gates":
        own = [npath.log_shared_paths(graph, x).diagonal().exp() for x in (query, train)]
        return shared.exp() / (own[0][:, None] * own[1][None]).sqrt()
    lengths = [npath.path_kernel(graph, x).diagonal().sqrt() for x in (query, train)]
    return npath.path_kernel(graph, query, train) / lengths[0][:, None] / lengths[1][None]


@pytest.mark.parametrize("by", ["kernel", "gates", "paths", "input"])
@pytest.mark.parametrize("pairs", [16, 2**20])
def test_nearest_is_a_sort_of_the_whole_matrix(case, by, pairs):
    graph, query, train = case
    scores = whole(graph, query, train, by)
    found = nearest(graph, query, train, 7, by=by, tile_pairs=pairs)
    expected = scores.sort(dim=1, descending=True, stable=True).values[:, :7]
    torch.testing.assert_close(found.values, -expected if by == "input" else expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(scores.gather(1, found.indices), expected, rtol=1e-9, atol=1e-9)
    assert (
        nearest(graph, query, train, 23, by=by, tile_pairs=pairs).indices.sort(1).values.tolist()
        == [list(range(23))] * 4
    )


@pytest.mark.parametrize("by", ["gates", "paths", "input"])  # cosines of equal inputs are equal to rounding only
def test_of_equally_near_ones_the_first_comes_first(case, by):
    graph, _, train = case
    copies = train[[3, 8, 3, 3, 8, 8, 3, 8, 3, 3, 8]]
    found = nearest(graph, train[[3]], copies, 11, by=by, tile_pairs=9).indices[0].tolist()
    threes, eights = [0, 2, 3, 6, 8, 9], [1, 4, 5, 7, 10]
    assert found in (threes + eights, eights + threes, list(range(11)))


def test_cosines_of_an_input_with_itself_and_of_dead_ones(case):
    graph, _, train = case
    assert nearest(graph, train[:4], train, 1).values.flatten().tolist() == pytest.approx([1.0] * 4)
    dead = npath.trace(nets.FC(2, width=3, depth=2), torch.zeros(1, 2))
    found = nearest(dead, torch.zeros(1, 2), torch.ones(4, 2), 4)
    assert found.values.tolist() == [[0.0] * 4]
    assert found.indices.tolist() == [[0, 1, 2, 3]]
    assert nearest(dead, torch.zeros(1, 2), torch.ones(4, 2), 1, by="paths").values.tolist() == [[-torch.inf]]
    assert nearest(dead, torch.zeros(1, 2), torch.zeros(4, 2), 4, by="gates").values.tolist() == [[0.0] * 4]


def test_shared_gates_by_hand():
    """One hidden layer: s counts the units that both open, and an example shares all of its paths with itself."""
    model = nn.Sequential(nn.Linear(2, 4, bias=False), nn.ReLU(), nn.Linear(4, 1, bias=False))
    model[0].weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, -1.0]])
    x = torch.tensor([[1.0, -0.5], [1.0, 1.0], [-1.0, -1.0]])  # opens units 0 and 2, then 0, 1 and 2, then 3
    found = nearest(npath.trace(model, x[:1]), x[:1], x, 3, by="gates")
    assert found.indices.tolist() == [[0, 1, 2]]
    assert found.values[0].tolist() == pytest.approx([1.0, 2 / 6**0.5, 0.0])
    counted = nearest(npath.trace(model, x[:1]), x[:1], x, 3, by="paths")
    assert counted.indices.tolist() == [[0, 1, 2]]
    assert counted.values[0, :2].exp().tolist() == pytest.approx([4.0, 4.0])  # many open gates make up for others


def test_the_kernel_is_the_cosine_of_the_inputs_times_the_shared_gates():
    model, shape = build("dense")
    x = torch.rand(9, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    graph = npath.trace(model, x[:1])
    kernel, gates = (nearest(graph, x, x, 9, by=by) for by in ("kernel", "gates"))
    cosines = nn.functional.cosine_similarity(x[:, None], x[None], dim=2)
    by_index = [found.values.gather(1, found.indices.argsort(1)) for found in (kernel, gates)]
    torch.testing.assert_close(by_index[0], by_index[1] * cosines)


@pytest.mark.parametrize("by", ["gates", "paths"])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.SiLU])
def test_outputs_with_paths_of_their_own(by, activation):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 2), activation(), nn.Conv2d(4, 2, 1, groups=2), nn.Flatten())
    x = torch.randn(6, 1, 2, 2)
    graph = npath.trace(model, x[:1])
    with pytest.raises(ValueError, match="say which one with `outputs=`"):
        nearest(graph, x, x, 2, by=by)
    shared = npath.log_shared_paths(graph, x, x, outputs=1).double()
    if by == "gates":
        own = shared.diagonal()
        shared = torch.nan_to_num((shared - 0.5 * (own[:, None] + own[None])).exp(), nan=0.0)
    found = nearest(graph, x, x, 2, by=by, outputs=1)
    torch.testing.assert_close(found.values.double(), shared.topk(2).values, rtol=1e-5, atol=1e-6)


def test_counts_of_deep_networks_do_not_overflow():
    x = torch.rand(6, 4)
    graph = npath.trace(nets.FC(4, width=64, depth=80), x[:1])
    found = nearest(graph, x, x, 2, by="paths")
    torch.testing.assert_close(found.values, npath.log_shared_paths(graph, x).gather(1, found.indices))
    shares = nearest(graph, x, x, 2, by="gates")
    assert shares.values[:, 0].tolist() == [1.0] * 6
    assert shares.values.isfinite().all()
    with pytest.raises(OverflowError, match="use `normalize=True`"):
        nearest(graph, x, x, 2)
    assert nearest(graph, x, x, 1, normalize=True).values.min() > 0.99


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "`k` must be from 1 to the 23 examples of `x_train`, got 0"),
        ({"k": True}, "`k` must be from 1 to the 23 examples of `x_train`, got True"),
        ({"k": 24}, "`k` must be from 1 to the 23"),
        ({"by": "kernal"}, "`by` must be one of kernel, gates, paths, input, got 'kernal'. Did you mean 'kernel'"),
        ({"x_query": torch.zeros(2, 9)}, "`x_query` must"),
        ({"memory": 3}, "give at least memory="),
    ],
)
@pytest.mark.usefixtures("without_type_checks")
def test_mistakes_are_named(changes, message):
    model, shape = build("dense")
    train = torch.rand(23, *shape, dtype=torch.float64)
    graph = npath.trace(model, train[:1])
    given = {"x_query": train[:2], "x_train": train, "k": 2, **changes}
    if "x_query" in changes:
        given["x_query"] = given["x_query"].double()
    with pytest.raises((ValueError, MemoryError), match=message):
        nearest(graph, given.pop("x_query"), given.pop("x_train"), given.pop("k"), **given)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_distances_of_inputs_in_half_precision(dtype, without_type_checks):
    model, shape = build("dense")
    x = torch.randn(6, *shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    graph = npath.trace(model.to(dtype), x[:1])
    found = nearest(graph, x[:2], x, np.int64(3), by="input")
    assert found.values.dtype == dtype
    distances = (x[:2, None].double() - x[None].double()).norm(dim=2)
    assert torch.equal(found.indices, distances.argsort(dim=1)[:, :3])
