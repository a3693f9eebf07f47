"""What experiments say of how they are smaller than the papers fits their presets and the records."""

from pathlib import Path

import pytest

from neuralpath.papers.experiments import hidden_outputs, linear_gating
from neuralpath.papers.experiments.registry import get
from neuralpath.papers.experiments.specs import TrainingRecipe
from neuralpath.papers.runs import Store

RESULTS = Path(__file__).parents[3] / "results"


def fitted(task):
    """Per cent of its training labels after the last epoch, of a run that is kept."""
    return 100 * Store(RESULTS).result(task)["last"]["train_accuracy"]


@pytest.mark.parametrize("name", ["gate-orders", "tilings", "linear-gating"])
def test_how_much_the_network_behind_the_gates_fits_is_told(name):
    config = get("linear-gating").presets["cpu"]
    (cnn,) = (part for part in config.parts if part.name == "cnn")
    relu = linear_gating.rows_of(config, cnn)["ReLU"][0]
    text = get(name).reduced["cpu"]
    assert f"{fitted(relu):.0f} %" in text
    assert "of its training labels" in text or "of their training labels" in text
    assert "100 % training accuracy" in text


def test_the_network_of_the_pictures_has_fitted_the_share_that_is_told():
    config, text = get("hidden-outputs").presets["cpu"], get("hidden-outputs").reduced["cpu"]
    assert f"to {100 * config.source_accuracy:g} % of its labels or {config.source_epochs} epochs" in text
    assert f"{config.recipe.epochs} epochs gated by it" in text
    assert fitted(hidden_outputs.relu_network(config, 0)) >= 100 * config.source_accuracy


def test_goals_of_label_noise_are_told():
    mnist, cifar = get("label-noise").presets["cpu"].parts
    of_mnist, of_cifar = get("label-noise").reduced["cpu"].split("CIFAR-10: ")
    assert f"ends at {100 * mnist.upstream_accuracy:g} % of its labels" in of_mnist
    assert f"without noise at {100 * mnist.clean_accuracy:g} %" in of_mnist
    assert f"upstream to {100 * cifar.upstream_accuracy:g} %" in of_cifar
    assert cifar.clean_accuracy == cifar.upstream_accuracy


def test_networks_beside_kernels_are_told():
    config, text = get("kernels").presets["cpu"], get("kernels").reduced["cpu"]
    assert config.image_recipe == TrainingRecipe("adam", 1e-3, epochs=100)
    assert "Adam 1e-3 for 100 epochs (papers: 3e-4 for 200)" in text
    assert not any(net.bias for net in (config.dense_net, config.image_net, config.wide_net))
    assert "no network has biases" in text


def test_layers_of_base_kernels_are_told():
    assert f"{get('base-kernels').presets['smoke'].n_layers} layers" in get("base-kernels").reduced["smoke"]
