"""Convolutions of 3 x 3 by fewer multiplications: against torch's own, and in tangent kernels against Jacobians."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import nn

from kernels.tangent.jacobian_oracle import assert_close, kernel_by_jacobians, mean_of
from kernels.tangent.models import Net
from neuralpath import nets
from neuralpath._loops import compiled as threads
from neuralpath._loops.compiled import compiled
from neuralpath._loops.instructions import transpose
from neuralpath.kernels.tangent import winograd
from neuralpath.kernels.tangent.gradients import ConvolutionGeometry
from neuralpath.kernels.tangent.parts import tangent_parts
from neuralpath.kernels.tangent.recording import run_operation
from neuralpath.kernels.tangent.tangent_kernel import TangentKernel, tangent_kernel

F64 = torch.float64


@pytest.fixture
def fast(monkeypatch):
    """Every convolution that can go the fast way does, however small; the calls of each function are counted."""
    counts = dict.fromkeys(("convolved", "signal_gradients", "weight_gradients"), 0)

    def counted(name):
        function = getattr(winograd, name)

        def call(*args):
            counts[name] += 1
            return function(*args)

        return call

    for name in counts:
        monkeypatch.setattr(winograd, name, counted(name))
    monkeypatch.setattr(winograd, "_is_cheaper", lambda *sizes: True)
    return counts


def geometry(padding, **changes):
    plain = {"window": (3, 3), "stride": (1, 1), "padding": padding, "dilation": (1, 1), "groups": 1}
    return ConvolutionGeometry(**{**plain, **changes})


def torch_gradients(x, weight, delta, padding):
    """Autograd's own gradients by the signal, and by the weight for each example and output."""
    n, n_outputs = delta.shape[:2]
    by_signal = torch.nn.grad.conv2d_input(x.shape, weight, delta[:, 0], padding=padding)
    by_weight = [
        torch.nn.grad.conv2d_weight(x[i : i + 1], weight.shape, delta[i : i + 1, o], padding=padding)
        for i in range(n)
        for o in range(n_outputs)
    ]
    return by_signal, torch.stack(by_weight).unflatten(0, (n, n_outputs))


