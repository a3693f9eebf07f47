"""Hidden layers of a ReLU network and of weights behind its reversed gates, which see one random image."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from neuralpath.papers.experiments import hidden_outputs, label_noise
from neuralpath.papers.experiments.hidden_outputs import pack_images
from neuralpath.papers.experiments.statistics import Spread
from neuralpath.papers.experiments.summary_items import Pictures, Table
from neuralpath.papers.runs.task import with_dependencies
from papers.experiments.serial import run_tasks

SMOKE, CPU, PAPER = (hidden_outputs.EXPERIMENT.presets[name] for name in ("smoke", "cpu", "paper"))
ROWS = hidden_outputs.rows_of(SMOKE)
DRAWING = hidden_outputs.tasks(SMOKE)[-1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hidden-outputs")
    return folder, run_tasks(hidden_outputs.tasks(SMOKE), folder)


def trained(folder, task):
    model = task.make()
    model.load_state_dict(load_file(folder / task.name / "weights" / "best.safetensors"))
    return model.eval()


def test_gates_are_reversed_and_the_image_is_hidden_from_the_weights(finished):
    folder, _ = finished
    task = ROWS[hidden_outputs.REVERSED][0]
    network, relu = trained(folder, task), trained(folder, task.gates.task)
    x = task.data.load().test.images[:3]
    own = ROWS["FL"][0]
    gates = tuple(trained(folder, own).gates(x).layers.values())
    assert all(torch.equal(a, b) for a, b in zip(network.gates(x).layers.values(), reversed(gates), strict=True))
    z = x
    for layer in relu.convolutions:
        z = layer(z)
        if isinstance(layer, torch.nn.ReLU):
            assert torch.equal(z > 0, gates[0])
            gates = gates[1:]
    seen = network.value_input(x)
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen, torch.ones_like(seen))
    assert torch.equal(network.value_input(torch.rand_like(x)), seen)


def test_pictures_are_the_layers(finished):
    folder, results = finished
    found = results[DRAWING]["images"]
    task = ROWS[hidden_outputs.REVERSED][0]
    network, relu = trained(folder, task), trained(folder, task.gates.task)
    x = task.data.load().test.images[:2]
    gates = tuple(network.gates(x).layers.values())
    with torch.no_grad():
        z, seen = x, network.value_input(x)
        for index in range(3):
            z = relu.convolutions[2 * index](z).clamp(min=0)
            seen = network.value.convolutions[2 * index](seen) * gates[index]
            for image in (0, 1):
                assert found[image]["layers"][index] == pack_images(z[image, :4].numpy())
                assert found[image]["value_layers"][index] == pack_images(seen[image, :4].numpy())
        answers = [model(x).argmax(1) for model in (relu, network)]
    assert [image["answers"] for image in found] == [[int(a), int(b)] for a, b in zip(*answers, strict=True)]
    assert all(len(image["value_layers"]) == 3 for image in found)


def test_one_network_for_all(finished):
    _, results = finished
    tasks = hidden_outputs.tasks(SMOKE)
    assert len(tasks) == len(with_dependencies(tasks)) == len(results) == 3 * 4 + 1
    assert set(DRAWING.dependencies) == {ROWS["ReLU"][0], ROWS[hidden_outputs.REVERSED][0]}


def test_tables_and_pictures(finished):
    _, results = finished
    table, compared, *pictures = hidden_outputs.summary(SMOKE, results)
    assert [row[0] for row in table.rows] == list(ROWS)
    fitted = [100 * results[task]["last"]["train_accuracy"] for task in ROWS["ReLU"].values()]
    assert table.rows[0][table.columns.index("training %")] == Spread.of(fitted)
    assert len(compared.rows) == 3
    assert [type(one) for one in pictures] == [Pictures, Pictures]
    assert list(pictures[0].rows)[:2] == ["test image", "ReLU, layer 1"]
    assert len(pictures[0].rows) == 1 + 3 + 1 + 3
    image = np.array(pictures[0].rows["test image"][0])
    assert image.shape == (8, 8)
    assert image.max() == 1


def test_shown_works_with_none_and_some_of_the_runs(finished):
    _, results = finished
    for part in ({}, dict(list(results.items())[:6])):
        assert [type(one) for one in hidden_outputs.summary(SMOKE, part)] == [Table, Table]


def test_presets():
    tasks = hidden_outputs.tasks(CPU)
    assert len(tasks) == 4 + 1
    # M1 and M2 without noise: a network that has fitted its labels, and weights behind its gates as they are.
    (cnn,) = (part for part in label_noise.EXPERIMENT.presets["cpu"].parts if part.name == "cifar10-cnn")
    models = label_noise.models(cnn, 0.0, 0)
    rows = hidden_outputs.rows_of(CPU)
    assert (rows["ReLU"][0], rows["FL"][0]) == (models["M1"], models["M2"])
    assert {weights.which for task in tasks[1:4] for weights in task.weights_read} == {"last"}
    assert len(hidden_outputs.tasks(PAPER)) == 5 * 4 + 1
    figures = [row[2] for row in hidden_outputs.summary(PAPER, {})[0].rows]
    assert figures == ["80.40", None, None, "80.00"]


def test_layers_of_unequal_shape_are_refused():
    with pytest.raises(ValueError, match="`net` must be convolutions of equal width"):
        replace(SMOKE, net=replace(SMOKE.net, channels=(4, 8)))


def test_a_network_is_trained_until_it_fits_only_where_a_share_is_given():
    until = replace(SMOKE, source_accuracy=0.5, source_epochs=7)
    training = hidden_outputs.relu_network(until, 0).training
    assert (training.stop_at_train_accuracy, training.epochs) == (0.5, 7)
    assert hidden_outputs.relu_network(SMOKE, 0).training.stop_at_train_accuracy is None
    with pytest.raises(ValueError, match="`source_accuracy` must be a share"):
        replace(SMOKE, source_accuracy=1.5)
    with pytest.raises(ValueError, match="`measured_every` is of networks that are trained until they fit"):
        replace(SMOKE, measured_every=2)
