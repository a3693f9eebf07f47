"""Networks with few enough weights to try every sign, one for each rule of the pair reading."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import neuralpath as npath
from neuralpath import nets

F64 = torch.float64


class Net(nn.Module):
    """Layers and a function of them, to write a small network in one line."""

    def __init__(self, function, **layers: nn.Module) -> None:
        super().__init__()
        self._function = function
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self._function(self, x)


def conv1(n_in, n_out, size, bias=False, **kwargs):
    return nn.Conv1d(n_in, n_out, size, bias=bias, **kwargs)


def conv2(n_in, n_out, size, bias=False, **kwargs):
    return nn.Conv2d(n_in, n_out, size, bias=bias, **kwargs)


def dense(n_in, n_out, bias=False):
    return nn.Linear(n_in, n_out, bias=bias)


class PerPosition(nn.Module):
    """A bias with a parameter for each position."""

    def __init__(self) -> None:
        super().__init__()
        self.a = conv1(1, 1, 2, padding=1)
        self.shift = nn.Parameter(torch.randn(1, 4))
        self.b = conv1(1, 2, 2)
        self.c = dense(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(F.relu(self.b(F.relu(self.a(x) + self.shift))).mean(2))


class Token(nn.Module):
    """Units that are parameters, joined to the input along an axis."""

    def __init__(self, axis: int, *shape: int) -> None:
        super().__init__()
        self.axis = axis
        self.value = nn.Parameter(torch.randn(shape))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.value.expand(len(x), *self.value.shape)], self.axis)


class Shift(nn.Module):
    """A bias of any shape that broadcasts."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.randn(shape))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.value


def _norm(layer: nn.modules.batchnorm._BatchNorm) -> nn.Module:
    nn.init.uniform_(layer.running_mean, -0.5, 0.5)
    nn.init.uniform_(layer.running_var, 0.5, 2.0)
    nn.init.uniform_(layer.weight, 0.5, 1.5)
    nn.init.uniform_(layer.bias, -0.5, 0.5)
    return layer


def relu_twice(m, x):
    z = m.a(x)
    return m.b(z + F.relu(z))


def residual_block(m, x):
    z = F.relu(m.a(x))
    z = F.relu(m.c(F.relu(m.b(z))) + z)
    z = F.relu(m.d(z) + z)
    return m.e(z.mean(2))


def nested(m, x):
    z = F.relu(m.a(x))
    inner = F.relu(m.b(z)) + z
    return m.d(F.relu(m.c(inner)) + z + 0.5 * inner)


def projection(m, x):
    z = F.relu(m.a(x))
    return m.d(F.relu(m.b(z) + m.c(z)).flatten(1))


def concatenated(m, x):
    z = F.relu(m.a(x))
    w = F.relu(m.b(z))
    return m.c(torch.cat([z, w, z[:, 1:]], 1).amax(2))


def concatenated_then_added(m, x):
    z = F.relu(m.a(x))
    w = m.b(z)
    return m.c(F.relu(torch.cat([z, w], 1) + torch.cat([w, F.relu(z)], 1) + torch.cat([z, -z], 1)).mean(2))


def channels_swapped_and_added(m, x):
    z = m.a(x)
    return m.b(F.relu(z.flip(1) + 2 * z + z[:, [0, 0]]))


def joined_along_space(m, x):
    z = F.relu(m.a(x))
    return m.c(F.relu(m.b(torch.cat([z, m.a2(x)[:, :, :1], z[:, :, 1:], torch.zeros(len(x), 1, 1).to(z)], 2))).mean(2))


def rolled_by_hand(m, x):
    z = F.relu(m.a(x))
    return m.c(F.relu(m.b(torch.cat([z[:, :, -1:], z, z[:, :, :1]], 2))).flatten(1))


def flat_and_gated(m, x):
    z = m.a(x).flatten(1)
    return m.c(F.relu(z) + 0.5 * z)


def flat_parts(m, x):
    z = F.relu(m.a(x)).flatten(1)
    w = F.relu(m.b(x).flatten(1))
    return m.c(torch.cat([z[:, 1:], w, x.flatten(1)[:, :1]], 1))


def flat_halves_added(m, x):
    z = m.a(x).flatten(1)
    return m.c(F.relu(z[:, :2]) + z[:, 2:])


def flat_units_flipped(m, x):
    z = m.s(m.a(x).flatten(1))
    return m.c(F.relu(z) + z.flip(1))


def pooled_units_flipped(m, x):
    z = F.max_pool1d(m.a(x), 2, 1).flatten(1)
    return m.c(F.relu(z) + z.flip(1))


def one_channel_rolled(m, x):
    z = F.relu(m.a(x))[:, 0]
    return m.c(z + z.roll(1, 1))


