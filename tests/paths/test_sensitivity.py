"""Sensitive gates and paths: against a list of all paths with what they meet, and cases done by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import nn

import neuralpath as npath
import oracles
import strategies
import tiny
from neuralpath import nets
from neuralpath.graph import Gates
from neuralpath.paths.sensitivity import log_sensitive_paths, sensitive_gates

F64 = torch.float64


def _is_sensitive(gates):
    """Of a path's gates, as pairs (open, sensitive): whether one is sensitive and all others are open."""
    return any(near and all(on for k, (on, _) in enumerate(gates) if k != i) for i, (_, near) in enumerate(gates))


def _preactivations(model, x):
    seen = []
    hooks = [m.register_forward_pre_hook(lambda _, args: seen.append(args[0][0])) for m in model.modules()
             if isinstance(m, nn.ReLU)]  # fmt: skip
    with torch.no_grad():
        model(x[None])
    for hook in hooks:
        hook.remove()
    return seen


def _count(paths, preactivations, margin):
    return sum(
        _is_sensitive([(q > 0, abs(q) <= margin) for layer, unit in path.gates for q in [preactivations[layer][unit]]])
        for path in paths
    )


def _log(count):
    return math.log(count) if count else -math.inf


@settings(max_examples=10)  # each is traced
@given(draw=strategies.dense_networks(bias=False), margin=st.floats(0, 3))
def test_dense_networks_against_enumeration(draw, margin):
    model, x = draw.build()
    graph = npath.trace(model, x[:1])
    paths = oracles.dense_paths(list(draw.sizes))
    expected = [_log(_count(paths, _preactivations(model, row), margin)) for row in x]
    assert log_sensitive_paths(graph, x, margin).tolist() == pytest.approx(expected, rel=1e-12)


def test_residual_network_against_enumeration():
    model = nets.ResidualFC(2, 3, 2, 1, gamma_pre=0.7, generator=torch.Generator().manual_seed(0)).double()
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
    graph = npath.trace(model, x[:1])
    paths = oracles.residual_paths(2, 3, 2, 1, [0.7] * 2, [1.0] * 2)
    for margin in (0.1, 0.5):
        expected = [_log(_count(paths, _preactivations(model, row), margin)) for row in x]
        assert max(expected) > 0
        assert log_sensitive_paths(graph, x, margin).tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("pooling", ["average", "max"])
@pytest.mark.parametrize("margin", [0.05, 0.5])
def test_circular_network_against_enumeration(pooling, margin):
    """The pool is a gate layer of the oracle's paths: always open for an average; the picked position for a maximum."""
    length = 4
    model = nets.CircularCNN(length, 3, 2, 2, window=2, pooling=pooling, generator=torch.Generator().manual_seed(2))
    model = model.double()
    x = torch.randn(3, length, generator=torch.Generator().manual_seed(3), dtype=F64)
    expected = []
    for row in x:
        first, second, dense = _preactivations(model, row)
        hidden = F.relu(second)
        total = 0
        for path in oracles.circular_paths(length, 3, 2, 2, 2):
            gates = []
            for layer, unit in path.gates:
                if layer == 2:  # the pool
                    if pooling == "average":
                        continue
                    channel, position = unit
                    picked = int(hidden[channel].argmax())
                    others = [float(hidden[channel, i]) for i in range(length) if i != position]
                    near = abs(float(hidden[channel, position]) - max(others)) <= margin if picked == position else (
                        float(hidden[channel].max() - hidden[channel, position]) <= margin
                    )  # fmt: skip
                    gates.append((picked == position, near))
                else:
                    q = float([first, second, None, dense][layer][unit])
                    gates.append((q > 0, abs(q) <= margin))
            total += _is_sensitive(gates)
        expected.append(_log(total))
    assert max(expected) > 0
    assert log_sensitive_paths(npath.trace(model, x[:1]), x, margin).tolist() == pytest.approx(expected, rel=1e-12)


GRAPHS = ["concatenation-then-add", "conv-2d-average", "gate-after-average", "groups", "residual-blocks", "batch-norm"]


@pytest.mark.parametrize("name", GRAPHS)
def test_any_graph_against_a_list_of_paths(name):
    """Listed paths, with prime numbers as gates: a feature's factor says which gates are on the path."""
    model, x = tiny.build(name)
    graph = npath.trace(model, x[:1])
    ones = torch.ones_like(x)
    clear = Gates({k: torch.ones_like(g, dtype=F64) for k, g in graph.gates(x).layers.items()})
    all_open = npath.path_features(graph, ones, gates=clear)
    opened = [g > 0.5 for g in graph.gates(x).layers.values()]  # a leaky gate has the value 0.2 where it is closed
    found = 0
    for margin in (0.1, 0.6):
        near = sensitive_gates(graph, x, margin).values()
        primes = tuple(
            torch.where(g, torch.where(s, 3.0, 1.0), torch.where(s, 2.0, 0.0)).double()
            for g, s in zip(opened, near, strict=True)
        )
        factor = (
            npath.path_features(graph, ones, gates=Gates(dict(zip(graph.gate_names, primes, strict=True)))) / all_open
        )
        powers = [(factor.round() % 2**k == 0).long() for k in (1, 2)]
        closed = powers[0] + powers[1]  # 1 for one sensitive closed gate, 2 for more of them or a plain closed one
        sensitive = (closed == 1) | ((closed == 0) & (factor > 1.5))
        counts = sensitive.sum(1).double()
        torch.testing.assert_close(log_sensitive_paths(graph, x, margin), counts.log())
        found += int(counts.sum())
    assert found > 0


