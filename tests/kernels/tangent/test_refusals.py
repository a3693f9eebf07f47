import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernels.tangent.models import Net
from neuralpath.kernels.tangent.parts import tangent_parts
from neuralpath.kernels.tangent.probe import _last_different
from neuralpath.kernels.tangent.tangent_kernel import Limits, TangentKernel, tangent_kernel

X = torch.arange(12.0).reshape(4, 3) / 5 - 1

pytestmark = pytest.mark.usefixtures("without_type_checks")


def _refuses(error, text, model, x1=X, x2=None, **options):
    with pytest.raises(error, match=text):
        tangent_kernel(model, x1, x2, **options)


def test_a_model_without_parameters():
    _refuses(ValueError, "`model`.*no parameters", nn.ReLU())
    _refuses(ValueError, "`model`.*no parameters", nn.Linear(3, 2).requires_grad_(False))
    _refuses(ValueError, "`model`.*`params`", nn.Linear(3, 2), params=lambda name: False)
    _refuses(TypeError, "`model`.*Module", torch.relu)


def test_batch_norm_that_uses_the_batch():
    norm = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    _refuses(ValueError, r"`model`.*'1'.*model.eval\(\)", norm)
    with pytest.raises(ValueError, match="`model` mixes"):
        tangent_parts(norm, X)
    untracked = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False)).eval()
    _refuses(ValueError, "`model`.*'1'", untracked)


def test_dropout_and_chance():
    _refuses(ValueError, "'1'.*`model.eval", nn.Sequential(nn.Linear(3, 4), nn.Dropout()))
    noise = Net(lambda m, x: m.a(F.dropout(x, 0.5, training=True)), a=nn.Linear(3, 2))
    _refuses(ValueError, "`model`.*stochastic", noise)
    assert tangent_kernel(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0)), X).shape == (4, 4)


def test_examples_that_are_mixed():
    mixing = Net(lambda m, x: m.a(x - x.mean(0)), a=nn.Linear(3, 2))
    _refuses(ValueError, "`model` mixes", mixing)
    gram = Net(lambda m, x: m.a(x) @ m.a(x).T, a=nn.Linear(3, 2))
    _refuses(ValueError, "`model` mixes", gram)
    _refuses(ValueError, "`model` mixes", gram, X[:2])
    functional = Net(lambda m, x: F.batch_norm(m.a(x), None, None, training=True), a=nn.Linear(3, 2))
    _refuses(ValueError, "`model` mixes", functional)


MIXING = {
    "mean": lambda m, x: m.a(x - x.mean(0)),
    "batch norm": lambda m, x: F.batch_norm(m.a(x), None, None, training=True),
    "softmax over the batch": lambda m, x: m.a(x).softmax(0),
}


@pytest.mark.parametrize("kind", MIXING)
@pytest.mark.parametrize(
    ("x1", "x2"),
    [
        (X, X.flip(0)),  # the last of the second is the first of the first
        (X, X[:1]),  # all of the second are
        (X[:1].expand(3, 3), torch.cat([X, X[:1], X[:1]])),
        (torch.cat([X, X[:1]]), None),  # the last is the first again
        (torch.cat([X[:1], X[1:2], X[:1]]), X[:1].expand(4, 3)),
    ],
)
def test_examples_that_are_mixed_and_partly_equal(kind, x1, x2):
    mixing = Net(MIXING[kind], a=nn.Linear(3, 4))
    _refuses(ValueError, "`model` mixes", mixing, x1, x2)


