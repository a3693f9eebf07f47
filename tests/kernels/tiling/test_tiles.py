"""Plans, budgets, and reused memory."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from neuralpath._memory import available_memory, format_memory, memory_budget, parse_memory
from neuralpath.kernels.path.contraction import Workspace
from neuralpath.kernels.tiling.plan import BudgetTooSmall, Cost, make_plan


@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(1, 100), st.integers(0, 50), st.integers(1, 64), st.booleans(),
    st.integers(150, 5000),
)  # fmt: skip
def test_tiles_cover_every_entry_once_within_the_budget(n1, n2, pair, example, best, symmetric, budget):
    n2 = n1 if symmetric else n2
    cost = Cost(pair, example, best)
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
