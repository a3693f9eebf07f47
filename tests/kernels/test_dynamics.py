"""Statements of the papers about how features and values move, against loops and finite steps."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import neuralpath as npath
import oracles
from neuralpath import nets
from neuralpath.gates import SoftGate

F64 = torch.float64
SIZES = [3, 4, 3, 1]
BETA = 4.0


class SoftReLU(nn.Module):
    def forward(self, q: Tensor) -> Tensor:
        return q * torch.sigmoid(BETA * q)


def _soft_network(seed: int = 0) -> tuple[list[Tensor], Tensor, list[oracles.Path]]:
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(o, i, generator=generator, dtype=F64) / i**0.5 for i, o in pairwise(SIZES)]
    return weights, torch.randn(5, SIZES[0], generator=generator, dtype=F64), oracles.dense_paths(SIZES)


def _soft_gates(weights: list[Tensor], x: Tensor) -> list[Tensor]:
    """Gates of a network with soft gates whose activation is q times its gate."""
    gates, z = [], x
    for weight in weights[:-1]:
        q = z @ weight.T
        gates.append(SoftGate(BETA)(q))
        z = q * gates[-1]
    return gates


def _features(weights: list[Tensor], x: Tensor, paths: list[oracles.Path]) -> Tensor:
    gates = _soft_gates(weights, x)
    columns = []
    for path in paths:
        activity = torch.ones(len(x), dtype=F64)
        for layer, (unit,) in path.gates:
            activity = activity * gates[layer][:, unit]
        columns.append(x[:, path.start] * activity)
    return torch.stack(columns, dim=1)


def _values(weights: list[Tensor], paths: list[oracles.Path]) -> Tensor:
    values = []
    for path in paths:
        value = torch.ones((), dtype=F64)
        for layer, index in path.weights:
            value = value * weights[layer][index]
        values.append(value)
    return torch.stack(values)


def test_derivative_of_a_path_value():
    """P1 proposition 3.1: the product of the other weights, or 0 where the path does not use the weight."""
    generator = torch.Generator().manual_seed(1)
    model = nets.FC(3, [4, 3], generator=generator).double()
    graph = npath.trace(model, torch.ones(1, 3, dtype=F64))
    weights = [p.detach() for p in model.parameters()]
    values = npath.path_values(graph)
    paths = oracles.dense_paths(SIZES)
    by_value = {round(oracles.path_value(p, weights), 12): p for p in paths}
    assert len(by_value) == len(paths)
    for row in range(0, len(paths), 5):
        path = by_value[round(values[row].item(), 12)]
        gradients = torch.autograd.grad(values[row], list(model.parameters()), retain_graph=True)
        for layer, gradient in enumerate(gradients):
            expected = torch.zeros_like(gradient)
            for step, (used, index) in enumerate(path.weights):
                if used == layer:
                    others = [w for i, w in enumerate(path.weights) if i != step]
                    expected[index] = torch.tensor([weights[k][i] for k, i in others], dtype=F64).prod()
            torch.testing.assert_close(gradient, expected)


def test_derivative_of_a_path_activity():
    """P1 proposition 3.2 with the sum over the d - 1 gate layers (erratum E10)."""
    weights, x, paths = _soft_network()
    for weight in weights:
        weight.requires_grad_()
    gates = _soft_gates(weights, x[:1])
    for path in paths[::7]:
        factors = [gates[layer][0, unit] for layer, (unit,) in path.gates]
        activity = torch.stack(factors).prod()
        for weight in weights[:-1]:
            (whole,) = torch.autograd.grad(activity, weight, retain_graph=True, materialize_grads=True)
            parts = torch.zeros_like(weight)
            for layer, factor in enumerate(factors):
                (change,) = torch.autograd.grad(factor, weight, retain_graph=True, materialize_grads=True)
                others = torch.stack([f.detach() for i, f in enumerate(factors) if i != layer]).prod()
                parts += change * others
            torch.testing.assert_close(whole, parts)


def _flow(weights: list[Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
    """Velocity of the weights under gradient flow on half the squared error."""
    leaves = [w.detach().requires_grad_() for w in weights]
    z = x
    for weight in leaves[:-1]:
        q = z @ weight.T
        z = q * SoftGate(BETA)(q)
    loss = 0.5 * ((z @ leaves[-1].T)[:, 0] - y).square().sum()
    return [-g for g in torch.autograd.grad(loss, leaves)]


# torch.func.jvp loads parts of torch that use what torch has deprecated.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_features_and_values_move_along_the_gradient_flow():
    """P1 proposition 3.4: the velocities of v, phi and e follow from those of the weights, against a finite step."""
    weights, x, paths = _soft_network()
    y = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0], dtype=F64)
    velocity = _flow(weights, x, y)
    step = 1e-6
    ahead = [w + step * v for w, v in zip(weights, velocity, strict=True)]
    behind = [w - step * v for w, v in zip(weights, velocity, strict=True)]

    def along_flow(function):
        _, derivative = torch.func.jvp(lambda *w: function(list(w)), tuple(weights), tuple(velocity))
        return derivative, (function(ahead) - function(behind)) / (2 * step)

    for function in (lambda w: _values(w, paths), lambda w: _features(w, x, paths)):
        exact, finite = along_flow(function)
        assert exact.abs().max() > 1e-3  # features move too: the gates are soft
        torch.testing.assert_close(finite, exact, rtol=1e-6, atol=1e-8)

    def error(w):
        return _features(w, x, paths) @ _values(w, paths) - y

    jacobian = torch.cat(
        [j.flatten(1) for j in torch.func.jacrev(lambda *w: error(list(w)), tuple(range(3)))(*weights)], 1
    )
    exact, finite = along_flow(error)
    torch.testing.assert_close(exact, -(jacobian @ jacobian.T) @ error(weights))
    torch.testing.assert_close(finite, exact, rtol=1e-6, atol=1e-8)


def test_gated_network_moves_features_and_values_apart():
    """P1 proposition 4.1: with separate weights the kernel is a sum of two, and fixed features stay."""
    feature_weights, x, paths = _soft_network(0)
    value_weights, _, _ = _soft_network(1)
    y = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0], dtype=F64)

    def error(feature, value):
        return _features(feature, x, paths) @ _values(value, paths) - y

    def jacobian(function, at):
        parts = torch.func.jacrev(lambda *w: function(list(w)), tuple(range(len(at))))(*at)
        return torch.cat([part.flatten(1) for part in parts], dim=1)

    by_value = jacobian(lambda v: error(feature_weights, v), value_weights)
    by_feature = jacobian(lambda f: error(f, value_weights), feature_weights)
    now = error(feature_weights, value_weights)
    step = 1e-6

    def moved(psi, at, sign):
        flat = torch.cat([w.flatten() for w in at]) - sign * step * (psi.T @ now)
        parts = flat.split([w.numel() for w in at])
        return [part.reshape(w.shape) for part, w in zip(parts, at, strict=True)]

    learnt = [error(moved(by_feature, feature_weights, s), moved(by_value, value_weights, s)) for s in (1, -1)]
    kernel = by_value @ by_value.T + by_feature @ by_feature.T
    torch.testing.assert_close((learnt[0] - learnt[1]) / (2 * step), -kernel @ now, rtol=1e-6, atol=1e-7)
    fixed = [error(feature_weights, moved(by_value, value_weights, s)) for s in (1, -1)]
    torch.testing.assert_close((fixed[0] - fixed[1]) / (2 * step), -(by_value @ by_value.T) @ now, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_internal_variables_of_a_circular_cnn_rotate_with_the_input(shift):
    """P2 proposition 3.3, with rot(x, r)(i) = x(i + r)."""
    model = nets.CircularCNN(
        5, 3, 3, 1, window=2, pooling="average", generator=torch.Generator().manual_seed(0)
    ).double()
    x = torch.randn(2, 5, dtype=F64)
    graph = npath.trace(model, x[:1])
    seen: dict[str, list[Tensor]] = {}
    hooks = [
        module.register_forward_hook(lambda _, __, out, name=name: seen.setdefault(name, []).append(out))
        for name, module in model.named_modules()
        if name.startswith("convolutions.")
    ]
    rotated = x.roll(-shift, dims=1)
    y, y_rotated = model(x), model(rotated)
    for hook in hooks:
        hook.remove()
    assert len(seen) >= 6
    for before, after in seen.values():  # pre-activations and hidden outputs
        torch.testing.assert_close(after, before.roll(-shift, dims=-1))
    for before, after in zip(graph.gates(x).layers.values(), graph.gates(rotated).layers.values(), strict=True):
        assert torch.equal(after, before.roll(-shift, dims=-1))
    torch.testing.assert_close(y_rotated, y)
