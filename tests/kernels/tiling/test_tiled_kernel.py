"""Kernels put together from tiles, and results beyond memory."""

import pytest
import torch

from neuralpath.kernels.tiling import tiled_kernel
from neuralpath.kernels.tiling.plan import Cost, Tile, make_plan
from neuralpath.kernels.tiling.tiled_kernel import TiledKernel


def entries(rows: slice, columns: slice) -> torch.Tensor:
    i, j = (torch.arange(part.start, part.stop, dtype=torch.float64) for part in (rows, columns))
    return i[:, None] + j[None, :] ** 2


def kernel_of(n: int, *, pairs: int = 64, symmetric: bool = True, **options) -> TiledKernel:
    plan = make_plan(n, n, Cost(8, 0, pairs), 10**6, symmetric=symmetric, kept_bytes=100)

    def compute(tile):
        return entries(tile.rows, tile.columns)

    return TiledKernel("test kernel", plan, compute, torch.float64, torch.device("cpu"), **options)


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_matrix_is_made_of_its_tiles(symmetric):
    kernel = kernel_of(20, pairs=9, symmetric=symmetric)
    expected = entries(slice(0, 20), slice(0, 20))
    if symmetric:
        expected = torch.triu(expected) + torch.triu(expected, 1).T
    assert torch.equal(kernel.filled(), expected)
    assert torch.equal(kernel.times(3.0).filled(), 3 * expected)
    assert torch.equal(kernel.diagonal(), expected.diagonal())
    tile = Tile(slice(3, 18), slice(3, 18))
    assert torch.equal(kernel.assembled(tile), expected[3:18, 3:18])


def test_a_block_is_assembled_from_blocks_of_the_plan():
    computed = []
    kernel = kernel_of(20, pairs=16, symmetric=False)

    def compute(tile):
        computed.append(tile.shape)
        return entries(tile.rows, tile.columns)

    TiledKernel("test kernel", kernel.plan, compute, torch.float64, kernel.device).assembled(
        Tile(slice(4, 12), slice(8, 18))
    )
    assert computed == [(4, 4), (4, 4), (4, 2)] * 2


def test_a_result_beyond_memory_is_refused_before_the_computation(monkeypatch):
    monkeypatch.setattr(tiled_kernel, "available_memory", lambda: 50_000)
    kernel = kernel_of(100)
    with pytest.raises(MemoryError, match=r"100 x 100 .*78.1 KiB.*48.8 KiB"):
        kernel.filled()


@pytest.mark.parametrize("use", [TiledKernel.filled, TiledKernel.diagonal])
def test_entries_beyond_the_dtype_are_refused_with_the_hint(use):
    kernel = kernel_of(5, overflow_hint="use a larger dtype").times(1e308)
    with pytest.raises(OverflowError, match=r"test kernel .*float64: use a larger dtype"):
        use(kernel)
