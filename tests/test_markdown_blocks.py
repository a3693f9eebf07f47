"""The runner of the pages' blocks finds what is wrong with a page."""

import os
import textwrap

import pytest

from markdown_blocks import Block, PageError, commands_of, read_blocks, run_page

FENCE = "```"


def page(text):
    return read_blocks(textwrap.dedent(text).replace("~~~", FENCE))


def test_blocks_are_read_with_language_line_title_and_mark():
    blocks = page("""\
        Text.

        ~~~python title="net.py"
        x = 1
        ~~~

        ~~~text
        1
        ~~~
        Between.
        <!-- not run: network -->
        ~~~bash
        pip install something
        ~~~
        """)
    assert blocks == [
        Block("python", "x = 1\n", 3, title="net.py"),
        Block("text", "1\n", 7, follows=True),
        Block("bash", "pip install something\n", 12, mark="network"),
    ]


def test_blocks_inside_lists_lose_their_indent():
    assert page("1. a\n\n    ~~~python\n    if True:\n        pass\n    ~~~\n")[0].text == "if True:\n    pass\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- not run: lazy -->\n~~~python\n~~~\n", "marked network or cluster or suite, not 'lazy'"),
        ("<!-- not run: suite -->\nwords\n~~~python\n~~~\n", "line 2: the mark 'suite' stands before no block"),
        ("<!-- not run: suite -->\n", "stands before no block"),
        ("~~~python\nx = 1\n", "line 1: the block has no end"),
    ],
)
def test_pages_that_cannot_be_read(text, message):
    with pytest.raises(PageError, match=message):
        page(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("~~~python\nprint(1)\n~~~\n~~~text\n2\n~~~\n", "line 4: the page shows\n2\nbut what it shows is\n1"),
        ("\n~~~python\n1 / 0\n~~~\n", "line 2: ZeroDivisionError"),
        ("~~~bash\nrm -r x\n~~~\n", "only `neuralpath` commands can be run, not 'rm -r x'"),
        ("~~~bash\nneuralpath papers show nowhere\n~~~\n", "ended with 1: neuralpath: there is no folder nowhere"),
        ("~~~ruby\nputs 1\n~~~\n", "no way is known to run a block of 'ruby'"),
    ],
)
def test_blocks_that_do_not_do_what_the_page_says(text, message, tmp_path):
    with pytest.raises(PageError, match=message):
        run_page(page(text), tmp_path)


def test_blocks_share_names_and_a_folder_and_marked_ones_are_left_out(tmp_path):
    before = os.getcwd()
    blocks = page("""\
        ~~~python title="kept.txt"
        hello
        ~~~
        ~~~python
        from pathlib import Path; x = Path("kept.txt").read_text()
        ~~~
        <!-- not run: cluster -->
        ~~~python
        raise RuntimeError
        ~~~
        ~~~python
        print(x, "and 12.3 s")
        ~~~
        ~~~text
        hello
         and ... s
        ~~~
        ~~~bash
        neuralpath --version  # a comment
        ~~~
        """)
    assert run_page(blocks, tmp_path) == 4
    assert os.getcwd() == before


def test_output_is_compared_only_where_it_follows_at_once(tmp_path):
    assert run_page(page("~~~python\nprint(1)\n~~~\nSomething else:\n~~~text\n2\n~~~\n"), tmp_path) == 1


def test_commands_are_joined_and_comments_dropped():
    block = Block("bash", "neuralpath papers run a \\\n  --out b  # why\n\n# only this\n", 1)
    assert commands_of(block) == ["neuralpath papers run a --out b"]
