"""Small stored kernels for the tests: a network, inputs, and what the folder holds."""

from pathlib import Path

import torch

from neuralpath import nets
from neuralpath.kernels.storage.store import StoredKernel
from neuralpath.kernels.stored_kernels import store_kernel

N = 70
BUDGET = 10**8


def inputs(n: int = N, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))


def network(seed: int = 1) -> torch.nn.Module:
    return nets.FC(6, width=16, depth=3, generator=torch.Generator().manual_seed(seed))


def begin(folder: Path, **changes) -> StoredKernel:
    """The store that the tests are about, or one with some things changed."""
    given = {"name": "path", "model": network(), "x1": inputs(), "memory": BUDGET, "threads": 1, **changes}
    return store_kernel(folder, given.pop("name"), given.pop("model"), given.pop("x1"), given.pop("x2", None), **given)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a store with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tiles_of(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "c").glob("*/*") if path.suffix != ".part")
