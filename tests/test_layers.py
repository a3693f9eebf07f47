"""The architecture as a test: layers, doors, and no import cycle between folders; docs/architecture.md has the map."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import neuralpath

# From the bottom up. A folder or module imports from its own layer only itself.
LAYERS = [
    ["gates", "_checks", "_cluster", "_configs", "_files", "_hashing", "_progress", "_resources"],
    ["_loops"],
    ["graph"],
    ["kernels"],
    ["paths"],
    ["nets", "data"],
    ["gating", "estimators"],
    ["training"],
    ["papers.runs"],
    ["papers.experiments"],
    ["papers.claims"],
    ["papers.report"],
    ["papers.demo"],
    ["commands"],
    ["papers.commands"],
    ["cli"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
ROOT = Path(neuralpath.__file__).parent
MAY_USE_PAPERS = ("papers.", "commands", "cli")


def unit_of(module):
    """The folder or module of `LAYERS` that a dotted name below the package belongs to; None for what is no part."""
    parts = module.split(".")
    return next((name for name in (".".join(parts[:2]), parts[0]) if name in RANK), None)


def imports_of(source):
    """Every import of the package in a source text: the module's dotted name below it, and the name imported."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name.removeprefix("neuralpath."), None) for alias in node.names if _ours(alias.name))
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise AssertionError("relative import")
            if node.module == "neuralpath":
                yield from ((alias.name, None) for alias in node.names)
            elif _ours(node.module):
                yield from ((node.module.removeprefix("neuralpath."), alias.name) for alias in node.names)


def _ours(name):
    return name.startswith("neuralpath.")


def problems(sources):
    """What is wrong with the imports of a package, given as a source text for each module by its dotted name."""
    found, edges = [], {}
    for module, source in sources.items():
        unit = unit_of(module)
        if unit is None:
            found.append(f"{module} has no layer")
            continue
        for target, _ in imports_of(source):
            other = unit_of(target)
            edges.setdefault(_folder(module, sources), set()).add(_folder(target, sources))
            if other is None or other == unit:
                continue
            if RANK[other] >= RANK[unit]:
                found.append(f"{module} imports {target}, which is not below it")
            if other.startswith("papers.") and not unit.startswith(MAY_USE_PAPERS):
                found.append(f"{module} imports {target}: only papers, commands and cli know the reproduction")
            if target != other:
                found.append(f"{module} imports {target} past the door of {other}")
    return found + [f"import cycle between folders: {' -> '.join(cycle)}" for cycle in _cycles(edges)]


def _folder(module, sources):
    """The folder that a module is in, however deep; a module of the top is a folder of its own."""
    parts = module.split(".")
    is_module = module in sources
    return ".".join(parts[:-1]) if is_module and len(parts) > 1 else module


def _cycles(edges):
    """One cycle for each strongly connected set of folders; a folder below another may use the one above as its own."""

    def related(a, b):
        return a == b or a.startswith(b + ".") or b.startswith(a + ".")

    clean = {a: sorted(b for b in bs if not related(a, b)) for a, bs in edges.items()}
    cycles, done = [], set()

    def visit(node, path):
        if node in path:
            cycles.append([*path[path.index(node) :], node])
            return
        if node in done:
            return
        for other in clean.get(node, []):
            visit(other, [*path, node])
        done.add(node)

    for node in sorted(clean):
        visit(node, [])
    return cycles


def package_sources():
    """The source text of each module of the package, doors apart."""
    paths = [path for path in ROOT.rglob("*.py") if path.name != "__init__.py"]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text() for path in paths}


def test_layers_doors_and_cycles():
    sources = package_sources()
    assert len(sources) > 100
    assert problems(sources) == []


@pytest.mark.parametrize(
    ("module", "source", "message"),
    [
        ("graph.tracing", "from neuralpath.kernels import PathKernel", "not below"),
        ("graph.tracing", "import neuralpath.kernels", "not below"),
        ("gating.network", "def f():\n    from neuralpath.training import train", "not below"),
        ("nets.circular", "from neuralpath.data import load", "not below"),
        ("training.loop", "from neuralpath.papers.runs import Store", "know the reproduction"),
        ("paths.counts", "from neuralpath.graph.walking import walk", "past the door"),
        ("somewhere.new", "import torch", "no layer"),
    ],
)
def test_the_check_finds_what_is_broken(module, source, message):
    assert any(message in problem for problem in problems({module: source}))


def test_the_check_finds_a_cycle_between_folders():
    sources = {
        "kernels.path.a": "from neuralpath.kernels.limit.b import x",
        "kernels.limit.b": "from neuralpath.kernels.path.a import y",
    }
    assert problems(sources) == ["import cycle between folders: kernels.limit -> kernels.path -> kernels.limit"]


@pytest.mark.parametrize("folder", [path.parent for path in sorted(ROOT.rglob("__init__.pyi"))], ids=lambda p: p.name)
def test_no_exported_name_is_also_a_submodule(folder):
    # `import package.name` would replace what the door exports.
    names = {
        alias.name
        for node in ast.walk(ast.parse((folder / "__init__.pyi").read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    assert not names & {path.stem for path in folder.iterdir() if path.suffix in ("", ".py")}


def test_public_classes_have_one_name_each():
    places = {}
    for module, source in package_sources().items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def test_public_names_are_there_and_listed():
    for name in neuralpath.__all__:
        assert getattr(neuralpath, name) is not None
    assert set(neuralpath.__all__) <= set(dir(neuralpath))


def test_import_of_the_package_does_not_load_torch():
    code = "import sys, neuralpath; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
