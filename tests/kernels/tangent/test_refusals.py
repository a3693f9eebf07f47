import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernels.tangent.models import Net
from neuralpath.kernels.tangent.parts import tangent_parts
from neuralpath.kernels.tangent.tangent_kernel import tangent_kernel

X = torch.arange(12.0).reshape(4, 3) / 5 - 1

pytestmark = pytest.mark.usefixtures("without_type_checks")


def _refuses(error, text, model, x1=X, x2=None, **options):
    with pytest.raises(error, match=text):
        tangent_kernel(model, x1, x2, **options)


def test_a_model_without_parameters():
    _refuses(ValueError, "`model` has no parameters that need gradients", nn.ReLU())
    _refuses(ValueError, "`model` has no parameters that need gradients", nn.Linear(3, 2).requires_grad_(False))
    _refuses(ValueError, "has none of the parameters in `params`", nn.Linear(3, 2), params=lambda name: False)
    _refuses(TypeError, "`model` must be a torch.nn.Module", torch.relu)


def test_batch_norm_that_uses_the_batch():
    norm = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    _refuses(ValueError, r"mixes the examples.*batch norm at '1'.*model.eval\(\)", norm)
    with pytest.raises(ValueError, match="mixes the examples"):
        tangent_parts(norm, X)
    untracked = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False)).eval()
    _refuses(ValueError, "batch norm at '1' uses the batch's own statistics", untracked)


def test_dropout_and_chance():
    _refuses(ValueError, "'1' is random: call `model.eval", nn.Sequential(nn.Linear(3, 4), nn.Dropout()))
    noise = Net(lambda m, x: m.a(F.dropout(x, 0.5, training=True)), a=nn.Linear(3, 2))
    _refuses(ValueError, "depends on chance", noise)
    assert tangent_kernel(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0)), X).shape == (4, 4)


def test_examples_that_are_mixed():
    mixing = Net(lambda m, x: m.a(x - x.mean(0)), a=nn.Linear(3, 2))
    _refuses(ValueError, "mixes the examples of a batch: its output for an example changes", mixing)
    gram = Net(lambda m, x: m.a(x) @ m.a(x).T, a=nn.Linear(3, 2))
    _refuses(ValueError, "mixes the examples of a batch", gram)
    _refuses(ValueError, "mixes the examples of a batch", gram, X[:2])
    functional = Net(lambda m, x: F.batch_norm(m.a(x), None, None, training=True), a=nn.Linear(3, 2))
    _refuses(ValueError, "mixes the examples of a batch", functional)


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
@pytest.mark.parametrize("compared", [2**20, 1, 6])
def test_examples_that_are_mixed_and_partly_equal(kind, x1, x2, compared, monkeypatch):
    monkeypatch.setattr("neuralpath.kernels.tangent.probe.COMPARED_AT_ONCE", compared)
    mixing = Net(MIXING[kind], a=nn.Linear(3, 4))
    _refuses(ValueError, "mixes the examples of a batch", mixing, x1, x2)


@pytest.mark.parametrize("room", [0, 2**20])
def test_equal_examples_are_expected(room, monkeypatch):
    """Whatever is equal, the kernel is that of each pair; the batch is run in parts, or as a whole."""
    monkeypatch.setattr("neuralpath.kernels.tangent.tangent_tiles.RUN_BYTES", room)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x = X.double()
    whole = tangent_kernel(model, x)
    again = x[[0, 1, 0, 0]]
    torch.testing.assert_close(tangent_kernel(model, again), whole[[0, 1, 0, 0]][:, [0, 1, 0, 0]])
    torch.testing.assert_close(tangent_kernel(model, x, x.flip(0)), whole.flip(1))
    torch.testing.assert_close(tangent_kernel(model, x[[2, 2]], x[[2, 2, 2]]), whole[2, 2].expand(2, 3))
    torch.testing.assert_close(tangent_kernel(model, x[[2, 2, 2]]), whole[2, 2].expand(3, 3))


