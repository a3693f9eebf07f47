"""Gradients of a parameter written out, from the factors of its uses."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from neuralpath.tangent.gradients import Convolved, Gradients, Written


def common_rows(parts: Sequence[Gradients]) -> int:
    """Rows that the parameter can be taken apart in; uses that cut it into other rows than each other take it whole."""
    counts = {part.n_rows for part in parts if not isinstance(part, Written)}
    return counts.pop() if len(counts) == 1 else 1


def written_rows(parts: Sequence[Gradients], rows: slice, n_rows: int) -> Float[Tensor, "batch output entry"]:
    """The gradients of some rows of a parameter that has ``n_rows``, summed over its uses."""
    match parts:
        case (Convolved(fast=True) as only,):
            return only.fast_rows(rows.start, rows.stop)
    total = None
    for part in parts:
        if isinstance(part, Written):
            size = part.n_entries // n_rows
            term = part.values[:, :, rows.start * size : rows.stop * size]
        else:
            whole = n_rows == 1
            term = part.rows(0, part.n_rows) if whole else part.rows(rows.start, rows.stop)
        total = term if total is None else total + term
    assert total is not None
    return total
