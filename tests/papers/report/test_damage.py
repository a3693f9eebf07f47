"""The page of a folder in which files are damaged, and the accuracy of the weights that it shows."""

import shutil

import pytest
import torch

from neuralpath.cli import main
from neuralpath.papers.report.contents import read_contents
from neuralpath.papers.report.explorer import ExplorerNetwork, export, find_network
from neuralpath.papers.report.page import page_html
from neuralpath.papers.runs.store import Store
from neuralpath.papers.runs.task import with_dependencies
from papers.report.small_runs import about, made_up_result, small_sweep, write_made_up


def test_odd_values_about_the_machine_are_shown_as_they_are(tmp_path):
    sweep = small_sweep()
    store = write_made_up(tmp_path, sweep)
    for number, task in enumerate(with_dependencies(sweep.tasks)):
        odd = {**about(), "seconds": "long", "python": number % 2, "started": None, "command": [1], "cpus": {}}
        store.write(task, "finished", result=made_up_result(number), provenance=odd)
    source = page_html(read_contents(Store(tmp_path)), "no run", "")
    assert "versions (set 2): python 1" in source
    assert "command: [1]" in source


def test_damaged_weights_are_not_shown(runs, tmp_path, capsys):
    copy = shutil.copytree(runs, tmp_path / "runs")
    store = Store(copy, copy)
    shown = find_network(read_contents(store).sweeps, store)
    last, best = (copy / shown.name / "weights" / f"{which}.safetensors" for which in ("last", "best"))
    last.write_bytes(last.read_bytes()[:500])
    other = find_network(read_contents(store).sweeps, store)
    assert "at its best epoch" in other.about
    best.write_bytes(bytes(2000) + best.read_bytes()[2000:])
    none = find_network(read_contents(store).sweeps, store)
    assert isinstance(none, str)
    assert f"{last} is damaged: its checksum is wrong" in none
    assert f"{best} is damaged: its checksum is wrong" in none
    assert main(["papers", "report", str(copy), "--no-figures"]) == 0
    assert "last.safetensors is damaged" in (copy / "report.html").read_text()
    assert "Traceback" not in capsys.readouterr().err


def with_two_networks(tmp_path):
    """Two networks: the first is better at its best epoch, the second after its last."""
    sweep = small_sweep(n_seeds=2)
    store = write_made_up(tmp_path, sweep, n_finished=0)
    networks = [task for task in with_dependencies(sweep.tasks) if type(task).__name__ == "TrainNetwork"]
    networks = [task for task in networks if task.data.variant == "true"]
    for task, (best, last) in zip(networks, ((0.9, 0.5), (0.8, 0.7)), strict=True):
        result = made_up_result(0)
        epochs = [{**result["last"], "test_accuracy": accuracy} for accuracy in (best, last)]
        store.begin(task)
        directory = store.directory(task)
        for which in ("best", "last"):
            directory.save_weights(which, task.make().state_dict())
        store.write(task, "finished", result={**result, "best": epochs[0], "last": epochs[1]}, provenance=about())
    return store, networks


def test_networks_are_compared_and_described_by_the_epoch_of_their_weights(tmp_path):
    store, (first, second) = with_two_networks(tmp_path)
    sweeps = read_contents(store).sweeps
    shown = find_network(sweeps, store)
    assert isinstance(shown, ExplorerNetwork)
    assert (shown.name, shown.test_accuracy) == (second.name, 0.7)
    assert "after its last epoch" in shown.about
    for task in (first, second):
        (store.out / task.name / "weights" / "last.safetensors").unlink()
    shown = find_network(sweeps, store)
    assert (shown.name, shown.test_accuracy) == (first.name, 0.9)
    assert "at its best epoch" in shown.about
    assert export(shown)["testAccuracy"] == 0.9


def test_the_accuracy_is_that_of_the_network_on_the_page(runs, tmp_path):
    """Trained anew: the weights of the best epoch have the accuracy that is said of them."""
    copy = shutil.copytree(runs, tmp_path / "runs")
    store = Store(copy, copy)
    contents = read_contents(store)
    for which in ("last", "best"):
        shown = find_network(contents.sweeps, store)
        task = next(run.task for run in contents.sweeps[0].runs if run.task.name == shown.name)
        test = task.data.load().test
        with torch.no_grad():
            share = float((shown.after(test.images).argmax(1) == test.labels).double().mean())
        assert share == pytest.approx(shown.test_accuracy, abs=1e-9)
        (copy / shown.name / "weights" / f"{which}.safetensors").unlink()


def test_a_run_whose_record_is_damaged_is_called_so(tmp_path):
    sweep = small_sweep()
    store = write_made_up(tmp_path, sweep)
    first = with_dependencies(sweep.tasks)[0]
    (tmp_path / first.name / "record.json").write_text("{")
    contents = read_contents(Store(tmp_path, tmp_path))
    states = {run.task.name: run.state for run in contents.sweeps[0].runs}
    assert states.pop(first.name) == "damaged"
    assert set(states.values()) == {"finished"}
    source = page_html(contents, "no run", "")
    assert ", 1 damaged." in source
    assert store.result(with_dependencies(sweep.tasks)[1]) is not None
