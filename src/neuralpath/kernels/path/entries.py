"""Entries of the pair reading: the contribution of one source to the current units, for both inputs of a pair.

A source is a linear node, a bias node, or the known signal (the input and constants). Its channels are independent
random functions with one covariance, the *pair values*; gates, scales and pools after it are maps of its positions:

      source channel                                          current channel
    pair values K[i, i']  ---- left map L[c, o, i]   --->   covariance of unit (c, o) for the left input
     (positions i, i')    ---- right map L'[c, o', i'] -->   with unit (c, o') for the right input

                     sum over i, i' of  L[c, o, i] * K[i, i'] * L'[c, o', i']

K is one matrix for all channels of a source (or of a group of a grouped convolution), so it is stored once; the maps
are masks as long as possible, since a mask of hard gates can be counted as bits:

    Side(mask)             o == i      diagonal: gates and scales
    Side(mask, index)      i = index[c, o]    each position reads one source position: max pooling
    Side(dense)            any map     written out only if the others do not fit, e.g. after overlapping max pools
    Entry.axes             one matrix per axis, shared by channels and inputs: average pooling, selections

Pair values have the layout (order, batch1, batch2, y, y', x, x'): for each axis of space the positions of both inputs
are next to each other, so that a convolution, which moves both together, acts on neighboring dimensions. `order` is 0
for the value and 1 for its derivative by the variances.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from neuralpath.graph import incidence, nodes as n

PairValues = Float[Tensor, "order batch1 batch2 *positions"]
PairNumbers = Float[Tensor, "batch1 batch2"]
PairExponents = Int[Tensor, "batch1 batch2"]

SIGNAL = "signal"  # the source of everything that is not random: the input and added constants
NOTHING = -(2**20)  # exponent of a pair of zeros, below every other, so that it never sets the scale of a sum


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Pair values ``values * gain * 2**exponent`` beyond any floating-point range, with an exponent for each pair."""

    values: PairValues
    exponent: PairExponents  # applied exactly by the next reader, which saves a pass over the values
    magnitude: PairExponents  # binary magnitude of the largest of `values`
    gain: float = 1.0  # a factor of all values, such as a variance, which the next reader applies too

    @property
    def top(self) -> PairExponents:
        """Exponent at which the largest value of each pair lies between 1/2 and 1."""
        return self.exponent + self.magnitude

    def at(self, exponent: PairExponents) -> PairValues:
        """The values relative to another exponent."""
        return self.values * self.factor(exponent).reshape(1, *exponent.shape, *(1,) * (self.values.ndim - 3))

    def factor(self, exponent: PairExponents) -> PairNumbers:
        return power_of_two(self.exponent - exponent, self.values.dtype) * self.gain


def power_of_two(power: PairExponents, dtype: torch.dtype) -> PairNumbers:
    """2**power, exactly; 0 and infinity beyond the range."""
    return torch.ldexp(torch.ones_like(power, dtype=dtype), power)


def measured(values: PairValues, exponent: PairExponents, largest: PairNumbers | None = None) -> Scaled:
    """Values with their magnitude; ``largest`` is the largest absolute value of each pair, if it is known."""
    if largest is None:
        largest = values.abs().amax(0)
        largest = largest.flatten(2).amax(2) if largest.ndim > 2 else largest
    magnitude = torch.frexp(largest).exponent.to(torch.int64)
    return Scaled(values, torch.where(largest == 0, NOTHING, exponent), magnitude)


def total(parts: Sequence[Scaled]) -> Scaled:
    """The sum of pair values."""
    if len(parts) == 1:
        return parts[0]  # with its gain
    exponent = torch.stack([part.top for part in parts]).amax(0)
    return measured(reduce(torch.add, (part.at(exponent) for part in parts)), exponent)


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """The map of one batch from a source's positions to the current positions, in one of the forms of the drawing."""

    mask: Shaped[Tensor, "_batch channel position"] | None = None  # None: ones
    index: Int[Tensor, "_batch channel position"] | None = None
    dense: Float[Tensor, "_batch channel position source"] | None = None

    @property
    def is_diagonal(self) -> bool:
        """Whether the map is a factor for each position."""
        return self.index is None and self.dense is None

    def at_channels(self, channels: Int[Tensor, " _n"]) -> "Side":
        return Side(*(None if t is None else t[:, channels] for t in (self.mask, self.index, self.dense)))

    def times(self, factor: Shaped[Tensor, "_batch channel position"]) -> "Side":
        """The map followed by a factor at each unit."""
        if self.dense is not None:
            return replace(self, dense=self.dense * factor[..., None])
        return replace(self, mask=_product(self.mask, factor))


