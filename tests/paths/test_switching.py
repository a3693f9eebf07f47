"""Gate flips along training: against loops over checkpoints, and cases done by hand."""

import copy
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neuralpath as npath
import tiny
from neuralpath import nets
from neuralpath.graph import Gates
from neuralpath.paths.switching import SwitchRecorder, gate_switches

F64 = torch.float64


def _gates(*layers):
    return Gates({f"gate{i}": layer for i, layer in enumerate(layers)})


def _listed(by_layer):
    return {name: values.tolist() for name, values in by_layer.items()}


def test_flips_by_hand():
    recorder = SwitchRecorder()
    closed, opened = torch.zeros(2, 3, dtype=torch.bool), torch.ones(2, 3, dtype=torch.bool)
    one = closed.clone()
    one[1, 2] = True
    recorder.update(_gates(closed, closed), epoch=0)  # where counting starts
    recorder.update(_gates(one, closed), epoch=0)
    recorder.update(_gates(one, closed), epoch=0)  # nothing happens
    recorder.update(_gates(opened, one), epoch=1)
    switches = recorder.switches()
    assert switches.epochs == (0, 1)
    assert _listed(switches.flips) == {"gate0": [[0, 1], [3, 2]], "gate1": [[0, 0], [0, 1]]}
    assert switches.instants.tolist() == [1, 1]
    assert switches.n_updates.tolist() == [2, 1]
    assert switches.per_epoch.tolist() == [1, 6]
    assert _listed(switches.per_layer) == {"gate0": [1, 5], "gate1": [0, 1]}
    assert switches.per_example.tolist() == [[0, 1], [3, 3]]
    fraction = {"gate0": torch.tensor([1, 5], dtype=F64) / 6, "gate1": torch.tensor([0, 1], dtype=F64) / 6}
    torch.testing.assert_close(switches.fraction, fraction)
    torch.testing.assert_close(switches.mean_fraction, torch.tensor([0.5, 3], dtype=F64) / 6)


def test_soft_and_leaky_gates_flip_at_the_threshold():
    recorder = SwitchRecorder(threshold=0.4)
    recorder.update(_gates(torch.tensor([[0.1, 0.39, 0.9]])))
    recorder.update(_gates(torch.tensor([[0.3, 0.41, 0.8]])))
    assert _listed(recorder.switches().flips) == {"gate0": [[1]]}


def test_max_pool_flips_where_another_position_is_picked():
    recorder = SwitchRecorder()
    recorder.update(_gates(torch.tensor([[[0, 5]], [[1, 2]]])))
    recorder.update(_gates(torch.tensor([[[1, 5]], [[0, 3]]])))
    assert _listed(recorder.switches().flips) == {"gate0": [[1, 2]]}


def test_recorder_keeps_a_copy():
    gates = torch.zeros(1, 4, dtype=torch.int64)
    recorder = SwitchRecorder()
    recorder.update(_gates(gates))
    gates[0, 0] = 1
    recorder.update(_gates(gates))
    assert _listed(recorder.switches().flips) == {"gate0": [[1]]}


