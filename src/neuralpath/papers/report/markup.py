"""Text and values inside HTML."""

import json
import re
from html import escape
from typing import Any


def text(value: object) -> str:
    """Text that can stand in an element or an attribute."""
    return escape(str(value), quote=True)


_ALL_FINISHED = re.compile(r"\s*\b(\d+) of \1 runs are finished\.")
POWER = re.compile(r"\^(-?\w+|\([^()]*\))")
"""An exponent as it is typed: ``^-1``, ``^(d - 1)``."""

_TRANSPOSED = re.compile(r"\b([a-z])&#x27; (?=[A-Z(])")


def prose(words: str) -> str:
    """A note or a heading with its formulas: ``H^-1`` with a raised exponent, ``y' H`` as a transposed vector.

    That all runs are finished is left out: each experiment says it once, above its tables.
    """
    escaped = _TRANSPOSED.sub(r"\1<sup>&top;</sup> ", text(_ALL_FINISHED.sub("", words).strip()))
    return POWER.sub(lambda found: f"<sup>{found[1].strip('()').replace('-', '&minus;')}</sup>", escaped)


def json_script(value: Any, attributes: str = "") -> str:
    """A value for scripts to read; nothing in it can end the element or open a comment."""
    body = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    body = body.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f'<script type="application/json"{attributes and " " + attributes}>{body}</script>'


def slug(words: str) -> str:
    """A name for a file or an anchor."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def plural(number: int, noun: str) -> str:
    """Such as ``1 run`` and ``2 runs``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
