"""Analyses of claims, which are written in Markdown, inside the page: paragraphs, tables, code, and nothing else."""

import re
from itertools import pairwise

from neuralpath.papers.report.markup import text

_INLINE = re.compile(r"`([^`]+)`|\*([^*]+)\*")
_INDENT = "    "


def analysis_html(words: str) -> str:
    """The text as elements; blocks are told apart by blank lines."""
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
    ends = [0, *(end for found in _INLINE.finditer(words) for end in found.span()), len(words)]
    pieces = [words[start:stop] for start, stop in pairwise(ends)]
    return "".join(_marked(piece) if index % 2 else text(piece) for index, piece in enumerate(pieces))


def _marked(piece: str) -> str:
    tag = "code" if piece.startswith("`") else "em"
    return f"<{tag}>{text(piece[1:-1])}</{tag}>"
