"""Every code block of the README runs, and prints what it shows."""

from pathlib import Path

from markdown_blocks import read_blocks, run_page

README = Path(__file__).parents[2] / "README.md"
# Run by the set-up itself, or by installing.
NOT_RUN_HERE = ("make ", "pip ")

MY_MODEL = """
from torch import nn

def make_net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 30 * 30, 2))
"""


def test_blocks_run_and_print_what_follows_them(tmp_path):
    (tmp_path / "my_model.py").write_text(MY_MODEL)
    assert run_page(read_blocks(README.read_text()), tmp_path, not_ours=NOT_RUN_HERE) >= 4


def test_first_screen_names_the_two_commands():
    screen = "\n".join(README.read_text().splitlines()[:35])
    assert "make demo" in screen
    assert "make test" in screen
