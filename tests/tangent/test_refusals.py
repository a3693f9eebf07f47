import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuralpath.tangent.kernel import tangent_kernel
from neuralpath.tangent.parts import tangent_parts
from tangent.models import Net

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
