"""Runs the code blocks of a Markdown page: what a reader can copy works, and prints what the page shows.

- A ``python`` block runs in the page's one namespace. With ``title="file.py"`` it is written to that file instead.
- A ``bash`` block is a list of `neuralpath` commands; each must succeed.
- A ``text`` block right behind either is what it prints; ``...`` stands for anything.
- ``<!-- not run: network -->`` before a block (or ``cluster``, ``suite``) says why it is not run.

The page's blocks share a working folder, which is the process's while they run.
"""

import contextlib
import doctest
import io
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from neuralpath.cli import main

MARKS = ("network", "cluster", "suite")
SHOWN_ONLY = ("text", "json", "")

_MARK = re.compile(r"<!-- not run: (.*?) -->")
_FENCE = re.compile(r"(?P<indent> *)(?P<fence>```+)(?P<info>.*)")


class PageError(AssertionError):
    """A block does not do what the page says; the message has the page and the line."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, where it begins, and what it is marked with."""

    language: str
    text: str
    line: int
    title: str = ""
    mark: str = ""
    follows: bool = False
    """Whether nothing but empty lines is between the block before and this one."""


def read_blocks(text: str) -> list[Block]:
    """All fenced blocks of a page, in order.

    Raises: PageError for a mark that is not known, that stands before no block, or a block without end.
    """
    blocks: list[Block] = []
    mark, follows = "", False
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        found = _FENCE.fullmatch(line)
        if found is None:
            marked = _MARK.fullmatch(line.strip())
            if mark and line.strip():
                raise PageError(f"line {number}: the mark {mark!r} stands before no block.")
            if marked is not None:
                mark = marked[1]
                if mark not in MARKS:
                    raise PageError(f"line {number}: a block is marked {' or '.join(MARKS)}, not {mark!r}.")
            follows = follows and not line.strip()
            continue
        content = list(_until_fence(lines, found["indent"], found["fence"], number))
        language, _, attributes = found["info"].strip().partition(" ")
        title = re.search(r'title="(.*?)"', attributes)
        blocks.append(Block(language, "\n".join(content) + "\n", number, title[1] if title else "", mark, follows))
        mark, follows = "", True
    if mark:
        raise PageError(f"the mark {mark!r} stands before no block.")
    return blocks


def _until_fence(lines: Iterator[tuple[int, str]], indent: str, fence: str, start: int) -> Iterator[str]:
    for _, line in lines:
        if line.strip() == fence:
            return
        yield line.removeprefix(indent)
    raise PageError(f"line {start}: the block has no end.")


def commands_of(block: Block) -> list[str]:
    """The commands of a ``bash`` block, continued lines joined, without comments."""
    lines = block.text.replace("\\\n", " ").splitlines()
    commands = (shlex.join(shlex.split(line, comments=True)) for line in lines)
    return [command for command in commands if command]


def run_page(blocks: Sequence[Block], folder: Path, *, not_ours: tuple[str, ...] = ()) -> int:
    """Run the blocks of a page in a folder and compare what they print; the number of blocks that ran.

    ``not_ours`` are beginnings of commands that are left out.
    Raises: PageError with the line of the block.
    """
    names: dict[str, object] = {"__name__": "__page__"}
    ran = 0
    with contextlib.chdir(folder):
        for block, follower in zip(blocks, [*blocks[1:], None], strict=True):
            if block.mark or block.language in SHOWN_ONLY:
                continue
            printed = _run(block, names, not_ours)
            ran += 1
            if follower is not None and follower.language == "text" and follower.follows:
                _compare(printed, follower)
    return ran


def _run(block: Block, names: dict[str, object], not_ours: tuple[str, ...]) -> str:
    if block.title:
        Path(block.title).write_text(block.text)
        return ""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if block.language == "python":
            try:
                exec(compile(block.text, f"block of line {block.line}", "exec"), names)
            except Exception as error:
                raise PageError(f"line {block.line}: {type(error).__name__}: {error}") from error
        elif block.language == "bash":
            for command in commands_of(block):
                if not command.startswith(not_ours or ("\0",)):
                    _run_command(command, block.line)
        else:
            raise PageError(f"line {block.line}: no way is known to run a block of {block.language!r}.")
    return printed.getvalue()


def _run_command(command: str, line: int) -> None:
    program, *arguments = shlex.split(command)
    if program != "neuralpath":
        raise PageError(f"line {line}: only `neuralpath` commands can be run, not {command!r}; mark the block.")
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        status = main(arguments)
    if status != 0:
        raise PageError(f"line {line}: {command!r} ended with {status}: {errors.getvalue().strip()}")


def _compare(printed: str, expected: Block) -> None:
    got, want = (f"{text.strip()}\n" for text in (_unpadded(printed), _unpadded(expected.text)))
    if not doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS):
        raise PageError(f"line {expected.line}: the page shows\n{want}but what it shows is\n{got}")


def _unpadded(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())
