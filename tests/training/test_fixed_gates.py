"""Fixed gates are computed once and kept as bits, and training with them is the same training."""

import copy
import dataclasses
import functools
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from neuralpath import nets, training
from neuralpath.gates import LeakyGate
from neuralpath.gating.network import GatedNetwork
from neuralpath.gating.regimes import decouple
from neuralpath.graph import Gates
from neuralpath.training.fixed_gates import PackedGates, pack_gates, unpack_bits

train = functools.partial(training.train, checkpoint_seconds=0)  # a checkpoint at the end of each epoch

LOOKED_AT = 1 + 8 + 1
"""Examples that are run before training: one for the shape of the outputs, and one among others and by itself."""


class Pooled(nn.Module):
    """Convolutions with max pooling, whose gates are masks and positions."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 5, 2), nn.Linear(5, 3)
        self.pool, self.relu, self.dropout = nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.2)

    def forward(self, x):
        return self.c(self.dropout(self.relu(self.b(self.pool(self.relu(self.a(x))))).flatten(1)))


def base(kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nets.FC((1, 4, 4), (12, 70, 5), n_outputs=3) if kind == "fc" else Pooled()


class Counting(GatedNetwork):
    """Counts the examples whose gates it was asked for."""

    asked = 0

    def _gate_layers(self, x):
        self.asked += len(x)
        return super()._gate_layers(x)


def gated(kind, **arguments):
    generator = torch.Generator().manual_seed(3)
    network = decouple(base(kind), "FR-II", generator=generator)
    return Counting(network.feature, network.value, **arguments)


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=4),
    st.integers(1, 40),
    st.integers(1, 50),
    st.integers(0, 10**6),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_kept_gates_come_back(widths, n, block, seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    hard = [torch.rand(n, width, generator=generator) > 0.5 for width in widths]
    positions = torch.randint(40, (n, 3, 2), generator=generator)
    soft = torch.rand(n, 4, generator=generator, dtype=dtype)
    layers = (*hard, positions, hard[0].reshape(n, 1, -1), soft)
    names = tuple(f"gate{i}" for i in range(len(layers)))
    images = torch.arange(n, dtype=dtype)[:, None]

    def compute(x):
        return Gates(dict(zip(names, layers, strict=True))).batch(x[:, 0].long())

    kept = pack_gates(compute, images, block=block, budget=None)
    rows = torch.randint(n, (7,), generator=generator)
    for chosen in (rows, slice(1, 5), rows[:2]):
        found = kept.batch(chosen)
        assert found.names == names
        for ours, whole in zip(found.layers.values(), layers, strict=True):
            expected = whole[chosen]
            assert torch.equal(ours, expected.to(dtype) if expected.dtype == torch.bool else expected)
            assert ours.dtype == (torch.int64 if whole is positions else dtype)


def test_unpacking_on_other_devices_gives_the_same_bits():
    packed = torch.randint(256, (5, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    expected = np.unpackbits(packed.numpy(), axis=1, bitorder="little")
    assert torch.equal(unpack_bits(packed), torch.from_numpy(expected))


def test_positions_that_pass_16_bits_are_kept_exactly():
    first = Gates({"pool": torch.zeros(1, 2, dtype=torch.int64)})
    kept = PackedGates(first, 2, torch.float32)
    kept.allocate()
    kept.write(0, first)
    kept.write(1, Gates({"pool": torch.tensor([[5, 2**20]])}))
    assert kept.batch(slice(0, 2))["pool"].tolist() == [[0, 0], [5, 2**20]]


def test_bits_not_bytes_are_kept():
    gates = Gates({"a": torch.ones(2, 128, dtype=torch.bool), "b": torch.ones(2, 4, 4, 4, dtype=torch.bool)})
    assert PackedGates(gates, 1000, torch.float32).n_bytes == 1000 * (128 + 64) // 8


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("fc", {}),
        ("fc", {"gate": LeakyGate(0.1)}),
        ("fc", {"value_input": "ones"}),
        ("fc", {"value_input": "random"}),
        ("pooled", {}),
    ],
)
def test_training_with_kept_gates_is_the_same_training(kind, arguments, blobs, config):
    """In double precision the ways of computing gates agree in every gate."""
    data = blobs(52, dtype=torch.float64), blobs(40, seed=1, dtype=torch.float64)
    start = gated(kind, **arguments).double()
    kept, plain = copy.deepcopy(start), copy.deepcopy(start)
    result = train(kept, *data, config)
    assert kept.asked == len(data[0]) + len(data[1]) + LOOKED_AT  # each example once, and a few to see that it may
    with pytest.warns(UserWarning, match="gate_memory") as caught:
        expected = train(plain, *data, dataclasses.replace(config, gate_memory=1))
    assert len(caught) == 2  # once for each part of the data
    assert plain.asked > 3 * kept.asked // 2
    for name, weights in kept.state_dict().items():
        torch.testing.assert_close(weights, plain.state_dict()[name], rtol=1e-9, atol=1e-12)
        if name.startswith("feature."):
            assert torch.equal(weights, start.state_dict()[name])
    assert any(
        not torch.equal(w, start.state_dict()[n]) for n, w in kept.state_dict().items() if n.startswith("value.")
    )
    assert result.last.test.accuracy == expected.last.test.accuracy
    assert result.last.test.loss == pytest.approx(expected.last.test.loss, rel=1e-9)


def above_the_mean(q):
    return q > q.mean(0)


def test_gates_that_depend_on_the_batch_are_not_kept(blobs, config):
    """What was kept would be the gates of other batches, and which those are would depend on the memory."""
    data = blobs(52), blobs(40, seed=1)
    start = gated("fc", gate=above_the_mean)
    networks = [copy.deepcopy(start) for _ in range(2)]
    for network, memory in zip(networks, (None, 1), strict=True):
        with pytest.warns(UserWarning, match="depend on the other examples of its batch") as caught:
            train(network, *data, dataclasses.replace(config, gate_memory=memory))
        assert len(caught) == 1
    assert all(map(torch.equal, *(network.state_dict().values() for network in networks)))


def test_gates_of_the_training_data_are_not_kept_under_augmentation(blobs, config):
    network = gated("fc")
    train(network, blobs(52), blobs(40, seed=1), config, augment=lambda x, generator: x.flip(3))
    assert network.asked == LOOKED_AT + 40 + 3 * 52


def test_gates_that_change_are_not_kept(blobs, config):
    generator = torch.Generator().manual_seed(3)
    network = decouple(base("fc"), "DL", generator=generator)
    before = copy.deepcopy(network.state_dict())
    train(network, blobs(52), blobs(40, seed=1), config)
    moved = {name for name, weights in network.state_dict().items() if not torch.equal(weights, before[name])}
    assert any(name.startswith("feature.") for name in moved)
    assert any(name.startswith("value.") for name in moved)


def test_a_budget_for_the_training_data_alone(blobs, config):
    network = gated("fc")
    row = (64 + 128 + 64) // 8
    config = dataclasses.replace(config, gate_memory=52 * row + 10)
    with pytest.warns(UserWarning, match="test data .* 10 bytes"):
        train(network, blobs(52), blobs(40, seed=1), config)
    assert network.asked == LOOKED_AT + 52 + 16 + 3 * 40  # 16 to see how much the gates of the test data take


def stop_after_two_epochs(moment):
    if moment.epoch == 2:
        raise RuntimeError("stop")


@pytest.mark.parametrize("kind", ["fc", "pooled"])
def test_learned_gates_resume_exactly(kind, data, config, tmp_path, same_state):
    def make(seed):
        return decouple(base(kind), "DL", generator=torch.Generator().manual_seed(seed))

    whole = make(0)
    expected = train(whole, *data, config)
    with pytest.raises(RuntimeError, match="stop"):
        train(make(0), *data, config, folder=tmp_path, hooks=[stop_after_two_epochs])
    model = make(1)
    assert train(model, *data, config, folder=tmp_path) == expected
    same_state(model, whole)


@pytest.mark.parametrize("fits_first", [True, False])
def test_gates_are_kept_as_at_first_whatever_memory_is_free(
    fits_first, data, config, tmp_path, monkeypatch, same_state
):
    """Else a run that goes on while the machine is fuller or emptier would have gates that are rounded differently."""
    budgets = iter((10**6, 10**6, 1) if fits_first else (1, 1, 10**6))
    monkeypatch.setattr("neuralpath.training.training_task.memory_budget", lambda memory: next(budgets))
    whole = gated("fc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        train(whole, *data, config)
        with pytest.raises(RuntimeError, match="stop"):
            train(gated("fc"), *data, config, folder=tmp_path, hooks=[stop_after_two_epochs])
    model = gated("fc")
    train(model, *data, config, folder=tmp_path)
    recomputed = 2 * len(data[0]) + 2 * len(data[1])  # epochs 2 and 3: the hook stopped the run before checkpoint 2
    assert model.asked == 1 + (len(data[0]) + len(data[1]) if fits_first else recomputed)
    same_state(model, whole)


@pytest.mark.parametrize("budget", [None, 1])
@pytest.mark.parametrize("kind", ["fc", "pooled"])
def test_fixed_gates_resume_exactly(kind, budget, data, config, tmp_path, same_state):
    """Whether gates were kept is part of the run: it goes on in the same way, whatever memory is free by then."""
    config = dataclasses.replace(config, gate_memory=budget, train_metrics="evaluated")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        whole = gated(kind)
        expected = train(whole, *data, config)
        with pytest.raises(RuntimeError, match="stop"):
            train(gated(kind), *data, config, folder=tmp_path, hooks=[stop_after_two_epochs])
        model = gated(kind)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)  # features too come from the checkpoint
        assert train(model, *data, config, folder=tmp_path) == expected
    same_state(model, whole)
