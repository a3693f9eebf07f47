"""The commands around experiments, on the smallest sweep."""

import csv
import json
import shutil
from dataclasses import replace

import pytest

from neuralpath._configs import UnreadableConfig, from_json, to_json
from neuralpath._hashing import json_digest
from neuralpath.cli import main
from neuralpath.papers.commands.results import _row
from neuralpath.papers.experiments import Sweep, read_sweeps
from neuralpath.papers.experiments.experiment import PRESETS
from neuralpath.papers.experiments.kernel_tasks import FitKernel, WidenValue
from neuralpath.papers.experiments.registry import NAMES, get
from neuralpath.papers.runs import Archive, read_archive, write_archive

SMALL = ["--parts.0.seeds", "0", "--parts.0.regimes", "ReLU", "FL", "--parts.0.sources", "true", "--only", "digits-fc"]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep") / "runs"
    assert main(["papers", "run", "regimes", "--out", str(folder), "--jobs", "1", *SMALL]) == 0
    return folder


def set_state(folder, state, **entries):
    """Write the record of a run in another state, with a right checksum."""
    record = {**json.loads((folder / "record.json").read_bytes()), "state": state, **entries}
    del record["sha256"]
    (folder / "record.json").write_text(json.dumps({**record, "sha256": json_digest(record)}))


