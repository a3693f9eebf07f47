"""The architecture as a test: a module imports only from its own layer or from layers below it."""

import ast
import subprocess
import sys
from pathlib import Path

import neuralpath

# From the bottom up; docs/architecture.md shows the same picture.
LAYERS = [
    ["gates", "_atomic", "_checks", "_precision", "bits", "tiles"],
    ["graph"],
    ["readings"],
    ["tangent", "diagnostics"],
    ["named_kernels", "stored_kernels"],
    ["theory"],
    ["nets", "data", "gating", "machines"],
    ["training"],
    ["runs"],
    ["experiments"],
    ["report"],
    ["demo"],
    ["commands"],
    ["cli"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
ROOT = Path(neuralpath.__file__).parent


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_layers_import_downwards_only():
    seen = 0
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts == ("__init__",):
            continue
        for name in _imports(path):
            if name.startswith("neuralpath.") and (target := name.split(".")[1]) in RANK:
                seen += 1
                assert RANK[target] <= RANK[parts[0]], f"{path.relative_to(ROOT)} imports {name}"
    assert seen > 50  # the walk has found the package


def test_public_names_are_there_and_listed():
    for name in neuralpath.__all__:
        assert getattr(neuralpath, name) is not None
    assert set(neuralpath.__all__) <= set(dir(neuralpath))


def test_import_of_the_package_does_not_load_torch():
    code = "import sys, neuralpath; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