def test_an_example_that_differs_is_looked_for_only_where_the_last_does_not(monkeypatch):
    from neuralpath.kernels.tangent.probe import _last_other

    first, other = X[:1], X[1:2]
    assert _last_other(first, torch.cat([other, first, other]))[1] == 2
    batch, place = _last_other(torch.cat([first, other]), torch.cat([other, other, first, first]))
    assert (len(batch), place) == (4, 1)
    batch, place = _last_other(torch.cat([first, other, first]), torch.cat([first, first]))
    assert (len(batch), place) == (3, 1)
    assert _last_other(first, torch.cat([first, first]))[1] == 1

    def no_search(*_):
        raise AssertionError

    monkeypatch.setattr(torch, "nonzero", no_search)
    assert _last_other(X, X)[1] == 3


@pytest.mark.parametrize("n_outputs", [2, 3, 4])
@pytest.mark.parametrize("n_examples", [2, 3, 4])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_outputs_first_are_not_taken_for_mixing_whatever_their_number(n_outputs, n_examples, scale):
    model = Net(lambda m, x: (scale * m.a(x)).T, a=nn.Linear(3, n_outputs))
    text = "one row for each example, the batch first"
    for x2 in (None, X[:n_examples] + 1):
        _refuses(ValueError, text, model, X[:n_examples], x2)
    squeezed = Net(lambda m, x: m.a(x).T.squeeze(), a=nn.Linear(3, 2))
    _refuses(ValueError, text, squeezed, X[:n_examples], X + 1)


def test_outputs_that_are_not_batch_first():
    _refuses(ValueError, "one row for each example, the batch first", Net(lambda m, x: m.a(x).T, a=nn.Linear(3, 5)))
    _refuses(ValueError, "one row for each example", Net(lambda m, x: m.a(x).sum(), a=nn.Linear(3, 2)))
    _refuses(TypeError, "must return one floating-point tensor", Net(lambda m, x: (m.a(x),), a=nn.Linear(3, 2)))


def test_which_outputs():
    model = nn.Linear(3, 2)
    _refuses(ValueError, "an index from 0 to 1, got 2", model, outputs=2)
    _refuses(ValueError, "an index from 0 to 1, got -1", model, outputs=-1)
    _refuses(ValueError, "'mean', 'full' or the index of an output, got 'all'", model, outputs="all")
    _refuses(TypeError, "got a bool", model, outputs=True)


def test_which_parameters():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    _refuses(ValueError, "'1.wieght', which is no parameter of `model`; the nearest is '1.weight'", model,
             params=["0.weight", "1.wieght"])  # fmt: skip
    _refuses(TypeError, "got the string '1.weight': use a list", model, params="1.weight")
    model[1].requires_grad_(False)
    _refuses(ValueError, "'1.weight', which needs no gradient", model, params=["1.weight"])
    _refuses(ValueError, "run it once on a batch first", nn.LazyLinear(2))
    _refuses(ValueError, "complex numbers in 'weight'", nn.Linear(3, 2, dtype=torch.complex64))


def test_inputs():
    model = nn.Linear(3, 2)
    bad = X.clone()
    bad[2, 1] = torch.nan
    _refuses(ValueError, "`x1` has NaN or infinity in 1 of 4 examples, the first at index 2", model, bad)
    _refuses(ValueError, "`x2` has NaN or infinity", model, X, bad)
    _refuses(ValueError, "`x1` has no examples", model, X[:0])
    _refuses(TypeError, "`x1` must be a tensor", model, [1.0])
    _refuses(ValueError, "must have examples of one shape, dtype and device", model, X, X.double())
    _refuses(ValueError, "must have examples of one shape", model, X, X[:, :2])
    _refuses(ValueError, "could not run on two examples.*mat1 and mat2", model, X[:, :2])
    _refuses(ValueError, "could not run on two examples", model, X.double())


def test_results_out_of_range():
    model = nn.Linear(3, 1)
    _refuses(OverflowError, "the tangent kernel passes the range of float32", model, 1e25 * X)
    broken = Net(lambda m, x: m.a(x) / 0, a=nn.Linear(3, 1))
    _refuses(ValueError, "NaN or infinity for finite inputs", broken)


def test_a_model_that_reads_its_parameters_otherwise_for_other_batches():
    def function(m, x):
        return F.linear(x, m.a.weight) if len(x) < 3 else F.linear(x, 1 * m.a.weight)

    _refuses(RuntimeError, "reads 'a.weight' otherwise for this batch of 4", Net(function, a=nn.Linear(3, 2)), X, X)
