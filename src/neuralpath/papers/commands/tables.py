"""Tables of experiments on the terminal."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from neuralpath.papers.experiments import Cell, SummaryItem, Table

_PAGE = 160


def make_console() -> Console:
    """Of the terminal's width; a file has no edge, so that no word is cut."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PAGE)


def print_summary(shown: "Iterable[SummaryItem]") -> None:
    """Print the tables; figures are named, since the report draws them."""
    from neuralpath.papers.experiments import Table

    console = make_console()
    figures, n_counted = [], 0
    for item in shown:
        if isinstance(item, Table):
            console.print(_rich(item))
            if item.note:
                console.print(item.note, style="dim")
                n_counted += "runs are finished" in item.note
            console.print()
        else:
            figures.append(item.title)
    if n_counted > 1:
        console.print("Runs are counted for each table: those that it reads. One may be in several.", style="dim")
    if figures:
        console.print(f"Figures, drawn by `neuralpath report`: {'; '.join(figures)}.", style="dim")


def format_cell(cell: "Cell") -> str:
    """A cell as text: a dash where there is nothing, five significant digits, means with their spread."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.5g}"
    return str(cell)


def _rich(table: "Table") -> RichTable:
    rich = RichTable(title=table.title, title_justify="left")
    for index, column in enumerate(table.columns):
        is_text = all(isinstance(row[index], str) for row in table.rows)
        rich.add_column(column, justify="left" if is_text else "right")
    for row in table.rows:
        rich.add_row(*(format_cell(cell) for cell in row))
    return rich
