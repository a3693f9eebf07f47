import pytest
import torch

from closeness import assert_kernel_close


@pytest.mark.parametrize("change", [1e-6, float("nan")])
def test_a_wrong_kernel_fails(change):
    oracle = torch.eye(3, dtype=torch.float64)
    wrong = oracle.clone()
    wrong[0, 1] = change
    with pytest.raises(AssertionError, match="exceeds"):
        assert_kernel_close(wrong, oracle, terms=10)


def test_rounding_passes_and_shapes_must_agree():
    oracle = torch.eye(3, dtype=torch.float64)
    assert_kernel_close(oracle * (1 + 1e-15), oracle, terms=10)
    with pytest.raises(AssertionError):
        assert_kernel_close(oracle[:2], oracle, terms=10)
