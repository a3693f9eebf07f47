"""A folder belongs to one run: another model or augmentation is refused, older checkpoints go on."""

import hashlib
import json
from functools import partial

import pytest
import torch
from torch import nn

import neuralpath as npath
from neuralpath import nets
from neuralpath.training import CheckpointError, SaveEvery, train
from neuralpath.training.checkpoints import _canonical
from neuralpath.training.identity import describe_callable, printed, weights_digest

GENERATOR_SEED = 1
NEVER = SaveEvery(seconds=None)


def noise(images, generator, size=0.1):
    return images + size * torch.randn(images.shape, generator=generator, dtype=images.dtype)


def noise_of(size, counts=()):
    def changed(images, generator, *, sign=1):
        return noise(images, generator, sign * size) + len(counts)

    return changed


class Noise:
    def __init__(self, size):
        self.size = size

    def __call__(self, images, generator):
        return noise(images, generator, self.size)


class PrintedNoise(Noise):
    def __repr__(self):
        return f"PrintedNoise({self.size})"

    def apply(self, images, generator):
        return self(images, generator)


def test_descriptions_tell_settings_apart():
    assert describe_callable(noise) == "noise(size=0.1)"
    assert describe_callable(partial(noise, size=0.5)) == "partial(noise(size=0.1), size=0.5)"
    assert describe_callable(noise_of(0.5)) == "noise_of.<locals>.changed(size=0.5, sign=1)"
    assert describe_callable(lambda images, generator: images).endswith("<lambda>")
    assert describe_callable(Noise(0.5)) == "Noise"  # it says nothing of itself
    assert describe_callable(PrintedNoise(0.5)) == "PrintedNoise(0.5)"
    assert describe_callable(PrintedNoise(0.5).apply) == "PrintedNoise.apply of PrintedNoise(0.5)"
    assert describe_callable(nn.Dropout(0.5)) == "Dropout(p=0.5, inplace=False)"
    assert "0x" not in printed({0: noise, 1: Noise(1)})


def test_a_digest_is_of_names_values_shapes_and_dtypes():
    torch.manual_seed(0)
    layer = nn.Linear(4, 2)
    same = nn.Linear(4, 2)
    same.load_state_dict(layer.state_dict())
    others = [nn.Linear(4, 2), nn.Linear(2, 4), nn.Sequential(layer), layer.bfloat16()]
    digests = {weights_digest(module) for module in others}
    assert len(digests) == 4
    assert weights_digest(same) not in digests
    assert weights_digest(same) == weights_digest(same)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (partial(noise, size=0.1), partial(noise, size=5.0), r"size=0\.1\)' there and 'partial\(.*size=5\.0\)' here"),
        (noise_of(0.1), noise_of(5.0), r"changed\(size=0\.1, .* there and .*changed\(size=5\.0"),
        (PrintedNoise(0.1), PrintedNoise(5.0), r"PrintedNoise\(0\.1\)' there and 'PrintedNoise\(5\.0\)' here"),
    ],
)
def test_another_augmentation_is_refused(first, second, message, net, data, config, tmp_path, same_state):
    whole = net("fc")
    train(whole, *data, config, augment=first, folder=tmp_path, save_every=NEVER)
    with pytest.raises(CheckpointError, match=r"another run.*: augmentation is '.*" + message):
        train(net("fc"), *data, config, augment=second, folder=tmp_path)
    again = net("fc", 1)
    train(again, *data, config, augment=first, folder=tmp_path)
    same_state(again, whole)


def gated(config_seed=0, **settings):
    model = nets.FC((1, 4, 4), 6, 4, 3, generator=torch.Generator().manual_seed(config_seed))
    return npath.decouple(model, "FL", generator=torch.Generator().manual_seed(GENERATOR_SEED), **settings)


def test_another_order_of_gates_is_another_run(data, config, tmp_path, same_state):
    first = gated()
    result = train(first, *data, config, folder=tmp_path)
    reversed_result = train(gated(gate_order="reversed"), *data, config)
    assert result != reversed_result
    message = r"line 2 of the model as it is printed is 'value_input=.*' there and 'gate_order=reversed, .*' here"
    with pytest.raises(CheckpointError, match=message):
        train(gated(gate_order="reversed"), *data, config, folder=tmp_path)
    again = gated()
    assert train(again, *data, config, folder=tmp_path) == result
    same_state(again, first)