@given(
    size=st.tuples(st.integers(1, 14), st.integers(1, 14)),
    channels=st.tuples(st.integers(1, 17), st.integers(1, 17)),  # some in blocks of 8, some left over
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    batch=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=60, deadline=None)
def test_equals_torch(size, channels, padding, batch, seed):
    size = tuple(max(n, 3 - 2 * pad) for n, pad in zip(size, padding, strict=True))
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch[0], channels[0], *size, dtype=F64, generator=generator)
    weight = torch.randn(channels[1], channels[0], 3, 3, dtype=F64, generator=generator)
    expected = F.conv2d(x, weight, padding=padding)
    delta = torch.randn(*batch, *expected.shape[1:], dtype=F64, generator=generator)
    by_signal, by_weight = torch_gradients(x, weight, delta, padding)
    found = winograd.convolved(x, weight, padding)
    assert found.is_contiguous()  # as torch's own: what follows may want a view
    # Sums of at most 9 * 17 * 36 terms, against terms of the size of the largest result.
    assert_close(found, expected, 1e-12)
    assert_close(winograd.signal_gradients(delta[:, 0], weight, padding), by_signal, 1e-12)
    gradients = winograd.weight_gradients(x, delta, padding).unflatten(2, (3, 3, *weight.shape[:2]))
    assert_close(gradients.permute(0, 1, 4, 5, 2, 3), by_weight, 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_block_is_transposed(dtype):
    @compiled()
    def call(out, out_places, values, places):
        transpose(out, 3, out_places, 1, values, 2, places, 1)

    places = np.array([-1, 40, 0, 9, 70, 20, 30, 50, 60])  # the first is not read
    out_places = np.array([-1, 0, 10, 90, 20, 30, 50, 40, 70])
    values, out = np.arange(80, dtype=dtype), np.full(110, -1, dtype)
    call(out, out_places, values, places)
    rows = np.stack([values[2 + place : 10 + place] for place in places[1:]])
    written = 3 + out_places[1:, None] + np.arange(8)
    np.testing.assert_array_equal(out[written], rows.T)
    assert np.all(np.delete(out, written.ravel()) == -1)


def test_many_examples_are_computed_in_blocks():
    torch.manual_seed(0)
    x, weight = torch.randn(5, 3, 9, 6, dtype=F64), torch.randn(2, 3, 3, 3, dtype=F64)
    delta = torch.randn(5, 2, 2, 9, 6, dtype=F64)
    whole = winograd.convolved(x, weight, (1, 1)), winograd.weight_gradients(x, delta, (1, 1))
    for block in (1, 2 * 36 * 8 * (6 * 5 + 6)):  # an example at a time; two
        assert_close(winograd.convolved(x, weight, (1, 1), block_bytes=block), whole[0], 1e-14)
        assert_close(winograd.weight_gradients(x, delta, (1, 1), block_bytes=block), whole[1], 1e-14)


def test_threads_share_the_examples(monkeypatch):
    torch.manual_seed(0)
    x, weight = torch.randn(7, 3, 9, 6, dtype=F64), torch.randn(2, 3, 3, 3, dtype=F64)
    delta = torch.randn(7, 2, 2, 9, 6, dtype=F64)
    alone = winograd.convolved(x, weight, (1, 1)), winograd.weight_gradients(x, delta, (1, 1))
    before = torch.get_num_threads()
    monkeypatch.setattr(threads, "n_threads", lambda: 3)
    assert_close(winograd.convolved(x, weight, (1, 1), block_bytes=1), alone[0], 1e-14)
    assert_close(winograd.weight_gradients(x, delta, (1, 1), block_bytes=1), alone[1], 1e-14)
    assert torch.get_num_threads() == before


def test_memory_in_another_order_is_read_rightly():
    torch.manual_seed(0)
    x = torch.randn(2, 4, 7, 5, dtype=F64).to(memory_format=torch.channels_last)
    weight = torch.randn(3, 4, 3, 3, dtype=F64).to(memory_format=torch.channels_last)
    assert_close(winograd.convolved(x, weight, (1, 1)), F.conv2d(x, weight, padding=1), 1e-13)
    delta = torch.randn(2, 7, 5, 3, dtype=F64).permute(0, 3, 1, 2)[:, None]
    expected = winograd.weight_gradients(x.contiguous(), delta.contiguous(), (1, 1))
    assert torch.equal(winograd.weight_gradients(x, delta, (1, 1)), expected)


def test_the_transforms_are_short_binary_fractions_that_give_the_convolution():
    for matrix in (winograd._A, winograd._B):
        numerator, denominator = np.vectorize(float.as_integer_ratio)(matrix)
        assert np.all(denominator <= 2**12)  # short binary fractions: single precision holds them exactly
        assert np.all(np.abs(numerator) < 2**24)
    # y_i = sum_k w_k x_{i+k}, for all unit vectors x and w.
    tensor = np.einsum("pi,pk,pj->ikj", winograd._A, winograd._G, winograd._B)
    index = np.arange(6)
    expected = (index[:4, None, None] + index[None, :3, None] == index[None, None, :]).astype(float)
    np.testing.assert_allclose(tensor, expected, atol=1e-15)


def test_single_precision_stays_near_torch():
    """Relative errors of the parts: of the size that the module promises, at a width and depth of real use."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 64, 16, 16, generator=generator).relu()
    weight = torch.randn(64, 64, 3, 3, generator=generator) * (2 / 576) ** 0.5
    delta = torch.randn(2, 1, 64, 16, 16, generator=generator)
    exact = F.conv2d(x.double(), weight.double(), padding=1)
    by_signal, by_weight = torch_gradients(x.double(), weight.double(), delta.double(), (1, 1))
    gradients = winograd.weight_gradients(x, delta, (1, 1)).unflatten(2, (3, 3, 64, 64)).permute(0, 1, 4, 5, 2, 3)
    for found, expected in (
        (winograd.convolved(x, weight, (1, 1)), exact),
        (winograd.signal_gradients(delta[:, 0], weight, (1, 1)), by_signal),
        (gradients, by_weight),
    ):
        error = (found.double() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
        assert error < 2e-6


MODELS = {
    "padded": lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 3, padding=1)),
    "not padded": lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.SiLU(), nn.Conv2d(4, 3, 3, bias=False)),
    "one channel": lambda: nn.Sequential(nn.Conv2d(2, 1, 3, padding=1), nn.Tanh(), nn.Conv2d(1, 1, 3, padding=(2, 0))),
    "circular": lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), nn.SiLU()),
    "same": lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding="same"), nn.SiLU()),
    "views": lambda: Net(lambda m, x: m.a(x).tanh().view(len(x), -1), a=nn.Conv2d(2, 2, 3, padding=1)),
    "by keywords": lambda: Net(
        lambda m, x: F.conv2d(input=x, weight=m.a.weight, bias=m.a.bias, padding=1), a=nn.Conv2d(2, 2, 3)
    ),
    "stride beside": lambda: nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.SiLU(), nn.Conv2d(3, 3, 3, stride=2), nn.SiLU(), nn.Conv2d(3, 2, 1)
    ),
    "twice the same weight": lambda: Net(
        lambda m, x: m.a(torch.tanh(m.a(x))).mean((2, 3)), a=nn.Conv2d(2, 2, 3, padding=1)
    ),
}


def build(name, size):
    torch.manual_seed(0)
    body = MODELS[name]()
    # Weighted sums, so that gradients differ from place to place.
    model = Net(lambda m, x: m.out(m.body(x).flatten(1)), body=body, out=nn.LazyLinear(2)).double()
    x = torch.randn(4, 2, *size, dtype=F64)
    model(x)
    return model, x


@pytest.mark.parametrize("size", [(7, 5), (13, 10), (8, 8)])
@pytest.mark.parametrize("name", MODELS)
def test_tangent_kernels_equal_jacobians(fast, name, size):
    model, x = build(name, size)
    full = kernel_by_jacobians(model, x, x[1:])
    tiles = TangentKernel(model).tiles(x, x[1:])
    assert not tiles.general
    assert_close(tiles.filled(), mean_of(full))
    assert_close(tangent_kernel(model, x, x[1:], outputs="full"), full)
    assert fast["convolved"] > 0


def test_gradients_are_written_out_the_fast_way(fast):
    """Many positions and few examples, where pairs of positions are too many."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.SiLU(), nn.Conv2d(4, 5, 3), nn.SiLU())
    model = Net(lambda m, x: m.out(m.body(x).mean((2, 3))), body=body, out=nn.Linear(5, 2)).double()
    x = torch.randn(6, 3, 13, 18, dtype=F64)
    full = kernel_by_jacobians(model, x)
    assert_close(tangent_kernel(model, x), mean_of(full))
    assert fast["weight_gradients"] > 0
    assert fast["signal_gradients"] > 0
    assert_close(tangent_kernel(model, x, outputs="full"), full)
    # Rows of the weight in several parts, and examples in several blocks.
    assert_close(tangent_kernel(model, x, x[:4], memory=400_000), mean_of(full[:, :4]))


def test_parts_of_soft_gates_take_the_fast_way(fast):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.SiLU(), nn.Conv2d(3, 3, 3, padding=1), nn.SiLU())
    model = nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 1)).double()
    x = torch.randn(3, 2, 7, 5, dtype=F64)
    parts = tangent_parts(model, x)
    assert fast["convolved"] > 0
    assert_close(parts.total, mean_of(kernel_by_jacobians(model, x)))