def shared_bias_met(m, x):
    one, two = m.s(m.a(x)).chunk(2, 1)
    return m.c((F.relu(one) + two).flatten(1))


def two_max_pools(m, x):
    z = F.max_pool1d(F.relu(m.a(x)), 2, 2)
    return m.c(F.max_pool1d(F.relu(m.b(z) + z), 2, 1).flatten(1))


def pool_of_a_sum(m, x):
    z = m.a(x)
    return m.b(F.max_pool1d(F.relu(z) + 0.3 * z, 3, 1, 1).mean(2) + F.avg_pool1d(z, 3, 1, 1).amax(2))


def norm_on_a_stream(m, x):
    z = m.a(x)
    return m.c(F.relu(m.n(F.relu(m.b(F.relu(z))) + 0.5 * z)).mean(2))


def padded(m, x):
    z = F.relu(m.a(F.pad(x, (1, 2), mode="reflect")))
    return m.c(F.relu(m.b(F.pad(z, (1, 0), mode="circular"))).flatten(1))


def normalized_input(m, x):
    return m.b(F.relu(m.a((x - 0.3) / 1.7)) - 0.2)


def both_signs(x):
    return torch.cat([F.relu(x), F.relu(-x)], 1)


def bordered_by_a_channel(m, x):
    return m.c(F.relu(F.pad(x, (0, 0, 0, 1)).flatten(1) + 0.1))


