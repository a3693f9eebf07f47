"""Networks that nobody thought of: drawn programs through all exact quantities, each against its brute force."""

from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor
from torch.func import functional_call, jacrev

import monomials
import neuralpath as npath
from closeness import assert_kernel_close
from neuralpath.graph import Forward, PathGraph, nodes as n, walk
from programs import Network, Program, programs

TERMS = 2**14
"""Sums of the longest polynomials, several times over: the bound of the tests that try all signs."""

drawn = settings(max_examples=25, suppress_health_check=list(HealthCheck))


def _traced(program: Program) -> tuple[Network, Tensor, PathGraph] | None:
    network, x = program.build()
    try:
        return network, x, npath.trace(network, x[:1])
    except npath.UnsupportedOperation:
        return None  # refused by name, which is an answer


def _check_path_quantities(program: Program) -> None:
    if (found := _traced(program)) is None:
        return
    _, x, graph = found
    try:
        output = monomials.expanded(graph, x)
    except monomials.TooManyMonomials:
        return
    exact = output.kernel()
    kernel = npath.path_kernel(graph, x)
    assert_kernel_close(kernel, exact, terms=TERMS)
    scale = float(exact.abs().max())
    assert_kernel_close(npath.path_kernel(graph, x[:1], x[1:]), exact[:1, 1:], terms=TERMS, scale=scale)
    normalized = output.kernel(lambda node: 1 / node.fan_in if isinstance(node, n.LinearNode) else 1.0)
    assert_kernel_close(npath.path_kernel(graph, x, normalize=True), normalized, terms=TERMS)
    linear_nodes = [node.name for node in graph.nodes if isinstance(node, n.LinearNode)]
    variances = {name: 0.5 + 0.3 * place for place, name in enumerate(linear_nodes)}
    assert_kernel_close(
        npath.expected_tangent_kernel(graph, x, weight_variance=variances, bias_variance=0.4),
        output.tangent_kernel(lambda node: variances.get(node.name, 0.4)),
        terms=TERMS,
    )


@drawn
@given(programs())
def test_path_kernels_are_those_of_the_expanded_polynomial(program):
    _check_path_quantities(program)


@pytest.mark.slow
@settings(drawn, max_examples=150)
@given(programs(most_steps=16))
def test_path_kernels_of_longer_networks(program):
    _check_path_quantities(program)


def _jacobian(function, params: dict[str, Tensor]) -> Tensor:
    """Derivatives (example, output, parameter)."""
    return torch.cat([part.flatten(2) for part in jacrev(function)(params).values()], 2)


@drawn
@given(programs())
def test_tangent_kernels_and_their_parts_are_those_of_explicit_jacobians(program):
    if (found := _traced(program)) is None or not (params := dict(found[0].named_parameters())):
        return
    network, x, graph = found
    params = {name: parameter.detach() for name, parameter in params.items()}
    gates = graph.gates(x)
    whole = _jacobian(lambda given: functional_call(network, given, (x,)).reshape(len(x), -1), params)
    value = _jacobian(
        lambda given: walk(graph, Forward(x, {**graph.state, **given}, gates)).reshape(len(x), -1), params
    )
    kernel = torch.einsum("akp,bkp->ab", whole, whole) / whole.shape[1]
    assert_kernel_close(npath.tangent_kernel(network, x), kernel, terms=TERMS)
    parts = npath.tangent_parts(network, x)
    rest = whole - value
    by_hand = [torch.einsum("akp,bkp->ab", one, one) / one.shape[1] for one in (value, rest)]
    scale = float(sum(part.abs().max() for part in (kernel, *by_hand)))
    assert_kernel_close(parts.value, by_hand[0], terms=TERMS, scale=scale)
    assert_kernel_close(parts.feature, by_hand[1], terms=TERMS, scale=scale)


@drawn
@given(programs())
def test_outputs_are_sums_over_paths_and_survive_gates_given_back(program):
    if (found := _traced(program)) is None:
        return
    network, x, graph = found
    expected = network(x).detach().reshape(len(x), -1)
    again = npath.run_with_gates(network, x, npath.recorded_gates(network, x)).detach().reshape(len(x), -1)
    assert_kernel_close(again, expected, terms=64)
    if graph.n_paths * graph.n_outputs > 5000 or not graph.params:
        return
    counts = []
    for output in range(graph.n_outputs):
        features = npath.path_features(graph, x, outputs=output).detach()  # batch norm has trained scales
        values = npath.path_values(graph, outputs=output).detach()
        counts.append(len(values))
        scale = float((features.abs() @ values.abs()).max())
        assert_kernel_close(features @ values, expected[:, output], terms=graph.n_paths, scale=scale)
    assert max(counts) == graph.n_paths


def test_programs_are_networks_of_all_kinds():
    """Most can be read, and what is drawn has gates that are open and closed, skips, pools and every operation."""
    counts: Counter[str] = Counter()
    seen: Counter[str] = Counter()

    @settings(drawn, max_examples=60)
    @given(programs())
    def draw(program):
        network, x = program.build()
        counts["drawn"] += 1
        seen.update(set(network.used))
        if (found := _traced(program)) is None:
            return
        counts["read"] += 1
        gates = [layer.double() for layer in found[2].gates(x).layers.values() if layer.dtype != torch.int64]
        counts["open and closed"] += any(0 < float(layer.mean()) < 1 for layer in gates)
        try:
            counts["expanded"] += len(monomials.expanded(found[2], x).polynomial.sets) > 10
        except monomials.TooManyMonomials:
            counts["long"] += 1

    draw()
    n_drawn = counts["drawn"]
    assert counts["read"] > 0.6 * n_drawn, counts
    assert counts["open and closed"] > 0.3 * n_drawn, counts
    assert counts["expanded"] > 0.3 * n_drawn, counts
    assert all(seen[name] for name in ("mix", "gate", "keep", "add", "join", "move", "pool", "reshape", "bias", "norm"))


def test_the_polynomial_is_the_networks_output():
    program = Program((2, 4), (("mix", (1, 1)), ("gate", (0,)), ("pool", (1,))), 1, 0)
    network, x, graph = _traced(program)
    assert network.used == ["mix", "gate", "pool", "reshape", "mix"]
    assert_kernel_close(monomials.expanded(graph, x).value(graph), network(x).detach(), terms=64)
