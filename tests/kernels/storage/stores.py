"""Small stored kernels for the tests: a network, inputs, and the files of a store."""

from pathlib import Path

import torch

import neuralpath as npath
from neuralpath import nets
from neuralpath.kernels import Kernel, StoredKernel

N = 70
BUDGET = 2000
"""Bytes with which the blocks of the path kernel of `network` on `inputs` are 8 x 8."""


def inputs(n: int = N, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))


def network(seed: int = 1) -> torch.nn.Module:
    return nets.FC(6, width=16, depth=3, generator=torch.Generator().manual_seed(seed))


def path_kernel(**settings) -> Kernel:
    return npath.PathKernel(network(), **settings)


def begin(folder: Path, kernel: Kernel | None = None, x1=None, x2=None, **options) -> StoredKernel:
    """Store a kernel in tiles of 16 rows: by default the path kernel, in 15 tiles of 4 blocks each."""
    kernel, x1 = kernel or path_kernel(), inputs() if x1 is None else x1
    default = BUDGET if isinstance(kernel, npath.PathKernel) and len(x1) == N and x2 is None else 10**8
    return kernel.store(folder, x1, x2, **{"memory": default, "threads": 1, "tile_side": 16, **options})


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a store with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tiles_of(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "c").glob("*/*") if path.suffix != ".part")
