"""Draws of the value tangent kernel: against explicit Jacobians, all signs, and statistics of many draws."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from torch import nn

import neuralpath as npath
import strategies
import tiny
from closeness import assert_kernel_close
from neuralpath import nets
from neuralpath.kernels.kernel_spread import concentration, fitted_power, printed_variance_bound, spectrum_ratio
from neuralpath.kernels.random_values import (
    gaussian,
    own_weights,
    random_signs,
    random_weights,
    value_kernel,
    weight_shape,
)
from neuralpath.paths.conditioning import eigenvalue_bound

F64 = torch.float64


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


def _psi(graph, x, gates):
    """Gradients of the outputs by the weights of paths, with gates held fixed, by torch.func."""
    names = {name for node in graph.weights() for name in node.parameters}
    params = {name: p.detach() for name, p in graph.params.items() if name in names}
    jacobian = torch.func.jacrev(lambda p: npath.output(graph, x, params=p, gates=gates).reshape(len(x), -1))(params)
    return torch.cat([part.flatten(2) for part in jacobian.values()], dim=2).detach()


VALUE_NETS = [
    "batch-norm",
    "bias-per-position",
    "conv-stride-zeros",
    "groups",
    "outputs-behind-a-gate",
    "overlapping-max",
    "residual-blocks",
    "soft-gates",
]


@pytest.mark.parametrize("name", VALUE_NETS)
def test_value_kernel_against_a_jacobian(name):
    model, x = tiny.build(name, batch=5)
    graph = npath.trace(model, x[:1])
    gates = graph.gates(x.flip(0))  # another input's gates
    psi = _psi(graph, x, gates)
    oracle = torch.einsum("akp,bkp->ab", psi, psi) / psi.shape[1]
    kernel = value_kernel(graph, x, gates1=gates)
    assert_kernel_close(kernel, oracle, terms=psi[0].numel())
    assert torch.equal(kernel, kernel.T)
    cross = value_kernel(graph, x[:3], x[2:], gates1=gates.batch(slice(3)), gates2=gates.batch(slice(2, None)))
    assert_kernel_close(cross, oracle[:3, 2:], terms=psi[0].numel(), scale=float(oracle.abs().max()))


def test_value_kernel_of_wide_convolutions_goes_by_pairs_of_positions():
    """The same numbers by either way: few channels write gradients out, many do not."""
    for width in (3, 40):
        model = nets.CircularCNN(6, width, 2, 1, window=3, generator=_generator()).double()
        x = torch.randn(3, 6, generator=_generator(1), dtype=F64)
        graph = npath.trace(model, x[:1])
        psi = _psi(graph, x, graph.gates(x))[:, 0]
        assert_kernel_close(value_kernel(graph, x), psi @ psi.T, terms=psi.shape[1])


def test_value_kernel_of_given_weights():
    model, x = tiny.build("dense-bias")
    graph = npath.trace(model, x[:1])
    gates, weights = graph.gates(x), random_weights(graph, generator=_generator(), bias_variance=0.5)
    kernel = value_kernel(graph, x, weights=weights, gates1=gates)
    with torch.no_grad():
        for node in graph.weights():
            graph.params[node.parameters[0]].copy_(weights[node.name])
    assert torch.equal(kernel, value_kernel(graph, x, weights=own_weights(graph), gates1=gates))
    assert_kernel_close(kernel, _gram(_psi(graph, x, gates)), terms=13)


def _gram(psi):
    return torch.einsum("akp,bkp->ab", psi, psi) / psi.shape[1]


FEW_WEIGHTS = {
    "dense with biases": (lambda: nets.FC(1, 2, 2, bias=True), (1,)),
    "circular": (lambda: nets.CircularCNN(3, [2, 1], n_dense=1, window=2, pooling="max"), (3,)),
    "residual": (lambda: nets.ResidualFC(2, [1], 2, gamma_post=0.7), (2,)),
}


@pytest.mark.usefixtures("without_type_checks")  # they are most of the time of hundreds of small kernels
@pytest.mark.parametrize("kind", FEW_WEIGHTS)
def test_mean_over_all_signs_is_the_expectation(kind):
    """The expected tangent kernel is the exact mean of the value kernel over all signs."""
    build, shape = FEW_WEIGHTS[kind]
    graph = npath.trace(build().double(), torch.ones(1, *shape, dtype=F64))
    x = torch.randn(3, *shape, generator=_generator(1), dtype=F64)
    gates = graph.gates(x)
    opened = tuple(
        g if g.dtype == torch.int64 else g | (torch.rand(g.shape, generator=_generator(2)) < 0.8)
        for g in gates.layers.values()
    )  # of so few units too many are dead
    gates = npath.Gates(dict(zip(gates.names, opened, strict=True)))
    nodes = list(graph.weights())
    variances = {node.name: 0.3 + 0.2 * k for k, node in enumerate(nodes) if node.kind == "linear"}
    sizes = [variances.get(node.name, 0.7) ** 0.5 for node in nodes]
    shapes = [weight_shape(node) for node in nodes]
    n_signs = [math.prod(shape) for shape in shapes]
    assert 5 <= sum(n_signs) <= 9
    total = torch.zeros(len(x), len(x), dtype=F64)
    for signs in itertools.product((-1.0, 1.0), repeat=sum(n_signs)):
        parts = torch.tensor(signs, dtype=F64).split(n_signs)
        weights = {
            node.name: part.reshape(shape) * size
            for node, part, shape, size in zip(nodes, parts, shapes, sizes, strict=True)
        }
        total += value_kernel(graph, x, weights=weights, gates1=gates)
    count = 2 ** sum(n_signs)
    expected = npath.expected_tangent_kernel(graph, x, gates1=gates, weight_variance=variances, bias_variance=0.7)
    assert float(expected.abs().min()) > 0
    assert_kernel_close(total / count, expected, terms=count)


def test_random_weights_have_their_variances():
    model = nn.Sequential(nn.Linear(40, 50), nn.ReLU(), nn.Linear(50, 30, bias=False)).double()
    graph = npath.trace(model, torch.ones(1, 40, dtype=F64))
    first, bias, last = graph.weights()
    for draw in (gaussian, random_signs):
        weights = random_weights(
            graph,
            generator=_generator(),
            weight_variance={first.name: 2.0, last.name: 0.1},
            bias_variance=3.0,
            draw=draw,
        )
        for node, variance in ((first, 2.0), (bias, 3.0), (last, 0.1)):
            values = weights[node.name]
            assert values.dtype == F64
            error = variance * (2 / values.numel()) ** 0.5  # of the mean square of normal values
            assert abs(float(values.square().mean()) - variance) <= (5 * error if draw is gaussian else 1e-12)
    assert not bool(random_weights(graph, generator=_generator())[bias.name].any())


@pytest.mark.usefixtures("without_type_checks")
def test_concentration_of_many_draws():
    """Mean within five standard errors of the exact expectation, and a 10 % wrong expectation would be seen."""
    model = nets.FC(3, 64, 3, generator=_generator(2)).double()
    x = torch.randn(4, 3, generator=_generator(3), dtype=F64)
    graph = npath.trace(model, x[:1])
    drawn = concentration(graph, x, 200, generator=_generator(4), draw=random_signs)
    assert torch.equal(drawn.expected, npath.expected_tangent_kernel(graph, x))
    assert ((drawn.mean - drawn.expected).abs() <= 5 * drawn.standard_error + 1e-12).all()
    diagonal = (1.1 * drawn.expected - drawn.mean).diagonal()
    assert (diagonal > 5 * drawn.standard_error.diagonal()).all()
    # The definitions, from the draws themselves.
    generator = _generator(4)
    kernels = torch.stack(
        [
            value_kernel(graph, x, weights=random_weights(graph, generator=generator, draw=random_signs))
            for _ in range(200)
        ]
    )
    torch.testing.assert_close(drawn.mean, kernels.mean(0))
    torch.testing.assert_close(drawn.variance, kernels.var(0))
    distances = torch.linalg.matrix_norm(kernels - drawn.expected) / torch.linalg.matrix_norm(drawn.expected)
    torch.testing.assert_close(drawn.distances, distances)
    assert drawn.relative_variance == pytest.approx(float(distances.square().mean()))
    torch.testing.assert_close(drawn.spectrum_ratios[7], spectrum_ratio(kernels[7], drawn.expected))


def _builders():
    return {
        "fully connected": (lambda w: nets.FC(4, w, 3, generator=_generator(5)), (4,)),
        "circular": (lambda w: nets.CircularCNN(5, w, 2, 1, window=2, generator=_generator(5)), (5,)),
        "residual": (lambda w: nets.ResidualFC(4, w, 1, 1, generator=_generator(5)), (4,)),
    }


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("kind", _builders())
def test_distance_falls_with_the_root_of_the_width(kind):
    """A power law of the root mean square: the exponent is -1/2 within five standard errors; 0 and -1 are not."""
    build, shape = _builders()[kind]
    widths, samples, ratios = (32, 128, 512), [], []
    for width in widths:
        model = build(width)
        x = torch.randn(3, *shape, generator=_generator(6))
        graph = npath.trace(model, x[:1])
        drawn = concentration(graph, x, 40, generator=_generator(width))
        samples.append(drawn.distances.square())
        ratios.append((drawn.spectrum_ratios - 1).abs().mean())
    law = fitted_power(widths, samples)
    exponent, error = law.exponent / 2, law.standard_error / 2
    assert error < 0.07  # else nothing is shown
    assert abs(exponent + 0.5) <= 5 * error
    assert -1 < exponent - 5 * error < exponent + 5 * error < -0.1
    assert ratios[2] < ratios[1] / 1.3 < ratios[0] / 1.3**2  # spectra come together too


@pytest.mark.usefixtures("without_type_checks")
def test_variance_grows_with_depth():
    """Open gates, sign weights: the relative variance grows in proportion to the depth; the printed bound does not."""
    relative, bounds = {}, {}
    width = 64
    for depth in (3, 6, 12):
        model = nn.Sequential(
            *[nn.Linear(4 if k == 0 else width, width, bias=False) for k in range(depth - 1)],
            nn.Linear(width, 1, bias=False),
        ).double()
        x = torch.ones(1, 4, dtype=F64)
        graph = npath.trace(model, x)
        drawn = concentration(graph, x, 200, generator=_generator(depth), weight_variance=1 / width)
        relative[depth] = drawn.relative_variance
        bounds[depth] = printed_variance_bound(4, width, depth, 1 / width) / float(drawn.expected) ** 2
        assert float(drawn.expected) == pytest.approx(4.0 * depth)  # d sigma^(2(d-1)) d_in w^(d-1)
    assert relative[12] > 1.5 * relative[6] > 2 * relative[3]
    assert all(bound == pytest.approx(1 / width) for bound in bounds.values())
    assert relative[12] > 3 * bounds[12]  # erratum E13


def _limits(x, depth):
    """Limits of the tangent kernel for dependent and for independent weights of variance 2 / w."""
    sigma = x @ x.T
    tangent, gates_only = sigma, sigma
    for _ in range(depth - 1):
        lengths = sigma.diagonal().sqrt()
        sizes = torch.outer(lengths, lengths)
        angle = torch.arccos((sigma / sizes).clamp(-1, 1))
        slope = (math.pi - angle) / math.pi
        sigma = sizes * (angle.sin() + (math.pi - angle) * angle.cos()) / math.pi
        tangent, gates_only = tangent * slope + sigma, gates_only * slope
    return tangent, depth * gates_only


@pytest.mark.usefixtures("without_type_checks")
def test_dependent_and_independent_weights_have_different_limits():
    """C35. Gates of the weights themselves: K of the limit recursion; of other weights: d times the limit path kernel.

    At width 512 each mean of draws is within five standard errors, plus the 1/w of what is not yet the limit, of its
    own limit, and far from the other one.
    """
    depth, width, n_draws = 3, 512, 12
    x = torch.tensor([[1.0, 0.5, -0.3], [0.2, -1.0, 0.7], [-0.9, -0.4, 0.2]], dtype=F64)
    generator = _generator(7)
    model = nets.FC(3, width, depth).double()
    graph = npath.trace(model, x[:1])
    dependent, independent = [], []
    for _ in range(n_draws):
        nets.initialize(model, nets.Gaussian(), generator)  # the graph reads the model's own weights
        dependent.append(value_kernel(graph, x))
        weights = random_weights(graph, generator=generator, weight_variance=2 / width)
        independent.append(value_kernel(graph, x, weights=weights))
    tangent, gates_only = _limits(x, depth)
    assert ((tangent - gates_only).abs() / tangent.diagonal().max()).max() > 0.05  # two limits
    for draws, own, other in ((dependent, tangent, gates_only), (independent, gates_only, tangent)):
        kernels = torch.stack(draws)
        error = kernels.std(0) / n_draws**0.5
        size = own.diagonal().max()
        assert ((kernels.mean(0) - own).abs() <= 5 * error + depth / width * size).all()
        assert ((kernels.mean(0) - other).abs() > 5 * error + depth / width * size).any()


@settings(max_examples=6)  # each is traced
@given(draw=strategies.dense_networks())
def test_smallest_eigenvalue_inequality_of_dense_networks(draw):
    """P1 proposition 3.3, and the same for every eigenvalue; the left side also by Jacobian."""
    model, x = draw.build()
    graph = npath.trace(model, x[:1])
    sides = eigenvalue_bound(graph, x)
    rounding = 1e-12 * float(sides.bound[0])
    assert (sides.tangent <= sides.bound + rounding).all()
    assert float(sides.bound[0] - sides.tangent[0]) >= -rounding
    psi = _psi(graph, x, graph.gates(x))[:, 0]
    torch.testing.assert_close(sides.tangent, npath.spectrum(psi @ psi.T), rtol=1e-9, atol=rounding)
    torch.testing.assert_close(sides.path, npath.spectrum(npath.path_kernel(graph, x)), rtol=1e-9, atol=rounding)


@pytest.mark.parametrize("name", ["circular-max", "residual-blocks", "batch-norm"])
def test_smallest_eigenvalue_inequality_of_other_graphs(name):
    """By bundles it holds for any graph; the model may be frozen, and is left as it is."""
    model, x = tiny.build(name)
    model.requires_grad_(False)
    graph = npath.trace(model, x[:1])
    sides = eigenvalue_bound(graph, x)
    assert (sides.tangent <= sides.bound + 1e-12 * float(sides.bound[0])).all()
    assert not any(p.requires_grad for p in model.parameters())
    torch.testing.assert_close(sides.tangent, npath.spectrum(value_kernel(graph, x)), rtol=1e-9, atol=1e-12)


def test_eigenvalue_bound_can_be_tight():
    """One hidden unit for each of two orthogonal inputs and equal weights: no slack is left in one direction."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)).double()
    model[0].weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=F64)
    model[2].weight.data = torch.ones(1, 2, dtype=F64)
    x = torch.eye(2, dtype=F64)
    sides = eigenvalue_bound(npath.trace(model, x[:1]), x)
    assert sides.path.tolist() == pytest.approx([1.0, 1.0])
    # Each input has the gradients 1 (its first weight) and 1 (its output weight): K = 2 I.
    assert sides.tangent.tolist() == pytest.approx([2.0, 2.0])
    assert float(sides.stretch) == pytest.approx(3.0)  # by an output weight's two paths: [[1,1],[1,1]] + I


