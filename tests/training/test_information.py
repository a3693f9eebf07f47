"""How much of a model sits in its gates."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import neuralpath as npath
from neuralpath import data, gating, nets
from neuralpath.gates import SoftGate
from neuralpath.gating.matching import TileGates
from neuralpath.gating.network import GatedNetwork
from neuralpath.gating.regimes import decouple
from neuralpath.training import Adam, CheckpointError, TrainingConfig, label_energies as energies, train
from neuralpath.training.information import (
    GatingInformation,
    LayerAccuracy,
    gating_information,
    networks_with_changed_layer,
)


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
    train(model, *task, TrainingConfig(epochs=40, optimizer=Adam(1e-2), threads=1))
    return model


CONFIG = TrainingConfig(epochs=8, optimizer=Adam(1e-2), threads=1, seed=3)


def test_gates_of_a_trained_network_hold_more_than_random_ones(trained, task):
    before = copy.deepcopy(trained.state_dict())
    found = gating_information(trained, *task, CONFIG, layers=False)
    assert found.model > 0.9
    assert found.layers == ()
    assert found.label_energy is not None
    assert found.random_label_energy is not None
    assert found.n_energy_examples == 2 * energies.energy_examples_per_class(decouple(trained, "FL"), task[0])
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
    whole = decouple(trained.eval(), "FL", generator=torch.Generator().manual_seed(2))
    for gate, change, network in networks_with_changed_layer(whole, other, images, seed=3):
        layers = tuple(network.gates(images).layers.values())
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
    assert all(torch.equal(start[name], value) for start in starts for name, value in whole.value.state_dict().items())


@pytest.mark.parametrize("linear", [False, True])
def test_a_layer_of_a_gated_network_is_one_of_its_value_network(linear):
    """The value network is twice as wide, takes the gates in reversed order, and sees ones."""
    features = [
        nets.FC((1, 2, 2), 6, 3, 2, bias=True, generator=torch.Generator().manual_seed(seed)).eval() for seed in (0, 1)
    ]
    value = nets.FC((1, 2, 2), 12, 3, 2, generator=torch.Generator().manual_seed(2))
    whole = GatedNetwork(
        features[0],
        value,
        gate=SoftGate(4.0),
        gate_order="reversed",
        gate_transform=TileGates(),
        value_input="ones",
        linear_feature=linear,
    )
    other = GatedNetwork(
        features[1],
        copy.deepcopy(value),
        gate=SoftGate(4.0),
        gate_order="reversed",
        gate_transform=TileGates(),
        value_input="ones",
        linear_feature=linear,
    )
    images = torch.randn(20, 1, 2, 2, generator=torch.Generator().manual_seed(3))
    own, random = (tuple(net.gates(images).layers.values()) for net in (whole, other))
    seen = []
    for gate, change, network in networks_with_changed_layer(whole, features[1], images, seed=3):
        layers = list(network.gates(images).layers.values())
        changed = network.gates(images).names.index(gate)
        seen.append((gate, change))
        assert torch.equal(layers[1 - changed], own[1 - changed])
        if change == "random":
            assert torch.equal(layers[changed], random[changed])
        elif change == "open":
            assert torch.equal(layers[changed], torch.ones(20, 12))
        else:
            assert not torch.equal(layers[changed], own[changed])
            assert torch.equal(layers[changed].sort(1)[0], own[changed].sort(1)[0])
        layers[changed] = own[changed]
        assert torch.equal(network.value_output(images, layers), whole(images))
    assert [gate for gate, _ in seen] == [name for name in whole.match(images).names for _ in range(3)]


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


def test_a_folder_is_for_one_model_with_its_weights(trained, task, tmp_path):
    config = TrainingConfig(epochs=1, threads=1)

    def measure(model, **settings):
        return gating_information(model, *task, config, layers=False, label_energy=False, **settings)

    found = measure(trained, folder=tmp_path)
    other = copy.deepcopy(trained)
    with torch.no_grad():
        other.layers.linear1.weight.neg_()
    message = r"gates has the checkpoints of another run: identity\.weights is '"
    with pytest.raises(CheckpointError, match=message):
        measure(other, folder=tmp_path)
    leaky = copy.deepcopy(trained)
    leaky.layers.relu1 = nn.LeakyReLU()
    with pytest.raises(CheckpointError, match=r"identity\.model is '"):
        measure(leaky, folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"identity\.init is \"'glorot'\" .* and \"Gaussian\("):
        measure(trained, folder=tmp_path, init=nets.Gaussian())
    assert measure(trained, folder=tmp_path) == found
    assert measure(other) != found


def test_an_interrupted_measurement_goes_on_in_another_process(trained, task, tmp_path):
    """The networks with one layer changed hold functions, whose addresses must not count."""
    config = TrainingConfig(epochs=1, threads=1)
    found = gating_information(trained, *task, config, label_energy=False, folder=tmp_path)
    torch.save({"state": trained.state_dict(), "data": [(s.images, s.labels) for s in task]}, tmp_path / "saved.pt")
    program = (
        "import sys, torch\n"
        "from neuralpath import data, nets\n"
        "from neuralpath.training import TrainingConfig\n"
        "from neuralpath.training.information import gating_information\n"
        "saved = torch.load(sys.argv[1] + '/saved.pt')\n"
        "model = nets.FC((1, 2, 2), 24, 3, 2, bias=True)\n"
        "model.load_state_dict(saved['state'])\n"
        "task = [data.Split(*pair) for pair in saved['data']]\n"
        "config = TrainingConfig(epochs=1, threads=1)\n"
        "print(gating_information(model, *task, config, label_energy=False, folder=sys.argv[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(found), done.stderr


@pytest.mark.usefixtures("without_type_checks")
def test_loaders_are_refused_by_name(trained, task):
    loader = DataLoader(TensorDataset(task[0].images, task[0].labels), batch_size=10)
    with pytest.raises(TypeError, match=r"`train_data` must be a neuralpath\.data\.Split, .* got a DataLoader"):
        gating_information(trained, loader, task[1])
    with pytest.raises(TypeError, match=r"`test_data` must be a neuralpath\.data\.Split, .* got a DataLoader"):
        gating_information(trained, task[0], loader)


def test_what_is_wrong_with_the_test_data_is_called_so(trained, task):
    config = TrainingConfig(epochs=1, threads=1)
    with pytest.raises(ValueError, match=r"`test_data\.labels` must lie between 0 and 1"):
        gating_information(trained, task[0], data.Split(task[1].images, task[1].labels + 1), config)
    with pytest.raises(ValueError, match=r"one example of `test_data`, a float32 tensor of shape \(1, 1, 3, 3\)"):
        gating_information(trained, task[0], data.Split(torch.rand(100, 1, 3, 3), task[1].labels), config)


def test_a_model_with_an_activation_that_is_no_gate_is_refused(task, tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ELU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    with pytest.raises(ValueError, match=r"value network .* gates: elu in '2'"):
        gating_information(model, *task, TrainingConfig(epochs=1, threads=1), folder=tmp_path)
    assert not list(tmp_path.iterdir())


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


def test_the_label_energy_can_be_left_out(trained, task, monkeypatch):
    monkeypatch.setattr(energies, "path_kernel", None)  # nothing of it is computed
    found = gating_information(trained, *task, TrainingConfig(epochs=1, threads=1), layers=False, label_energy=False)
    assert (found.label_energy, found.random_label_energy, found.n_energy_examples) == (None, None, 0)
    assert found.no_label_energy


def convolutional(size: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(size**2, 2),
    ).eval()


def squares(size: int, n_classes: int = 2, count: int = 400) -> data.Split:
    generator = torch.Generator().manual_seed(0)
    return data.Split(torch.rand(count, 1, size, size, generator=generator), torch.arange(count) % n_classes)


def test_fewer_examples_of_larger_images_and_the_same_for_the_same_graph(trained, task):
    dense = energies.energy_examples_per_class(decouple(trained, "FL"), task[0])
    assert dense == min(150, int(task[0].labels.bincount().min()))
    counts = []
    for size in (8, 16, 32):
        network = decouple(convolutional(size), "FL")
        per_class = energies.energy_examples_per_class(network, squares(size))
        counts.append(per_class)
        x = squares(size).images[:1]
        work = energies.pair_cost(npath.trace(network.eval().value, x), network.gates(x))
        n = 2 * per_class
        assert per_class == 1 or n * (n + 1) / 2 * work <= energies.AFFORDABLE_COST
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[1] > counts[2] >= 1


def test_a_chain_that_is_compiled_gets_more_examples():
    chain = nets.GCONV((1, 28, 28), 10, channels=(4, 4)).eval()
    x = torch.rand(1, 1, 28, 28)
    network = decouple(chain, "FL").eval()
    graph = npath.trace(network.value, x)
    hard = energies.pair_cost(graph, network.gates(x))
    soft = energies.pair_cost(graph, GatedNetwork(network.feature, network.value, gate=SoftGate(4.0)).gates(x))
    assert soft == energies.COMPILED_SPEEDUP * hard == 4 * 784**2


def test_many_classes_of_large_images_have_no_label_energy():
    network = decouple(convolutional(32), "FL")
    found = energies.label_energies(network, network, squares(32, n_classes=100), seed=0)
    assert found.learned is None
    assert "100 classes" in (found.reason or "")


def test_the_result_has_the_number_of_examples():
    network, train_data = decouple(convolutional(16), "FL"), squares(16)
    per_class = energies.energy_examples_per_class(network, train_data, 10**6)
    result = energies.label_energies(network, network, train_data, seed=0, affordable_cost=10**6)
    assert 2 <= result.n_examples == 2 * per_class < 2 * energies.energy_examples_per_class(network, train_data)
    assert result.learned == result.random > 0


@pytest.mark.usefixtures("without_type_checks")
def test_a_graph_is_not_a_model(trained, task):
    graph = npath.trace(trained, task[0].images[:1])
    with pytest.raises(TypeError, match=r"of a graph, `graph.model`.* got a PathGraph"):
        gating_information(graph, *task, TrainingConfig(epochs=1))


def test_data_that_the_model_cannot_take_are_named(task):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    with pytest.raises(ValueError, match=r"could not run on one example of `train_data`, a float32 tensor"):
        gating_information(model, *task, TrainingConfig(epochs=1, threads=1))


def test_a_gated_network_keeps_its_own_gates(task):
    model = gating.LinearGatedFC((1, 2, 2), 8, 3, 2, generator=torch.Generator().manual_seed(0))
    found = gating_information(model, *task, TrainingConfig(epochs=1, threads=1))
    assert [(layer.gate, layer.change) for layer in found.layers] == [
        (gate, change) for gate in ("layers.relu1", "layers.relu2") for change in ("random", "permuted", "open")
    ]
    assert found.label_energy is not None


def test_a_run_without_epochs_or_gates_is_refused(task):
    with pytest.raises(ValueError, match="at least one epoch, got 0"):
        gating_information(nets.FC((1, 2, 2), 4, 2, 2), *task, TrainingConfig(epochs=0))
    with pytest.raises(ValueError, match="has no gates"):
        gating_information(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), *task, TrainingConfig(epochs=1, threads=1))
