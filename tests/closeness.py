"""How close is close: errors are measured against the size of the summed terms, not chosen by trial."""

import torch
from torch import Tensor


def assert_kernel_close(actual: Tensor, oracle: Tensor, *, terms: int, scale: float | None = None) -> None:
    """Error at most 8 * terms * eps * scale; the scale of a kernel is its largest diagonal entry by default."""
    assert oracle.dtype == torch.float64
    assert actual.shape == oracle.shape
    scale = float(oracle.abs().max()) if scale is None else scale
    error = (actual.double() - oracle).abs().max().item()
    bound = 8 * terms * torch.finfo(actual.dtype).eps * scale
    assert error <= bound, f"error {error:.2e} exceeds {bound:.2e} ({terms=}, {scale=:.2e})"  # NaN fails
