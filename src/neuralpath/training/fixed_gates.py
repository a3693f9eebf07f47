"""Gates that never change, computed once and kept as bits, so that training never runs the feature network again."""

import warnings
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped, UInt8
from torch import Tensor

from neuralpath._loops import WORD, n_words, pack
from neuralpath._memory import format_memory
from neuralpath.graph import Gates

Store = Shaped[Tensor, "example ..."]

_INT16_LARGEST = torch.iinfo(torch.int16).max
_SOME = 8
_FEW, _ROUNDED = 0.01, 1e-3  # share of a layer's gates that may differ, and by how much: rounding changes far less


class KeptGates:
    """Gates of all examples of a data set: hard ones as bits, positions of max pools and soft ones as numbers.

    A batch is unpacked to the dtype of the value network, since a product with floats is several times faster
    than a masked fill; the buffer that it is unpacked to is used again for the next batch, which is the time until
    when the gates of a batch may be used.

    Cost: a bit for each hard gate of each example (every layer rounded up to 64), 2 or 4 bytes for each output of
    a max pool; unpacking a batch of 32 of a network of 640 units takes about 10 microseconds.
    """

    def __init__(self, first: Gates, n_examples: int, dtype: torch.dtype) -> None:
        self._names = first.names
        self._n_examples = n_examples
        self._dtype = dtype
        self._shapes = [tuple(layer.shape[1:]) for layer in first.layers.values()]
        self._n_units = [layer[0].numel() for layer in first.layers.values()]
        self._device = first[0].device
        self._begins: dict[int, int] = {}  # first word of each hard layer in a row of bits
        row_words = 0
        for index, layer in enumerate(first.layers.values()):
            if layer.dtype == torch.bool:
                self._begins[index] = row_words
                row_words += n_words(self._n_units[index])
        self._row_bytes = row_words * (WORD // 8)
        self._number_dtypes = {
            index: _number_dtype(layer)
            for index, layer in enumerate(first.layers.values())
            if index not in self._begins
        }
        self._bits: Store
        self._numbers: dict[int, Store]
        self._buffer = torch.empty(0, self._row_bytes * 8, dtype=dtype, device=self._device)
        self._rooms: dict[int, tuple[Tensor, Gates]] = {}

    @property
    def n_bytes(self) -> int:
        """Memory that all examples take."""
        numbers = sum(self._n_units[i] * dtype.itemsize for i, dtype in self._number_dtypes.items())
        return self._n_examples * (self._row_bytes + numbers)

    def allocate(self) -> None:
        """Make room for all examples."""
        shape = (self._n_examples, self._row_bytes)
        self._bits = torch.zeros(shape, dtype=torch.uint8, device=self._device)
        self._numbers = {
            index: torch.zeros(self._n_examples, *self._shapes[index], dtype=dtype, device=self._device)
            for index, dtype in self._number_dtypes.items()
        }

    def write(self, begin: int, gates: Gates) -> None:
        """Keep the gates of the examples from ``begin`` on."""
        for index, layer in enumerate(gates.layers.values()):
            rows = slice(begin, begin + len(layer))
            if index in self._begins:
                words = torch.from_numpy(pack(layer.flatten(1).cpu()).astype("<u8", copy=False).view(np.uint8))
                first = self._begins[index] * (WORD // 8)
                self._bits[rows, first : first + words.shape[1]] = words.to(self._device)
                continue
            if self._numbers[index].dtype == torch.int16 and int(layer.max()) > _INT16_LARGEST:
                self._numbers[index] = self._numbers[index].int()  # the first examples did not reach so far
            self._numbers[index][rows] = layer.to(self._numbers[index].dtype)

    def batch(self, rows: Int64[Tensor, " row"] | slice) -> Gates:
        """The gates of some examples, for use until the next call."""
        packed = self._bits[rows] if isinstance(rows, slice) else self._bits.index_select(0, rows)
        values, hard = self._room(len(packed))
        self._unpack(packed, values)
        if not self._numbers:
            return hard
        layers = list(hard.layers.values())
        for index, numbers in self._numbers.items():
            chosen = numbers[rows]
            layers[index] = chosen if chosen.is_floating_point() else chosen.long()
        return Gates(dict(zip(self._names, layers, strict=True)))

    def _room(self, n_rows: int) -> tuple[Float[Tensor, "row bit"], Gates]:
        """The part of the buffer for so many rows, and the gates as views of it, made once for each number of rows."""
        if n_rows > len(self._buffer):
            self._buffer = self._buffer.new_empty(n_rows, self._row_bytes * 8)
            self._rooms.clear()
        if n_rows not in self._rooms:
            values = self._buffer[:n_rows]
            layers = [values[:, :0]] * len(self._shapes)
            for index, begin in self._begins.items():
                units = values[:, begin * WORD : begin * WORD + self._n_units[index]]
                layers[index] = units.view(n_rows, *self._shapes[index])
            self._rooms[n_rows] = values, Gates(dict(zip(self._names, layers, strict=True)))
        return self._rooms[n_rows]

    def _unpack(self, packed: UInt8[Tensor, "row byte"], values: Float[Tensor, "row bit"]) -> None:
        if self._device.type == "cpu":
            values.copy_(torch.from_numpy(np.unpackbits(packed.numpy(), axis=1, bitorder="little")))
        else:
            shifts = torch.arange(8, dtype=torch.uint8, device=self._device)
            values.copy_(((packed[:, :, None] >> shifts) & 1).flatten(1))


def keep_gates(
    compute: Callable[[Float[Tensor, "batch ..."]], Gates],
    images: Float[Tensor, "example ..."],
    *,
    block: int,
    budget: int | None,
    dtype: torch.dtype | None = None,
) -> KeptGates | None:
    """The gates of all images, computed in blocks; None if they would take more memory than a budget.

    Hard gates of a batch come as 0 and 1 of ``dtype``, by default that of the images.

    Blocks are copies, in memory that torch aligns: on other alignments a pre-activation near 0 may be rounded to the
    other side, and a run that goes on in another process would have other gates.
    """
    with torch.no_grad():
        first = compute(images[:block].clone())
        if not first.layers:
            return None
        kept = KeptGates(first, len(images), dtype or images.dtype)
        if budget is not None and kept.n_bytes > budget:
            return None
        kept.allocate()
        kept.write(0, first)
        for begin in range(block, len(images), block):
            kept.write(begin, compute(images[begin : begin + block].clone()))
    return kept


def depend_on_the_batch(compute: Callable[[Float[Tensor, "batch ..."]], Gates], images: Store) -> bool:
    """Whether the first example has other gates by itself than among some others, by more than rounding may change."""
    with torch.no_grad():
        several, alone = compute(images[:_SOME].clone()), compute(images[:1].clone())
    for layer, single in zip(several.layers.values(), alone.layers.values(), strict=True):
        first = layer[0].double()
        differs = (first - single[0].double()).abs() > _ROUNDED * first.abs().clamp(min=1)
        if float(differs.double().mean()) > _FEW:
            return True
    return False


def warn_recomputed(what: str, budget: int) -> None:
    """Say that gates do not fit and what that costs."""
    warnings.warn(
        f"the fixed gates of the {what} data take more than the memory budget of {format_memory(budget)}, so the "
        "feature network runs again for every batch; raise `gate_memory` if there is room.",
        stacklevel=2,
    )


def _number_dtype(layer: Shaped[Tensor, "batch ..."]) -> torch.dtype:
    if layer.is_floating_point():
        return layer.dtype
    return torch.int16 if int(layer.max()) <= _INT16_LARGEST else torch.int32
