"""The messages that Troubleshooting explains are messages of the library."""

import ast
import re
from pathlib import Path

import neuralpath
from docs.pages import DOCS

PACKAGE = Path(neuralpath.__file__).parent
ANYTHING = "…"


def _texts():
    """All texts of the package, with a sign for what is filled in."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else ANYTHING for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def _explained():
    text = (DOCS / "troubleshooting.md").read_text()
    for row in re.findall(r"^\| (`+.*) \| [^|]*\|$", text, re.MULTILINE):
        fence = re.match("`+", row)[0]
        yield row.removeprefix(fence).removesuffix(fence).strip()


def test_each_message_is_one_of_the_library():
    texts = [" ".join(text.split()) for text in _texts()]
    explained = list(_explained())
    assert len(explained) > 40
    unknown = [message for message in explained if not any(message.strip(ANYTHING + " ") in text for text in texts)]
    assert not unknown
