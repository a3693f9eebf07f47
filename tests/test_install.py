"""The package as it is installed: the wheel holds what it needs and works without the repository."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_wheel_works_away_from_the_repository(tmp_path):
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("neuralpath-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "neuralpath/py.typed" in names
    assert not [name for name in names if name.startswith("tests")]
    home = tmp_path / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", home, wheel], check=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    code = "import sys, neuralpath.cli; print(neuralpath.__file__); sys.exit(neuralpath.cli.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "inspect", "fc", "--input-shape", "3", "--set", "width=4", "depth=3"]
    result = subprocess.run(
        command, cwd=empty, env={**os.environ, "PYTHONPATH": str(home)}, capture_output=True, text=True, check=True
    )
    assert str(home) in result.stdout
    assert "paths into one output: 48" in result.stdout
