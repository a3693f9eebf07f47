"""Sweeps and the files they are kept in."""

import json
from dataclasses import replace

import pytest

from neuralpath.papers.experiments import Sweep, read_sweeps
from neuralpath.papers.experiments.registry import get


@pytest.mark.parametrize(("name", "part"), [("regimes", "mnist-fc-adam"), ("kernels", "widened")])
def test_some_parts_of_a_preset_stand_for_all_of_them(name, part):
    experiment = get(name)
    whole = experiment.presets["cpu"]
    some = Sweep(
        experiment, replace(whole, only=(part,)), "cpu", f"neuralpath papers run {name} --preset cpu --only {part}"
    )
    assert some.whole.config == whole
    assert some.whole.command == f"neuralpath papers run {name} --preset cpu"
    assert set(some.tasks) < set(some.whole.tasks)
    assert some.whole.whole == some.whole


def test_other_settings_are_a_sweep_of_their_own():
    experiment = get("regimes")
    whole = experiment.presets["cpu"]
    other = Sweep(experiment, replace(whole, only=("mnist-fc-adam",), beta=4.0), "cpu")
    assert other.whole == other
    assert replace(other, preset="").whole == replace(other, preset="")
    plain = Sweep(get("theorem"), get("theorem").presets["cpu"], "cpu")
    assert plain.whole == plain


def test_what_a_command_has_noted_stays_where_python_runs_the_same(tmp_path):
    experiment = get("regimes")
    config = replace(experiment.presets["cpu"], beta=4.0)
    typed = Sweep(experiment, config, "cpu", "neuralpath papers run regimes --preset cpu --beta 4")
    typed.write(tmp_path)
    Sweep(experiment, config).write(tmp_path)
    assert read_sweeps(tmp_path) == ([typed], [])
    typed_again = replace(typed, command=f"{typed.command} --jobs 2")
    typed_again.write(tmp_path)
    assert read_sweeps(tmp_path) == ([typed_again], [])
    (path,) = (tmp_path / "sweeps").iterdir()
    path.write_text("{")
    Sweep(experiment, config).write(tmp_path)
    assert read_sweeps(tmp_path) == ([Sweep(experiment, config)], [])


def test_a_file_without_settings_is_named(tmp_path):
    path = tmp_path / "sweeps" / "list.json"
    path.parent.mkdir()
    path.write_text("[]")
    assert read_sweeps(tmp_path) == ([], [f"{path} cannot be read: it has no settings of an experiment."])


@pytest.mark.parametrize("name", ["preset", "command", "version"])
def test_what_a_sweep_says_of_itself_are_strings(name, tmp_path):
    Sweep(get("regimes"), get("regimes").presets["smoke"], "smoke").write(tmp_path)
    (path,) = (tmp_path / "sweeps").iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), name: ["cpu"]}))
    assert read_sweeps(tmp_path) == ([], [f"{path} cannot be read: `{name}` must be a string, got ['cpu']."])


@pytest.mark.parametrize("content", ["[]", "1", "{}", "[" * 100_000, '{"experiment": ["regimes"]}', "\xff", None])
def test_a_damaged_sweep_is_named_and_the_others_are_read(tmp_path, content):
    good = Sweep(get("regimes"), get("regimes").presets["smoke"], "smoke")
    good.write(tmp_path)
    bad = tmp_path / "sweeps" / "bad.json"
    if content is None:
        bad.mkdir()
    else:
        bad.write_bytes(content.encode("latin-1"))
    sweeps, [problem] = read_sweeps(tmp_path)
    assert sweeps == [good]
    assert problem.startswith(f"{bad} cannot be read: ")
