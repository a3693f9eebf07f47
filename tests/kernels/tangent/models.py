"""Models that read their parameters in every way the tangent kernel has to know, or to find out."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm


class Net(nn.Module):
    """Layers and a function of them."""

    def __init__(self, function, *, beyond_functional_transforms=False, **layers) -> None:
        super().__init__()
        self.beyond_functional_transforms = beyond_functional_transforms
        self._function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self._function(self, x)


def _parameter(*shape):
    return nn.Parameter(torch.randn(shape))


class _Squared(torch.autograd.Function):
    """A product that torch functions do not show: y = x W² for a matrix W."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight.square())

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.square(), 2 * weight * (grad.mT @ x)


def _called_twice(m, x):
    return m.c(torch.tanh(m.b(torch.relu(m.b(torch.relu(m.a(x)))))))


def _tied_convolutions(m, x):
    x = F.silu(m.a(x))
    x = F.silu(m.b(x)) + F.conv2d(x, m.b.weight, m.b.bias, stride=1, padding=2, dilation=2)
    return m.c(x.mean((2, 3)))


def _autoencoder(m, x):
    return F.silu(F.linear(x, m.a.weight)) @ m.a.weight + m.shift


def _functional(m, x):
    x = torch.tanh(F.linear(x, m.a.weight, bias=m.a.bias) * m.a.weight.sum())
    return x @ m.b.weight.t() + torch.addmm(m.b.bias, x, m.b.weight.T)


def _attention(m, x):
    x = m.embed(x) + m.place
    q, k, v = m.q(x), m.k(x), m.v(x)
    x = m.norm(x + torch.softmax(q @ k.mT / 2, -1) @ v)
    return m.out(F.gelu(m.up(x)).mean(1))


def _sequence_first(m, x):
    x = torch.tanh(m.a(x.transpose(0, 1)))  # (time, batch, channels)
    return m.b(x.sum(0))


def _table_of_positions(m, x):
    return m.b(torch.tanh(m.a(x) + m.a(m.table).sum(0)))


def _gradient_of_energy(m, x):
    x = x.detach().requires_grad_()
    energy = m.b(torch.tanh(m.a(x))).sum()
    (force,) = torch.autograd.grad(energy, x, create_graph=True)
    return force


def _flat(*layers):
    return lambda m, x: m.out(_through(m, layers, x).flatten(1))


def _through(m, layers, x):
    for name in layers:
        x = F.silu(getattr(m, name)(x))
    return x


