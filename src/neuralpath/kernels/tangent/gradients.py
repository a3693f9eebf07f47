r"""Per-example gradients of one parameter, in the form that its layer gives them.

A layer with the inputs :math:`a_t` (the *signal*) and the output gradients :math:`\delta_t` (the *delta*) at the
positions t has the weight gradient :math:`\sum_t \delta_t a_t^\top`. There are three forms:

- ``FactoredGradient``: a dense layer. Signal and delta are stored, the gradient is not.
- ``ConvolutionGradient``: a convolution. The same, with positions that are windows of an image.
- ``ExplicitGradient``: a bias, gain or shift. Its gradient is small and is stored as it is.

Factors take little memory. Inner products of gradients come from the factors directly, or from a few rows of the
gradient that are written out at a time, whichever is cheaper (``contraction.py``).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from neuralpath.kernels.tangent import winograd

Sizes = tuple[int, ...]  # one number for each spatial axis
Vectors = Float[Tensor, "_batch output entry"]
Uses = Sequence["LayerGradient"]
"""The gradients of a parameter's uses, which add up to its gradient."""
SameForm = TypeVar("SameForm", bound="LayerGradient")


@dataclass(frozen=True, slots=True)
class ConvolutionGeometry:
    """How a convolution moves its window; ``padding`` zeros are on both sides of each axis."""

    window: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int

    def uses_winograd(self, signal: Tensor, d_out: int) -> bool:
        """Whether ``winograd.py`` computes this convolution, and is expected to be faster than torch."""
        is_plain = self.window == (3, 3) and self.stride == self.dilation == (1, 1) and self.groups == 1
        return is_plain and winograd.is_faster(signal, d_out, self.padding)


@dataclass(frozen=True, slots=True, eq=False)
class LayerGradient(ABC):
    """Per-example gradients of some outputs by one parameter; a subclass for each form."""

    delta: Float[Tensor, "batch output ..."]
    signal: Tensor | None

    @property
    @abstractmethod
    def n_entries(self) -> int:
        """Entries of the parameter."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Rows of the parameter as a matrix: ``rows`` computes any range of them."""

    @abstractmethod
    def rows(self, first: int, last: int) -> Vectors:
        """The gradients of the rows from ``first`` to ``last``, written out."""

    def examples(self: SameForm, rows: slice) -> SameForm:
        """The gradients of some of the examples."""
        return replace(self, delta=self.delta[rows], signal=None if self.signal is None else self.signal[rows])

    def combined(self: SameForm, factors: Float[Tensor, " output"]) -> SameForm:
        """The gradient of a linear combination of the outputs, as that of one output."""
        return replace(self, delta=torch.tensordot(self.delta, factors, dims=([1], [0])).unsqueeze(1))

    def minus(self: SameForm, other: SameForm) -> SameForm:
        """The gradients of the difference of two outputs that pass the layer with the same signal."""
        return replace(self, delta=self.delta - other.delta)

    def joined(self: SameForm, others: Sequence[SameForm]) -> SameForm:
        """The gradients of this batch and of further batches as those of one batch."""
        signals = [part.signal for part in (self, *others) if part.signal is not None]
        delta = torch.cat([self.delta, *(part.delta for part in others)])
        return replace(self, delta=delta, signal=torch.cat(signals) if signals else None)


@dataclass(frozen=True, slots=True, eq=False)
class FactoredGradient(LayerGradient):
    r"""Gradients of a matrix, :math:`\sum_t \delta_t a_t^\top` over the positions t that it is applied at.

    The gradient of the layer's bias, :math:`\sum_t \delta_t`, may take part in inner products as one more column.
    """

    delta: Float[Tensor, "batch output position d_out"]
    signal: Float[Tensor, "batch position d_in"]
    transposed: bool = False  # the parameter is the transposed matrix
    bias: bool = False  # whether the bias is a column

    @property
    def n_positions(self) -> int:
        """Positions that the matrix is applied at, over all of its uses."""
        return self.signal.shape[1]

    @property
    def n_entries(self) -> int:
        return self.delta.shape[3] * self.signal.shape[2]

    @property
    def n_rows(self) -> int:
        return self.signal.shape[2] if self.transposed else self.delta.shape[3]

    def rows(self, first: int, last: int) -> Vectors:
        delta, signal = self.delta, self.signal[:, None]
        if self.transposed:
            return (signal[..., first:last].mT @ delta).flatten(2)
        return (delta[..., first:last].mT @ signal).flatten(2)


