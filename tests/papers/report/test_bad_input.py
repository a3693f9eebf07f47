"""Folders that are empty, half-finished or of several versions, and a missing extra."""

import json
import shutil
from dataclasses import replace

import pytest

from neuralpath.cli import main
from neuralpath.papers.experiments.specs import DataSpec
from neuralpath.papers.report.contents import read_contents
from neuralpath.papers.report.explorer import find_network
from neuralpath.papers.report.page import page_html
from neuralpath.papers.runs.store import Store
from papers.report.small_runs import VERSIONS, small_sweep, write_made_up


def page_of(store):
    return page_html(read_contents(store), "no run", "")


def complaint(arguments, capsys):
    assert main(["papers", "report", *map(str, arguments)]) == 1
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error


def test_a_directory_that_is_not_there(tmp_path, capsys):
    assert "there is no folder" in complaint([tmp_path / "none"], capsys)


def test_a_file_in_place_of_a_directory(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert "file is no folder; name the output folder" in complaint([tmp_path / "file"], capsys)


def test_a_directory_in_place_of_the_page(runs, tmp_path, capsys):
    error = complaint([runs, "--out", tmp_path], capsys)
    assert "is a folder" in error
    assert list(tmp_path.iterdir()) == []  # no figures either


def test_a_file_in_place_of_the_figures(runs, tmp_path, capsys):
    (tmp_path / "figures").write_text("")
    assert "is a file" in complaint([runs, "--out", tmp_path / "page.html"], capsys)


def test_a_directory_without_runs(tmp_path, capsys):
    error = complaint([tmp_path], capsys)
    assert "has no runs" in error
    assert "neuralpath papers run NAME --out" in error
    assert not (tmp_path / "report.html").exists()


def test_flags_that_contradict_each_other(tmp_path, capsys):
    assert "--no-figures" in complaint([tmp_path, "--no-figures", "--figures", tmp_path], capsys)


def test_a_page_that_cannot_be_written(runs, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert "cannot be read or written" in complaint(
        [runs, "--out", tmp_path / "file" / "page.html", "--no-figures"], capsys
    )


@pytest.mark.parametrize("package", ["plotly", "matplotlib"])
def test_a_missing_extra(package, runs, tmp_path, monkeypatch, capsys):
    import importlib

    real = importlib.import_module

    def missing(name, *rest):
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(name, *rest)

    monkeypatch.setattr("neuralpath.papers.report.page.import_module", missing)
    error = complaint([runs, "--out", tmp_path / "page.html"], capsys)
    assert f"the page needs the package {package}: pip install {package} (from a clone: " in error
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 1
    assert not (tmp_path / "demo" / "runs").exists()  # said before the training


def test_half_finished_runs_are_shown_as_such(tmp_path):
    store = write_made_up(tmp_path, small_sweep(), n_finished=3)
    contents = read_contents(store)
    total = len(contents.sweeps[0].runs)
    begun, failed = (run.task for run in contents.sweeps[0].runs[3:5])
    store.begin(begun)
    store.directory(begun).add_metrics(1, {"train_loss": 1.0})
    store.write(failed, "failed", error="ValueError: bad luck", trace="", provenance={})
    source = page_of(store)
    assert "is not finished: 3 of" in source
    assert f"3 of {total} runs · not finished" in source
    assert f"begun: step 1 of {begun.n_steps}" in source
    assert "error: ValueError: bad luck" in source
    assert "1 failed" in source
    assert source.count("not begun") == total - 5


def test_no_finished_run_at_all(tmp_path):
    store = write_made_up(tmp_path, small_sweep(), n_finished=0)
    assert "no run finished yet" in page_of(store)
    assert "This figure is missing" in page_of(store)
    network = find_network(read_contents(store).sweeps, store)
    assert isinstance(network, str)
    assert "no finished run of this folder has trained a fully connected network" in network


def test_runs_of_different_versions_are_shown(tmp_path):
    other = {**VERSIONS, "torch": "2.14.0"}
    store = write_made_up(tmp_path, small_sweep(), versions=lambda number: other if number < 2 else VERSIONS)
    source = page_of(store)
    assert "2 different sets of versions" in source
    assert "set 2, 2 runs: torch 2.14.0" in source
    assert "versions (set 2): python 3.11.7, neuralpath 0.1.0, torch 2.14.0" in source


def test_a_sweep_of_another_version_is_named(tmp_path, runs, capsys):
    copy = shutil.copytree(runs, tmp_path / "runs")
    path = next((copy / "sweeps").glob("*.json"))
    kept = json.loads(path.read_text())
    (copy / "sweeps" / "regimes-old.json").write_text(json.dumps({**kept, "config": {"kind": "Config", "older": 1}}))
    assert main(["papers", "report", str(copy), "--no-figures"]) == 0
    assert "regimes-old.json cannot be read" in capsys.readouterr().err
    assert "regimes-old.json cannot be read" in (copy / "report.html").read_text()


def test_results_of_another_version_are_named(tmp_path, capsys):
    sweep = small_sweep()
    store = write_made_up(tmp_path, sweep, n_finished=0)
    task = sweep.tasks[0]
    store.begin(task)
    store.write(task, "finished", result={"something": "else"}, provenance={})
    contents = read_contents(store)
    assert "is not shown: results do not fit this version (KeyError" in contents.problems[0]
    assert "Nothing to show yet." in page_html(contents, "no run", "")
    assert main(["papers", "show", str(tmp_path)]) == 1
    assert "is not shown: results do not fit this version (KeyError" in capsys.readouterr().err


def test_what_flags_have_changed_is_not_told_of_the_preset(tmp_path):
    sweep = replace(small_sweep(), preset="cpu")
    assert sweep.config != sweep.experiment.presets["cpu"]
    assert sweep.reduced == "the preset cpu with other settings, which are in the command"
    assert replace(sweep, preset="").reduced == ""
    whole = replace(sweep, config=sweep.experiment.presets["cpu"])
    part = replace(whole, config=replace(whole.config, only=("mnist-fc-adam",)))
    assert whole.reduced == part.reduced == sweep.experiment.reduced["cpu"]
    store = write_made_up(tmp_path, sweep)
    page = page_html(read_contents(store), "no run", "")
    assert "the preset cpu with other settings" in page


def test_claims_of_results_of_another_version_are_not_judged(tmp_path, capsys):
    sweep = replace(small_sweep(), preset="cpu")  # the smoke presets judge no claim
    part = sweep.config.parts[0]
    config = replace(sweep.config, parts=(replace(part, data=DataSpec("mnist")),))
    sweep = replace(sweep, config=config)
    store = write_made_up(tmp_path, sweep)
    assert main(["papers", "report", str(tmp_path), "--no-figures"]) == 0
    page = tmp_path / "report.html"
    assert 'id="claim-c9"' in page.read_text()
    task = sweep.tasks[0]
    shutil.rmtree(store.folder(task))
    store.begin(task)
    store.write(task, "finished", result={"something": "else"}, provenance={})
    assert main(["papers", "report", str(tmp_path), "--no-figures"]) == 0
    assert "the claims are not checked: results do not fit this version (KeyError" in capsys.readouterr().err
    assert "the claims are not checked" in page.read_text()
    assert main(["papers", "claims", str(tmp_path)]) == 1
    assert "the claims are not checked: results do not fit this version (KeyError" in capsys.readouterr().err


def test_a_folder_of_records_shows_the_same_tables(runs, tmp_path, capsys):
    records = tmp_path / "records"
    assert main(["papers", "export", str(runs), "--records", str(records)]) == 0
    kept = read_contents(Store(records, records))
    made = read_contents(Store(runs, runs))
    assert [sweep.summary for sweep in kept.sweeps] == [sweep.summary for sweep in made.sweeps]
    assert [run.about for run in kept.sweeps[0].runs] == [run.about for run in made.sweeps[0].runs]
    assert all(run.about for run in kept.sweeps[0].runs)
