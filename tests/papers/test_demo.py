"""The demonstration, from training to the page; nothing is trained twice."""

import re

import pytest

from neuralpath.cli import main

pytestmark = pytest.mark.slow


def test_the_demo_prints_its_tables_and_writes_the_page(tmp_path, capsys):
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out), "--seed", "3"]) == 0
    printed, progress = capsys.readouterr()
    assert "16,777,216 paths" in printed
    for words in ("Paths before training", "Paths after training", "Centered alignment", "label energy"):
        assert words in printed
    footnote = " ".join(printed.split())
    assert "* Label energy: y' (H + jitter)^-1 y, where H is the path kernel of the gates" in footnote
    assert "on 200 training digits, 20 of each class. The jitter is 1e-06 of its mean eigenvalue" in footnote
    assert "does not rank different networks" in footnote
    for regime in ("ReLU", "FL", "DL", "FR-DI", "FR-II"):
        accuracy = float(re.search(rf"│ {regime} .*?│ +([\d.]+)% │", printed)[1])
        assert accuracy > 80
    page = out / "report.html"
    assert str(page) in printed.replace("\n", "")
    assert "[5/5] finished" in progress
    source = page.read_text()
    assert 'id="explorer-network"' in source
    assert "The digits, seen as paths" in source
    assert (out / "path_kernel.png").exists()
    assert "The path kernel of 200 training images" in source
    assert "does not rank different networks" in source
    assert "smaller is better" not in source + printed
    assert "label energy*</th>" in source
    assert '"classes":[4,4,' in source  # not -1 and 1
    assert len(list((out / "figures").glob("*.pdf"))) == source.count('<figure class="shown figure"') >= 5
    assert main(["demo", "--out", str(out), "--seed", "3"]) == 0
    again, progress = capsys.readouterr()
    assert again == printed
    assert "finished digits" not in progress
