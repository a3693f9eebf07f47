"""Windows along one axis: which input positions each output position of a convolution or a pool reads.

Every window operation here is separable, so it is described axis by axis: a table with one row for each
output position and one column for each place in the window, holding the input position that is read, or
``OUTSIDE``. The tables are small (positions of one axis, not of the image).
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

OUTSIDE = -1
"""Stands in a table where a window reaches over the edge and reads nothing."""

WindowTable = Int[Tensor, "_out _window"]


@dataclass(frozen=True)
class Window:
    """A sliding window along one axis."""

    size: int
    stride: int = 1
    dilation: int = 1
    before: int = 0  # zero positions in front of the axis
    after: int = 0  # and behind it

    def n_out(self, n_in: int, *, ceil: bool = False) -> int:
        """Number of output positions for ``n_in`` input positions, by torch's rule."""
        reach = self.dilation * (self.size - 1) + 1
        free = n_in + self.before + self.after - reach
        count = (math.ceil(free / self.stride) if ceil else free // self.stride) + 1
        # With ceil, a last window that would start in the padding behind the axis is dropped.
        if ceil and (count - 1) * self.stride >= n_in + self.before:
            count -= 1
        return count

    def table(self, n_in: int, *, ceil: bool = False) -> WindowTable:
        """The input position that each place of each window reads."""
        starts = torch.arange(self.n_out(n_in, ceil=ceil)) * self.stride - self.before
        table = starts[:, None] + torch.arange(self.size) * self.dilation
        return torch.where((table >= 0) & (table < n_in), table, OUTSIDE)


def adaptive_table(n_in: int, n_out: int) -> WindowTable:
    """Windows of torch's adaptive pooling; shorter windows are filled up with ``OUTSIDE``."""
    starts = [(i * n_in) // n_out for i in range(n_out)]
    ends = [-((-(i + 1) * n_in) // n_out) for i in range(n_out)]
    longest = max(end - start for start, end in zip(starts, ends, strict=True))
    rows = [
        [*range(start, end), *[OUTSIDE] * (longest - (end - start))] for start, end in zip(starts, ends, strict=True)
    ]
    return torch.tensor(rows)


def incidence(table: WindowTable, n_in: int) -> Float[Tensor, "_out _n_in"]:
    """The 0/1 matrix (counts, where a window reads a position twice) of a table, in float64."""
    matrix = torch.zeros(table.shape[0], n_in + 1, dtype=torch.float64)
    # OUTSIDE is -1, the extra last column, which is then dropped.
    rows = torch.arange(table.shape[0])[:, None].expand_as(table)
    matrix.index_put_((rows, table), torch.ones((), dtype=torch.float64), accumulate=True)
    return matrix[:, :n_in].contiguous()