def test_printed_bound():
    """With open gates, relative to the squared expectation: max(1 / w, d / w^2)."""
    for width, depth in ((16, 4), (8, 15), (128, 64)):
        expectation = depth * 5 * (0.3 * width) ** (depth - 1)
        relative = printed_variance_bound(5, width, depth, 0.3) / expectation**2
        assert relative == pytest.approx(max(1 / width, depth / width**2), rel=1e-9)


def test_spectrum_ratio_leaves_rounding_out():
    expected = torch.diag(torch.tensor([4.0, 2.0, 1e-17], dtype=F64))
    assert spectrum_ratio(2 * expected, expected).tolist() == [2.0, 2.0]


@pytest.mark.usefixtures("without_type_checks")
def test_refusals():
    model, x = tiny.build("dense")
    graph = npath.trace(model, x[:1])
    weights = random_weights(graph, generator=_generator())
    with pytest.raises(ValueError, match="`n_draws`"):
        concentration(graph, x, 1, generator=_generator())
    with pytest.raises(ValueError, match="`weights`"):
        value_kernel(graph, x, weights={"a": weights["a"]})
    with pytest.raises(ValueError, match=r"`weights\['a'\]`.*\(3, 2\)"):
        value_kernel(graph, x, weights={**weights, "a": torch.ones(2, 2)})
    with pytest.raises(ValueError, match=r"`gates2`.*`x2`"):
        value_kernel(graph, x, gates2=graph.gates(x))
    with pytest.raises(ValueError, match="`bias_variance`"):
        random_weights(graph, generator=_generator(), bias_variance=-1.0)
    with pytest.raises(ValueError, match=r"`kernel` and `expected`.*2 and 3"):
        spectrum_ratio(torch.eye(2), torch.eye(3))
    with pytest.raises(ValueError, match="`expected`"):
        spectrum_ratio(torch.eye(2), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="width of 4"):
        printed_variance_bound(3, 4, 4, 0.1)
    with pytest.raises(ValueError, match="`depth`"):
        printed_variance_bound(3, 4, 1, 0.1)
    with pytest.raises(ValueError, match="`sizes`"):
        fitted_power([1.0], [torch.ones(2)])
    with pytest.raises(ValueError, match="`samples`"):
        fitted_power([1.0, 2.0], [torch.ones(2), torch.zeros(2)])
    flat = npath.trace(nn.Flatten(), torch.ones(1, 2, 2))
    with pytest.raises(ValueError, match="has no weights"):
        value_kernel(flat, torch.ones(1, 2, 2))


def test_the_callers_gradient_mode_does_not_matter():
    model, x = tiny.build("dense")
    graph = npath.trace(model, x[:1])
    kernel, sides = value_kernel(graph, x), eigenvalue_bound(graph, x)
    with torch.no_grad():
        assert torch.equal(value_kernel(graph, x), kernel)
        assert torch.equal(eigenvalue_bound(graph, x).tangent, sides.tangent)
    assert not kernel.requires_grad
