"""Docstrings as Markdown: formulas, examples, tables, and the sections with a name for each line."""

import ast
import re
from collections.abc import Iterator
from typing import Any

import griffe
from markdown.extensions.toc import slugify

_SECTION = re.compile(r"(Args|Raises|Returns|Example|Examples|Attributes):")
_FIELD = re.compile(r"    (?P<name>[\w*, ]+): (?P<text>.*)")
_ROLE = re.compile(r":(?:func|class|mod):`~?(.*?)`")
_RULE = re.compile(r"=+( +=+)+")
_MATH = re.compile(r":math:`(.*?)`", re.DOTALL)
# What begins a paragraph of its own, at the start of a line or behind a sentence.
_LABEL = re.compile(r"(?:^|(?<=[.;)]) )((?:Symbols|Reference|Assumes|Cost|Raises|Cost, Raises)(?: \(on use\))?): ")
# Docstrings name headings of the manual's Theory; here they become links.
_THEORY = re.compile(r'Theory, "(?P<heading>[^"]+)"')


class MarkdownDocstrings(griffe.Extension):
    """Turns each docstring into Markdown as it is read, and keeps annotations as they are written."""

    def on_function_instance(self, *, node: Any, func: griffe.Function, **_: Any) -> None:
        """Called by griffe for a function's source: shapes such as ``"batch *shape"`` are no expressions."""
        if not isinstance(node, ast.FunctionDef):
            return
        arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        for argument in arguments:
            if argument.annotation is not None:
                func.parameters[argument.arg].annotation = ast.unparse(argument.annotation)
        if node.returns is not None:
            func.returns = ast.unparse(node.returns)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(docstring: str) -> str:
    r"""A docstring of this package, written for `help`, as Markdown.

    >>> print(to_markdown("Sum.\n\n.. math:: a + b\n\nSymbols: :math:`a` is ``first``."))
    Sum.
    <BLANKLINE>
    $$
    a + b
    $$
    <BLANKLINE>
    **Symbols.** $a$ is ``first``.
    """
    joined = _MATH.sub(lambda found: f"${' '.join(found[1].split())}$", docstring)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_converted(joined.splitlines()))).strip()


def _converted(lines: list[str]) -> Iterator[str]:
    place = 0
    section = ""
    while place < len(lines):
        line = lines[place]
        stripped = line.strip()
        if stripped.startswith(".. math::"):
            end = _end_of_block(lines, place)
            tex = " ".join(part.strip() for part in [stripped.removeprefix(".. math::"), *lines[place + 1 : end]])
            yield from ("", "$$", tex.strip(), "$$", "")
            place = end
        elif stripped.startswith(">>>"):
            end = next((i for i in range(place, len(lines)) if not lines[i].strip()), len(lines))
            indent = len(line) - len(line.lstrip())
            yield from ("", "```pycon", *(part[indent:] for part in lines[place:end]), "```", "")
            place = end
        elif _RULE.fullmatch(stripped):
            end = _end_of_table(lines, place)
            yield from ("", *_table([part.strip() for part in lines[place:end]]), "")
            place = end
        elif _SECTION.fullmatch(line):
            section = stripped.removesuffix(":")
            yield from ("", f"**{section}**", "")
            place += 1
        elif section and (field := _FIELD.fullmatch(line)):
            yield f"- `{field['name']}`: {_inline(field['text'])}"
            place += 1
        else:
            if stripped and not line.startswith(" "):
                section = ""
            yield _inline(stripped if not section else f"  {stripped}".rstrip())
            place += 1


def _end_of_block(lines: list[str], start: int) -> int:
    """The line behind a directive's last: the next that is empty or not indented further than it."""
    depth = len(lines[start]) - len(lines[start].lstrip())
    for number in range(start + 1, len(lines)):
        text = lines[number]
        if not text.strip() or len(text) - len(text.lstrip()) <= depth:
            return number
    return len(lines)


def _end_of_table(lines: list[str], start: int) -> int:
    rules = [n for n in range(start, len(lines)) if _RULE.fullmatch(lines[n].strip())]
    return rules[2] + 1


def _table(lines: list[str]) -> Iterator[str]:
    """A table between rules of =, whose columns begin where those of the first rule do."""
    starts = [found.start() for found in re.finditer(r"=+", lines[0])]
    ends = [*starts[1:], None]

    def row(line: str) -> str:
        cells = (line[start:end].strip() for start, end in zip(starts, ends, strict=True))
        return f"| {' | '.join(cells)} |"

    yield row(lines[1])
    yield f"|{' --- |' * len(starts)}"
    yield from (row(line) for line in lines[3:-1])


def _inline(line: str) -> str:
    line = _LABEL.sub(lambda found: f"\n\n**{found[1]}.** ", line)
    line = _THEORY.sub(lambda found: f"[Theory, {found['heading']}][{slugify(found['heading'], '-')}]", line)
    return _ROLE.sub(r"`\1`", line)
