"""The pages of the manual, and its hooks as modules."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def hook(name: str) -> ModuleType:
    """A module of docs/hooks, which is no package: mkdocs loads its hooks by their files."""
    spec = importlib.util.spec_from_file_location(f"manual_hooks_{name}", DOCS / "hooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