def test_a_network_that_differentiates_itself(fast):
    """Its gradients go the general way, but the fast way is what its own derivative meets first."""

    def force(m, x):
        x = x.detach().requires_grad_()
        energy = m.b(torch.tanh(m.a(x))).square().sum()
        (found,) = torch.autograd.grad(energy, x, create_graph=True)
        return found

    torch.manual_seed(0)
    a, b = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 1, 3, padding=1)
    model = Net(force, a=a, b=b, beyond_functional_transforms=True).double()
    x = torch.randn(2, 1, 4, 5, dtype=F64)
    assert_close(tangent_kernel(model, x), mean_of(kernel_by_jacobians(model, x)))


def test_some_parameters_and_frozen_ones(fast):
    model, x = build("padded", (7, 5))
    names = ["body.2.weight", "out.bias"]
    assert_close(tangent_kernel(model, x, params=names), mean_of(kernel_by_jacobians(model, x, names=names)))
    model.body[2].requires_grad_(False)
    assert_close(tangent_kernel(model, x), mean_of(kernel_by_jacobians(model, x)))


@pytest.mark.parametrize(
    ("changes", "shape", "d_out", "expected"),
    [
        ({}, (1, 64, 32, 32), 64, True),
        ({}, (1, 128, 8, 8), 128, True),
        ({}, (1, 3, 32, 32), 64, False),  # few channels: the transforms cost more than they save
        ({}, (1, 64, 5, 5), 64, False),  # tiles that are mostly empty
        ({"stride": (2, 2)}, (1, 64, 32, 32), 64, False),
        ({"dilation": (2, 2)}, (1, 64, 32, 32), 64, False),
        ({"groups": 2}, (1, 64, 32, 32), 64, False),
        ({"window": (5, 5)}, (1, 64, 32, 32), 64, False),
        ({"window": (3,), "stride": (1,), "dilation": (1,), "padding": (1,)}, (1, 64, 32), 64, False),
        ({"padding": (3, 3)}, (1, 64, 32, 32), 64, False),
    ],
)
def test_what_is_served(changes, shape, d_out, expected):
    padding = changes.pop("padding", (1, 1))
    assert geometry(padding, **changes).uses_winograd(torch.empty(shape), d_out) is expected


