from dataclasses import replace

from neuralpath.papers.experiments import NAMES, get, read_sweeps
from neuralpath.papers.experiments.summary_items import Table


def test_every_experiment_is_a_module_with_tasks():
    for name in NAMES:
        experiment = get(name)
        assert experiment.name == name
        assert experiment.tasks(experiment.presets["paper"])


def test_run_does_the_tasks_and_gives_their_summary(tmp_path):
    experiment = get("base-kernels")
    config = experiment.presets["smoke"]
    items = experiment.run(config, tmp_path, progress=False)
    assert any(isinstance(item, Table) for item in items)
    [sweep], problems = read_sweeps(tmp_path)
    assert sweep.config == config
    assert sweep.preset == "smoke"
    assert not problems


def test_a_config_has_the_name_of_its_preset():
    experiment = get("regimes")
    for name, preset in experiment.presets.items():
        assert experiment.preset_of(preset) == name
        assert experiment.preset_of(replace(preset, only=(preset.parts[0].name,))) == name
        assert experiment.preset_of(replace(preset, beta=3.5)) == ""
