"""Every code block of the README runs, and prints what it shows."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from neuralpath.cli import main

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README.read_text(), re.DOTALL)
# Run by the set-up itself, or by installing: `make test` is what runs this.
NOT_RUN_HERE = ("make ", "pip ")

MY_MODEL = """
from torch import nn

def make_net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 30 * 30, 2))
"""


def test_python_blocks_print_what_follows_them():
    names: dict = {}
    checked = 0
    for (language, code), (follower, expected) in zip(BLOCKS, [*BLOCKS[1:], ("", "")], strict=True):
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        if follower == "text":
            assert printed.getvalue().strip() == expected.strip()
            checked += 1
    assert checked >= 2


COMMANDS = [line.split("#")[0].strip() for language, text in BLOCKS if language == "bash" for line in text.splitlines()]


@pytest.mark.parametrize("command", [c for c in COMMANDS if c and not c.startswith(NOT_RUN_HERE)])
def test_commands_succeed(command, tmp_path, monkeypatch, capsys):
    (tmp_path / "my_model.py").write_text(MY_MODEL)
    monkeypatch.chdir(tmp_path)
    program, *args = shlex.split(command)
    assert program == "neuralpath"
    assert main(args) == 0
    assert capsys.readouterr().out


def test_first_screen_names_the_two_commands():
    screen = "\n".join(README.read_text().splitlines()[:35])
    assert "make demo" in screen
    assert "make test" in screen