def test_a_refused_model_keeps_its_weights(data, config, tmp_path, same_state):
    train(gated(), *data, config, folder=tmp_path)
    model, same = (gated(gate_order="reversed") for _ in range(2))
    with pytest.raises(CheckpointError):
        train(model, *data, config, folder=tmp_path)
    same_state(model, same)


def test_another_activation_is_another_run(data, config, tmp_path):
    def make(activation):
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), activation, nn.Linear(8, 3))

    train(make(nn.ReLU()), *data, config, folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"line 4 .* is '\(2\): ReLU\(\)' there and '\(2\): LeakyReLU\("):
        train(make(nn.LeakyReLU()), *data, config, folder=tmp_path)


def test_other_weights_are_those_of_a_model_made_anew(net, data, config, tmp_path, same_state):
    """A model made anew, with other random weights, goes on with the run; an identity tells runs apart."""
    whole = net("fc")
    train(whole, *data, config, folder=tmp_path, identity={"weights": weights_digest(net("fc"))})
    other = net("fc", 1)
    with pytest.raises(CheckpointError, match=r"identity\.weights is"):
        train(other, *data, config, folder=tmp_path, identity={"weights": weights_digest(other)})
    train(other, *data, config, folder=tmp_path, identity={"weights": weights_digest(net("fc"))})
    same_state(other, whole)


def make_old(folder, identity=None):
    """The checkpoints as earlier versions wrote them, without what was added since."""
    for path in folder.glob("*.json"):
        record = json.loads(path.read_text())
        record.pop("sha256")
        for key in ("model", "augmentation"):
            del record["values"]["about"][key]
        if identity is not None:
            record["values"]["about"]["identity"] = identity
        path.write_text(json.dumps({"sha256": hashlib.sha256(_canonical(record)).hexdigest(), **record}))


def test_checkpoints_of_earlier_versions_go_on(data, config, tmp_path, same_state, interrupt_at):
    whole = gated()
    expected = train(whole, *data, config, augment=interrupt_at(-1))
    with pytest.raises(KeyboardInterrupt):
        train(gated(), *data, config, augment=interrupt_at(9), folder=tmp_path)
    make_old(tmp_path, identity={})
    with pytest.raises(CheckpointError, match=r"augment is 'InterruptAt' there and None here"):
        train(gated(), *data, config, folder=tmp_path)
    model = gated()
    settings = {"folder": tmp_path, "identity": {"weights": "said only since"}}
    assert train(model, *data, config, augment=interrupt_at(-1), **settings) == expected
    same_state(model, whole)
    # What was written since says whose it is.
    with pytest.raises(CheckpointError, match=r"identity\.weights is 'said only since' there and 'another' here"):
        train(gated(), *data, config, augment=interrupt_at(-1), folder=tmp_path, identity={"weights": "another"})


def test_an_identity_that_was_said_then_still_counts(net, data, config, tmp_path):
    train(net("fc"), *data, config, folder=tmp_path, identity={"fingerprint": "a"})
    make_old(tmp_path)
    with pytest.raises(CheckpointError, match=r"identity\.fingerprint is 'a' there and 'b' here"):
        train(net("fc"), *data, config, folder=tmp_path, identity={"fingerprint": "b"})
    with pytest.raises(CheckpointError, match=r"identity\.fingerprint is 'a' there and None here"):
        train(net("fc"), *data, config, folder=tmp_path)
    train(net("fc"), *data, config, folder=tmp_path, identity={"fingerprint": "a"})


def test_other_versions_may_print_a_model_in_another_way(data, config, tmp_path, monkeypatch):
    train(gated(), *data, config, folder=tmp_path)
    monkeypatch.setattr("neuralpath.training.loop.versions", lambda: {"torch": "99.0"})
    train(gated(gate_order="reversed"), *data, config, folder=tmp_path)
