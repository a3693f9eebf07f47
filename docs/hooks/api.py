"""The API pages: every public name, found in the package's own lists, with its docstring."""

import ast
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

_PARTS = ("data", "estimators", "gating", "graph", "kernels", "nets", "papers.experiments", "paths", "training")

_PLACE = re.compile(r"<!-- public names of: (.*?) -->")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs with the text of a page: puts the names where a comment asks for them."""
    return with_names(markdown, page.file.src_uri)


def with_names(markdown: str, where: str) -> str:
    """The text with a directive for each public name of the modules that a comment gives.

    Raises: PluginError for a module that has none.
    """

    def directives(found: re.Match[str]) -> str:
        names = [name for module in found[1].split(", ") for name in names_of(module)]
        if not names:
            raise PluginError(f"{where}: the modules {found[1]} have no public name.")
        return "\n\n".join(f"::: {name}" for name in names)

    return _PLACE.sub(directives, markdown)


def names_of(module: str) -> list[str]:
    """The public names of a module of the package, as a user writes them, functions first."""
    return sorted(
        (name for name, home in public_names().items() if home == module or home.startswith(f"{module}.")),
        key=lambda name: (name.rpartition(".")[2][0].isupper(), name),
    )


def public_names() -> dict[str, str]:
    """Every public name, as a user writes it, and the module that it belongs to."""
    names = {f"neuralpath.{name}": _home(module, name) for name, module in _exports("").items() if module}
    top = {name.rpartition(".")[2] for name in names}
    for part in _PARTS:
        names |= {
            f"neuralpath.{part}.{name}": f"{part}.{home}" for name, home in _exports(part).items() if name not in top
        }
    return names


def _home(module: str, name: str) -> str:
    """The module below a folder that a name of the folder's door comes from."""
    inner = _exports(module).get(name) if (_package() / module / "__init__.pyi").is_file() else None
    return f"{module}.{inner}" if inner else module


def _exports(folder: str) -> dict[str, str]:
    """The public names that a folder's door exports, each with the module that has it; empty for a submodule."""
    text = (_package() / folder.replace(".", "/") / "__init__.pyi").read_text()
    public = text.split("# isort: split")[0]
    statements = [node for node in ast.parse(public).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in statements for alias in node.names}


def _package() -> Path:
    return Path(str(import_module("neuralpath").__file__)).parent


def names_on(pages: Iterable[str]) -> list[str]:
    """The public names that the comments of some pages ask for."""
    return [
        name for page in pages for found in _PLACE.finditer(page) for m in found[1].split(", ") for name in names_of(m)
    ]