def _product(a: Tensor | None, b: Tensor) -> Tensor:
    """The product of two factors. The product of two hard gates stays boolean, so that it can be counted as bits."""
    if a is None:
        return b
    if not a.is_floating_point() and not b.is_floating_point():
        return a & b
    dtype = (a if a.is_floating_point() else b).dtype
    return a.to(dtype) * b.to(dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """The contribution of one source to the current units, through the map of each side and then ``axes``."""

    source: str
    at: Int[Tensor, " channel"]  # current channel of each of the entry's channels
    origin: Int[Tensor, " channel"]  # the source's channel that it reads
    sides: tuple[Side, Side]
    space: n.Shape  # positions before `axes`
    pairs: tuple[Scaled, ...] | None  # pair values of each group of channels; None: one number for all positions
    constant: tuple[float, ...] = (1.0,)  # that number, and its derivative
    group: Int[Tensor, " channel"] | None = None  # index into `pairs`; None: all in the first
    axes: n.Axes | None = None  # a map of positions that all channels and inputs share, applied last
    scales: tuple[str, ...] = ()  # scale nodes on the way from the source

    @property
    def out_space(self) -> n.Shape:
        """Sizes of the axes of the current positions."""
        return self.space if self.axes is None else tuple(matrix.shape[0] for matrix in self.axes)

    @property
    def is_known(self) -> bool:
        """Whether all positions of a channel are one random number (or none): maps then act on the mask."""
        return self.pairs is None

    @property
    def is_diagonal(self) -> bool:
        """Whether the maps before the axes are a factor for each position."""
        return all(side.is_diagonal for side in self.sides)

    def masks(self) -> tuple[Shaped[Tensor, "_batch1 channel position"], Shaped[Tensor, "_batch2 channel position"]]:
        """The masks of both sides with every channel and position written out."""
        return _full_mask(self.sides[0], self), _full_mask(self.sides[1], self)

    def at_channels(self, channels: Int[Tensor, " _n"]) -> "Entry":
        sides = _both(lambda side: side.at_channels(channels), self.sides)
        group = None if self.group is None else self.group[channels]
        return replace(self, at=self.at[channels], origin=self.origin[channels], sides=sides, group=group)

    def times(self, factors: tuple[Shaped[Tensor, "..."], Shaped[Tensor, "..."]]) -> "Entry":
        """Multiply by factors of shape (batch or 1, current channel, current position)."""
        entry = self
        if entry.axes is not None:
            owner = _owners(entry.axes)
            if owner is None:
                entry = entry.densified()
            else:  # each core position goes to one current position: the factor can act before the axes
                factors = (_pulled_back(factors[0], owner), _pulled_back(factors[1], owner))
        return replace(entry, sides=_both(lambda side, f: side.times(_for_entry(f, entry)), entry.sides, factors))

    def mapped(self, axes: n.Axes) -> "Entry":
        """Apply a map of positions that all channels share."""
        if self.is_known:
            sides = _both(lambda side: Side(_map_mask(side, self, axes)), self.sides)
            return replace(self, sides=sides, space=tuple(m.shape[0] for m in axes), axes=None)
        if self.axes is None:
            return replace(self, axes=axes)
        return replace(self, axes=tuple(new @ old for new, old in zip(axes, self.axes, strict=True)))

    def max_pooled(self, node: n.MaxPoolNode, chosen: tuple[Int[Tensor, "..."], Int[Tensor, "..."]]) -> "Entry":
        """Read, for each input and channel, the position that a max pool chose."""
        index = (chosen[0].flatten(2)[:, self.at], chosen[1].flatten(2)[:, self.at])
        space = node.shape[1:]
        if self.is_known:
            sides = _both(lambda side, i: Side(_gathered(side, i).mask), self.sides, index)
            return replace(self, sides=sides, space=space, axes=None)
        if node.disjoint and self.axes is None and self.is_diagonal:
            # Mask everything but the chosen positions; the sum over a window then has one term. Masks stay bits.
            nowhere = torch.zeros(1, 1, math.prod(self.space), dtype=torch.bool, device=index[0].device)
            masks = [nowhere.expand(*i.shape[:2], -1).scatter(2, i, True) for i in index]
            sides = _both(lambda side, mask: side.times(mask), self.sides, (masks[0], masks[1]))
            sums = tuple(incidence(table, size) for table, size in zip(node.tables, node.in_space, strict=True))
            return replace(self, sides=sides, axes=sums)
        entry = self.without_axes()
        return replace(entry, sides=_both(_gathered, entry.sides, index), space=space)

    def without_axes(self) -> "Entry":
        """The same entry with its axes as part of the sides' maps."""
        return self if self.axes is None else self.densified()

    def densified(self) -> "Entry":
        """The same entry with its map written out in full."""
        sides = _both(lambda side: Side(dense=_written_out(side, self)), self.sides)
        return replace(self, sides=sides, space=self.out_space, axes=None)

    def with_space(self, space: n.Shape) -> "Entry":
        """The entry under other axes of space, with the same positions in the same order."""
        if self.is_known:
            return replace(self, space=space)
        plain = self.without_axes()
        n_positions = math.prod(space)
        # The pair values keep their own axes, so the positions are read by index.
        in_order = torch.arange(n_positions).expand(1, len(self.at), n_positions)
        sides = _both(lambda side: Side(side.mask, in_order) if side.is_diagonal else side, plain.sides)
        return replace(plain, sides=sides, space=space)

    def as_units(self) -> "Entry":
        """The entry after flattening, every unit a channel of its own, in the order of a flattened tensor."""
        n_positions = math.prod(self.out_space)
        at = (self.at[:, None] * n_positions + torch.arange(n_positions)).reshape(-1)
        # Positions of one source channel share its weights: where two of them are added later, they have a covariance.
        origin = self.origin.repeat_interleave(n_positions)
        group = None if self.group is None else self.group.repeat_interleave(n_positions)
        plain = self.without_axes()
        sides = _both(lambda side: _side_of_units(side, plain), plain.sides)
        return replace(plain, at=at, origin=origin, group=group, sides=sides, space=())


def _both(change: Callable[..., Side], sides: tuple[Side, Side], *others: tuple[Any, Any]) -> tuple[Side, Side]:
    """Apply a change to both sides, each with its own element of the other arguments."""
    return change(sides[0], *(o[0] for o in others)), change(sides[1], *(o[1] for o in others))


def _for_entry(factor: Tensor, entry: Entry) -> Tensor:
    """A factor for the entry's channels and positions; the same tensor where nothing changes, to recognize it by."""
    n_positions = math.prod(entry.space)
    if factor.shape[2] != n_positions:
        factor = factor.expand(*factor.shape[:2], n_positions)
    everything = len(entry.at) == factor.shape[1] and bool((entry.at == torch.arange(factor.shape[1])).all())
    return factor if everything else factor[:, entry.at]


def _owners(axes: n.Axes) -> Int[Tensor, " core"] | None:
    """The current position that each core position goes to, or None if one goes to several; -1 for nowhere."""
    flat = torch.zeros(1, dtype=torch.int64)
    for matrix in axes:
        used = matrix != 0
        if bool((used.sum(0) > 1).any()):
            return None
        owner = torch.where(used.any(0), used.to(torch.int64).argmax(0), -1)
        flat = torch.where((flat[:, None] < 0) | (owner < 0), -1, flat[:, None] * matrix.shape[0] + owner).reshape(-1)
    return flat


def _pulled_back(factor: Tensor, owner: Tensor) -> Tensor:
    # A position that goes nowhere is multiplied by 0 in the axes.
    return factor if factor.shape[2] == 1 else factor[:, :, owner.clamp(min=0)]


def _full_mask(side: Side, entry: Entry) -> Shaped[Tensor, "_batch channel position"]:
    """The mask of a side with every channel and position written out; no mask is a mask of ones."""
    mask = torch.ones(1, len(entry.at), 1, dtype=torch.bool) if side.mask is None else side.mask
    return mask.expand(len(mask), len(entry.at), math.prod(entry.space))


def _map_mask(side: Side, entry: Entry, axes: n.Axes) -> Float[Tensor, "_batch channel position"]:
    mask = _full_mask(side, entry)
    mask = mask if mask.is_floating_point() else mask.to(axes[0].dtype)
    return n.average(mask.reshape(*mask.shape[:2], *entry.space), axes).flatten(2)


def _gathered(side: Side, index: Int[Tensor, "batch channel out"]) -> Side:
    """The map followed by reading one position for each output position."""
    batch, channels = index.shape[:2]
    if side.dense is not None:
        dense = side.dense.expand(batch, *side.dense.shape[1:])
        return Side(dense=dense.gather(2, index[..., None].expand(*index.shape, dense.shape[-1])))
    source = index if side.index is None else side.index.expand(batch, channels, -1).gather(2, index)
    if side.mask is None:
        return Side(None, source)
    full = side.mask.expand(batch, channels, max(side.mask.shape[2], int(index.max()) + 1))
    return Side(full.gather(2, index), source)


def _written_out(side: Side, entry: Entry) -> Float[Tensor, "batch channel position source"]:
    assert entry.pairs is not None  # known entries keep their map in the mask
    like = entry.pairs[0].values
    n_source = math.prod(like.shape[3::2])
    if side.dense is not None:
        dense = side.dense
    elif side.index is not None:
        dense = torch.nn.functional.one_hot(side.index, n_source).to(like.dtype)
    else:
        dense = torch.eye(n_source, dtype=like.dtype, device=like.device).expand(1, len(entry.at), -1, -1)
    if side.mask is not None:  # a dense map has its mask multiplied in
        dense = dense * _full_mask(side, entry).to(like.dtype)[..., None]
    if entry.axes is None:
        return dense
    return reduce(torch.kron, (axis.to(dense) for axis in entry.axes), torch.ones(1, 1).to(dense)) @ dense


def _side_of_units(side: Side, entry: Entry) -> Side:
    n_positions, n_channels = math.prod(entry.space), len(entry.at)

    def units(t: Tensor) -> Tensor:
        return t.expand(*t.shape[:2], n_positions).reshape(t.shape[0], n_channels * n_positions, 1)

    if side.dense is not None:
        dense = side.dense
        return Side(dense=dense.reshape(dense.shape[0], n_channels * n_positions, 1, dense.shape[-1]))
    mask = None if side.mask is None else units(side.mask)
    if entry.is_known:
        return Side(mask)
    index = torch.arange(n_positions).expand(1, n_channels, -1) if side.index is None else side.index
    return Side(mask, units(index))


def merged(entries: tuple[Entry, ...], other: Entry) -> tuple[Entry, ...]:
    """Add an entry to others. Maps of the same source and source channel are added; others are kept side by side."""
    result: list[Entry] = []
    rest: Entry | None = other
    for entry in entries:
        sums = [entry]
        if rest is not None and entry.source == rest.source:
            sums, rest = _add_common(entry, rest)
        result += sums
    return tuple(result) if rest is None else (*result, rest)


def _add_common(entry: Entry, other: Entry) -> tuple[list[Entry], Entry | None]:
    """The sum on common channels and the rest of this entry; and the rest of the other one, if any."""
    same_channel = entry.at[:, None] == other.at[None, :]
    if entry.source != SIGNAL:
        # Different channels of a linear node are independent, so their sum has no cross term.
        same_channel &= entry.origin[:, None] == other.origin[None, :]
    own, others = same_channel.nonzero(as_tuple=True)
    if len(own) == 0:
        return [entry], other
    alone, rest = ((~same_channel.any(dim)).nonzero()[:, 0] for dim in (1, 0))
    common = _sum(entry.at_channels(own), other.at_channels(others))
    sums = [common, entry.at_channels(alone)] if len(alone) else [common]
    return sums, other.at_channels(rest) if len(rest) else None


def _sum(a: Entry, b: Entry) -> Entry:
    """Two maps of the same source and channels, added."""
    if a.is_diagonal and b.is_diagonal and a.axes is None and b.axes is None:
        return replace(a, sides=_both(lambda s, t: Side(_mask_sum(s.mask, t.mask, a)), a.sides, b.sides))
    a, b = a.densified(), b.densified()
    return replace(a, sides=_both(lambda s, t: Side(dense=s.dense + t.dense), a.sides, b.sides))


def _mask_sum(a: Tensor | None, b: Tensor | None, entry: Entry) -> Tensor:
    floats = [t for t in (a, b) if t is not None and t.is_floating_point()]
    dtype = floats[0].dtype if floats else (torch.float64 if entry.pairs is None else entry.pairs[0].values.dtype)
    ones = torch.ones(1, len(entry.at), 1, dtype=dtype)
    return (ones if a is None else a.to(dtype)) + (ones if b is None else b.to(dtype))
