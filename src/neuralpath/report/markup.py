"""Text and values inside HTML."""

import json
import re
from html import escape
from typing import Any


def text(value: object) -> str:
    """Text that can stand in an element or an attribute."""
    return escape(str(value), quote=True)


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
