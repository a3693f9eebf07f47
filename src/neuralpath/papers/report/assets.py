"""Style, scripts and plotly.js, as they go into the page."""

from base64 import b64encode
from importlib import import_module
from importlib.resources import files
from typing import Any

from neuralpath.papers.report.markup import json_script

MODULES = (
    "main.js", "theme.js", "figures.js", "layouts.js", "pictures.js", "base64.js",
    "explorer/network.js", "explorer/paths.js", "explorer/neighbors.js", "explorer/thumbnails.js",
    "explorer/image_list.js", "explorer/drawing_pad.js", "explorer/fitting.js", "explorer/gate_grids.js",
    "explorer/readout.js", "explorer/explorer.js",
)  # fmt: skip
PREFIX = "neuralpath/"


class MissingExtra(RuntimeError):
    """A package of the extra `report` is not installed."""


def read(name: str) -> str:
    """A file of the folder ``assets``."""
    return files("neuralpath.papers.report").joinpath("assets", name).read_text(encoding="utf-8")


def plotly() -> str:
    """The source of plotly.js, from the installed package.

    Raises: MissingExtra.
    """
    source: str = require("plotly.offline").get_plotlyjs()
    if "</script" in source.lower():
        raise ValueError("this version of plotly.js cannot stand in a page: it contains the end of a script element.")
    return source


def require(package: str) -> Any:
    """Import a package of the extra.

    Raises: MissingExtra, with the command that installs it.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        name = package.split(".")[0]
        if error.name is None or error.name.split(".")[0] != name:
            raise
        raise MissingExtra(
            f"the page needs the package {name}: pip install {name} (from a clone: pip install -c constraints.txt "
            '".[report]").'
        ) from error


def import_map() -> str:
    """The modules of the page under their names, each as a data address.

    Modules on disk cannot import each other in a page opened from disk; with an import map they can, unchanged, and
    nothing has to be built.
    """
    addresses = {f"{PREFIX}{name}": _address(read(name)) for name in MODULES}
    return json_script({"imports": addresses}).replace("application/json", "importmap", 1)


def _address(source: str) -> str:
    return f"data:text/javascript;charset=utf-8;base64,{b64encode(source.encode()).decode()}"
