"""Tables of experiments as HTML."""

import math
import re
from dataclasses import replace

from neuralpath.papers.experiments import Cell, Spread, Table
from neuralpath.papers.report.markup import prose, text

_PRINTED = re.compile(r"[-+]?\d[\d.,]*( ± [\d.]+)?( ?%)?$")

NOTHING = '<span class="nothing" title="nothing to show">&ndash;</span>'


def table_html(table: Table) -> str:
    """A table with its title and note; on narrow screens it scrolls inside its own frame.

    A column that is empty throughout, such as the papers' figure where they print none, is left out, but not before
    the first result is there.
    """
    table = _without_empty_columns(table)
    numeric = [all(_is_number(row[index]) for row in table.rows) for index in range(len(table.columns))]
    heads = "".join(
        f'<th scope="col"{_aligned(is_number)}>{prose(name)}</th>'
        for name, is_number in zip(table.columns, numeric, strict=True)
    )
    rows = "".join(f"<tr>{_row(row, numeric)}</tr>" for row in table.rows)
    if not table.rows:
        rows = f'<tr><td colspan="{len(table.columns)}" class="nothing">no finished run has a row here yet</td></tr>'
    note = f'<p class="note">{note}</p>' if (note := prose(table.note)) else ""
    return (
        f'<section class="shown table"><h3>{text(table.title)}</h3>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(table.title)}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{note}</section>"
    )


def cell_html(cell: Cell) -> str:
    """A cell: five significant digits, or a mean with its deviation and, smaller, the number of seeds."""
    if _is_nothing(cell):
        return NOTHING
    if isinstance(cell, Spread):
        mean, spread = map(_signed, cell.digits)
        deviation = f' <span class="deviation">± {spread}</span>' if spread else ""
        return f'{mean}{deviation} <span class="seeds" title="mean of {cell.n}">({cell.n})</span>'
    if isinstance(cell, float):
        return _signed(f"{cell:.5g}")
    return _signed(f"{cell}") if isinstance(cell, int) else text(cell)


def _without_empty_columns(table: Table) -> Table:
    if not any(isinstance(cell, float | Spread) for row in table.rows for cell in row):
        return table
    kept = [index for index in range(len(table.columns)) if not all(_is_nothing(row[index]) for row in table.rows)]
    rows = tuple(tuple(row[index] for index in kept) for row in table.rows)
    return replace(table, columns=tuple(table.columns[index] for index in kept), rows=rows)


def _is_nothing(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _row(row: tuple[Cell, ...], numeric: list[bool]) -> str:
    return "".join(
        f"<td{_aligned(is_number)}>{cell_html(cell)}</td>" for cell, is_number in zip(row, numeric, strict=True)
    )


def _is_number(cell: Cell) -> bool:
    """Also of a printed figure such as ``97.85 ± 0.09``, and of nothing."""
    return bool(_PRINTED.match(cell)) if isinstance(cell, str) else True


def _aligned(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _signed(digits: str) -> str:
    """With the true minus sign, which is as wide as a digit."""
    return digits.replace("-", "&minus;")
