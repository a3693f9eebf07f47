"""Gates that training does not change: computed once for all examples and stored as packed bits.

Memory layout of the hard gates of all examples (`_bits`); every layer starts at a whole 64-bit word:

    example 0 | layer 0: bits 0 1 2 ... 11, padding to 64 | layer 1: bits 0 ... 69, padding to 128 | ...
    example 1 | ...

A batch is the selected rows of this table, unpacked to 0 and 1 in one buffer; the gates of each layer are a view of a
range of its columns. Positions of max pools and soft gates are numbers, stored in one tensor for each layer.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped, UInt8
from torch import Tensor

from neuralpath._loops import WORD, n_words, pack
from neuralpath.graph import Gates

ComputeGates = Callable[[Float[Tensor, "batch ..."]], Gates]

_INT16_LARGEST = torch.iinfo(torch.int16).max
_FEW, _ROUNDING = 0.01, 1e-3  # share of a layer's gates that may differ, and by how much: rounding changes far less


class PackedGates:
    """The gates of all examples of a data set.

    A batch is unpacked to the dtype of the value network, because a product with floats is several times faster than a
    masked fill. The buffer is reused, so the gates of a batch are valid until the next batch is taken.
    """

    def __init__(self, first: Gates, n_examples: int, dtype: torch.dtype) -> None:
        """Plan the layout from the gates of the first examples; `allocate` and `write` fill it."""
        self._n_examples = n_examples
        self._shapes = {name: tuple(layer.shape[1:]) for name, layer in first.layers.items()}
        self._device = first[0].device
        self._first_words: dict[str, int] = {}  # of each hard layer, in the row of an example
        self._number_dtypes: dict[str, torch.dtype] = {}  # of each other layer
        row_words = 0
        for name, layer in first.layers.items():
            if layer.dtype == torch.bool:
                self._first_words[name] = row_words
                row_words += n_words(self._n_units(name))
            elif layer.is_floating_point():
                self._number_dtypes[name] = layer.dtype
            else:
                self._number_dtypes[name] = torch.int16 if int(layer.max()) <= _INT16_LARGEST else torch.int32
        self._row_bytes = row_words * (WORD // 8)
        self._bits: Shaped[Tensor, "example byte"]
        self._numbers: dict[str, Shaped[Tensor, "example ..."]]
        self._buffer = torch.empty(0, self._row_bytes * 8, dtype=dtype, device=self._device)
        self._views: dict[int, tuple[Tensor, Gates]] = {}  # by number of rows

    def _n_units(self, name: str) -> int:
        return math.prod(self._shapes[name])

    @property
    def n_bytes(self) -> int:
        """Memory for all examples."""
        numbers = sum(self._n_units(name) * dtype.itemsize for name, dtype in self._number_dtypes.items())
        return self._n_examples * (self._row_bytes + numbers)

    def allocate(self) -> None:
        """Allocate the memory for all examples."""
        shape = (self._n_examples, self._row_bytes)
        self._bits = torch.zeros(shape, dtype=torch.uint8, device=self._device)
        self._numbers = {
            name: torch.zeros(self._n_examples, *self._shapes[name], dtype=dtype, device=self._device)
            for name, dtype in self._number_dtypes.items()
        }

    def write(self, start: int, gates: Gates) -> None:
        """Store the gates of the examples from number ``start`` on."""
        for name, layer in gates.layers.items():
            rows = slice(start, start + len(layer))
            if name in self._first_words:
                words = torch.from_numpy(pack(layer.flatten(1).cpu()).astype("<u8", copy=False).view(np.uint8))
                first = self._first_words[name] * (WORD // 8)
                self._bits[rows, first : first + words.shape[1]] = words.to(self._device)
                continue
            if self._numbers[name].dtype == torch.int16 and int(layer.max()) > _INT16_LARGEST:
                self._numbers[name] = self._numbers[name].int()  # the first examples had smaller positions
            self._numbers[name][rows] = layer.to(self._numbers[name].dtype)

    def batch(self, rows: Int64[Tensor, " row"] | slice) -> Gates:
        """The gates of some examples, valid until the next call."""
        packed = self._bits[rows] if isinstance(rows, slice) else self._bits.index_select(0, rows)
        values, hard = self._buffer_views(len(packed))
        is_cpu = packed.device.type == "cpu"
        bits = np.unpackbits(packed.numpy(), axis=1, bitorder="little") if is_cpu else unpack_bits(packed)
        values.copy_(torch.as_tensor(bits))
        if not self._numbers:
            return hard
        layers = dict(hard.layers)
        for name, numbers in self._numbers.items():
            chosen = numbers[rows]
            layers[name] = chosen if chosen.is_floating_point() else chosen.long()
        return Gates(layers)

    def _buffer_views(self, n_rows: int) -> tuple[Float[Tensor, "row bit"], Gates]:
        """The first rows of the buffer, and the hard gates as views of them, made once for each number of rows."""
        if n_rows > len(self._buffer):
            self._buffer = self._buffer.new_empty(n_rows, self._row_bytes * 8)
            self._views.clear()
        if n_rows not in self._views:
            values = self._buffer[:n_rows]
            layers = dict.fromkeys(self._shapes, values[:, :0])  # in the order of the network
            for name, first in self._first_words.items():
                units = values[:, first * WORD : first * WORD + self._n_units(name)]
                layers[name] = units.view(n_rows, *self._shapes[name])
            self._views[n_rows] = values, Gates(layers)
        return self._views[n_rows]


def pack_gates(
    compute: ComputeGates, images: Tensor, *, block: int, budget: int | None, dtype: torch.dtype | None = None
) -> PackedGates | None:
    """The gates of all images; None if they need more bytes than the budget, or there are none.

    Blocks are copies, in memory that torch aligns: on other alignments a pre-activation near 0 may be rounded to the
    other side, and a run that is resumed in another process would have other gates. ``dtype`` is that of the hard gates
    of a batch, by default that of the images.
    """
    with torch.no_grad():
        first = compute(images[:block].clone())
        if not first.layers:
            return None
        packed = PackedGates(first, len(images), dtype or images.dtype)
        if budget is not None and packed.n_bytes > budget:
            return None
        packed.allocate()
        packed.write(0, first)
        for start in range(block, len(images), block):
            packed.write(start, compute(images[start : start + block].clone()))
    return packed


def gates_depend_on_batch(compute: ComputeGates, images: Shaped[Tensor, "example ..."], n_examples: int = 8) -> bool:
    """Whether the first example has other gates alone than in a batch, by more than rounding can explain."""
    with torch.no_grad():
        several, alone = compute(images[:n_examples].clone()), compute(images[:1].clone())
    for layer, single in zip(several.layers.values(), alone.layers.values(), strict=True):
        first = layer[0].double()
        differs = (first - single[0].double()).abs() > _ROUNDING * first.abs().clamp(min=1)
        if float(differs.double().mean()) > _FEW:
            return True
    return False


def unpack_bits(packed: UInt8[Tensor, "row byte"]) -> UInt8[Tensor, "row bit"]:
    """The bits of each byte, lowest first, by operations of torch that every device has."""
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed[:, :, None] >> shifts) & 1).flatten(1)