def test_what_is_never_served(monkeypatch):
    x = torch.empty(1, 64, 32, 32)
    assert geometry((1, 1)).uses_winograd(x, 64)
    assert not geometry((1, 1)).uses_winograd(x.half(), 64)
    assert not geometry((1, 1)).uses_winograd(x.to("meta"), 64)
    assert not geometry((0, 0)).uses_winograd(torch.empty(1, 64, 2, 32), 64)
    monkeypatch.setenv("NEURALPATH_NUMBA", "0")
    assert not geometry((1, 1)).uses_winograd(x, 64)


def test_calls_that_stay_as_they_are(fast):
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 6, 6), torch.randn(2, 3, 3, 3)
    run_operation(F.conv2d, (x, weight), {})
    assert fast["convolved"] == 1
    asked = weight.clone().requires_grad_()  # a gradient by it may be asked for, which the fast way has not
    out = run_operation(F.conv2d, (x, asked), {})
    assert torch.autograd.grad(out.sum(), asked)[0].abs().sum() > 0
    with torch.autocast("cpu", torch.bfloat16):
        assert run_operation(F.conv2d, (x, weight), {}).dtype == torch.bfloat16
    run_operation(F.conv2d, (x[0], weight), {})  # without a batch
    assert fast["convolved"] == 1
    run_operation(F.conv2d, (x, asked), {}, [asked])  # a stand-in, which nobody asks for
    assert fast["convolved"] == 2


def test_a_real_network_in_single_precision(monkeypatch):
    """GCONV, its widest layers the fast way: as near to double precision as asked for, and as without it."""
    generator = torch.Generator().manual_seed(0)
    model = nets.GCONV((3, 12, 12), 1, channels=(64, 64, 96), hidden=(16,), generator=generator)
    x = torch.rand(4, 3, 12, 12, generator=generator)
    found = tangent_kernel(model, x)
    monkeypatch.setenv("NEURALPATH_NUMBA", "0")
    plain = tangent_kernel(model, x)
    exact = tangent_kernel(model.double(), x.double())
    assert not torch.equal(found, plain)
    assert_close(found.double(), exact, 1e-5)
    assert_close(plain.double(), exact, 1e-5)
