"""Every example runs at a small scale, says what it found, and draws what it names."""

import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
import torch

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
ON_A_CLUSTER = "sweep_on_dask"
PICTURE_OF_THE_README = "readme_picture"
ON_MNIST = "mnist_kernels"


def run_example(name, folder, monkeypatch):
    """The names that an example leaves behind, and what it prints."""
    monkeypatch.setenv("NEURALPATH_SMALL", "1")
    monkeypatch.setattr(sys, "argv", [f"{name}.py"] if name != PICTURE_OF_THE_README else [f"{name}.py", str(folder)])
    printed = io.StringIO()
    matplotlib.use("Agg")
    from matplotlib import pyplot

    with contextlib.chdir(folder), contextlib.redirect_stdout(printed), torch.random.fork_rng():
        names = runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    pyplot.close("all")
    return names, printed.getvalue()


def is_picture(path):
    return path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000


def is_share(value):
    return 0 <= value <= 1


def test_all_examples_are_tested_here_and_listed():
    scripts = {path.stem for path in FOLDER.glob("*.py")}
    assert scripts == {*CHECKS, ON_A_CLUSTER, ON_MNIST, PICTURE_OF_THE_README}
    listed = (FOLDER / "README.md").read_text()
    assert all(f"({name}.py)" in listed for name in scripts)


def check_own_resnet(names, printed):
    assert "SmallResNet is supported" in printed
    assert f"{names['graph'].n_paths:,} paths" in printed
    assert set(names["dead"]) == set(names["graph"].gate_names)
    for cosines in (names["before"], names["after"]):
        torch.testing.assert_close(cosines.diagonal(), torch.ones(len(cosines)))
    assert not torch.equal(names["before"], names["after"])


def check_knowledge_in_gates(names, printed):
    found = names["found"]
    assert len(found.layers) == 9  # three layers of gates, three changes
    assert all(is_share(layer.accuracy) for layer in found.layers)
    assert is_share(names["follow_pixels"] + names["follow_gates"])
    assert f"new weights behind its gates           {found.gates:.1%}" in printed


def check_kernels_side_by_side(names, printed):
    assert set(names["accuracies"]) == set(names["kernels"])
    assert min(names["accuracies"].values()) > 0.4  # three digits of each class; chance is 0.1
    assert "CNTK, infinite width" in printed


def check_alike_images(names, printed):
    assert names["before"]["input"] == names["after"]["input"]  # the distance of pixels knows no network
    assert names["before"]["kernel"] != names["after"]["kernel"]
    assert all(share > 0.1 for share in names["before"].values())
    assert "nearest training digits" in printed


def check_training_dynamics(names, printed):
    for energies, switches, accuracy in names["found"].values():
        assert len(energies) == names["config"].epochs + 1
        assert min(energies) > 0
        assert switches.epochs == tuple(range(1, names["config"].epochs + 1))
        assert is_share(accuracy)
    true, random = (names["found"][name][0] for name in ("true labels", "random labels"))
    assert true[-1] < random[-1]
    assert "gates flip in the first epoch" in printed


def check_new_gate(names, printed):
    assert set(names["accuracies"]) == set(names["gates"])
    q = torch.tensor([-1.0, -0.125, 0.0, 0.125, 1.0])
    torch.testing.assert_close(names["ramp"](q), torch.tensor([0.0, 0.0, 0.5, 1.0, 1.0]))
    assert names["limit"].dtype == torch.float64
    assert "infinite width" in printed


CHECKS = {
    "own_resnet": check_own_resnet,
    "knowledge_in_gates": check_knowledge_in_gates,
    "kernels_side_by_side": check_kernels_side_by_side,
    "alike_images": check_alike_images,
    "training_dynamics": check_training_dynamics,
    "new_gate": check_new_gate,
}


@pytest.mark.parametrize("name", CHECKS)
def test_example(name, tmp_path, monkeypatch):
    names, printed = run_example(name, tmp_path, monkeypatch)
    CHECKS[name](names, printed)
    assert f"picture: {name}.png" in printed
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.png"]
    assert is_picture(tmp_path / f"{name}.png")


def test_kernels_of_mnist(tmp_path, monkeypatch):
    names, printed = run_example(ON_MNIST, tmp_path, monkeypatch)
    assert set(names["accuracies"]) == {*names["kernels"], "all", "million"}
    assert min(names["accuracies"].values()) > 0.3  # chance is 0.1
    assert "all 1,437" in printed


def test_the_readmes_picture_is_drawn_for_both_pages(tmp_path, monkeypatch):
    names, _ = run_example(PICTURE_OF_THE_README, tmp_path, monkeypatch)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {"digits-light.png", "digits-dark.png"}
    assert all(is_picture(tmp_path / name) and is_picture(ROOT / "docs" / "images" / name) for name in drawn)
    readme = (ROOT / "README.md").read_text()
    assert all(f"docs/images/{name}" in readme for name in drawn)
    assert all(len(values) == len(names["SEEDS"]) for values in names["accuracies"].values())


@pytest.mark.slow
def test_sweep_on_a_cluster_of_two_processes(tmp_path):
    script = [sys.executable, str(FOLDER / f"{ON_A_CLUSTER}.py")]
    environment = {**os.environ, "NEURALPATH_SMALL": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "regimes (smoke): 28 of 28 runs finished" in done.stdout
    gap = re.search(r"computed here: at most (\S+) of", done.stdout)
    assert float(gap[1]) < 1e-6
    assert len(list(tmp_path.glob("dask_runs/*/record.json"))) == 28
    assert re.search(r"6 of 6 tiles .*6 ", done.stdout)