def test_open_sensitive_paths_are_active_ones():
    """With all gates open and within the margin, the sensitive paths are the active ones, at any depth."""
    model = nets.FC(5, 64, 20).double()
    for weight in model.parameters():
        weight.data.fill_(1 / weight.shape[1])
    x = torch.ones(2, 5, dtype=F64)
    graph = npath.trace(model, x[:1])
    assert float(npath.log_active_paths(graph, x)[0]) > 70
    torch.testing.assert_close(log_sensitive_paths(graph, x, 1.5), npath.log_active_paths(graph, x))


def test_by_hand():
    """Two hidden layers of one unit and two units: which gate may be the closed one."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1)).double()
    model[0].weight.data.fill_(1.0)
    model[0].bias.data.fill_(0.0)
    model[2].weight.data = torch.tensor([[1.0], [-0.01]], dtype=F64)
    x = torch.ones(1, 1, dtype=F64)
    graph = npath.trace(model, x)
    gates = sensitive_gates(graph, x, 0.1)
    assert [gates[name].tolist() for name in graph.gate_names] == [[[False]], [[False, True]]]
    # The closed gate of the second layer, from the input and from the first layer's bias.
    assert log_sensitive_paths(graph, x, 0.1).exp().item() == pytest.approx(2)
    # With the first gate sensitive as well, the open second unit's paths too: two more.
    margins = dict(zip(graph.gate_names, (2.0, 0.1), strict=True))
    assert log_sensitive_paths(graph, x, margins).exp().item() == pytest.approx(4)
    # If the first gate is closed, the paths through a closed second gate are lost, although both are sensitive.
    model[0].bias.data.fill_(-1.05)
    assert not bool(graph.gates(x)[1].any())
    assert log_sensitive_paths(graph, x, 2.0).item() == -math.inf


def test_sensitive_gates_of_a_max_pool_and_of_soft_gates():
    model = nn.Sequential(nn.MaxPool1d(2), nn.SiLU(), nn.Flatten())
    x = torch.tensor([[[1.0, 1.05, 3.0, -3.0]], [[0.0, 5.0, -0.06, -0.04]]])
    graph = npath.trace(model, x[:1])
    pool, silu = sensitive_gates(graph, x, 0.1).values()
    assert pool.tolist() == [[[True, False]], [[False, True]]]
    assert silu.tolist() == [[[False, False]], [[False, True]]]


def test_soft_gate_margin_from_its_value():
    """A gate within 0.1 of one half is one with a pre-activation within log(0.6 / 0.4) / beta."""
    model, x = tiny.build("soft-gates")
    graph = npath.trace(model, x[:1])
    name = graph.gate_names[1]
    gate = graph.gates(x)[name]
    assert torch.equal(sensitive_gates(graph, x, math.log(0.6 / 0.4))[name], (gate - 0.5).abs() <= 0.1)


def test_chunks_do_not_change_the_counts():
    model, x = tiny.build("overlapping-max", batch=7)
    graph = npath.trace(model, x[:1])
    whole, gates = log_sensitive_paths(graph, x, 0.3), sensitive_gates(graph, x, 0.3)
    assert torch.equal(log_sensitive_paths(graph, x, 0.3, memory=1), whole)
    for name, parts in sensitive_gates(graph, x, 0.3, memory=1).items():
        assert torch.equal(parts, gates[name])


@pytest.mark.usefixtures("without_type_checks")
def test_refusals():
    model, x = tiny.build("dense")
    graph = npath.trace(model, x[:1])
    with pytest.raises(ValueError, match=r"`margin` must be 0 or a positive finite number, got -1\.0"):
        log_sensitive_paths(graph, x, -1.0)
    with pytest.raises(ValueError, match="`margin` must be 0 or a positive finite number, got inf"):
        sensitive_gates(graph, x, math.inf)
    with pytest.raises(ValueError, match="`margin` must have a number for each gate node"):
        sensitive_gates(graph, x, {"other": 1.0})
    softplus = nn.Sequential(nn.Linear(2, 2), nn.Softplus(), nn.Linear(2, 1)).double()
    with pytest.raises(ValueError, match="softplus"):
        log_sensitive_paths(npath.trace(softplus, x[:1]), x, 0.1)
    behind = tiny.build("outputs-behind-a-gate")
    with pytest.raises(ValueError, match="say which one with `outputs=`"):
        log_sensitive_paths(npath.trace(behind[0], behind[1][:1]), behind[1], 0.1)
