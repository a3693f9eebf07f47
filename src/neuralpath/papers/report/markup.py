"""Text, tables and hand-written analyses as HTML."""

import json
import math
import re
from dataclasses import replace
from html import escape
from typing import Any

from neuralpath.papers.experiments import Cell, Spread, Table


def text(value: object) -> str:
    """Text escaped for an element or an attribute."""
    return escape(str(value), quote=True)


_ALL_FINISHED = re.compile(r"\s*\b(\d+) of \1 runs are finished\.")
POWER = re.compile(r"\^(-?\w+|\([^()]*\))")  # an exponent in plain text: ``^-1``, ``^(d - 1)``
_TRANSPOSED = re.compile(r"\b([a-z])&#x27; (?=[A-Z(])")


def prose(words: str) -> str:
    """A note or a heading as HTML: ``H^-1`` with a raised exponent, ``y' H`` as a transposed vector."""
    # Each experiment says once, above its tables, that all runs are finished.
    escaped = _TRANSPOSED.sub(r"\1<sup>&top;</sup> ", text(_ALL_FINISHED.sub("", words).strip()))
    return POWER.sub(lambda match: f"<sup>{match[1].strip('()').replace('-', '&minus;')}</sup>", escaped)


def json_script(value: Any, attributes: str = "") -> str:
    """A value as JSON in a script element; nothing in it can end the element or open a comment."""
    body = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    body = body.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f'<script type="application/json"{attributes and " " + attributes}>{body}</script>'


def slug(words: str) -> str:
    """Words as the name of a file or an anchor."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


_PRINTED = re.compile(r"[-+]?\d[\d.,]*( ± [\d.]+)?( ?%)?$")  # a printed figure, such as ``97.85 ± 0.09``

NOTHING = '<span class="nothing" title="nothing to show">&ndash;</span>'


def table_html(table: Table) -> str:
    """A table with its title and note; on narrow screens it scrolls inside its own frame."""
    if any(isinstance(cell, float | Spread) for row in table.rows for cell in row):
        table = _without_empty_columns(table)  # such as the papers' figure, if they print none
    columns = range(len(table.columns))
    texts = [[cell for row in table.rows if isinstance(cell := row[index], str)] for index in columns]
    aligned = [' class="number"' if all(map(_PRINTED.match, texts[index])) else "" for index in columns]
    heads = "".join(f'<th scope="col"{aligned[index]}>{prose(table.columns[index])}</th>' for index in columns)
    cells = ("".join(f"<td{aligned[index]}>{cell_html(row[index])}</td>" for index in columns) for row in table.rows)
    rows = "".join(f"<tr>{row}</tr>" for row in cells)
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
    filled = [index for index in range(len(table.columns)) if not all(_is_nothing(row[index]) for row in table.rows)]
    rows = tuple(tuple(row[index] for index in filled) for row in table.rows)
    return replace(table, columns=tuple(table.columns[index] for index in filled), rows=rows)


def _is_nothing(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _signed(digits: str) -> str:
    """Digits with the typographic minus sign, which is as wide as a digit."""
    return digits.replace("-", "&minus;")


_INLINE = re.compile(r"`([^`]+)`|\*([^*]+)\*")
_INDENT = "    "


def analysis_html(words: str) -> str:
    """A hand-written analysis as HTML: Markdown paragraphs, tables and code, separated by blank lines."""
    return "".join(_block(block.splitlines()) for block in re.split(r"\n\s*\n", words.strip("\n")) if block.strip())


def _block(lines: list[str]) -> str:
    if all(line.startswith(_INDENT) for line in lines):
        code = "\n".join(line.removeprefix(_INDENT) for line in lines)
        return f"<pre>{text(code)}</pre>"
    if all(line.startswith("|") for line in lines):
        return _table([[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines])
    return f"<p>{_inline(' '.join(lines))}</p>"


def _table(rows: list[list[str]]) -> str:
    head, _, *body = rows  # the second line of a Markdown table only draws
    columns = "".join(f'<th scope="col">{_inline(cell)}</th>' for cell in head)
    cells = "".join(f"<tr>{''.join(f'<td>{_inline(cell)}</td>' for cell in row)}</tr>" for row in body)
    return f'<div class="scroll"><table><thead><tr>{columns}</tr></thead><tbody>{cells}</tbody></table></div>'


def _inline(words: str) -> str:
    """Escaped words with `code` and *emphasis* as elements; escaping leaves both marks alone."""
    return _INLINE.sub(lambda match: f"<code>{match[1]}</code>" if match[1] else f"<em>{match[2]}</em>", text(words))
