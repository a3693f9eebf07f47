"""Formulas of the pages become MathML while the site is built, so that a browser needs no script for them."""

import html
import re
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

# What pymdownx.arithmatex makes of $...$ and $$...$$ in its generic mode.
_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">(?P<open>\\[(\[])(?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
_SPACE = 'xmlns="http://www.w3.org/1998/Math/MathML"'
_PRIMES = ("\u2032", "\u2033")


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Called by mkdocs with the HTML of a page."""
    return with_mathml(content, page.file.src_uri)


def with_mathml(content: str, where: str) -> str:
    """The HTML with each formula as MathML.

    Raises: PluginError naming the page and the formula that cannot be read.
    """

    def replaced(found: re.Match[str]) -> str:
        tex = html.unescape(found["tex"]).strip()
        is_block = found["open"] == r"\["
        try:
            formula = convert(tex, display="block" if is_block else "inline")
        except Exception as error:  # the converter has no common error of its own
            raise PluginError(f"{where}: the formula {tex!r} cannot be read: {error!r}") from error
        if "\\" in re.sub(r"<annotation.*?</annotation>", "", formula):
            raise PluginError(f"{where}: a command of the formula {tex!r} is not known.")
        formula = with_flat_primes(formula)
        formula = formula.replace("<math ", f'<math alttext="{html.escape(tex, quote=True)}" ', 1)
        return f'<{found["tag"]} class="formula">{formula}</{found["tag"]}>'

    return _FORMULA.sub(replaced, content)


def with_flat_primes(formula: str) -> str:
    """The formula with primes beside their letter: as a raised script, browsers show them too small or too high.

    >>> with_flat_primes("<math><msup><mi>x</mi><mi>\u2032</mi></msup></math>")
    '<math><mrow><mi>x</mi><mo lspace="0" rspace="0">\u2032</mo></mrow></math>'
    """
    root = ElementTree.fromstring(formula.replace(_SPACE, ""))
    for element in list(root.iter()):
        if element.tag in ("msup", "msubsup") and element[-1].text in _PRIMES:
            *base, prime = list(element)
            element[:] = []
            if len(base) == 2:
                inner = ElementTree.SubElement(element, "msub")
                inner.extend(base)
            else:
                element.extend(base)
            ElementTree.SubElement(element, "mo", lspace="0", rspace="0").text = prime.text
            element.tag = "mrow"
    space = f" {_SPACE}" if _SPACE in formula else ""
    return ElementTree.tostring(root, encoding="unicode").replace("<math", f"<math{space}", 1)
