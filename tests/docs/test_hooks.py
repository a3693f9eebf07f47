"""What the manual's build does to formulas and docstrings."""

import doctest
import textwrap

import pytest
from mkdocs.exceptions import PluginError

from docs.pages import hook

formulas, docstrings = hook("formulas"), hook("docstrings")


def test_formulas_become_mathml():
    html = formulas.with_mathml(r'<p>is <span class="arithmatex">\(a &lt; b\)</span></p>', "page.md")
    assert "<math" in html
    assert 'alttext="a &lt; b"' in html
    assert r"\(" not in html
    block = formulas.with_mathml('<div class="arithmatex">\\[\n\\frac{1}{2}\n\\]</div>', "page.md")
    assert 'display="block"' in block
    assert "<mfrac>" in block
    primed = formulas.with_mathml('<span class="arithmatex">\\(G_l\'\\)</span>', "page.md")
    assert "<mrow><msub><mi>G</mi><mi>l</mi></msub><mo" in primed
    assert "msubsup" not in primed


def test_formulas_that_cannot_be_read_stop_the_build():
    with pytest.raises(PluginError, match=r"page\.md: a command of the formula .* is not known"):
        formulas.with_mathml(r'<span class="arithmatex">\(\nosuchcommand x\)</span>', "page.md")


def test_docstrings_become_markdown():
    source = textwrap.dedent("""\
        Sum of :math:`a_b` and ``second``, see :func:`other`.

        .. math:: a +
            b

        Cost: none.

        Args:
            first: what comes
                first.

        Raises:
            ValueError, TypeError: never.

        Example:
            >>> 1 + 1
            2
        """)
    assert docstrings.to_markdown(source).splitlines() == [
        "Sum of $a_b$ and ``second``, see `other`.", "", "$$", "a + b", "$$", "", "**Cost.** none.", "",
        "**Args**", "", "- `first`: what comes", "  first.", "", "**Raises**", "",
        "- `ValueError, TypeError`: never.", "", "**Example**", "", "```pycon", ">>> 1 + 1", "2", "```",
    ]  # fmt: skip


def test_labels_begin_paragraphs_and_formulas_may_go_over_two_lines():
    text = docstrings.to_markdown("Of :math:`a +\nb` things.\nReference: P1. Cost: O(n). Raises: ValueError.")
    assert text == "Of $a + b$ things.\n\n**Reference.** P1.\n\n**Cost.** O(n).\n\n**Raises.** ValueError."


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ('Theory, "Label energy".', "[Theory, Label energy][label-energy]."),
        (
            'P1; Theory, "Gates of one network, weights of another";',
            "P1; [Theory, Gates of one network, weights of another][gates-of-one-network-weights-of-another];",
        ),
    ],
)
def test_sections_of_the_theory_become_links(text, link):
    assert docstrings.to_markdown(text) == link


def test_tables_of_docstrings_become_tables():
    source = "====  =====\nname  value\n====  =====\na     1\nb c   2\n====  =====\nEnd."
    assert docstrings.to_markdown(source).splitlines() == [
        "| name | value |", "| --- | --- |", "| a | 1 |", "| b c | 2 |", "", "End.",
    ]  # fmt: skip


@pytest.mark.parametrize("module", [formulas, docstrings], ids=lambda module: module.__name__)
def test_examples_of_the_hooks(module):
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0