def _trajectory(model, x, n_steps):
    """Copies of a model's state along gradient descent, the first one included."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    states = [copy.deepcopy(model.state_dict())]
    for _ in range(n_steps):
        optimizer.zero_grad()
        F.mse_loss(model(x), torch.ones_like(model(x))).backward()
        optimizer.step()
        states.append(copy.deepcopy(model.state_dict()))
    return states


@pytest.mark.parametrize("name", ["dense-bias", "batch-norm", "soft-gates", "two-max-pools"])
def test_checkpoints_agree_with_a_loop(name):
    """Also with batch norm, whose statistics belong to a checkpoint, soft gates and max pools."""
    model, x = tiny.build(name, batch=6)
    graph = npath.trace(model, x[:1])
    before = copy.deepcopy(model.state_dict())
    generator = torch.Generator().manual_seed(0)
    states = [
        {key: value * (0.5 + 2 * torch.rand(value.shape, generator=generator)) * torch.randn((), generator=generator)
         if value.is_floating_point() and "var" not in key else value for key, value in before.items()}
        for _ in range(5)
    ]  # fmt: skip
    switches = gate_switches(graph, x, iter(states))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())

    seen = []
    for state in states:
        model.load_state_dict(state)
        seen.append([g if g.dtype == torch.int64 else g > 0.5 for g in graph.gates(x).layers.values()])
    expected = [
        [[int((a[s] != b[s]).sum()) for s in range(len(x))] for a, b in zip(*pair, strict=True)]
        for pair in pairwise(seen)
    ]
    by_epoch = zip(*_listed(switches.flips).values(), strict=True)
    assert [list(layers) for layers in by_epoch] == expected
    assert all(layer.any() for layer in switches.per_layer.values())
    assert switches.epochs == (1, 2, 3, 4)
    assert switches.instants.tolist() == [int(any(map(any, epoch))) for epoch in expected]


@pytest.mark.parametrize("numba", ["0", "1"])
def test_packed_and_plain_gates_agree(numba, monkeypatch):
    monkeypatch.setenv("NEURALPATH_NUMBA", numba)
    generator = torch.Generator().manual_seed(0)
    layers = [torch.rand(7, 130, generator=generator) < 0.5 for _ in range(4)]
    recorder = SwitchRecorder()
    for layer in layers:
        recorder.update(_gates(layer))
    expected = sum((a != b).sum(1) for a, b in pairwise(layers))
    assert torch.equal(recorder.switches().flips["gate0"][0], expected)


def test_finer_records_see_more():
    """A gate that flips and flips back between two updates is not seen."""
    model = nets.FC(3, 32, 3, generator=torch.Generator().manual_seed(1)).double()
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(2), dtype=F64)
    graph = npath.trace(model, x[:1])
    states = _trajectory(model, x, 60)
    fine, coarse = gate_switches(graph, x, states), gate_switches(graph, x, states[::20])
    assert fine.per_epoch.sum() >= coarse.per_epoch.sum() > 0


def test_hook_of_an_optimizer():
    model = nets.FC(3, 16, 3, generator=torch.Generator().manual_seed(3)).double()
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(4), dtype=F64)
    graph, recorder, epoch = npath.trace(model, x[:1]), SwitchRecorder(), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    recorder.update(graph.gates(x), epoch)
    optimizer.register_step_post_hook(lambda *_: recorder.update(graph.gates(x), epoch))
    states = [copy.deepcopy(model.state_dict())]
    for epoch in range(3):  # noqa: B007  (the hook reads it)
        for batch in x.split(4):
            optimizer.zero_grad()
            (model(batch) - 1).square().sum().backward()
            optimizer.step()
            states.append(copy.deepcopy(model.state_dict()))
    switches = recorder.switches()
    assert switches.epochs == (0, 1, 2)
    assert switches.n_updates.tolist() == [2, 2, 2]
    for name, by_step in gate_switches(graph, x, states).flips.items():
        assert torch.equal(switches.flips[name], by_step.unflatten(0, (3, 2)).sum(1))


def test_tied_and_renamed_parameters():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = self.a

        def forward(self, x):
            return F.relu(self.b(F.relu(self.a(x))))

    model, x = Tied().double(), torch.randn(4, 3, dtype=F64)
    negative = {name: -value for name, value in model.state_dict().items()}
    graph = npath.trace(model, x[:1])
    assert gate_switches(graph, x, [model.state_dict(), negative]).fraction[graph.gate_names[0]].tolist() == [1]


@pytest.mark.usefixtures("without_type_checks")
def test_refusals():
    model, x = tiny.build("dense")
    graph = npath.trace(model, x[:1])
    state = model.state_dict()
    with pytest.raises(ValueError, match="at least twice"):
        gate_switches(graph, x, [state])
    with pytest.raises(ValueError, match=r"`checkpoints\[1\]` lacks tensors that the network reads: b.weight"):
        gate_switches(graph, x, [state, {k: v for k, v in state.items() if k != "b.weight"}])
    with pytest.raises(ValueError, match=r"`checkpoints\[0\]\['a.weight'\]` must be a tensor of shape \(3, 2\)"):
        gate_switches(graph, x, [{**state, "a.weight": torch.ones(2, 2)}])
    with pytest.raises(ValueError, match="`threshold` must be 0 or a positive"):
        SwitchRecorder(threshold=-1.0)
    recorder = SwitchRecorder()
    with pytest.raises(TypeError, match="`gates` must be `Gates`"):
        recorder.update([torch.ones(2, 2, dtype=torch.bool)])
    with pytest.raises(ValueError, match="network without gates"):
        recorder.update(Gates({}))
    recorder.update(graph.gates(x))
    with pytest.raises(ValueError, match=r"`gates`.*\(3, 3\).*\(2, 3\)"):
        recorder.update(graph.gates(x[:2]))
