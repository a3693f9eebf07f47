"""Training with a fixed kernel: against an integrated differential equation, real gradient descent, and by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.integrate import solve_ivp
from torch import nn

import neuralpath as npath
from neuralpath import nets
from neuralpath.kernels.dynamics import GradientSteps, KernelDynamics

F64 = torch.float64


def _kernels(seed, n, n_test, rank=None):
    """A random kernel of the given rank on n + n_test points; its training block and its cross block."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n + n_test, rank or n + n_test + 2, generator=generator, dtype=F64) / 2
    kernel = features @ features.T
    return kernel[:n, :n], kernel[n:, :n]


def _targets(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def _integrated(kernel, cross, y, f0, f0_test, time, speed):
    """Training and test outputs at a time, by integrating the flow of both: f' = -speed K (f - y)."""
    n, m = len(kernel), len(cross)
    both = np.concatenate([kernel.numpy(), cross.numpy()])

    def velocity(_, state):
        return (-speed * both @ (state.reshape(n + m, -1)[:n] - y.numpy())).ravel()

    start = np.concatenate([f0.numpy(), f0_test.numpy()]).ravel()
    solution = solve_ivp(velocity, (0, time), start, method="DOP853", rtol=1e-11, atol=1e-12)
    end = torch.from_numpy(solution.y[:, -1]).reshape(n + m, -1)
    return end[:n], end[n:]


@pytest.mark.parametrize("rank", [None, 3], ids=["regular", "singular"])
@pytest.mark.parametrize("loss_scale", [0.5, 1 / 12])
def test_flow_agrees_with_integration(rank, loss_scale):
    kernel, cross = _kernels(0, 6, 4, rank)
    y, f0, f0_test = _targets(1, 6, 2), _targets(2, 6, 2), _targets(3, 4, 2)
    dynamics = KernelDynamics(kernel, loss_scale=loss_scale)
    for time in (0.3, 2.0):
        train, test = _integrated(kernel, cross, y, f0, f0_test, time, 2 * loss_scale)
        torch.testing.assert_close(dynamics.train(y, time, initial=f0), train, rtol=0, atol=1e-9)
        predicted = dynamics.test(cross, y, time, initial=f0, initial_test=f0_test)
        torch.testing.assert_close(predicted, test, rtol=0, atol=1e-9)


def test_one_example_by_hand():
    dynamics = KernelDynamics(torch.tensor([[2.0]], dtype=F64))
    y = torch.tensor([3.0], dtype=F64)
    times = torch.tensor([0.0, 0.25, math.inf], dtype=F64)
    exact = torch.tensor([[1.0], [3 - 2 * math.exp(-0.5)], [3.0]], dtype=F64)
    torch.testing.assert_close(dynamics.train(y, times, initial=1.0), exact)
    # f' = k / K times the movement of the training output.
    cross = torch.tensor([[1.0]], dtype=F64)
    torch.testing.assert_close(dynamics.test(cross, y, times, initial=1.0, initial_test=5.0), 5 + (exact - 1) / 2)
    torch.testing.assert_close(dynamics.train(y, GradientSteps(3, 0.125), initial=1.0), 3 - 2 * y.new_tensor([0.75**3]))
    assert dynamics.largest_rate == 1.0


def test_end_of_training_is_kernel_regression():
    kernel, cross = _kernels(4, 7, 3)
    y = _targets(5, 7)
    dynamics = KernelDynamics(kernel)
    assert dynamics.rank == 7
    torch.testing.assert_close(dynamics.train(y, math.inf), y)
    torch.testing.assert_close(dynamics.test(cross, y, math.inf), cross @ torch.linalg.solve(kernel, y))
    torch.testing.assert_close(dynamics.test(cross, y, 1e7), dynamics.test(cross, y, math.inf))


def test_end_of_training_with_duplicates_uses_the_pseudo_inverse():
    kernel, cross = _kernels(6, 5, 3)
    twice = [0, 1, 2, 3, 4, 0]
    kernel, cross = kernel[twice][:, twice], cross[:, twice]
    y = _targets(7, 6)
    dynamics = KernelDynamics(kernel)
    assert dynamics.rank == 5
    reached = dynamics.train(y, math.inf)
    mean = (y[0] + y[5]) / 2  # one input cannot have two labels
    torch.testing.assert_close(reached[[0, 5]], torch.stack([mean, mean]))
    torch.testing.assert_close(reached[1:5], y[1:5])
    torch.testing.assert_close(dynamics.test(cross, y, math.inf), cross @ torch.linalg.pinv(kernel, hermitian=True) @ y)


def test_cutoff_says_which_directions_count():
    kernel = torch.diag(torch.tensor([1.0, 1e-3, 0.0], dtype=F64))
    y = torch.ones(3, dtype=F64)
    assert KernelDynamics(kernel).rank == 2
    assert KernelDynamics(kernel).train(y, math.inf).tolist() == [1.0, 1.0, 0.0]
    assert KernelDynamics(kernel, cutoff=0.01).train(y, math.inf).tolist() == [1.0, 0.0, 0.0]


def test_zero_kernel_learns_nothing():
    dynamics = KernelDynamics(torch.zeros(2, 2, dtype=F64))
    y = torch.ones(2, dtype=F64)
    assert (dynamics.rank, dynamics.largest_rate) == (0, math.inf)
    for when in (3.0, math.inf, GradientSteps(5, 2.0)):
        assert dynamics.train(y, when, initial=0.25).tolist() == [0.25, 0.25]
    # A test input that the training set moves linearly in time: the limit of (1 - exp(-l t)) / l.
    assert dynamics.test(torch.ones(1, 2, dtype=F64), y, 3.0).tolist() == [6.0]


def test_tiny_eigenvalues_lose_no_digits():
    kernel = torch.diag(torch.tensor([1.0, 1e-9, 1e-14, 1e-200], dtype=F64))
    y, cross = torch.ones(4, dtype=F64), torch.eye(4, dtype=F64)
    dynamics = KernelDynamics(kernel)
    for when, time in ((1e-3, 1e-3), (GradientSteps(10, 1e-4), 1e-3)):
        gained = dynamics.test(cross, y, when)
        torch.testing.assert_close(gained[1:], torch.full((3,), time, dtype=F64), rtol=1e-11, atol=0)


@given(seed=st.integers(0, 2**31 - 1), n=st.integers(1, 6), count=st.integers(0, 9), share=st.floats(0.05, 1.2))
def test_steps_agree_with_a_loop(seed, n, count, share):
    kernel, cross = _kernels(seed, n, 2)
    y, f0, f0_test = _targets(seed + 1, n), _targets(seed + 2, n), _targets(seed + 3, 2)
    dynamics = KernelDynamics(kernel, loss_scale=0.7)
    rate = share * dynamics.largest_rate  # beyond 1 the error grows, and is still predicted
    train, test = f0.clone(), f0_test.clone()
    for _ in range(count):
        error = train - y
        train, test = train - 1.4 * rate * kernel @ error, test - 1.4 * rate * cross @ error
    scale = 1e-10 * (1 + 1.4**count) * float(1 + y.abs().max() + f0.abs().max())
    assert (dynamics.train(y, GradientSteps(count, rate), initial=f0) - train).abs().max() <= scale
    predicted = dynamics.test(cross, y, GradientSteps(count, rate), initial=f0, initial_test=f0_test)
    size = 1 + float(cross.abs().max() / torch.linalg.eigvalsh(kernel)[0])
    assert (predicted - test).abs().max() <= scale * size


def test_many_small_steps_are_the_flow():
    kernel, cross = _kernels(8, 5, 2)
    y = _targets(9, 5)
    dynamics = KernelDynamics(kernel)
    counts = torch.tensor([0, 100_000, 200_000])
    steps = GradientSteps(counts, 1e-5)
    torch.testing.assert_close(dynamics.train(y, steps), dynamics.train(y, counts * 1e-5), rtol=0, atol=1e-4)
    flow = dynamics.test(cross, y, counts * 1e-5)
    torch.testing.assert_close(dynamics.test(cross, y, steps), flow, rtol=0, atol=1e-4)


def test_largest_rate_is_where_descent_stops_converging():
    kernel, _ = _kernels(10, 4, 1)
    y = _targets(11, 4)
    dynamics = KernelDynamics(kernel, loss_scale=1 / 4)
    below = dynamics.train(y, GradientSteps(100_000, 0.99 * dynamics.largest_rate))
    torch.testing.assert_close(below, y)
    beyond = dynamics.train(y, GradientSteps(200, 1.05 * dynamics.largest_rate))
    assert (beyond - y).norm() > 1000 * y.norm()
    with pytest.raises(OverflowError, match="`largest_rate`"):
        dynamics.train(y, GradientSteps(10**6, 1.5 * dynamics.largest_rate))


def test_torch_loss_and_optimizer_on_a_linear_model():
    """A linear model's kernel never changes, so the discrete form is exact; `MSELoss` has the scale 1 / (n * k)."""
    generator = torch.Generator().manual_seed(12)
    x, x_test = (torch.randn(n, 3, generator=generator, dtype=F64) for n in (6, 4))
    y = torch.randn(6, 2, generator=generator, dtype=F64)
    model = nn.Linear(3, 2, bias=False, dtype=F64)
    f0, f0_test = model(x).detach(), model(x_test).detach()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(25):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    dynamics = KernelDynamics(x @ x.T, loss_scale=1 / y.numel())
    when = GradientSteps(25, 0.2)
    torch.testing.assert_close(dynamics.train(y, when, initial=f0), model(x).detach())
    predicted = dynamics.test(x_test @ x.T, y, when, initial=f0, initial_test=f0_test)
    torch.testing.assert_close(predicted, model(x_test).detach())


def _tangent_kernel(model, x):
    params = {name: p.detach() for name, p in model.named_parameters()}
    jacobian = torch.func.jacrev(lambda p: torch.func.functional_call(model, p, (x,))[:, 0])(params)
    psi = torch.cat([part.flatten(1) for part in jacobian.values()], dim=1)
    return psi @ psi.T


def _departure(width, seed, factor=1.0):
    """Relative distance between gradient descent of a ReLU network and its prediction by the first tangent kernel.

    The first layer has the variance 2 / d_in: with 2 / w everywhere its gates do not freeze as the width grows.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(9, 4, generator=generator, dtype=F64)
    y = torch.randn(6, 1, generator=generator, dtype=F64)
    model = nets.FC(4, width, 3, init=nets.Gaussian(fan="in"), generator=generator).double()
    f0, kernel = model(x).detach(), _tangent_kernel(model, x)
    rate, count = 0.05 * KernelDynamics(kernel[:6, :6]).largest_rate, 15
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(count):
        optimizer.zero_grad()
        (0.5 * (model(x[:6]) - y).square().sum()).backward()
        optimizer.step()
    kernel, when = kernel * factor, GradientSteps(count, rate)
    dynamics = KernelDynamics(kernel[:6, :6])
    train = dynamics.train(y, when, initial=f0[:6])
    test = dynamics.test(kernel[6:, :6], y, when, initial=f0[:6], initial_test=f0[6:])
    moved = model(x).detach() - f0
    return float((torch.cat([train, test]) - f0 - moved).norm() / moved.norm())


def test_wide_network_trains_as_its_tangent_kernel_predicts():
    departures = {width: sum(_departure(width, seed) for seed in range(6)) / 6 for width in (32, 128, 512)}
    assert departures[512] < departures[128] / 1.5 < departures[32] / 1.5**2
    assert departures[512] < 0.01
    assert _departure(512, 4, factor=1.1) > 0.03  # a kernel that is 10 % wrong would be seen


def test_any_kernel_of_the_library():
    model = nets.FC(3, 16, 3, generator=torch.Generator().manual_seed(14)).double()
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(15), dtype=F64)
    y = _targets(16, 4)
    graph = npath.trace(model, x[:1])
    for kernel in (npath.path_kernel(graph, x), npath.expected_tangent_kernel(graph, x)):
        dynamics = KernelDynamics(kernel[:4, :4])
        time = 2 / float(dynamics.eigenvalues[-1])
        assert (dynamics.train(y, time) - y).norm() < y.norm()
        assert dynamics.test(kernel[4:, :4], y, time).shape == (3,)


def test_float32_follows_the_kernel():
    kernel, cross = (k.float() for k in _kernels(17, 4, 2))
    y = _targets(18, 4).float()
    dynamics = KernelDynamics(kernel)
    assert dynamics.train(y, 1.0).dtype == dynamics.test(cross, y, 1.0).dtype == torch.float32
    assert dynamics.train(torch.tensor([0, 1, 2, 3]), 1.0).shape == (4,)  # whole numbers are labels too


def test_arrays_are_kernels_and_targets_too():
    kernel, cross = _kernels(17, 4, 2)
    y = _targets(18, 4)
    dynamics, of_arrays = KernelDynamics(kernel), KernelDynamics(kernel.numpy())
    assert torch.equal(of_arrays.train(y.numpy(), 1.0), dynamics.train(y, 1.0))
    assert torch.equal(of_arrays.test(cross.numpy(), y.numpy(), 1.0), dynamics.test(cross, y, 1.0))


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (lambda d, y: KernelDynamics(torch.ones(2, 3)), ValueError, "`kernel`.*square"),
        (lambda d, y: KernelDynamics(-torch.eye(2)), ValueError, "`kernel`.*semi-definite"),
        (lambda d, y: KernelDynamics(torch.eye(2), loss_scale=0.0), ValueError, "`loss_scale`"),
        (lambda d, y: KernelDynamics(torch.eye(2), cutoff=1.0), ValueError, "`cutoff`"),
        (lambda d, y: d.train(y[:2], 1.0), ValueError, "`y`.*3 examples"),
        (lambda d, y: d.train(y, -1.0), ValueError, "`when`"),
        (lambda d, y: d.train(y, math.nan), ValueError, "`when`"),
        (lambda d, y: d.train(y, 1.0, initial=y[:2]), ValueError, "`initial`"),
        (lambda d, y: d.train(y, 1.0, initial=math.nan), ValueError, "`initial`.*NaN"),
        (lambda d, y: d.test(torch.eye(3)[:, :2], y, 1.0), ValueError, "`cross`.*3 columns"),
        (lambda d, y: d.test([[1.0]], y, 1.0), TypeError, "`cross`"),
        (lambda d, y: d.test(torch.full((1, 3), math.nan), y, 1.0), ValueError, "`cross`.*NaN"),
        (lambda d, y: d.test(torch.eye(3), y, 1.0, initial_test=y[:1]), ValueError, "`initial_test`"),
        (lambda d, y: GradientSteps(-1, 0.1), ValueError, "`count`"),
        (lambda d, y: GradientSteps(1.5, 0.1), ValueError, "`count`"),
        (lambda d, y: GradientSteps(1, 0.0), ValueError, "`rate`"),
    ],
)
def test_refusals(action, error, message):
    with pytest.raises(error, match=message):
        action(KernelDynamics(torch.eye(3)), torch.ones(3))
