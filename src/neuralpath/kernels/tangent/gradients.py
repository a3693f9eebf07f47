"""Per-example gradients of one parameter, kept in the factors that they are made of.

A layer's gradient is a sum of products of what went into the layer and what came back from the output. Kept as these
factors it takes little memory, and inner products of gradients are found without writing any gradient out, or by
writing out some rows of it at a time, whichever is cheaper.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from neuralpath.kernels.tangent import winograd
from neuralpath.kernels.tangent.geometry import Geometry


class _OfSignals:
    """What gradients made of output gradients and signals have in common."""

    __slots__ = ()
    delta: Tensor
    signal: Tensor

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return self.delta.shape[0]

    @property
    def n_outputs(self) -> int:
        """Number of outputs that are differentiated."""
        return self.delta.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Of the gradients."""
        return self.delta.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Outer(_OfSignals):
    r"""Gradients of a matrix, :math:`\sum_t \delta_t a_t^\top` over the positions t that it is applied at.

    ``transposed``: of the transposed matrix. ``bias``: the gradient of a bias, :math:`\sum_t \delta_t`, belongs to it.
    """

    delta: Float[Tensor, "batch output position d_out"]
    signal: Float[Tensor, "batch position d_in"]
    transposed: bool = False
    bias: bool = False

    @property
    def n_positions(self) -> int:
        """Positions that the matrix is applied at, over all of its uses."""
        return self.signal.shape[1]

    @property
    def n_entries(self) -> int:
        """Entries of the matrix."""
        return self.delta.shape[3] * self.signal.shape[2]

    @property
    def n_rows(self) -> int:
        """Rows of the matrix."""
        return self.signal.shape[2] if self.transposed else self.delta.shape[3]

    def rows(self, first: int, last: int) -> Float[Tensor, "batch output entry"]:
        """The gradients of some rows of the matrix, written out."""
        delta, signal = self.delta, self.signal[:, None]
        if self.transposed:
            return (signal[..., first:last].mT @ delta).flatten(2)
        return (delta[..., first:last].mT @ signal).flatten(2)