# Name: constructor, shape of an example, parameters that must go the general way.
MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3)), (5,), ()),
    "no-bias-one-output": (
        lambda: nn.Sequential(nn.Linear(5, 7, bias=False), nn.ReLU(), nn.Linear(7, 1, bias=False)), (5,), ()),
    "added-in-front": (
        lambda: Net(lambda m, x: m.a(F.relu(m.gain * (m.shift + x)).flatten(1)), a=nn.Linear(6, 2),
                    shift=_parameter(1, 2, 3), gain=_parameter(1, 2, 1)), (2, 3), ()),
    "positions": (lambda: Net(lambda m, x: m.b(torch.tanh(m.a(x))).mean(1), a=nn.Linear(4, 5), b=nn.Linear(5, 2)),
                  (3, 4), ()),
    "many-positions": (
        lambda: Net(lambda m, x: m.b(torch.tanh(m.a(x))).mean((1, 2)), a=nn.Linear(2, 3), b=nn.Linear(3, 2)),
        (4, 9, 2), ()),
    "called-twice": (lambda: Net(_called_twice, a=nn.Linear(3, 4), b=nn.Linear(4, 4), c=nn.Linear(4, 2)), (3,), ()),
    "tied-convolutions": (
        lambda: Net(_tied_convolutions, a=nn.Conv2d(2, 3, 3), b=nn.Conv2d(3, 3, 3, padding=1), c=nn.Linear(3, 2)),
        (2, 6, 6), ()),
    "tied-autoencoder": (
        lambda: Net(_autoencoder, a=nn.Linear(4, 3, bias=False), shift=_parameter(4)), (4,), ()),
    "grouped": (
        lambda: Net(_flat("a", "b"), a=nn.Conv2d(4, 6, 3, groups=2), b=nn.Conv2d(6, 6, 2, groups=6),
                    out=nn.Linear(6 * 9, 2)), (4, 6, 6), ()),
    "dilated-strided-padded": (
        lambda: Net(_flat("a", "b", "c"), a=nn.Conv2d(2, 3, 3, dilation=2, padding=2), out=nn.Linear(4 * 12, 2),
                    b=nn.Conv2d(3, 3, (3, 2), stride=(2, 1), padding=(1, 2)), c=nn.Conv2d(3, 4, 2, padding="valid")),
        (2, 6, 4), ()),
    "circular-and-reflect": (
        lambda: Net(_flat("a", "b", "c"), a=nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"),
                    b=nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect"),
                    c=nn.Conv2d(3, 2, 3, padding="same", dilation=3), out=nn.Linear(2 * 16, 2)), (2, 4, 4), ()),
    "conv1d": (
        lambda: Net(_flat("a", "b"), a=nn.Conv1d(2, 3, 3, padding=1), b=nn.Conv1d(3, 4, 2, stride=2, dilation=2),
                    out=nn.Linear(12, 2)), (2, 8), ()),
    "conv3d": (
        lambda: Net(_flat("a"), a=nn.Conv3d(2, 3, 2, padding=(1, 0, 0)), out=nn.Linear(3 * 4 * 2 * 2, 2)),
        (2, 3, 3, 3), ()),
    "transposed": (
        lambda: Net(_flat("a", "b"), a=nn.ConvTranspose2d(2, 3, 3, stride=2), b=nn.Conv2d(3, 2, 3),
                    out=nn.Linear(2 * 25, 2)), (2, 3, 3), ("a.weight", "a.bias")),
    "residual-norm": (
        lambda: Net(
            lambda m, x: m.out(F.relu(m.n2(m.b(F.relu(m.n1(m.a(x))))) + x).mean((2, 3))),
            a=nn.Conv2d(3, 3, 3, padding=1, bias=False), n1=nn.BatchNorm2d(3),
            b=nn.Conv2d(3, 3, 3, padding=1, bias=False), n2=nn.BatchNorm2d(3), out=nn.Linear(3, 2)), (3, 5, 5), ()),
    "layer-and-group-norm": (
        lambda: Net(lambda m, x: m.out(F.silu(m.g(m.a(m.n(x)))).mean(2)), n=nn.LayerNorm((2, 6)), a=nn.Conv1d(2, 4, 3),
                    g=nn.GroupNorm(2, 4), out=nn.Linear(4, 2)), (2, 6), ()),
    "prelu-gains-shifts": (
        lambda: Net(lambda m, x: m.scale * m.out(m.p(m.a(x) * m.gain + m.shift).mean(2)), a=nn.Conv1d(2, 4, 3),
                    p=nn.PReLU(4), gain=_parameter(4, 1), shift=_parameter(1, 4, 4), scale=_parameter(),
                    out=nn.Linear(4, 2)), (2, 6), ()),
    "weight-norm": (
        lambda: Net(lambda m, x: m.out(torch.tanh(m.a(x))), a=weight_norm(nn.Linear(4, 5)), out=nn.Linear(5, 2)),
        (4,), ("a.parametrizations.weight.original0", "a.parametrizations.weight.original1")),
    "functional": (
        lambda: Net(_functional, a=nn.Linear(4, 3), b=nn.Linear(3, 2)), (4,), ("a.weight",)),
    "custom-function": (
        lambda: Net(lambda m, x: _Squared.apply(torch.tanh(m.a(x)), m.w), a=nn.Linear(4, 3), w=_parameter(2, 3),
                    beyond_functional_transforms=True), (4,), ("w",)),
    "attention": (
        lambda: Net(_attention, embed=nn.Linear(3, 4), place=_parameter(5, 4), q=nn.Linear(4, 4), k=nn.Linear(4, 4),
                    v=nn.Linear(4, 4), norm=nn.LayerNorm(4), up=nn.Linear(4, 6), out=nn.Linear(6, 2)), (5, 3), ()),
    "sequence-first": (
        lambda: Net(_sequence_first, a=nn.Linear(3, 4), b=nn.Linear(4, 2)), (3, 3), ("a.weight", "a.bias")),
    "sequence-of-two": (
        lambda: Net(_sequence_first, a=nn.Linear(3, 4), b=nn.Linear(4, 2)), (2, 3), ("a.weight", "a.bias")),
    "table-of-positions": (
        lambda: Net(_table_of_positions, a=nn.Linear(3, 4), b=nn.Linear(4, 2), table=_parameter(4, 3)), (3,),
        ("a.weight", "a.bias", "table")),
    "double-backward": (
        lambda: Net(_gradient_of_energy, a=nn.Linear(3, 4), b=nn.Linear(4, 1), beyond_functional_transforms=True), (3,),
        ("a.weight", "a.bias", "b.weight", "b.bias")),
    "recurrent": (
        lambda: Net(lambda m, x: m.out(m.a(x)[0][:, -1]), a=nn.GRU(3, 4, batch_first=True), out=nn.Linear(4, 2)),
        (3, 3), ("a.weight_ih_l0", "a.weight_hh_l0", "a.bias_ih_l0", "a.bias_hh_l0")),
    "gain-twice": (lambda: Net(lambda m, x: x * m.p * m.p + m.p, p=_parameter(3)), (3,), ()),
    "shared-bias": (
        lambda: Net(lambda m, x: F.linear(torch.tanh(F.linear(x, m.a, m.c)), m.b, m.c), a=_parameter(4, 3),
                    b=_parameter(4, 4), c=_parameter(4)), (3,), ()),
    "matrix-as-filter": (
        lambda: Net(lambda m, x: F.conv1d(x, m.a.weight.view(4, 3, 1)).square().mean(2) + m.a(x.mean(2)),
                    a=nn.Linear(3, 4)), (3, 5), ()),
    "batch-folded-into-positions": (
        lambda: Net(lambda m, x: m.b(torch.tanh(m.a(x.reshape(-1, 3)))).reshape(len(x), -1), a=nn.Linear(3, 4),
                    b=nn.Linear(4, 2)), (2, 3), ("a.weight", "a.bias", "b.weight", "b.bias")),
    "transforms-inside": (
        lambda: Net(lambda m, x: torch.func.vmap(torch.func.grad(lambda one: m.b(torch.tanh(m.a(one))).sum()))(x),
                    a=nn.Linear(3, 4), b=nn.Linear(4, 1)), (3,), ("a.weight", "a.bias", "b.weight", "b.bias")),
    "einsum-and-slices": (
        lambda: Net(lambda m, x: torch.einsum("ni,oi->no", x, m.w) + F.linear(x, m.v[:2]) * F.linear(x, m.v[2:]),
                    w=_parameter(2, 3), v=_parameter(4, 3)), (3,), ("w", "v")),
    "encoder": (
        lambda: Net(lambda m, x: m.a(x).mean(1), a=nn.TransformerEncoderLayer(4, 2, 6, batch_first=True)), (3, 4),
        tuple(f"a.self_attn.{name}" for name in (
            "in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"))),
    "in-place": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(12, 4),
                              nn.SiLU(inplace=True), nn.Linear(4, 2)), (2, 4, 4), ()),
}  # fmt: skip


def build(name: str, *, batch: int = 4, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """A model in float64 and evaluation mode, its norms away from the identity, and a batch for it."""
    constructor, shape, _ = MODELS[name]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = constructor().double().eval()
        for module in model.modules():
            for key in ("running_mean", "running_var"):
                if isinstance(getattr(module, key, None), Tensor):
                    getattr(module, key).uniform_(0.3, 1.5)
            if isinstance(module, nn.BatchNorm2d | nn.LayerNorm | nn.GroupNorm):
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias)
        return model, torch.randn(batch, *shape, dtype=torch.float64)
