"""Recipes say how a run trains, and presets say where that is not the papers' way."""

from dataclasses import replace

import pytest

from neuralpath.papers.experiments import NAMES, get
from neuralpath.papers.experiments.specs import DataSpec, NetSpec, TrainingRecipe
from neuralpath.papers.experiments.trained import TrainNetwork
from neuralpath.papers.runs.task import with_dependencies


def precisions(name, preset):
    """Of all runs that train a network."""
    experiment = get(name)
    tasks = with_dependencies(experiment.tasks(experiment.presets[preset]))
    return {task.training.precision for task in tasks if hasattr(task, "training")}


def test_a_precision_is_part_of_a_run_and_of_its_name():
    full, rounded = (
        TrainNetwork(DataSpec("digits"), NetSpec("fc", 8, 2), TrainingRecipe(epochs=3, precision=precision).training())
        for precision in ("full", "bfloat16")
    )
    assert rounded == replace(full, training=replace(full.training, precision="bfloat16"))
    assert rounded.fingerprint != full.fingerprint
    assert full.label == "digits fc-w8-d2 relu adam0.0003 e3 seed0"
    assert rounded.label == "digits fc-w8-d2 relu adam0.0003 e3 bfloat16 seed0"


@pytest.mark.parametrize("name", NAMES)
def test_presets_tell_where_products_are_rounded(name):
    assert precisions(name, "paper") <= {"full"}
    for preset in ("smoke", "cpu"):
        assert ("bfloat16" in precisions(name, preset)) == ("bfloat16" in get(name).reduced.get(preset, ""))
