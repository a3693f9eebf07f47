"""The package as it is installed: the wheel holds what it needs and works without the repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
BUILD = ("pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of the sources alone: what an earlier build has left in the repository must not get into it."""
    sources, built = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("built")
    for name in BUILD:
        shutil.copy(ROOT / name, sources)
    shutil.copytree(ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    without_network = ["--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*PIP, "wheel", *without_network, "--wheel-dir", built, sources], check=True)
    (path,) = built.glob("neuralpath-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A fresh environment with the wheel, and what it depends on from the environment of the tests.

    The latter's own neuralpath is not seen: an editable install is a .pth file, and these are read in an environment's
    own folder only.
    """
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def run(home, arguments, folder):
    """What a program of the fresh environment prints, started in a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    program, *rest = arguments
    done = subprocess.run(
        [home / "bin" / program, *rest], cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    package = ROOT / "src" / "neuralpath"
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    expected = {f"neuralpath/{path.relative_to(package).as_posix()}" for path in files}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {"neuralpath/py.typed", "neuralpath/papers/experiments/printed.csv"} <= expected
    assert names == expected


def test_wheel_names_license_scripts_and_extras(wheel):
    archive = zipfile.ZipFile(wheel)
    about = [name for name in archive.namelist() if ".dist-info/" in name]
    texts = {name.partition(".dist-info/")[2]: archive.read(name).decode() for name in about}
    assert "MIT License" in texts["licenses/LICENSE"]
    assert "neuralpath = neuralpath.cli:main" in texts["entry_points.txt"]
    assert {"Provides-Extra: scale", "Provides-Extra: report"} <= set(texts["METADATA"].splitlines())


def test_installed_package_works_in_an_empty_folder(installed, tmp_path):
    found = run(installed, ["python", "-c", "import neuralpath; print(neuralpath.__file__)"], tmp_path)
    assert Path(found.strip()).is_relative_to(installed)
    shown = run(installed, ["neuralpath", "papers", "run", "regimes", "--preset", "smoke", "--out", "runs"], tmp_path)
    assert "FR-II" in shown
    assert "finished" in run(installed, ["neuralpath", "papers", "status", "runs"], tmp_path)
    run(installed, ["neuralpath", "papers", "report", "runs", "--no-figures"], tmp_path)
    assert (tmp_path / "runs" / "report.html").stat().st_size > 100_000


def test_type_checkers_see_the_types_of_the_installed_package(installed, tmp_path):
    script = tmp_path / "user.py"
    script.write_text("import neuralpath\n\nreveal_type(neuralpath.label_energy)\nneuralpath.trace(3)\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-executable", installed / "bin" / "python",
         "--cache-dir", tmp_path / "cache", "--config-file", os.devnull, script],
        cwd=tmp_path, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert 'Revealed type is "def (' in done.stdout, done.stdout
    assert 'Missing positional argument "example"' in done.stdout
