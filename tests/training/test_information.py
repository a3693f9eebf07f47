"""How much of a model sits in its gates."""

import copy
import json

import pytest
import torch
from torch import nn

from neuralpath import data, nets
from neuralpath.cli import main
from neuralpath.gating.hyperplanes import gate_hyperplanes
from neuralpath.training import Adam, TrainingConfig, train
from neuralpath.training.information import GatingInformation, LayerAccuracy, _changed_networks, gating_information


@pytest.fixture(scope="module")
def task():
    """Have two numbers the same sign? No linear function of them can tell."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(400, 1, 2, 2, generator=generator)
    labels = (images[:, 0, 0, 0] * images[:, 0, 0, 1] > 0).long()
    return data.Split(images[:300], labels[:300]), data.Split(images[300:], labels[300:])


@pytest.fixture(scope="module")
def trained(task):
    model = nets.FC((1, 2, 2), 24, 3, 2, bias=True, generator=torch.Generator().manual_seed(1))
    train(model, *task, TrainingConfig(epochs=40, optimiser=Adam(1e-2), threads=1))
    return model


CONFIG = TrainingConfig(epochs=8, optimiser=Adam(1e-2), threads=1, seed=3)


def test_gates_of_a_trained_network_hold_more_than_random_ones(trained, task):
    before = copy.deepcopy(trained.state_dict())
    found = gating_information(trained, *task, CONFIG, layers=False)
    assert found.model > 0.9
    assert found.layers == ()
    assert found.label_energy is not None
    assert found.random_label_energy is not None
    assert found.no_label_energy is None
    assert found.share_recovered == pytest.approx(
        (found.gates - found.random_gates) / (found.model - found.random_gates)
    )
    for name, value in trained.state_dict().items():
        assert torch.equal(value, before[name])
    assert found == gating_information(trained, *task, CONFIG, layers=False)


def test_only_the_gates_of_one_layer_change(trained, task):
    images = task[0].images[:20]
    own = [q > 0 for q in _preactivations(trained, images)]
    other = nets.FC((1, 2, 2), 24, 3, 2, bias=True, generator=torch.Generator().manual_seed(9)).eval()
    random = [q > 0 for q in _preactivations(other, images)]
    seen = []
    starts = []
    for gate, change, network in _changed_networks(trained.eval(), other, task[0], CONFIG, "glorot"):
        layers = network.gates(images).layers
        changed = network.gates(images).names.index(gate)
        seen.append((changed, change))
        starts.append(network.value.state_dict())
        assert torch.equal(layers[1 - changed], own[1 - changed])
        if change == "random":
            assert torch.equal(layers[changed], random[changed])
        elif change == "open":
            assert layers[changed].all()
        else:
            assert not torch.equal(layers[changed], own[changed])
            assert torch.equal(layers[changed].sum(1), own[changed].sum(1))
            assert torch.equal(layers[changed].sum(0).sort()[0], own[changed].sum(0).sort()[0])
    assert seen == [(layer, change) for layer in (0, 1) for change in ("random", "permuted", "open")]
    assert all(torch.equal(start[name], starts[0][name]) for start in starts for name in start)


def _preactivations(model, images):
    linears = [part for part in model.layers if isinstance(part, nn.Linear)]
    z, found = images.flatten(1), []
    for linear in linears[:-1]:
        found.append(linear(z))
        z = found[-1].relu()
    return found


def test_layers_are_reported_and_a_folder_saves_the_work(trained, task, tmp_path):
    config = TrainingConfig(epochs=1, threads=1)
    found = gating_information(trained, *task, config, folder=tmp_path)
    assert [(layer.gate, layer.change) for layer in found.layers] == [
        (gate, change) for gate in ("layers.relu1", "layers.relu2") for change in ("random", "permuted", "open")
    ]
    assert len(list(tmp_path.iterdir())) == 8
    assert gating_information(trained, *task, config, folder=tmp_path) == found


def test_a_model_without_a_gain_has_no_share():
    assert GatingInformation(0.5, 0.6, 0.5, (), None, None, "no graph").share_recovered is None
    assert LayerAccuracy("relu", "open", 0.5).accuracy == 0.5


def test_what_cannot_be_traced_says_why(task):
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.out = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.flatten(1)
            return self.out(torch.relu(self.one(x)) * self.two(x))

    found = gating_information(Product(), *task, TrainingConfig(epochs=1, threads=1), layers=False)
    assert found.label_energy is None
    assert "mul" in (found.no_label_energy or "")


def test_a_gated_network_keeps_its_own_gates(task):
    model = nets.LinearGatedFC((1, 2, 2), 8, 3, 2, generator=torch.Generator().manual_seed(0))
    found = gating_information(model, *task, TrainingConfig(epochs=1, threads=1))
    assert found.layers == ()
    assert found.label_energy is not None


def test_a_run_without_epochs_or_gates_is_refused(task):
    with pytest.raises(ValueError, match="at least one epoch, got 0"):
        gating_information(nets.FC((1, 2, 2), 4, 2, 2), *task, TrainingConfig(epochs=0))
    with pytest.raises(ValueError, match="has no gates"):
        gating_information(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), *task, TrainingConfig(epochs=1, threads=1))


def test_hyperplanes_are_where_gates_open():
    model = nets.LinearGatedFC((1, 3, 3), 6, 3, 2, bias=True, generator=torch.Generator().manual_seed(0)).double()
    x = torch.randn(50, 1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    planes = gate_hyperplanes(model, x[:2])
    for plane, gates in zip(planes, model.gates(x).layers, strict=True):
        q = x.flatten(1) @ plane.normals.flatten(1).T + plane.offsets
        assert torch.equal(q > 0, gates > 0.5)


def test_hyperplanes_of_a_convolution_are_those_in_the_middle():
    model = nets.LinearGatedCNN((1, 5, 5), 2, channels=(3, 4), generator=torch.Generator().manual_seed(0)).double()
    x = torch.randn(30, 1, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for plane, gates in zip(gate_hyperplanes(model, x[:2]), model.gates(x).layers, strict=True):
        q = x.flatten(1) @ plane.normals.flatten(1).T + plane.offsets
        assert torch.equal(q > 0, gates[:, :, 2, 2] > 0.5)


def test_only_linear_gates_have_hyperplanes():
    with pytest.raises(ValueError, match=r"linear_feature=True.*got a FC"):
        gate_hyperplanes(nets.FC(4, 8, 3), torch.randn(2, 4))


def test_the_gates_command(tmp_path, capsys):
    from safetensors.torch import save_file

    model = nets.FC((1, 8, 8), 8, 3, 10, generator=torch.Generator().manual_seed(0))
    save_file(model.state_dict(), tmp_path / "m.safetensors")
    torch.save(model.state_dict(), tmp_path / "m.pt")
    torch.save(model, tmp_path / "whole.pt")
    (tmp_path / "junk.pt").write_text("hello")
    arguments = ["gates", "fc", "--set", "width=8", "depth=3", "n_outputs=10", "--data", "digits", "--epochs", "1"]
    printed = []
    for file in ("m.safetensors", "m.pt"):
        assert main([*arguments, "--no-layers", "--json", "--weights", str(tmp_path / file)]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[0] == printed[1]
    assert set(printed[0]) >= {"model", "gates", "random_gates", "share_recovered", "label_energy", "layers"}
    assert main([*arguments, "--weights", str(tmp_path / "m.pt")]) == 0
    out = capsys.readouterr().out
    assert "new weights behind its gates" in out
    assert "layers.relu2" in out
    for file in ("whole.pt", "junk.pt"):
        assert main([*arguments, "--weights", str(tmp_path / file)]) == 1
        assert "it is damaged, or holds more than tensors" in capsys.readouterr().err
    assert main([*arguments, "--hyperplanes", str(tmp_path / "h.png")]) == 1
    assert "linear_feature=True" in capsys.readouterr().err