NETS = {
    "dense": (
        lambda: Net(
            lambda m, x: m.c(F.relu(m.b(F.relu(m.a(x))))), a=dense(2, 3), b=dense(3, 2), c=dense(2, 1)
        ), (2,)),
    "dense-bias": (lambda: Net(lambda m, x: m.b(F.relu(m.a(x))), a=dense(2, 3, True), b=dense(3, 1, True)), (2,)),
    "two-outputs": (lambda: Net(lambda m, x: m.b(F.relu(m.a(x))), a=dense(2, 2, True), b=dense(2, 2, True)), (2,)),
    "outputs-behind-a-gate": (lambda: Net(lambda m, x: F.relu(m.a(x)), a=dense(2, 3, True)), (2,)),
    "residual": (lambda: nets.ResidualFC(1, 2, 2, 1, gamma_pre=[0.5, 0.8], gamma_post=[0.7, 1.3]), (1,)),
    "circular-average": (lambda: nets.CircularCNN(4, 2, 2, 1, window=2, pooling="average"), (4,)),
    "circular-max": (lambda: nets.CircularCNN(4, 2, 2, 1, window=2, pooling="max"), (4,)),
    "conv-stride-zeros": (
        lambda: Net(
            lambda m, x: m.c(F.relu(m.b(F.relu(m.a(x)))).flatten(1)),
            a=conv2(1, 1, 2, padding=1, stride=2), b=conv2(1, 1, (2, 1)), c=dense(6, 1),
        ), (1, 4, 4)),
    "conv-dilated-bias": (
        lambda: Net(
            lambda m, x: m.c(F.relu(m.b(F.relu(m.a(x)))).mean(2)),
            a=conv1(1, 2, 2, True, dilation=2, padding=2), b=conv1(2, 1, 2, True, padding=1), c=dense(1, 1, True),
        ), (1, 4)),
    "conv-2d-average": (
        lambda: Net(
            lambda m, x: m.c(F.adaptive_avg_pool2d(F.relu(m.b(F.avg_pool2d(F.relu(m.a(x)), 2))), 1).flatten(1)),
            a=conv2(1, 2, (1, 2), padding=(0, 1)), b=conv2(2, 1, (2, 1), True), c=dense(1, 1),
        ), (1, 4, 3)),
    "residual-blocks": (
        lambda: Net(residual_block, a=conv1(1, 1, 3, padding=1), b=conv1(1, 1, 3, padding=1),
                    c=conv1(1, 1, 3, padding=1), d=conv1(1, 1, 3, padding=1), e=dense(1, 1)), (1, 4)),
    "z-plus-gate-of-z": (lambda: Net(relu_twice, a=dense(2, 3), b=dense(3, 1)), (2,)),
    "nested-skips": (lambda: Net(nested, a=dense(1, 2), b=dense(2, 2), c=dense(2, 2), d=dense(2, 1, True)), (1,)),
    "projection": (
        lambda: Net(projection, a=conv1(1, 2, 2), b=conv1(2, 1, 2), c=conv1(2, 1, 2), d=dense(2, 1)), (1, 4)),
    "concatenation": (lambda: Net(concatenated, a=conv1(1, 2, 2), b=conv1(2, 1, 1, True), c=dense(4, 1)), (1, 4)),
    "concatenation-then-add": (
        lambda: Net(concatenated_then_added, a=conv1(1, 2, 2), b=conv1(2, 2, 1), c=dense(4, 1)), (1, 3)),
    "joined-along-space": (
        lambda: Net(joined_along_space, a=conv1(1, 1, 2), a2=conv1(1, 1, 2), b=conv1(1, 2, 2), c=dense(2, 1)), (1, 3)),
    "rolled-by-hand": (lambda: Net(rolled_by_hand, a=conv1(1, 1, 2), b=conv1(1, 1, 3), c=dense(3, 1)), (1, 4)),
    "joined-parameters": (
        lambda: Net(lambda m, x: m.b(F.relu(m.a(m.t(x)))), t=Token(1, 2), a=dense(4, 2), b=dense(2, 1)), (2,)),
    "parameters-joined-along-space": (
        lambda: Net(lambda m, x: m.b(F.relu(m.a(m.t(x))).flatten(1)), t=Token(2, 1, 1), a=conv1(1, 1, 2, True),
                    b=dense(3, 1)), (1, 3)),
    "channels-swapped": (lambda: Net(channels_swapped_and_added, a=dense(2, 2, True), b=dense(2, 1)), (2,)),
    "groups": (
        lambda: Net(
            lambda m, x: m.c(F.relu(m.b(F.relu(m.a(x)))).mean(2)),
            a=conv1(2, 2, 2, groups=2), b=conv1(2, 4, 1, groups=2), c=dense(4, 1),
        ), (2, 4)),
    "depthwise-then-pointwise": (
        lambda: Net(
            lambda m, x: m.c(F.relu6(m.b(F.relu6(m.a(x)))).flatten(1)),
            a=conv1(2, 2, 3, groups=2, padding=1), b=conv1(2, 1, 1, True), c=dense(2, 1),
        ), (2, 2)),
    "batch-norm": (
        lambda: Net(
            lambda m, x: m.b(F.relu(m.n(m.a(x))).mean(2)),
            a=conv1(1, 2, 2), n=_norm(nn.BatchNorm1d(2)), b=dense(2, 1, True),
        ), (1, 4)),
    "batch-norm-on-a-stream": (
        lambda: Net(
            norm_on_a_stream, a=conv1(1, 2, 2), b=conv1(2, 2, 1), n=_norm(nn.BatchNorm1d(2)), c=dense(2, 1),
        ), (1, 3)),
    "overlapping-max": (
        lambda: Net(
            lambda m, x: m.c(F.max_pool2d(F.relu(m.b(F.max_pool2d(F.relu(m.a(x)), 3, 2, 1))), 2, 1).flatten(1)),
            a=conv2(1, 2, (1, 2)), b=conv2(2, 1, (1, 2), True, padding=(0, 1)), c=dense(2, 1),
        ), (1, 4, 4)),
    "disjoint-max": (
        lambda: Net(
            lambda m, x: m.c(F.relu(m.b(F.max_pool1d(F.relu(m.a(x)), 2))).mean(2)),
            a=conv1(1, 2, 2, True, padding=1), b=conv1(2, 1, 2), c=dense(1, 1),
        ), (1, 5)),
    "gate-after-average": (
        lambda: Net(
            lambda m, x: m.c(F.leaky_relu(F.avg_pool1d(m.b(F.relu(F.avg_pool1d(m.a(x), 2))), 2, 1), 0.2).flatten(1)),
            a=conv1(1, 2, 2), b=conv1(2, 2, 1, True), c=dense(4, 1),
        ), (1, 7)),
    "gate-after-max": (
        lambda: Net(
            lambda m, x: m.c(F.relu(F.max_pool1d(m.b(F.relu(F.max_pool1d(m.a(x), 2))), 2, 1)).flatten(1)),
            a=conv1(1, 2, 2, True), b=conv1(2, 2, 1), c=dense(4, 1),
        ), (1, 7)),
    "two-max-pools": (lambda: Net(two_max_pools, a=conv1(1, 2, 2), b=conv1(2, 2, 1, True), c=dense(4, 1)), (1, 7)),
    "pools-of-sums": (lambda: Net(pool_of_a_sum, a=conv1(1, 2, 3, True, padding=1), b=dense(2, 1)), (1, 4)),
    "flat-and-gated": (lambda: Net(flat_and_gated, a=conv1(1, 2, 2, True), c=dense(6, 1)), (1, 4)),
    "flat-parts": (lambda: Net(flat_parts, a=conv1(1, 2, 2), b=conv1(1, 1, 1), c=dense(7, 1)), (1, 3)),
    "soft-gates": (
        lambda: Net(
            lambda m, x: m.c(F.silu(m.b(F.relu(m.a(x)))).mean(2)),
            a=conv1(1, 2, 2, True), b=conv1(2, 2, 1), c=dense(2, 1),
        ), (1, 4)),
    "padded": (
        lambda: Net(
            padded, a=conv1(1, 1, 3), b=conv1(1, 1, 2, True), c=dense(4, 1),
        ), (1, 3)),
    "constants": (lambda: Net(normalized_input, a=dense(2, 3, True), b=dense(3, 1, True)), (2,)),
    "bias-per-position": (PerPosition, (1, 3)),
    "flat-halves-added": (lambda: Net(flat_halves_added, a=conv1(1, 1, 2, True), c=dense(2, 1)), (1, 5)),
    "flat-units-flipped": (
        lambda: Net(flat_units_flipped, a=conv1(1, 1, 2), s=Shift(3), c=dense(3, 1)), (1, 4)),
    "flat-units-flipped-with-one-bias": (
        lambda: Net(flat_units_flipped, a=conv1(1, 1, 2), s=Shift(1), c=dense(3, 1)), (1, 4)),
    "flat-units-of-groups-flipped": (
        lambda: Net(flat_units_flipped, a=conv1(2, 2, 2, True, groups=2), s=nn.Identity(), c=dense(4, 1)), (2, 3)),
    "pooled-units-flipped": (lambda: Net(pooled_units_flipped, a=conv1(1, 2, 2, True), c=dense(4, 1)), (1, 4)),
    "one-channel-rolled": (lambda: Net(one_channel_rolled, a=conv1(1, 2, 2), c=dense(3, 1)), (1, 4)),
    "bias-of-all-channels": (
        lambda: Net(shared_bias_met, a=dense(2, 4), s=Shift(1), c=dense(2, 1)), (2,)),
    "bias-of-all-channels-per-position": (
        lambda: Net(shared_bias_met, a=conv1(1, 2, 2), s=Shift(3), c=dense(3, 1)), (1, 4)),
    "squeezed": (
        lambda: Net(lambda m, x: m.c(F.relu(m.b(F.relu(m.a(x)).flatten(2))).mean(2)).squeeze(1),
                    a=conv2(1, 2, (1, 2)), b=conv1(2, 2, 2), c=dense(2, 1)), (1, 2, 3)),
    "two-biases-of-a-channel": (
        lambda: Net(lambda m, x: m.c(F.relu(m.s(m.a(x))).flatten(1)), a=conv2(1, 1, 2, True), s=Shift(1, 1, 1),
                    c=dense(2, 1)), (1, 2, 3)),
    "flat-with-an-axis-given-back": (
        lambda: Net(lambda m, x: m.c(F.relu(m.a(x).flatten(1)[:, :, None]).flatten(1)), a=conv2(1, 2, 2),
                    c=dense(4, 1)), (1, 2, 3)),
    "flat-behind-a-1x1-convolution": (
        lambda: Net(lambda m, x: m.c(F.relu(m.b(F.relu(m.a(x)).flatten(1)[:, :, None, None])).flatten(1)),
                    a=conv2(1, 1, 2, True), b=conv2(2, 2, 1, True), c=dense(2, 1)), (1, 2, 3)),
    "both-signs-flattened": (lambda: Net(lambda m, x: m.c(both_signs(x).flatten(1)), c=dense(8, 1)), (1, 2, 2)),
    "both-signs-seen-as-other-channels": (
        lambda: Net(lambda m, x: m.c(F.relu(m.a(both_signs(x).view(len(x), 4, 2))).flatten(1)), a=conv1(4, 2, 1),
                    c=dense(4, 1)), (1, 4)),
    "channels-turned-round-and-flattened": (
        lambda: Net(lambda m, x: m.c(F.relu(x[:, [2, 0, 1]].flatten(1))), c=dense(6, 1)), (3, 2)),
    "a-channel-of-zeros-flattened": (lambda: Net(bordered_by_a_channel, c=dense(6, 1)), (2, 2)),
}  # fmt: skip


def _is_lively(model: nn.Module, x: Tensor) -> bool:
    """Whether every layer has open gates for every example, and most have closed ones: a dead net checks nothing."""
    gates = [g.flatten(1) > 0 for g in npath.trace(model, x[:1]).gates(x).layers.values() if g.dtype != torch.int64]
    hard = [g for g in gates if not bool(g.all())]
    return all(bool(g.any(1).all()) for g in gates) and len(hard) * 2 >= len(gates)


def build(name: str, batch: int = 3) -> tuple[nn.Module, Tensor]:
    """A tiny network in float64 and evaluation mode, and a batch for it, from the first seed that keeps it alive."""
    constructor, shape = NETS[name]
    with torch.random.fork_rng():
        for seed in range(200):
            torch.manual_seed(seed)
            model = constructor().double().eval()
            x = torch.randn(batch, *shape, dtype=F64)
            if _is_lively(model, x):
                return model, x
    raise AssertionError(f"no seed keeps {name!r} alive")