def test_status_show_and_export(out, tmp_path, capsys):
    assert main(["papers", "status", str(out)]) == 0
    assert capsys.readouterr().out == "regimes (smoke): 2 of 2 runs finished\n"
    assert main(["papers", "show", str(out)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("2 of 2 runs are finished") == 2
    assert "one run may be in several tables" in shown
    assert main(["papers", "export", str(out), "--csv", str(tmp_path / "runs.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert len(rows) == 2
    assert {row["kind"] for row in rows} == {"TrainNetwork", "TrainGated"}
    record = json.loads((out / rows[0]["run"] / "record.json").read_text())
    assert float(rows[0]["result.last.test_accuracy"]) == record["result"]["last"]["test_accuracy"]


def test_settings_and_results_never_share_a_column():
    """A kernel is a setting of one kind of run, and an accuracy of another."""
    sweep = Sweep(get("kernels"), get("kernels").presets["smoke"])
    fit = next(task for task in sweep.tasks if isinstance(task, FitKernel))
    widened = next(task for task in sweep.tasks if isinstance(task, WidenValue))
    rows = [_row("kernels", fit, {"test_accuracy": 0.5}), _row("kernels", widened, {"kernel": 0.7})]
    assert rows[0]["kernel"] == fit.kernel
    assert "kernel" not in rows[1]
    assert rows[1]["result.kernel"] == 0.7
    for name in NAMES:
        tasks = get(name).tasks(get(name).presets["smoke"])
        assert not [column for task in tasks for column in _row(name, task, {}) if column.startswith("result")]


def test_a_run_of_several_sweeps_is_exported_once(out, tmp_path):
    copy, table = tmp_path / "runs", tmp_path / "runs.csv"
    shutil.copytree(out, copy)
    [sweep], _ = read_sweeps(copy)
    part = replace(sweep.config.parts[0], regimes=("ReLU",))
    replace(sweep, config=replace(sweep.config, parts=(part, *sweep.config.parts[1:]))).write(copy)
    assert len(read_sweeps(copy)[0]) == 2
    assert main(["papers", "export", str(copy), "--csv", str(table)]) == 0
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len({row["run"] for row in rows}) == len(rows) == 2
    assert {row["experiment"] for row in rows} == {"regimes"}


def test_collected_records_count_as_finished_and_can_be_shown(out, tmp_path, capsys):
    records = tmp_path / "results"
    assert main(["papers", "export", str(out), "--records", str(records)]) == 0
    assert "2 new records, 0 new files of weights" in capsys.readouterr().out
    assert main(["papers", "export", str(out), "--records", str(records)]) == 0
    assert "0 new records, 0 new files of weights" in capsys.readouterr().out
    assert main(["papers", "status", str(records)]) == 0
    assert "2 of 2 runs finished" in capsys.readouterr().out
    fresh = tmp_path / "fresh"
    assert (
        main(["papers", "run", "regimes", "--out", str(fresh), "--records", str(records), "--jobs", "1", *SMALL]) == 0
    )
    assert not list(fresh.glob("*/record.json"))


def test_records_count_besides_those_of_the_folder_itself(out, tmp_path, capsys):
    records, some, other, page = (tmp_path / name for name in ("results", "some", "other", "page"))
    assert main(["papers", "export", str(out), "--records", str(records)]) == 0
    other.mkdir()
    capsys.readouterr()
    assert main(["papers", "status", str(records), "--records", str(other)]) == 0
    assert capsys.readouterr().out == "regimes (smoke): 2 of 2 runs finished\n"
    assert main(["papers", "claims", str(records), "--records", str(other), "--out", str(page)]) == 0
    assert main(["papers", "report", str(records), "--records", str(other), "--out", str(page), "--no-figures"]) == 0
    assert "2 of 2 runs" in page.read_text()
    shutil.copytree(records, some)
    archive = read_archive(some / "regimes.jsonl.gz")
    [moved] = [name for name in archive.records if "-FL-" in name]
    write_archive(other / "regimes.jsonl.gz", Archive(records={moved: archive.records.pop(moved)}))
    write_archive(some / "regimes.jsonl.gz", archive)
    capsys.readouterr()
    assert main(["papers", "status", str(some)]) == 0
    assert main(["papers", "status", str(some), "--records", str(other)]) == 0
    assert capsys.readouterr().out == "".join(f"regimes (smoke): {n} of 2 runs finished\n" for n in (1, 2))


def test_weights_of_a_run_that_is_not_finished_are_left(out, tmp_path, capsys):
    runs, records = tmp_path / "runs", tmp_path / "results"
    shutil.copytree(out, runs)
    [folder] = [path for path in runs.iterdir() if "-relu-" in path.name]
    set_state(folder, "started")
    assert list((folder / "weights").glob("*.safetensors"))
    assert main(["papers", "export", str(runs), "--records", str(records), "--weights", folder.name]) == 0
    assert "1 new records, 0 new files of weights" in capsys.readouterr().out


def test_status_names_what_failed(out, tmp_path, capsys):
    copy = tmp_path / "runs"
    shutil.copytree(out, copy)
    [folder] = [path for path in copy.iterdir() if "-FL-" in path.name]
    set_state(folder, "started")
    assert main(["papers", "status", str(copy)]) == 0
    assert f"stopped  {folder.name}: step" in capsys.readouterr().out
    set_state(folder, "failed", error="ValueError: no")
    assert main(["papers", "status", str(copy)]) == 0
    assert f"failed   {folder.name}: ValueError: no" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["papers", "run", "regime", "--out", "x"], "did you mean 'regimes'"),
        (["papers", "run", "regimes", "--out", "x", "--source-accuracy", "much"], "--source-accuracy"),
        (["papers", "run", "regimes", "--out", "x", "--only", "cifar"], "`only` must be among"),
        (["papers", "run", "regimes", "--out", "x", "--preset", "huge"], "--preset"),
        (["papers", "run", "regimes", "--out", "x", "--jobs", "0"], "--jobs must be at least 1"),
        (["papers", "run", "regimes", "--out", "x", "--preset", "cpu", "--data-dir", "."], "neuralpath data fetch"),
        (["papers", "run", "theorem", "--widths", "0"], "`widths` must be integers of at least 1"),
        (["papers", "run", "theorem", "--widths", "0", "--dry-run"], "`widths` must be integers of at least 1"),
        (["papers", "run", "theorem", "--limit-widths", "0"], "`limit_widths` must be integers of at least 1"),
        (["papers", "run", "theorem", "--lazy-seeds", "0"], "`lazy_seeds` must be an integer of at least 1"),
        (["papers", "run", "theorem", "--depths", "1"], "`depths` must be integers of at least 2"),
        (["papers", "run", "stages", "--net.width", "0"], "`width` must be an integer of at least 1, got 0"),
        (["papers", "run", "residual", "--net.width", "0"], "`width` must be an integer of at least 1, got 0"),
        (["papers", "run", "label-energy", "--net.width", "-3"], "`width` must be an integer of at least 1, got -3"),
        (["papers", "run", "kernel-parts", "--net.depth", "0"], "`depth` must be an integer of at least 1, got 0"),
        (["papers", "run", "kernel-parts", "--every", "0"], "`every` must be an integer of at least 1, got 0"),
        (["papers", "run", "kernel-parts", "--n-examples", "25"], "`n_examples` must be a multiple of 10"),
        (["papers", "run", "kernel-parts", "--regimes", "FL"], "`regimes` must be among DL"),
        (["papers", "run", "kernels", "--ridges"], "`ridges` is empty"),
        (["papers", "run", "kernels", "--ridges", "-1"], "`ridges` must be finite numbers, 0 or more"),
        (["papers", "run", "hidden-outputs", "--seeds"], "`seeds` is empty"),
        (
            ["papers", "run", "hidden-outputs", "--recipe.epochs", "0"],
            "`recipe.epochs` must be an integer of at least 1",
        ),
        (["papers", "run", "gate-orders", "--parts.0.seeds"], "`parts.0.seeds` is empty"),
        (["papers", "run", "regimes", "--parts.1.nets.0.family", "davidnet", "--only", "digits-fc-sgd"], "at least 32"),
        (["papers", "run", "stages", "--data.n-train", "25"], "`n_train` must be a multiple of 10"),
        (["papers", "run", "label-energy", "--data.n-train", "400"], "up to 286 for 4 and 7 of digits"),
        (["papers", "run", "stages", "--seeds", "-1"], "`seeds` must be integers of at least 0"),
        (
            ["papers", "run", "label-noise", "--parts.0.upstream-epochs", "0"],
            "`upstream_epochs` must be an integer of at least 1",
        ),
        (["papers", "status", "nowhere"], "there is no folder nowhere"),
        (["papers", "show", "."], "has no runs"),
        (["papers", "export", ".", "--csv", "x.csv"], "has no runs"),
    ],
)
def test_mistakes_get_one_clear_message(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEURALPATH_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(arguments) in (1, 2)
    captured = capsys.readouterr()
    said = " ".join((captured.err + captured.out).replace("│", " ").split())  # tyro's are broken into lines, in a box
    assert message in said
    assert "Traceback" not in said
    assert not (tmp_path / "runs").exists()  # nothing had begun


@pytest.mark.parametrize("last", [["--preset", "smoke"], ["--preset=smoke"]])
def test_of_two_presets_the_last_one_counts(last, tmp_path, capsys):
    arguments = ["papers", "run", "base-kernels", "--out", str(tmp_path), "--dry-run"]
    assert main([*arguments, "--preset", "smoke"]) == 0
    listed = capsys.readouterr().out
    assert main([*arguments, "--preset", "paper", *last]) == 0
    assert capsys.readouterr().out == listed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_config_survives_its_json(name, preset):
    experiment = get(name)
    config = experiment.presets[preset]
    again = from_json(experiment.config, json.loads(json.dumps(to_json(config))))
    assert again == config
    assert [task.name for task in experiment.tasks(again)] == [task.name for task in experiment.tasks(config)]


def test_a_config_of_another_version_names_the_field():
    experiment = get("regimes")
    kept = to_json(experiment.presets["smoke"])
    with pytest.raises(UnreadableConfig, match=r"unknown fields \[color\]"):
        from_json(experiment.config, {**kept, "color": "red"})
    with pytest.raises(UnreadableConfig, match=r"RegimesConfig.beta must be float, got 'steep'"):
        from_json(experiment.config, {**kept, "beta": "steep"})


def test_the_list_names_every_experiment(capsys):
    assert main(["papers", "list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in NAMES)


def test_runs_go_to_the_folder_runs_where_no_other_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["papers", "run", "base-kernels", "--preset", "smoke", "--jobs", "1"]) == 0
    assert "The runs are in runs;" in capsys.readouterr().out
    assert main(["papers", "status", "runs"]) == 0
    assert list((tmp_path / "runs").glob("*/record.json"))