@pytest.mark.parametrize("run_bytes", [0, 2**20])
def test_equal_examples_are_expected(run_bytes):
    """Whatever is equal, the kernel is that of each pair; the batch runs in parts, or as a whole."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x = X.double()

    def kernel(x1, x2=None):
        limits = Limits(2**30, run_bytes=run_bytes)
        return TangentKernel(model).planned(x1, x2, limits, may_run_whole=True).filled()

    whole = kernel(x)
    again = x[[0, 1, 0, 0]]
    torch.testing.assert_close(kernel(again), whole[[0, 1, 0, 0]][:, [0, 1, 0, 0]])
    torch.testing.assert_close(kernel(x, x.flip(0)), whole.flip(1))
    torch.testing.assert_close(kernel(x[[2, 2]], x[[2, 2, 2]]), whole[2, 2].expand(2, 3))
    torch.testing.assert_close(kernel(x[[2, 2, 2]]), whole[2, 2].expand(3, 3))


@pytest.mark.parametrize("compared_entries", [2**20, 1, 6])
def test_an_example_that_differs_is_looked_for_only_where_the_last_does_not(monkeypatch, compared_entries):
    def index_in(batch, *others):
        return _last_different(batch, *others, compared_entries=compared_entries)

    first, other = X[:1], X[1:2]
    assert index_in(first, torch.cat([other, first, other]))[1] == 2
    batch, index = index_in(torch.cat([first, other]), torch.cat([other, other, first, first]))
    assert (len(batch), index) == (4, 1)
    batch, index = index_in(torch.cat([first, other, first]), torch.cat([first, first]))
    assert (len(batch), index) == (3, 1)
    assert index_in(first, torch.cat([first, first]))[1] == 1

    def no_search(*_):
        raise AssertionError

    monkeypatch.setattr(torch, "nonzero", no_search)
    assert index_in(X, X)[1] == 3


@pytest.mark.parametrize("n_outputs", [2, 3, 4])
@pytest.mark.parametrize("n_examples", [2, 3, 4])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_outputs_first_are_not_taken_for_mixing_whatever_their_number(n_outputs, n_examples, scale):
    model = Net(lambda m, x: (scale * m.a(x)).T, a=nn.Linear(3, n_outputs))
    text = "`model`.*batch first"
    for x2 in (None, X[:n_examples] + 1):
        _refuses(ValueError, text, model, X[:n_examples], x2)
    squeezed = Net(lambda m, x: m.a(x).T.squeeze(), a=nn.Linear(3, 2))
    _refuses(ValueError, text, squeezed, X[:n_examples], X + 1)


def test_outputs_that_are_not_batch_first():
    _refuses(ValueError, "`model`.*batch first", Net(lambda m, x: m.a(x).T, a=nn.Linear(3, 5)))
    _refuses(ValueError, "`model`.*batch first", Net(lambda m, x: m.a(x).sum(), a=nn.Linear(3, 2)))
    _refuses(TypeError, "`model`.*floating-point tensor", Net(lambda m, x: (m.a(x),), a=nn.Linear(3, 2)))


def test_which_outputs():
    model = nn.Linear(3, 2)
    _refuses(ValueError, "`outputs`.*0 to 1, got 2", model, outputs=2)
    _refuses(ValueError, "`outputs`.*0 to 1, got -1", model, outputs=-1)
    _refuses(ValueError, "`outputs`.*got 'all'", model, outputs="all")
    _refuses(TypeError, "`outputs`.*bool", model, outputs=True)


def test_which_parameters():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    _refuses(ValueError, "`params`.*'1.wieght'.*'1.weight'", model, params=["0.weight", "1.wieght"])
    _refuses(TypeError, "`params`.*'1.weight'", model, params="1.weight")
    model[1].requires_grad_(False)
    _refuses(ValueError, "`params`.*'1.weight'", model, params=["1.weight"])
    _refuses(ValueError, "`model`.*'weight'", nn.LazyLinear(2))
    _refuses(ValueError, "`model`.*complex.*'weight'", nn.Linear(3, 2, dtype=torch.complex64))


def test_inputs():
    model = nn.Linear(3, 2)
    bad = X.clone()
    bad[2, 1] = torch.nan
    _refuses(ValueError, "`x1`.*1 of 4.*index 2", model, bad)
    _refuses(ValueError, "`x2`.*NaN", model, X, bad)
    _refuses(ValueError, "`x1`.*at least one", model, X[:0])
    _refuses(TypeError, "`x1`.*tensor", model, [1.0])
    _refuses(ValueError, "`x1` and `x2`.*float64", model, X, X.double())
    _refuses(ValueError, "`x1` and `x2`", model, X, X[:, :2])
    _refuses(ValueError, "`model`.*mat1 and mat2", model, X[:, :2])
    _refuses(ValueError, "`model`.*float64", model, X.double())


def test_results_out_of_range():
    model = nn.Linear(3, 1)
    _refuses(OverflowError, "tangent kernel.*float32", model, 1e25 * X)
    broken = Net(lambda m, x: m.a(x) / 0, a=nn.Linear(3, 1))
    _refuses(ValueError, "`model`.*NaN", broken)


def test_a_model_that_reads_its_parameters_otherwise_for_other_batches():
    def function(m, x):
        return F.linear(x, m.a.weight) if len(x) < 3 else F.linear(x, 1 * m.a.weight)

    _refuses(RuntimeError, "`model`.*'a.weight'.*batch of 4", Net(function, a=nn.Linear(3, 2)), X, X)
