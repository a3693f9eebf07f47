"""`neuralpath neighbors` writes a picture and says what it found."""

import sys

import pytest
from matplotlib.image import imread

from neuralpath.cli import main

ARGUMENTS = ["neighbors", "fc", "--data", "digits", "--count", "50", "--set", "width=8", "depth=3"]


def test_a_picture_and_how_many_neighbors_agree(tmp_path, capsys):
    out = tmp_path / "new" / "n.png"
    assert main([*ARGUMENTS, "--out", str(out), "--queries", "0", "5", "--k", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["path kernel", "shared paths, normalized", "number of shared paths", "pixels"]
    assert [line.split(":")[0] for line in lines[:4]] == names
    assert lines[4] == str(out)
    pixels = imread(out)
    assert min(pixels.shape[:2]) > 400
    assert pixels[..., :3].std() > 0.05  # something is drawn


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--queries", "360"], "--queries must be numbers of test examples, from 0 to 359, got 360"),
        (["--queries", "-1"], "got -1"),
        (["--k", "51"], "`k` must be from 1 to the 50 examples"),
        (["--out", "n.nothing"], "--out n.nothing cannot be written"),
        (["--out", "."], "--out . is a folder: name a picture file, such as neighbors.png."),
        (["--memory", "1"], "give at least memory="),
        (["--count", "0"], "--count must be from 1 to 1,437"),
        (["--seed", "99999999999999999999"], "--seed takes a number from 0 to 9223372036854775807, got 99999999999"),
        (["--seed", "-1"], "--seed takes a number from 0 to 9223372036854775807, got -1."),
    ],
)
def test_mistakes_are_one_line(more, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*ARGUMENTS, "--out", "n.png", *more]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_name_without_an_ending_is_a_png_and_is_said(tmp_path, capsys):
    assert main([*ARGUMENTS, "--out", str(tmp_path / "near"), "--queries", "0", "--k", "2"]) == 0
    written = capsys.readouterr().out.splitlines()[-1]
    assert written == str(tmp_path / "near.png")
    assert [path.name for path in tmp_path.iterdir()] == ["near.png"]


@pytest.mark.parametrize("folder", ["near", "near.png"])
def test_a_folder_is_refused_before_the_search(folder, tmp_path, capsys):
    (tmp_path / folder).mkdir()
    assert main([*ARGUMENTS, "--out", str(tmp_path / folder)]) == 1
    error = capsys.readouterr().err
    assert f"--out {tmp_path / folder} is a folder: name a picture file" in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [folder]
    assert list((tmp_path / folder).iterdir()) == []


def test_without_matplotlib_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*ARGUMENTS, "--out", str(tmp_path / "n.png")]) == 1
    assert "a picture needs the package matplotlib: pip install matplotlib (from a clone: " in capsys.readouterr().err