@dataclass(frozen=True, slots=True, eq=False)
class ConvolutionGradient(LayerGradient):
    """Gradients of a convolution's weight."""

    delta: Float[Tensor, "batch output d_out *space"]
    signal: Float[Tensor, "batch channels *space_in"]
    geometry: ConvolutionGeometry

    @property
    def n_rows(self) -> int:
        """Groups of output channels where there are several, else output channels."""
        return self.geometry.groups if self.geometry.groups > 1 else self.delta.shape[2]

    @property
    def n_positions(self) -> int:
        return self.delta.shape[3:].numel()

    @property
    def group_shape(self) -> tuple[int, int]:
        """Rows and columns of one group's weight as a matrix."""
        groups = self.geometry.groups
        return self.delta.shape[2] // groups, self.signal.shape[1] // groups * prod(self.geometry.window)

    @property
    def n_entries(self) -> int:
        return self.geometry.groups * self.group_shape[0] * self.group_shape[1]

    @property
    def uses_winograd(self) -> bool:
        """Whether ``winograd.weight_gradients`` is faster than ``rows``."""
        return self.geometry.uses_winograd(self.signal, self.delta.shape[2])

    @property
    def writing_cost(self) -> float:
        """Multiplications for writing out an example's gradient by one output."""
        if self.uses_winograd:
            return winograd.weight_gradient_cost(self.signal, self.delta.shape[2], self.geometry.padding)
        return self.n_positions * self.n_entries

    def rows(self, first: int, last: int) -> Vectors:
        g, groups = self.geometry, self.geometry.groups
        d_out, d_in = self.group_shape
        # A first layer has few input channels: its windows take no more memory than the deltas, and the rows are one
        # product with them. Otherwise torch computes the weight gradient, one example at a time.
        if groups == 1 and d_in <= d_out:
            (matrix,) = self.as_matrices()
            return matrix.rows(first, last)
        delta, signal = self.delta, self.signal
        if groups > 1:  # whole groups: a row of `n_rows` is a group with all of its channels
            channels = signal.shape[1] // groups
            signal = signal[:, first * channels : last * channels]
            first, last, groups = first * d_out, last * d_out, last - first
        delta = delta[:, :, first:last]
        weight = signal.new_empty(last - first, signal.shape[1] // groups, *g.window)
        rows = signal.new_empty(*delta.shape[:2], weight.numel())
        settings = None, g.stride, g.padding, g.dilation, False, [0] * len(g.window), groups
        for i, o in product(*map(range, delta.shape[:2])):
            _, gradient, _ = torch.ops.aten.convolution_backward(
                delta[i, o][None], signal[i : i + 1], weight, *settings, [False, True, False]
            )
            rows[i, o] = gradient.flatten()
        return rows

    def as_matrices(self) -> list[FactoredGradient]:
        """The same gradients as those of a matrix over windows, one for each group of channels.

        ``unfold`` turns each spatial axis into positions and appends an axis for the entries of the window::

            (batch, channels, H, W) -> (batch, channels, H', W', kh, kw)           views, nothing is copied
                                    -> (batch, group, H', W', channels, kh, kw)
                                    -> (batch, group, position, entry)             the copy
        """
        g = self.geometry
        windows = F.pad(self.signal, [size for size in reversed(g.padding) for _ in range(2)])
        for axis, (size, stride, dilation) in enumerate(zip(g.window, g.stride, g.dilation, strict=True), start=2):
            windows = windows.unfold(axis, (size - 1) * dilation + 1, stride)[..., ::dilation]
        space = len(g.window)
        windows = windows.unflatten(1, (g.groups, -1)).movedim(2, 2 + space).flatten(2 + space).flatten(2, 1 + space)
        deltas = self.delta.flatten(3).mT.unflatten(3, (g.groups, -1))
        return [FactoredGradient(deltas[..., k, :], windows[:, k]) for k in range(g.groups)]


@dataclass(frozen=True, slots=True, eq=False)
class ExplicitGradient(LayerGradient):
    """Gradients that are small enough to be stored: of biases, gains and shifts. Here ``delta`` is the gradient."""

    delta: Float[Tensor, "batch output entry"]
    signal: None = None

    @property
    def n_entries(self) -> int:
        return self.delta.shape[2]

    @property
    def n_rows(self) -> int:
        return self.n_entries

    def rows(self, first: int, last: int) -> Vectors:
        return self.delta[:, :, first:last]
