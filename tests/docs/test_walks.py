"""How many files of the package a call of each kernel passes, as docs/architecture.md says."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import neuralpath as npath

ROOT = Path(npath.__file__).parent


def files_passed(call):
    """The modules whose functions run during a call, compiled ones by the module that starts them."""
    call()  # compiles, traces and imports
    files = set()

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "nets"):
            files.add(str(path.relative_to(ROOT)))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return files


DENSE = npath.nets.FC(6, width=8, depth=3)
CONVOLUTIONS = nn.Sequential(
    nn.Conv2d(1, 4, 3, padding=1, bias=False),
    nn.ReLU(),
    nn.Conv2d(4, 4, 3, padding=1, bias=False),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(4, 2, bias=False),
)
ROWS, IMAGES = torch.randn(4, 6), torch.randn(4, 1, 6, 6)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("kernel", "model", "x", "most"),
    [
        (npath.path_kernel, DENSE, ROWS, 14),
        (npath.path_kernel, CONVOLUTIONS, IMAGES, 14),
        (npath.tangent_kernel, DENSE, ROWS, 14),
        (npath.tangent_kernel, CONVOLUTIONS, IMAGES, 14),
        (npath.limit_tangent_kernel, DENSE, ROWS, 14),
        (npath.limit_tangent_kernel, CONVOLUTIONS, IMAGES, 14),
    ],
    ids=lambda value: getattr(value, "__name__", None) or type(value).__name__,
)
def test_walks_are_short(kernel, model, x, most):
    network = model if kernel is npath.tangent_kernel else npath.trace(model, x[:1])
    files = files_passed(lambda: kernel(network, x))
    assert 5 < len(files) <= most, sorted(files)
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    walks = text[text.index("## The walk of a call") : text.index("## How to add something")]
    base = {"_checks.py", "_resources.py", "_progress.py"}
    assert {file for file in files - base if Path(file).name not in walks} == set()
