"""Plans, budgets, reused memory, kernels put together from tiles, and results beyond memory."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from neuralpath._resources import available_memory, format_memory, memory_budget, parse_memory
from neuralpath.kernels import tiling
from neuralpath.kernels.path.contraction import Workspace
from neuralpath.kernels.tiling import BudgetTooSmall, Cost, Tile, TiledKernel, make_plan


@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.builds(Cost, st.integers(1, 100), st.integers(0, 50), st.integers(1, 64)),
    st.booleans(),
    st.integers(150, 5000),
)
def test_tiles_cover_every_entry_once_within_the_budget(sizes, cost, symmetric, budget):
    n1, n2 = (sizes[0], sizes[0]) if symmetric else sizes
    pair, example = cost.bytes_per_pair, cost.bytes_per_example
    if pair + 2 * example > budget:
        with pytest.raises(BudgetTooSmall):
            make_plan(n1, n2, cost, budget, symmetric=symmetric)
        return
    plan = make_plan(n1, n2, cost, budget, symmetric=symmetric)
    seen = torch.zeros(n1, n2, dtype=torch.int64)
    for tile in plan.tiles():
        rows, columns = tile.shape
        assert rows * columns * pair + (rows + columns) * example <= budget
        seen[tile.rows, tile.columns] += 1
        if symmetric and tile.rows != tile.columns:
            seen[tile.columns, tile.rows] += 1
    assert (seen == 1).all()
    assert plan.n_pairs == sum(tile.n_pairs(symmetric) for tile in plan.tiles())


def test_the_smallest_budget_works():
    cost = Cost(1000, 10, 100)
    with pytest.raises(BudgetTooSmall, match="memory=1020"):
        make_plan(5, 5, cost, 1019, symmetric=True)
    assert make_plan(5, 5, cost, 1020, symmetric=True).block1 == 1


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GiB", 8 * 2**30), ("1.5 mb", 1_500_000), ("100", 100), ("2k", 2000), (".5GB", 500_000_000), ("2.k", 2000)],
)
def test_sizes_of_memory(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["much", "8 TB", "", "1.2.3GB", "-4GB", ".", ". GB"])
def test_sizes_that_are_none(text):
    with pytest.raises(ValueError, match="a number with a unit, such as 8GiB"):
        parse_memory(text)


def test_default_budget_is_a_share_of_what_is_free():
    assert 0 < memory_budget() < available_memory() * 0.75
    assert format_memory(12) == "12 bytes"


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("memory", "error", "message"),
    [
        ("1GiB", TypeError, "`memory` must be a number of bytes, such as .* got a str; text such as '8GiB' is for the"),
        (True, TypeError, "got a bool"),
        ([1], TypeError, "got a list"),
        (0, ValueError, "`memory` must be a positive number of bytes, got 0"),
        (-1.0, ValueError, "positive number of bytes"),
        (float("nan"), ValueError, "positive number of bytes, got nan"),
        (float("inf"), ValueError, "positive number of bytes, got inf"),
    ],
)
def test_budgets_that_are_none(memory, error, message):
    with pytest.raises(error, match=message):
        memory_budget(memory)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("memory", [1024, 1024.0, np.int64(1024), np.float32(1024)])
def test_budgets_are_numbers_of_any_kind(memory):
    assert memory_budget(memory) == 1024


def test_a_workspace_reuses_memory_only_when_no_view_is_left():
    workspace = Workspace()
    first = workspace.empty((4, 8), torch.float32)
    address = first.data_ptr()
    view = first.reshape(-1)[3:]
    del first
    second = workspace.empty((4, 8), torch.float32)
    assert second.data_ptr() != address  # a view still uses it
    del view
    third = workspace.empty((2, 12), torch.float32)
    assert third.data_ptr() == address
    third.fill_(1.0)
    second.fill_(2.0)
    assert bool((third == 1.0).all())


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
    monkeypatch.setattr(tiling, "available_memory", lambda: 50_000)
    kernel = kernel_of(100)
    with pytest.raises(MemoryError, match=r"100 x 100 .*78.1 KiB.*48.8 KiB"):
        kernel.filled()


@pytest.mark.parametrize("use", [TiledKernel.filled, TiledKernel.diagonal])
def test_entries_beyond_the_dtype_are_refused_with_the_hint(use):
    kernel = kernel_of(5, overflow_hint="use a larger dtype").times(1e308)
    with pytest.raises(OverflowError, match=r"test kernel .*float64: use a larger dtype"):
        use(kernel)