@dataclass(frozen=True, slots=True, eq=False)
class Convolved(_OfSignals):
    """Gradients of a convolution's weight."""

    delta: Float[Tensor, "batch output d_out *space"]
    signal: Float[Tensor, "batch channels *space_in"]
    geometry: Geometry

    @property
    def n_rows(self) -> int:
        """Groups of output channels where there are several, else output channels."""
        return self.geometry.groups if self.geometry.groups > 1 else self.delta.shape[2]

    @property
    def n_positions(self) -> int:
        """Places of the window."""
        return self.delta.shape[3:].numel()

    @property
    def group_shape(self) -> tuple[int, int]:
        """Rows and columns of one group's weight as a matrix."""
        groups = self.geometry.groups
        window = torch.Size(self.geometry.window).numel()
        return self.delta.shape[2] // groups, self.signal.shape[1] // groups * window

    @property
    def n_entries(self) -> int:
        """Entries of the weight."""
        return self.geometry.groups * self.group_shape[0] * self.group_shape[1]

    def rows(self, first: int, last: int) -> Float[Tensor, "batch output entry"]:
        """The gradients of some rows of the weight, written out.

        From the windows where these take no more memory than what came back: few channels in, as in a first layer.
        Else by torch's own weight gradient, example by example.
        """
        if self.geometry.groups == 1 and self.group_shape[1] <= self.group_shape[0]:
            (outer,) = self.outers()
            return outer.rows(first, last)
        g, groups = self.geometry, self.geometry.groups
        n, n_outputs, d_out = self.delta.shape[:3]
        if groups > 1:
            out, into = d_out // groups, self.signal.shape[1] // groups
            delta, signal = self.delta[:, :, first * out : last * out], self.signal[:, first * into : last * into]
            groups = last - first
        else:
            delta, signal = self.delta[:, :, first:last], self.signal
        weight = signal.new_empty(delta.shape[2], signal.shape[1] // groups, *g.window)
        rows = signal.new_empty(n, n_outputs, weight.numel())
        none = [0] * len(g.window)
        for i in range(n):
            for o in range(n_outputs):
                _, gradient, _ = torch.ops.aten.convolution_backward(
                    delta[i, o][None], signal[i : i + 1], weight, None, g.stride, g.padding, g.dilation, False, none,
                    groups, [False, True, False],
                )  # fmt: skip
                rows[i, o] = gradient.flatten()
        return rows

    @property
    def fast(self) -> bool:
        """Whether ``fast_rows`` serves, which takes fewer multiplications."""
        return winograd.serves(self.signal, self.delta.shape[2], self.geometry)

    def fast_rows(self, first: int, last: int) -> Float[Tensor, "batch output entry"]:
        """As ``rows``, in another order of entries: for a weight with one use, whose inner products do not mind."""
        return winograd.weight_gradients(self.signal, self.delta[:, :, first:last], self.geometry.padding)

    @property
    def writing_cost(self) -> float:
        """Multiplications for writing out an example's gradient by one output."""
        if self.fast:
            return winograd.weight_gradient_cost(self.signal, self.delta.shape[2], self.geometry)
        return self.n_positions * self.n_entries

    def outers(self) -> list[Outer]:
        """The same gradients as matrices over windows, one for each group of channels."""
        patches = self._patches()
        deltas = self.delta.flatten(3).mT.unflatten(3, (self.geometry.groups, -1))
        return [Outer(deltas[..., k, :], patches[:, k]) for k in range(self.geometry.groups)]

    def _patches(self) -> Float[Tensor, "batch group position d_in"]:
        """The entries that each place of the window sees, for each group of channels."""
        g = self.geometry
        windows = F.pad(self.signal, [size for size in reversed(g.padding) for _ in range(2)])
        for axis, (size, stride, dilation) in enumerate(zip(g.window, g.stride, g.dilation, strict=True), start=2):
            windows = windows.unfold(axis, (size - 1) * dilation + 1, stride)[..., ::dilation]
        space = len(g.window)
        grouped = windows.unflatten(1, (g.groups, -1)).movedim(2, 2 + space)
        return grouped.flatten(2 + space).flatten(2, 1 + space)


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """Gradients that are small enough to be written out: of biases, gains and shifts."""

    values: Float[Tensor, "batch output entry"]

    @property
    def n_examples(self) -> int:
        """Number of examples."""
        return self.values.shape[0]

    @property
    def n_outputs(self) -> int:
        """Number of outputs that are differentiated."""
        return self.values.shape[1]

    @property
    def n_entries(self) -> int:
        """Entries of the parameter."""
        return self.values.shape[2]

    @property
    def dtype(self) -> torch.dtype:
        """Of the gradients."""
        return self.values.dtype


Gradients = Outer | Convolved | Written
AnyGradients = TypeVar("AnyGradients", bound=Gradients)


def some_examples(gradients: AnyGradients, rows: slice) -> AnyGradients:
    """The gradients of some of the examples."""
    if isinstance(gradients, Written):
        return replace(gradients, values=gradients.values[rows])
    return replace(gradients, delta=gradients.delta[rows], signal=gradients.signal[rows])


def combined(gradients: AnyGradients, factors: Float[Tensor, " output"]) -> AnyGradients:
    """The gradients of one output in place of all: their sum, each times a factor."""
    values = gradients.values if isinstance(gradients, Written) else gradients.delta
    total = torch.tensordot(values, factors, dims=([1], [0])).unsqueeze(1)
    if isinstance(gradients, Written):
        return replace(gradients, values=total)
    return replace(gradients, delta=total)


def difference(one: AnyGradients, two: AnyGradients) -> AnyGradients:
    """Gradients of the difference of two outputs that pass the layer with the same signals."""
    if isinstance(one, Written):
        assert isinstance(two, Written)
        return replace(one, values=one.values - two.values)
    assert isinstance(two, type(one))
    return replace(one, delta=one.delta - two.delta)


def joined(parts: list[AnyGradients]) -> AnyGradients:
    """Gradients of further examples behind each other."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, Written):
        return replace(first, values=torch.cat([part.values for part in parts if isinstance(part, Written)]))
    others = [part for part in parts if isinstance(part, Outer | Convolved)]
    return replace(
        first, delta=torch.cat([part.delta for part in others]), signal=torch.cat([part.signal for part in others])
    )
