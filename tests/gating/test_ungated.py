"""Nonlinear operations that are no gates are refused by name in a value network, however they are written."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuralpath import nets
from neuralpath.gating.network import GatedNetwork
from neuralpath.gating.regimes import decouple

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
MASK = torch.arange(8) > 3


class Between(nn.Module):
    """A function between two layers, with a ReLU elsewhere."""

    def __init__(self, function) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.function = function

    def forward(self, x):
        return self.last(torch.relu(self.second(self.function(self.first(x)))))


class AtTheEnd(Between):
    def forward(self, x):
        return self.function(self.last(torch.relu(self.first(x))))


class OfTheInput(Between):
    def forward(self, x):
        return self.last(torch.relu(self.first(self.function(x))))


class OfTheWeights(Between):
    def forward(self, x):
        return self.last(torch.relu(F.linear(x, self.function(self.first.weight))))


class Beside(Between):
    def forward(self, x):
        q = self.first(x)
        if not bool(torch.isfinite(self.function(q)).all()):
            raise ValueError("not finite")
        return self.last(torch.relu(q))


def fill(q):
    y = torch.zeros(len(q), 8)
    y[:, 0].copy_(q[:, 0].tanh())  # reaches `y` through a view of it
    return y


def own_largest(q):
    return q.gather(1, q.argmax(1, keepdim=True)).expand(-1, 8)


REFUSED = {
    "nn.ELU": (nn.ELU(), "elu in 'function'"),
    "nn.SELU": (nn.SELU(), "selu in 'function'"),
    "nn.CELU": (nn.CELU(), "celu in 'function'"),
    "nn.Tanh": (nn.Tanh(), "tanh in 'function'"),
    "nn.Sigmoid": (nn.Sigmoid(), "sigmoid in 'function'"),
    "nn.Softplus": (nn.Softplus(), "softplus in 'function'"),
    "nn.Hardtanh": (nn.Hardtanh(), "hardtanh in 'function'"),
    "nn.Hardsigmoid": (nn.Hardsigmoid(), "hardsigmoid in 'function'"),
    "nn.LogSigmoid": (nn.LogSigmoid(), "log_sigmoid in 'function'"),
    "nn.Softsign": (nn.Softsign(), "softsign in 'function'"),
    "nn.Tanhshrink": (nn.Tanhshrink(), "tanhshrink in 'function'"),
    "nn.Softshrink": (nn.Softshrink(), "softshrink in 'function'"),
    "nn.Hardshrink": (nn.Hardshrink(), "hardshrink in 'function'"),
    "nn.GLU": (lambda q: F.glu(torch.cat([q, q], 1)), "glu"),
    "nn.Softmax": (nn.Softmax(1), "softmax in 'function'"),
    "attention": (lambda q: F.scaled_dot_product_attention(q[None], q[None], q[None])[0], "scaled_dot_product"),
    "where": (lambda q: torch.where(q > 0, q, torch.zeros_like(q)), "where (with a mask"),
    "masked_fill": (lambda q: q.masked_fill(q < 0, 0), "masked_fill (with a mask"),
    "set by a mask": (lambda q: q.clone().masked_fill_(q < 0, 0), "masked_fill (with a mask"),
    "q * (q > 0)": (lambda q: q * (q > 0), "mul (with a mask"),
    "q * mask as floats": (lambda q: q * (q > 0).float(), "float (with a mask"),
    "mask in place": (lambda q: q * q.clone().gt_(0), "gt"),
    "own positions": (own_largest, "gather (with a mask or positions"),
    "(q + |q|) / 2": (lambda q: (q + q.abs()) / 2, "abs"),
    "abs": (abs, "abs"),
    "square": (torch.square, "square"),
    "q ** 2": (lambda q: q**2, "pow"),
    "q * q": (lambda q: q * q, "mul"),
    "q * sigmoid(q)": (lambda q: q * torch.sigmoid(q), "sigmoid"),
    "clamp on both sides": (lambda q: q.clamp(-1, 1), "clamp"),
    "in place": (lambda q: q.tanh_(), "tanh"),
    "into another tensor": (fill, "tanh"),
    "torch.ops.aten": (torch.ops.aten.tanh.default, "tanh"),
    "smallest": (lambda q: q.amin(1, keepdim=True).expand(-1, 8), "amin"),
    "sorted": (lambda q: q.sort(1).values, "sort"),
    "length": (lambda q: q.norm(dim=1, keepdim=True).expand(-1, 8), "norm"),
    "spread": (lambda q: q.std(1, keepdim=True).expand(-1, 8), "std"),
    "product": (lambda q: q.cumprod(1), "cumprod"),
    "distances": (lambda q: torch.cdist(q, torch.ones(8, 8)), "cdist"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_nonlinearity_without_a_gate_is_refused_by_name(name):
    function, shown = REFUSED[name]
    network = decouple(Between(function), "FL")
    with pytest.raises(ValueError, match="the value network has nonlinear operations") as error:
        network(X)
    assert shown in str(error.value)


def test_all_of_them_are_named_with_their_places():
    parts = [nn.Linear(6, 8), nn.ELU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)]
    with pytest.raises(ValueError, match=r"elu in '1', tanh in '5'"):
        GatedNetwork(nets.FC(6, 8, 2, 2), nn.Sequential(*parts))(X)


def test_recurrent_layers_are_refused():
    class Recurrent(Between):
        def forward(self, x):
            return self.last(torch.relu(self.function(x[:, None])[0][:, 0]))

    for layer in (nn.LSTM(6, 8, batch_first=True), nn.GRU(6, 8, batch_first=True)):
        with pytest.raises(ValueError, match=r"(lstm|gru) in 'function'"):
            GatedNetwork(nets.FC(6, 8, 2, 8), Recurrent(layer))(X)


KEPT = {
    "linear": lambda q: 2 * q.view(-1, 4, 2).transpose(1, 2).reshape(-1, 8).flip(1) - q.mean(1, keepdim=True),
    "nn.Dropout": nn.Dropout(0.5),
    "nn.AlphaDropout": nn.AlphaDropout(0.5),
    "nn.BatchNorm1d": nn.BatchNorm1d(8),
    "nn.LayerNorm": nn.LayerNorm(8),
    "nn.RMSNorm": nn.RMSNorm(8),
    "F.normalize": F.normalize,
    "a constant mask": lambda q: torch.where(MASK, q, torch.zeros_like(q)).masked_fill(~MASK, 1.0) * MASK,
    "a function of constants": lambda q: q * torch.tanh(torch.arange(8.0)),
    "the product of two values": lambda q: q * q.mean(1, keepdim=True),
    "another dtype": lambda q: q.double().float(),
    "max pool": lambda q: F.max_pool1d(q[:, None], 2).repeat_interleave(2, 2)[:, 0],
    "max pool and its positions": lambda q: F.max_unpool1d(*F.max_pool1d(q[:, None], 2, return_indices=True), 2)[:, 0],
    "gates of other kinds": lambda q: F.gelu(F.silu(F.leaky_relu(F.relu6(q)))),
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("training", [False, True])
def test_what_is_linear_or_a_gate_is_kept(name, training):
    network = decouple(Between(KEPT[name]), "FL").train(training)
    assert network(X).shape == (4, 8)


@pytest.mark.parametrize("function", [torch.tanh, abs, lambda x: torch.where(x > 0, x, 0.0), nn.Hardtanh()])
@pytest.mark.parametrize("kind", [OfTheInput, OfTheWeights, Beside])
def test_functions_of_the_input_of_the_weights_and_beside_the_network_are_kept(function, kind):
    assert decouple(kind(function), "FL")(X).shape == (4, 8)


@pytest.mark.parametrize(
    "function",
    [
        nn.Softmax(1),
        nn.LogSoftmax(1),
        nn.Sigmoid(),
        nn.LogSigmoid(),
        nn.Tanh(),
        nn.Softplus(),
        torch.exp,
        lambda y: F.log_softmax(y, 1).reshape(-1, 2, 4).clone(),
    ],
)
def test_the_function_of_the_outputs_is_kept(function):
    model = AtTheEnd(function).eval()
    network = decouple(model, "FR-DI", generator=torch.Generator().manual_seed(1)).eval()
    assert torch.equal(network(X), network.feature(X))  # the same weights behind their own gates


@pytest.mark.parametrize("function", [nn.ELU(), abs, lambda y: torch.where(y > 0, y, 0.0), lambda y: 2 * torch.tanh(y)])
def test_other_functions_of_the_outputs_are_not(function):
    with pytest.raises(ValueError, match="value network has nonlinear operations"):
        decouple(AtTheEnd(function), "FL")(X)


def test_a_feature_network_may_have_any_functions_unless_it_is_linear():
    feature, value = Between(nn.Tanh()), nets.FC(6, 8, 2, 2)
    assert GatedNetwork(feature, value)(X).shape == (4, 2)
    with pytest.raises(ValueError, match=r"`linear_feature` .*tanh in 'function'"):
        GatedNetwork(feature, value, linear_feature=True)(X)


@pytest.mark.parametrize("name", ["layer_norm", "mul"])
def test_a_linear_feature_network_has_no_products_and_no_statistics_of_an_example(name):
    function = {"layer_norm": nn.LayerNorm(8), "mul": lambda q: q * q.mean(1, keepdim=True)}[name]
    feature, value = Between(function), nets.FC(6, 8, 2, 2)
    assert GatedNetwork(feature, value)(X).shape == (4, 2)
    with pytest.raises(ValueError, match=f"`linear_feature` .*operations: {name}"):
        GatedNetwork(feature, value, linear_feature=True)(X)
    assert GatedNetwork(Between(nn.BatchNorm1d(8)), value, linear_feature=True)(X).shape == (4, 2)


def test_the_look_changes_nothing_and_works_under_transforms():
    torch.manual_seed(0)
    network = decouple(nets.FC(6, 8, 3, 2), "FL")
    state = torch.random.get_rng_state()
    network.match(X)
    assert torch.equal(torch.random.get_rng_state(), state)
    expected = torch.autograd.functional.jacobian(network, X)
    network._matchings.clear()
    torch.testing.assert_close(torch.func.jacrev(network)(X), expected)  # wrapped tensors have no memory of their own
    with pytest.raises(ValueError, match=r"nonlinear operations .*elu"):
        torch.func.jacrev(decouple(Between(nn.ELU()), "FL"))(X)


def test_sparse_weights_do_not_stop_the_look():
    class Sparse(Between):
        def forward(self, x):
            weight = self.first.weight.detach().to_sparse()
            return self.last(self.function(torch.relu(torch.sparse.mm(weight, x.T).T)))

    feature = nets.FC(6, 8, 2, 8)
    assert GatedNetwork(feature, Sparse(nn.Identity()))(X).shape == (4, 8)
