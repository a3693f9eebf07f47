"""Passes in bfloat16: rounded products, everything else full."""

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuralpath import nets
from neuralpath._configs import to_json
from neuralpath.gating.regimes import decouple
from neuralpath.training import TrainingConfig, train
from neuralpath.training.batches import Batch
from neuralpath.training.training_task import check_task, forward_pass, pack_fixed_gates

REGIMES = ("relu", "FR-II", "DL")


@pytest.fixture
def rounded(config):
    return dataclasses.replace(config, precision="bfloat16")


def convolutional(regime: str = "relu") -> nn.Module:
    model = nets.GCONV((1, 4, 4), n_outputs=3, channels=(8, 8), generator=torch.Generator().manual_seed(0))
    return model if regime == "relu" else decouple(model, regime, generator=torch.Generator().manual_seed(1))


class Wrapped(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(x)


def test_fixed_gates_are_full_inside_of_another_module_too(blobs):
    network, x = convolutional("FR-II"), blobs(50).images
    expected, seen = tuple(network.gates(x).layers.values()), []
    network.value_output = lambda x, gates: seen.append(gates) or torch.zeros(len(x), 3)
    forward_pass(Wrapped(network), "bfloat16")(Batch(x, None, None))
    with torch.autocast("cpu", torch.bfloat16):
        network(x.bfloat16().float())
        rounded = network.feature(x)
    assert rounded.dtype == torch.bfloat16
    assert all(map(torch.equal, seen[0], expected))


def test_products_are_rounded_and_outputs_are_not_bfloat16(blobs):
    model, data = convolutional(), blobs(20)
    batch = Batch(data.images, data.labels, None)
    full, ours = forward_pass(model)(batch), forward_pass(model, "bfloat16")(batch)
    assert torch.equal(full, model(data.images))
    assert ours.dtype == torch.float32
    assert not torch.equal(ours, full)
    torch.testing.assert_close(ours, full, rtol=0, atol=0.05 * float(full.detach().abs().max()))


def test_weights_are_rounded_anew_for_every_batch(blobs):
    """Autocast keeps rounded copies while it is on, which must not outlive a step."""
    model, data = convolutional(), blobs(20)
    batch = Batch(data.images, data.labels, None)
    forward = forward_pass(model, "bfloat16")
    before = forward(batch)
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    assert not torch.equal(before, forward(batch))


@pytest.mark.parametrize("regime", REGIMES)
def test_training_ends_near_full_precision(regime, blobs, config, rounded):
    data = blobs(200), blobs(300, seed=1)
    longer = {"epochs": 8, "batch_size": 20}
    full, ours = (
        train(convolutional(regime), *data, dataclasses.replace(settings, **longer)) for settings in (config, rounded)
    )
    assert ours.last.train.loss != full.last.train.loss
    assert ours.last.train.loss == pytest.approx(full.last.train.loss, rel=0.05)
    assert ours.last.test.accuracy == pytest.approx(full.last.test.accuracy, abs=0.05)


@pytest.mark.parametrize("regime", REGIMES)
def test_weights_and_their_steps_stay_full(regime, data, rounded):
    model = convolutional(regime)
    before = copy.deepcopy(model.state_dict())
    train(model, *data, rounded)
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32}
    moved = [tensor for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])]
    assert moved
    assert not any(torch.equal(tensor, tensor.bfloat16().float()) for tensor in moved)


def test_kept_gates_are_those_of_full_precision(data, rounded):
    model = convolutional("FR-II")
    task = check_task(model, *data, rounded)
    packed = pack_fixed_gates(task)
    for part, split, dtype in (
        ("train", data[0], torch.bfloat16),  # as what they are multiplied with in training
        ("test", data[1], torch.float32),
    ):
        begin = 0
        for batch in task.batches(part, packed[part]).epoch(0):
            exact = model.gates(split.images[begin : begin + len(batch.images)])
            for ours, expected in zip(batch.gates.layers.values(), exact.layers.values(), strict=True):
                assert ours.dtype == dtype
                assert torch.equal(ours.bool(), expected)
            begin += len(batch.images)
        assert begin == len(split.images)


def test_fixed_gates_that_are_not_kept_are_full_too(data, rounded, monkeypatch):
    """Under augmentation they are computed anew for every batch."""
    model, seen = convolutional("FR-II"), []
    plain = type(model).gates

    def gates(self, x):
        seen.append(torch.is_autocast_enabled("cpu"))
        return plain(self, x)

    monkeypatch.setattr(type(model), "gates", gates)
    train(model, *data, rounded, augment=lambda x, generator: x)
    assert len(seen) > len(data[0].images) // rounded.batch_size
    assert not any(seen)


def test_what_is_measured_is_of_full_precision(data, rounded):
    """The outputs of bfloat16 often tie, and the lowest class would win."""
    model = convolutional()
    result = train(model, *data, dataclasses.replace(rounded, train_metrics="evaluated"))
    for split, measured in zip(data, (result.last.train, result.last.test), strict=True):
        with torch.no_grad():
            outputs = model.eval()(split.images)
        assert measured.loss == pytest.approx(float(F.cross_entropy(outputs, split.labels)), rel=1e-5)
        assert measured.accuracy == pytest.approx(float((outputs.argmax(1) == split.labels).double().mean()))


@pytest.mark.parametrize("regime", REGIMES)
def test_rounded_runs_resume_exactly(regime, data, rounded, tmp_path, interrupt_at, same_state):
    whole = convolutional(regime)
    expected = train(whole, *data, rounded, augment=interrupt_at(-1))
    with pytest.raises(KeyboardInterrupt):
        train(convolutional(regime), *data, rounded, folder=tmp_path, augment=interrupt_at(9))
    model = convolutional(regime)
    assert train(model, *data, rounded, folder=tmp_path, augment=interrupt_at(-1)) == expected
    same_state(model, whole)


def test_double_precision_cannot_be_rounded(blobs, rounded):
    data = blobs(20, dtype=torch.float64)
    with pytest.raises(TypeError, match=r"`precision` bfloat16 needs a model of float32, .* are torch\.float64"):
        train(convolutional().double(), data, data, rounded)


def test_records_of_full_precision_are_as_they_were_before_there_was_another(rounded):
    assert "precision" not in to_json(TrainingConfig())
    assert to_json(rounded)["precision"] == "bfloat16"
